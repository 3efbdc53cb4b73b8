//! Files and folders that stand in the project for the time of a run, so that there is something
//! to mount on; and their removal, also after a crash.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

use super::journal::{Entry, Journal};
use super::tree::Held;
use crate::error::{Error, Result, Step};
use crate::sys::FileIds;
use crate::{Missing, Mount, Rule};

/// The rules for a project, all of whose paths exist, and the placeholders made for that.
#[derive(Debug, Default)]
pub(crate) struct Ground {
    /// Rules in order, on paths that exist.
    pub(crate) rules: Vec<(PathBuf, Rule)>,
    /// Shared locks on what may be a placeholder, by path: who makes one asks here before
    /// removing it, so that no other run loses the mount that stands on it.
    locks: BTreeMap<PathBuf, OwnedFd>,
}

/// Bytes that a placeholder file may have.
const PLACEHOLDER_MAX: i64 = 4096;

/// How often the end of another run is waited for that is putting its placeholders away.
const TRIES: u32 = 20;

/// Makes what is missing, and says what is mounted where.
///
/// # Errors
/// [`Error::Spec`] for a path that leaves the project or has a symlink on the way;
/// [`Error::Step`] for one that should be there and is not.
pub(crate) fn prepare(
    project: &Held,
    mounts: &[Mount],
    owner: Option<(u32, u32)>,
    id: &str,
    journal: &mut Journal,
) -> Result<Ground> {
    for _ in 1..TRIES {
        match prepare_once(project, mounts, owner, id, journal, false) {
            Err(Error::Step { source, .. }) if source.raw_os_error() == Some(libc::EAGAIN) => {
                remove(None, journal);
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            other => return other,
        }
    }
    prepare_once(project, mounts, owner, id, journal, true)
}

/// The same, tried once. With `last`, a lock that stays is taken for somebody's who has nothing to
/// do with runs.
fn prepare_once(
    project: &Held,
    mounts: &[Mount],
    owner: Option<(u32, u32)>,
    id: &str,
    journal: &mut Journal,
    last: bool,
) -> Result<Ground> {
    let root = project.fd.as_fd();
    for mount in mounts {
        check_relative(&mount.path)?;
        if let Missing::File(bytes) = &mount.missing
            && bytes.len() > PLACEHOLDER_MAX as usize
        {
            return Err(Error::Spec(format!("{}: too long a placeholder", mount.path.display())));
        }
        if mount.missing == Missing::Keep {
            make_folders(root, &mount.path, owner)?;
        }
    }
    let mut ground = Ground { rules: Vec::new(), locks: BTreeMap::new() };
    let mut planned: Vec<Entry> = Vec::new();
    for mount in mounts {
        let place = match first_missing(root, &mount.path)? {
            None => mount.path.clone(),
            Some(place) => {
                if mount.missing == Missing::Present {
                    return Err(Errno::NOENT).step(format!("find {}", mount.path.display()));
                }
                match first_unplanned(&planned, &mount.path, place)? {
                    Some(place) => place,
                    None => continue,
                }
            }
        };
        if ground.covers(&planned, &place) {
            continue;
        }
        if first_missing(root, &place)?.is_some() {
            let bytes = match &mount.missing {
                Missing::File(bytes) if place == mount.path => Some(bytes.clone()),
                _ => None,
            };
            let temporary = temporary(&planned, &place, id);
            planned.push(Entry {
                temporary: temporary.into_os_string(),
                path: place.clone().into_os_string(),
                bytes,
                made: None,
            });
        }
        ground.rules.push((place, mount.rule));
    }
    if let Some(open) = mounts.iter().find(|mount| !ground.holds(mount)) {
        return Err(Error::Spec(format!("{}: no mount would hold it", open.path.display())));
    }
    if !planned.is_empty() {
        // What an earlier attempt could not put away stays written down.
        let first = journal.entries.placeholders.len();
        journal.entries.placeholders.extend(planned);
        journal.write()?;
        make_all(root, owner, first, journal)?;
    }
    // What was there already may be another run's placeholder.
    let held: Vec<PathBuf> = ground.rules.iter().map(|(place, _)| place.clone()).collect();
    for place in held {
        ground.lock(root, place, last)?;
    }
    Ok(ground)
}

/// The first component of a path, from `missing` on, that is not planned either. `None` when all of
/// it is.
fn first_unplanned(planned: &[Entry], path: &Path, missing: PathBuf) -> Result<Option<PathBuf>> {
    let mut place = missing;
    while let Some(entry) = planned.iter().find(|entry| Path::new(&entry.path) == place) {
        let Some(next) = path.strip_prefix(&place).ok().and_then(|rest| rest.components().next())
        else {
            return Ok(None);
        };
        if entry.bytes.is_some() {
            return Err(Error::Spec(format!(
                "{}: {} is to be a file",
                path.display(),
                place.display()
            )));
        }
        place.push(next);
    }
    Ok(Some(place))
}

/// Where a placeholder is made at first: in the folder where it will be, or within the placeholder
/// that will hold it.
fn temporary(planned: &[Entry], place: &Path, id: &str) -> PathBuf {
    let holder = place
        .parent()
        .and_then(|parent| planned.iter().find(|entry| Path::new(&entry.path) == parent));
    match holder {
        Some(holder) => Path::new(&holder.temporary).join(place.file_name().unwrap_or_default()),
        None => place.with_file_name(format!(".ringfence-{id}-{}", planned.len())),
    }
}

impl Ground {
    /// Whether the rules do what a mount asks for, at its path or above it.
    fn holds(&self, mount: &Mount) -> bool {
        let shut = |rule: &Rule| matches!(rule, Rule::ReadOnly | Rule::Masked);
        self.rules.iter().any(|(place, rule)| {
            *place == mount.path && *rule == mount.rule
                || shut(rule) && mount.path.starts_with(place) && !place.as_os_str().is_empty()
        })
    }

    /// Whether a path lies in a placeholder in which nothing can be made or seen.
    fn covers(&self, planned: &[Entry], path: &Path) -> bool {
        path.ancestors().skip(1).any(|parent| {
            planned.iter().any(|entry| Path::new(&entry.path) == parent)
                && self.rules.iter().any(|(place, rule)| {
                    place == parent && matches!(rule, Rule::ReadOnly | Rule::Masked)
                })
        })
    }

    fn lock(&mut self, root: BorrowedFd<'_>, place: PathBuf, last: bool) -> Result<()> {
        if self.locks.contains_key(&place) || place.as_os_str().is_empty() {
            return Ok(());
        }
        let step = || format!("lock {}", place.display());
        let seen = match open_beneath(root, &place, OFlags::PATH) {
            Ok(seen) => rustix::fs::fstat(&seen).step(step())?,
            // Its maker has just removed it.
            Err(Errno::NOENT) => return Err(Errno::AGAIN).step(step()),
            Err(error) => return Err(error).step(step()),
        };
        let kind = FileType::from_raw_mode(seen.st_mode);
        if !(kind.is_dir() || kind.is_file() && seen.st_size <= PLACEHOLDER_MAX) {
            return Ok(());
        }
        let fd = match open_beneath(root, &place, OFlags::RDONLY | OFlags::NONBLOCK) {
            Ok(fd) => fd,
            // Not ours to read: then it is no placeholder either.
            Err(Errno::ACCESS | Errno::PERM) => return Ok(()),
            Err(Errno::NOENT) => return Err(Errno::AGAIN).step(step()),
            Err(error) => return Err(error).step(step()),
        };
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {}
            // Its maker is removing it at this moment, or something else holds it.
            Err(Errno::WOULDBLOCK) if last => return Ok(()),
            Err(Errno::WOULDBLOCK) => {
                return Err(Errno::AGAIN).step(step());
            }
            // A file system without locks has no runs to tell apart.
            Err(_) => return Ok(()),
        }
        let (locked, there) = (identity(&fd), open_beneath(root, &place, OFlags::PATH));
        if there.ok().and_then(|fd| identity(&fd)) != locked {
            return Err(Errno::AGAIN).step(step());
        }
        self.locks.insert(place, fd);
        Ok(())
    }
}

