//! Reading `machine.toml`, and refusing to where somebody else could have written it.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use ringfence_bundle::{Diagnostic, Place, Severity};
use rustix::fs::OFlags;

use crate::Error;

/// The longest `machine.toml`.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// The text of a file in `home`, `None` when there is none. A symlink is followed only to a target
/// within `home`. Checks are made on the descriptor that is read. Fails with [`Error::Machine`].
pub(crate) fn read(home: &Path, path: &Path) -> Result<Option<String>, Error> {
    let fail = |message: String, help: &str, next: String| {
        let at = Place { file: path.into(), line: 1, column: 1, text: String::new(), width: 1 };
        Error::Machine(vec![Diagnostic {
            severity: Severity::Error,
            rule: "machine-file",
            message,
            at: Some(at),
            help: Some(help.to_owned()),
            next: Some(next),
        }])
    };
    let list = format!("ls -l {}", path.display());
    let io = |error: std::io::Error| {
        let help = "nothing runs while the machine's policy cannot be read";
        fail(format!("cannot read machine.toml: {error}"), help, list.clone())
    };
    // Whoever can write the folder can put another file there, or take this one away.
    match File::open(home).and_then(|folder| Ok(rustix::fs::fstat(folder)?)) {
        Ok(stat) => check_folder(&stat).map_err(|reason| {
            let help = "whoever can write it can change every rule of the machine";
            fail(reason, help, format!("ls -ld {}", home.display()))
        })?,
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(io(error)),
    }
    let link = match path.symlink_metadata() {
        Ok(metadata) => metadata.file_type().is_symlink(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    let target = if link {
        let target = path.canonicalize().map_err(io)?;
        if !target.starts_with(home.canonicalize().map_err(io)?) {
            let message = "machine.toml is a symlink that leads out of its folder".to_owned();
            return Err(fail(message, "put the file itself there", list));
        }
        target
    } else {
        path.to_owned()
    };
    // NONBLOCK so that a pipe put there does not hold us up; it means nothing for a file.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let mut options = File::options();
    let file = options.read(true).custom_flags(flags.cast_signed()).open(target).map_err(io)?;
    let metadata = file.metadata().map_err(io)?;
    if !metadata.is_file() {
        let message = "machine.toml is not a regular file".to_owned();
        return Err(fail(message, "expected a text file", list));
    }
    let me = rustix::process::geteuid().as_raw();
    if metadata.uid() != me && metadata.uid() != 0 {
        let message = format!("machine.toml belongs to user {}, who can change it", metadata.uid());
        let help = "whoever can write it can widen every rule in it";
        return Err(fail(message, help, list));
    }
    if metadata.mode() & 0o022 != 0 {
        let message = format!(
            "machine.toml may be written by others than its owner (mode {:03o})",
            metadata.mode() & 0o777
        );
        let help = "whoever can write it can widen every rule in it";
        return Err(fail(message, help, format!("chmod go-w {}", path.display())));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("machine.toml is larger than {MAX_BYTES} bytes");
        return Err(fail(message, "expected a policy, not a data file", list));
    }
    String::from_utf8(bytes).map(Some).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        fail(format!("machine.toml is not UTF-8 at byte {at}"), "save it as UTF-8", list)
    })
}

/// Whether the folder of the machine's state is its owner's alone to write. Gives what is wrong.
pub(crate) fn check_folder(stat: &rustix::fs::Stat) -> Result<(), String> {
    let me = rustix::process::geteuid().as_raw();
    if stat.st_uid != me && stat.st_uid != 0 {
        return Err(format!("the folder of machine.toml belongs to user {}", stat.st_uid));
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(format!(
            "the folder of machine.toml may be written by others than its owner (mode {:03o})",
            stat.st_mode & 0o777
        ));
    }
    Ok(())
}
