//! `ringfence init`

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use super::Done;
use crate::args::{Args, Init};
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out;

pub(crate) fn run(args: &Args, init: &Init) -> Done {
    let project = args
        .project
        .canonicalize()
        .map_err(|e| Failure::user(format!("{}: {e}", args.project.display())))?;
    let name = project.file_name().unwrap_or_default().to_string_lossy();
    let text = ringfence_bundle::first_manifest(&name);
    if init.print {
        out::data(text.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let folder = project.join(".ringfence");
    if folder.join("ringfence.toml").symlink_metadata().is_ok() {
        return Err(Failure::user(format!(
            "{} is there already",
            folder.join("ringfence.toml").display()
        ))
        .next("ringfence validate"));
    }
    // A folder that leads elsewhere would have these files written there.
    if folder.symlink_metadata().is_ok_and(|it| !it.is_dir()) {
        return Err(Failure::user(format!(
            "{} is there and is no folder; a symlink is not followed",
            folder.display()
        ))
        .next(format!("ls -ld {}", folder.display())));
    }
    let new = folder.symlink_metadata().is_err();
    DirBuilder::new()
        .recursive(true)
        .create(&folder)
        .map_err(|e| Failure::user(format!("{}: {e}", folder.display())))?;
    write_new(&folder.join("ringfence.toml"), &text).inspect_err(|_| {
        if new {
            // Only goes when it is empty, as it was made.
            let _ = std::fs::remove_dir(&folder);
        }
    })?;
    let ignore = folder.join(".gitignore");
    if ignore.symlink_metadata().is_err() {
        write_new(&ignore, "ringfence.local.toml\n")?;
    }
    out::say(&format!(
        "wrote {}; read it, then:",
        escaped(&folder.join("ringfence.toml").to_string_lossy())
    ));
    out::say("  next: ringfence lock && ringfence trust");
    Ok(ExitCode::SUCCESS)
}

fn write_new(file: &Path, text: &str) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::user(format!("{}: {e}", file.display()));
    let mut open =
        OpenOptions::new().write(true).create_new(true).mode(0o644).open(file).map_err(failed)?;
    open.write_all(text.as_bytes()).and_then(|()| open.sync_all()).map_err(|error| {
        // Half a file on a full disk would be in the way of the next attempt.
        let _ = std::fs::remove_file(file);
        failed(error)
    })
}
