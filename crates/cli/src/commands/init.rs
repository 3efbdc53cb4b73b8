//! `ringfence init`

use std::process::ExitCode;

use ringfence_bundle::Error;

use super::Done;
use crate::args::{Args, Init};
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out;

pub(crate) fn run(args: &Args, init: &Init) -> Done {
    let here = args.here();
    let project =
        here.canonicalize().map_err(|e| Failure::user(format!("{}: {e}", here.display())))?;
    let name = project.file_name().unwrap_or_default().to_string_lossy();
    let text = ringfence_bundle::first_manifest(&name);
    if init.print {
        out::data(text.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let manifest = match ringfence_bundle::write_first(&project, &text) {
        Err(Error::Io { path, source }) if source.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(Failure::user(format!("{} is there already", path.display()))
                .next("ringfence validate"));
        }
        other => other?,
    };
    out::say(&format!("wrote {}; read it, then:", escaped(&manifest.to_string_lossy())));
    out::say("  next: ringfence lock && ringfence trust");
    Ok(ExitCode::SUCCESS)
}
