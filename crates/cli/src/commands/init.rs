//! `ringfence init`

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use super::Done;
use crate::args::{Args, Init};
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
    DirBuilder::new()
        .recursive(true)
        .create(&folder)
        .map_err(|e| Failure::user(format!("{}: {e}", folder.display())))?;
    write_new(&folder.join("ringfence.toml"), &text)?;
    let ignore = folder.join(".gitignore");
    if ignore.symlink_metadata().is_err() {
        write_new(&ignore, "ringfence.local.toml\n")?;
    }
    out::say(&format!("wrote {}; read it, then:", folder.join("ringfence.toml").display()));
    out::say("  next: ringfence lock && ringfence trust");
    Ok(ExitCode::SUCCESS)
}

fn write_new(file: &Path, text: &str) -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::user(format!("{}: {e}", file.display()));
    let mut open =
        OpenOptions::new().write(true).create_new(true).mode(0o644).open(file).map_err(failed)?;
    open.write_all(text.as_bytes()).map_err(failed)
}