/// Removes the placeholders that are still as they were made and that no other run stands on.
/// What another run stands on stays in the journal.
pub(crate) fn remove(ground: Option<&Ground>, journal: &mut Journal) {
    let Ok(project) = rustix::fs::open(
        Path::new(&journal.entries.project),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    ) else {
        journal.entries.placeholders.clear();
        return;
    };
    let mut kept = Vec::new();
    for entry in journal.entries.placeholders.drain(..).rev() {
        // A name of this run alone: whatever is there, we made.
        let _ = unlink(project.as_fd(), Path::new(&entry.temporary), entry.bytes.is_none());
        let lock = ground.and_then(|ground| ground.locks.get(Path::new(&entry.path)));
        let path = Path::new(&entry.path);
        let holds = kept.iter().any(|other: &Entry| Path::new(&other.path).starts_with(path));
        if holds || !remove_one(project.as_fd(), &entry, lock) {
            kept.push(entry);
        }
    }
    kept.reverse();
    journal.entries.placeholders = kept;
}

/// `false` when another run holds it.
fn remove_one(project: BorrowedFd<'_>, entry: &Entry, lock: Option<&OwnedFd>) -> bool {
    let path = Path::new(&entry.path);
    let Some(made) = entry.made else { return true };
    let Ok(mut file) =
        open_beneath(project, path, OFlags::RDONLY | OFlags::NONBLOCK).map(fs::File::from)
    else {
        return true;
    };
    if identity(file.as_fd()) != Some(made) {
        return true;
    }
    let handle = lock.map_or(file.as_fd(), AsFd::as_fd);
    if rustix::fs::flock(handle, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
    {
        return false;
    }
    if let Some(bytes) = &entry.bytes {
        let mut found = Vec::new();
        let limit = u64::try_from(bytes.len()).unwrap_or(u64::MAX).saturating_add(1);
        if (&mut file).take(limit).read_to_end(&mut found).is_err() || found != *bytes {
            return true;
        }
    }
    // A folder that is no longer empty is not removed: the kernel sees to that.
    let _ = unlink(project, path, entry.bytes.is_none());
    true
}

/// Makes all planned placeholders, from the `first` on, under temporary names, writes down what they
/// are, then moves them into place. One that somebody else made meanwhile counts as present.
///
/// # Errors
/// `EAGAIN` when somebody else made one that should hold others: try again.
fn make_all(
    root: BorrowedFd<'_>,
    owner: Option<(u32, u32)>,
    first: usize,
    journal: &mut Journal,
) -> Result<()> {
    for entry in &mut journal.entries.placeholders[first..] {
        let at = Path::new(&entry.temporary);
        entry.made = Some(make_one(root, at, entry.bytes.as_deref(), owner)?);
    }
    journal.write()?;
    let mut rewrite = false;
    for index in first..journal.entries.placeholders.len() {
        let (before, rest) = journal.entries.placeholders.split_at_mut(index);
        let Some((entry, after)) = rest.split_first_mut() else { break };
        let (temporary, path) = (Path::new(&entry.temporary), Path::new(&entry.path));
        if before[first..].iter().any(|holder| path.starts_with(&holder.path)) {
            // Came with the folder that holds it, or was made with it.
            continue;
        }
        let folder = parent(root, path)?;
        let (from, to) = (name(temporary)?, name(path)?);
        let held = || after.iter().filter(|other| Path::new(&other.path).starts_with(path));
        match rustix::fs::renameat_with(&folder, from, &folder, to, RenameFlags::NOREPLACE) {
            Ok(()) => continue,
            Err(Errno::EXIST) if held().next().is_some() => {
                return Err(Errno::AGAIN).step(format!("make {}", path.display()));
            }
            Err(Errno::EXIST) => {
                unlink(root, temporary, entry.bytes.is_none()).step("remove a placeholder")?;
                entry.made = None;
            }
            // Network file systems know no such rename: make it in place, exclusively.
            Err(Errno::INVAL | Errno::NOSYS) => {
                for other in held().collect::<Vec<_>>().into_iter().rev() {
                    unlink(root, Path::new(&other.temporary), other.bytes.is_none())
                        .step("remove a placeholder")?;
                }
                unlink(root, temporary, entry.bytes.is_none()).step("remove a placeholder")?;
                entry.made = Some(make_one(root, path, entry.bytes.as_deref(), owner)?);
                let path = path.to_path_buf();
                for other in after.iter_mut().filter(|o| Path::new(&o.path).starts_with(&path)) {
                    let place = Path::new(&other.path);
                    other.made = Some(make_one(root, place, other.bytes.as_deref(), owner)?);
                }
            }
            Err(error) => return Err(error).step(format!("make {}", path.display())),
        }
        rewrite = true;
    }
    if rewrite { journal.write() } else { Ok(()) }
}

fn make_one(
    root: BorrowedFd<'_>,
    path: &Path,
    bytes: Option<&[u8]>,
    owner: Option<(u32, u32)>,
) -> Result<(u64, u64)> {
    let step = || format!("make {}", path.display());
    let (folder, name) = (parent(root, path)?, name(path)?);
    let _ids = FileIds::of(owner).step(step())?;
    let fd = if let Some(bytes) = bytes {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(0o644);
        let fd = rustix::fs::openat(&folder, name, flags | OFlags::CLOEXEC, mode).step(step())?;
        let mut file = fs::File::from(fd);
        file.write_all(bytes).step(step())?;
        OwnedFd::from(file)
    } else {
        rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o755)).step(step())?;
        open_beneath(root, path, OFlags::RDONLY).step(step())?
    };
    identity(&fd).ok_or(Errno::STALE).step(step())
}

