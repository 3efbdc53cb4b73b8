//! One look at every entry of the project.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::Rules;
use crate::Error;

/// Entries looked at before the folder is refused as too large to protect.
const MAX_ENTRIES: usize = 2_000_000;

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Denied paths, unreadable ones and sockets.
    pub(super) masked: Vec<PathBuf>,
    /// `.git` files and folders, and bare repositories.
    pub(super) git: Vec<Git>,
    /// Existing paths that an adapter names, anywhere in the tree.
    pub(super) protected: Vec<PathBuf>,
}

/// A git directory, or a file that points to one.
#[derive(Debug)]
pub(super) struct Git {
    pub(super) path: PathBuf,
    pub(super) dir: bool,
}

pub(super) fn walk(rules: &Rules<'_>) -> Result<Found, Error> {
    let mut walk =
        Walk { rules, found: Found::default(), links: HashMap::new(), left: MAX_ENTRIES };
    for path in rules.literals {
        if let Ok(meta) = rules.project.join(path).symlink_metadata() {
            walk.mask(path, meta.file_type())?;
        }
    }
    let mut queue = vec![PathBuf::new()];
    while let Some(folder) = queue.pop() {
        walk.folder(&folder, &mut queue)?;
    }
    walk.hard_links()?;
    let mut found = walk.found;
    found.masked.sort();
    found.masked.dedup();
    Ok(found)
}

struct Walk<'a> {
    rules: &'a Rules<'a>,
    found: Found,
    /// Denied files with several names: by device and inode, how many names there are, and which were
    /// seen.
    links: HashMap<(u64, u64), (u64, BTreeSet<PathBuf>)>,
    left: usize,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Path, queue: &mut Vec<PathBuf>) -> Result<(), Error> {
        let names = self.entries(folder)?;
        if is_bare(&names) && !folder.ends_with(".git") {
            self.found.git.push(Git { path: folder.to_owned(), dir: true });
        }
        for entry in names {
            let path = folder.join(entry.file_name());
            let kind = entry.file_type().map_err(|e| self.io(&path, e))?;
            if path == Path::new(".ringfence") {
                continue;
            }
            if self.is_denied(&path) || !self.readable(&path) {
                self.mask(&path, kind)?;
                continue;
            }
            if kind.is_socket() {
                self.found.masked.push(path);
                continue;
            }
            if self.rules.protected.iter().any(|p| path.ends_with(&p.path)) {
                self.found.protected.push(path.clone());
            }
            if path.file_name() == Some(".git".as_ref()) {
                self.found.git.push(Git { path: path.clone(), dir: kind.is_dir() });
            }
            if kind.is_symlink() {
                self.linked(&path)?;
            }
            if kind.is_dir() && !path.ends_with(".git/objects") {
                queue.push(path);
            }
        }
        Ok(())
    }

    fn entries(&mut self, folder: &Path) -> Result<Vec<fs::DirEntry>, Error> {
        let full = self.rules.project.join(folder);
        let entries = match fs::read_dir(&full) {
            Ok(entries) => entries,
            // The agent cannot look into it either: it has no more rights than we.
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => return Ok(Vec::new()),
            Err(e) => return Err(self.io(folder, e)),
        };
        let entries: Vec<_> = entries.collect::<Result<_, _>>().map_err(|e| self.io(folder, e))?;
        self.left = self.left.checked_sub(entries.len()).ok_or_else(|| Error::Project {
            path: self.rules.project.to_owned(),
            reason: format!("has more than {MAX_ENTRIES} entries; run in a smaller folder"),
        })?;
        Ok(entries)
    }

    fn is_denied(&self, path: &Path) -> bool {
        let full = self.rules.project.join(path);
        (self.rules.denied)(&path.to_string_lossy(), &full.to_string_lossy())
    }

    /// Whether the read scopes cover it, or something below it.
    fn readable(&self, path: &Path) -> bool {
        self.rules.scopes.read_inside.as_ref().is_none_or(|scopes| {
            scopes.iter().any(|scope| path.starts_with(scope) || scope.starts_with(path))
        })
    }

    fn mask(&mut self, path: &Path, kind: fs::FileType) -> Result<(), Error> {
        if kind.is_symlink() {
            return self.mask_target(path);
        }
        self.found.masked.push(path.to_owned());
        let mut queue = vec![path.to_owned()];
        while let Some(path) = queue.pop() {
            let full = self.rules.project.join(&path);
            let meta = full.symlink_metadata().map_err(|e| self.io(&path, e))?;
            if meta.is_dir() {
                queue.extend(self.entries(&path)?.into_iter().map(|e| path.join(e.file_name())));
            } else if meta.is_file() && meta.nlink() > 1 {
                let key = (meta.dev(), meta.ino());
                let seen = self.links.entry(key).or_insert((meta.nlink(), BTreeSet::new()));
                // The same name may be met more than once, through symlinks.
                seen.1.insert(path);
            }
        }
        Ok(())
    }

    /// A denied symlink shows its target: the target is masked when it lies in the project, and is
    /// not there at all when it lies outside.
    fn mask_target(&mut self, path: &Path) -> Result<(), Error> {
        let Ok(target) = self.rules.project.join(path).canonicalize() else { return Ok(()) };
        match target.strip_prefix(self.rules.project) {
            Ok(inside) if inside.as_os_str().is_empty() => Err(Error::Project {
                path: self.rules.project.join(path),
                reason: "is denied, but is a link to the whole project".into(),
            }),
            Ok(inside) => {
                let kind = target.symlink_metadata().map_err(|e| self.io(inside, e))?.file_type();
                self.mask(inside, kind)
            }
            Err(_) => Ok(()),
        }
    }

    /// What lies below a symlink to a folder of the project has the names that the symlink gives it,
    /// too. Symlinks below it are not followed in turn.
    fn linked(&mut self, link: &Path) -> Result<(), Error> {
        if !self.rules.denied_below {
            return Ok(());
        }
        let Ok(target) = self.rules.project.join(link).canonicalize() else { return Ok(()) };
        let Ok(inside) = target.strip_prefix(self.rules.project) else { return Ok(()) };
        if !target.is_dir() {
            return Ok(());
        }
        let mut queue = vec![(link.to_owned(), inside.to_owned())];
        while let Some((named, real)) = queue.pop() {
            for entry in self.entries(&real)? {
                let (named, real) = (named.join(entry.file_name()), real.join(entry.file_name()));
                let kind = entry.file_type().map_err(|e| self.io(&real, e))?;
                if real == Path::new(".ringfence") {
                    continue;
                }
                if self.is_denied(&named) {
                    self.mask(&real, kind)?;
                } else if kind.is_dir() {
                    queue.push((named, real));
                }
            }
        }
        Ok(())
    }

    fn hard_links(&self) -> Result<(), Error> {
        for (links, seen) in self.links.values() {
            let masked = seen.len() as u64;
            if let Some(path) = seen.first().filter(|_| masked < *links) {
                return Err(Error::HardLink {
                    path: self.rules.project.join(path),
                    links: *links,
                    masked,
                });
            }
        }
        Ok(())
    }

    fn io(&self, path: &Path, source: std::io::Error) -> Error {
        Error::Io { path: self.rules.project.join(path), source }
    }
}

/// A folder that git would take for a repository of its own.
fn is_bare(entries: &[fs::DirEntry]) -> bool {
    ["HEAD", "objects", "refs"].iter().all(|name| entries.iter().any(|e| e.file_name() == *name))
}
