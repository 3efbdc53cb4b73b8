//! What a folder holds.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::FileType;

use super::{MAX_DEPTH, MAX_ENTRIES, ReadError, describe, look, open_checked, within};
use crate::{folding, text};

/// The files of a folder and of those below it, sorted by path. Anything that is neither a regular
/// file nor a folder refuses the whole, as does a name that cannot be shown or that another file
/// system takes for its neighbour.
pub(super) fn list(top: BorrowedFd<'_>) -> Result<Vec<String>, ReadError> {
    at_most(top, MAX_ENTRIES)
}

/// As [`list`], with another limit on files and folders.
pub(super) fn at_most(top: BorrowedFd<'_>, mut most: usize) -> Result<Vec<String>, ReadError> {
    let mut files = Vec::new();
    below(top, "", 0, &mut most, &mut files)?;
    files.sort_unstable();
    Ok(files)
}

fn below(
    dir: BorrowedFd<'_>,
    prefix: &str,
    depth: usize,
    room: &mut usize,
    files: &mut Vec<String>,
) -> Result<(), ReadError> {
    let refuse = |reason: &str| Err(ReadError::Refused(reason.to_owned()));
    if depth > MAX_DEPTH {
        return refuse("folders nested more than 32 deep");
    }
    let mut names = Vec::new();
    let mut reader = rustix::fs::Dir::read_from(dir).map_err(io::Error::from)?;
    while let Some(entry) = reader.read() {
        let entry = entry.map_err(io::Error::from)?;
        let Ok(name) = entry.file_name().to_str() else {
            return refuse("it holds a file whose name is not UTF-8");
        };
        if name == "." || name == ".." {
            continue;
        }
        let Some(less) = room.checked_sub(1) else {
            return refuse("it holds more than 100,000 files and folders");
        };
        *room = less;
        if let Some(flaw) = flaw(name) {
            return Err(within(&format!("{prefix}{name}"), ReadError::Refused(flaw.to_owned())));
        }
        names.push((name.to_owned(), entry.file_type()));
    }
    let all: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
    if let Some((one, other)) = folding::collision(&all) {
        let shown = |name: &str| text::shown(&format!("{prefix}{name}"));
        return Err(ReadError::Refused(format!(
            "`{}` and `{}` are one name on other file systems: one would replace the other",
            shown(one),
            shown(other)
        )));
    }
    for (name, told) in names {
        let path = format!("{prefix}{name}");
        let about = |error| within(&path, error);
        // Not every file system tells the kind with the name.
        let kind = match told {
            FileType::Unknown => FileType::from_raw_mode(look(dir, &name).map_err(about)?.st_mode),
            told => told,
        };
        match kind {
            FileType::RegularFile => files.push(path),
            FileType::Directory => {
                let (folder, _) = open_checked(dir, &name, FileType::Directory).map_err(about)?;
                below(folder.as_fd(), &format!("{path}/"), depth + 1, room, files)?;
            }
            other => return Err(about(ReadError::Refused(describe(other).to_owned()))),
        }
    }
    Ok(())
}

/// Why a name may not be in a pinned folder.
fn flaw(name: &str) -> Option<&'static str> {
    if name.chars().any(text::is_invisible) {
        return Some("the name holds a character that does not show");
    }
    // It moves with every git command, and holds what git runs.
    (folding::fold(name) == ".git")
        .then_some("a repository's own folder cannot be pinned; name the repository by `git`")
}