/// Makes the folders of a path that are missing; they stay.
fn make_folders(root: BorrowedFd<'_>, path: &Path, owner: Option<(u32, u32)>) -> Result<()> {
    while let Some(place) = first_missing(root, path)? {
        let (folder, name) = (parent(root, &place)?, name(&place)?);
        let _ids = FileIds::of(owner).step("take the owner's ids")?;
        match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error).step(format!("make {}", place.display())),
        }
    }
    Ok(())
}

/// The first component of a path that does not exist, as a path of its own.
fn first_missing(root: BorrowedFd<'_>, path: &Path) -> Result<Option<PathBuf>> {
    let mut place = PathBuf::new();
    let mut names = path.components().peekable();
    while let Some(component) = names.next() {
        place.push(component);
        match open_beneath(root, &place, OFlags::PATH) {
            Ok(fd) if names.peek().is_some() => {
                let stat = rustix::fs::fstat(&fd).step(format!("stat {}", place.display()))?;
                if !FileType::from_raw_mode(stat.st_mode).is_dir() {
                    return Err(Error::Spec(format!(
                        "{}: {} is not a folder, or is a symlink",
                        path.display(),
                        place.display()
                    )));
                }
            }
            Ok(_) => {}
            Err(Errno::NOENT) => return Ok(Some(place)),
            Err(error) => return Err(error).step(format!("open {}", place.display())),
        }
    }
    Ok(None)
}

fn check_relative(path: &Path) -> Result<()> {
    let fine = |c| matches!(c, Component::Normal(_) | Component::CurDir);
    if path.is_relative() && path.components().all(fine) {
        return Ok(());
    }
    Err(Error::Spec(format!("{}: not a path within the project", path.display())))
}

fn open_beneath(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    rustix::fs::openat2(
        root,
        path,
        flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
}

/// Opens a path of the project, following no symlink.
pub(crate) fn open(project: &Held, path: &Path) -> rustix::io::Result<OwnedFd> {
    open_beneath(project.fd.as_fd(), path, OFlags::PATH)
}

fn parent(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd> {
    let folder = path.parent().unwrap_or(Path::new("."));
    open_beneath(root, folder, OFlags::PATH | OFlags::DIRECTORY)
        .step(format!("open {}", folder.display()))
}

fn name(path: &Path) -> Result<OsString> {
    let none = || Error::Spec(format!("{}: not a path within the project", path.display()));
    path.file_name().map(OsString::from).ok_or_else(none)
}

fn unlink(root: BorrowedFd<'_>, path: &Path, folder: bool) -> rustix::io::Result<()> {
    let parent = open_beneath(
        root,
        path.parent().unwrap_or(Path::new(".")),
        OFlags::PATH | OFlags::DIRECTORY,
    )?;
    let flags = if folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    rustix::fs::unlinkat(&parent, path.file_name().unwrap_or_default(), flags)
}

fn identity(fd: impl AsFd) -> Option<(u64, u64)> {
    rustix::fs::fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino))
}
