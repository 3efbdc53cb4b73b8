//! The root file system: an empty tmpfs, filled read-only from an allow-list.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags,
};

use super::{devices, etc, rules};
use crate::error::{Error, Result, Step};
use crate::ground::tree::clone_tree;
use crate::hints;
use crate::inside::wire::{Blueprint, Tree};
use crate::sys::{Attributes, mount_setattr};

/// HOME inside.
pub(crate) const HOME: &str = "/home/agent";

/// Bytes that one inode of the scratch file system should have at least.
const BYTES_PER_INODE: u64 = 4096;

/// Attributes of everything that comes from the host.
const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;

/// Top-level entries taken from the host as they are: a folder, or a symlink into `/usr`.
const SYSTEM: [&str; 8] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec"];

/// Folders in `/usr` where daemons of the host may keep sockets.
const SOCKET_FOLDERS: [&str; 4] = ["usr/var", "usr/run", "usr/local/var", "usr/local/run"];

/// Parts of the host that no tree may be mounted over or come from.
const RESERVED: [&str; 3] = ["/proc", "/sys", "/dev"];

/// What stands when the root is built.
#[derive(Debug)]
pub(crate) struct Built {
    /// Mounts of the project that may be written.
    pub(crate) writable: Vec<OwnedFd>,
}

/// The root while it is built.
#[derive(Debug)]
pub(super) struct Root {
    fd: OwnedFd,
    /// An empty file that nobody can open.
    pub(super) mask_file: OwnedFd,
    /// An empty folder that nobody can open.
    pub(super) mask_folder: OwnedFd,
}

/// Builds it and makes it the root of this process.
///
/// # Errors
/// [`Error::Step`], naming what could not be mounted.
pub(crate) fn build(
    blueprint: &Blueprint,
    passed: &mut impl Iterator<Item = OwnedFd>,
) -> Result<Built> {
    check_places(blueprint)?;
    // Nothing that the host mounts from now on appears here, and the other way round.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).step_hint("make mounts private", hints::mounts)?;
    let root = Root::new(blueprint.bounds.scratch)?;
    root.scratch(blueprint)?;
    root.system()?;
    etc::fill(&root)?;
    devices::fill(&root)?;
    root.trees(blueprint, passed)?;
    for (place, target) in &blueprint.links {
        root.link(Path::new(place), target)?;
    }
    let writable = rules::apply(&root, blueprint)?;
    root.enter(Path::new(&blueprint.project.path))?;
    Ok(Built { writable })
}

fn check_places(blueprint: &Blueprint) -> Result<()> {
    let project = Path::new(&blueprint.project.path);
    let all = blueprint.read.iter().map(|tree| Path::new(&tree.path)).chain([project]);
    for path in all {
        let fine = path.is_absolute()
            && path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
        if !fine || path == Path::new("/") || RESERVED.iter().any(|r| path.starts_with(r)) {
            return Err(Error::Spec(format!("{}: cannot be mounted in a sandbox", path.display())));
        }
    }
    if SYSTEM.iter().any(|name| project == Path::new("/").join(name)) {
        return Err(Error::Spec(format!("{}: no place for a project", project.display())));
    }
    Ok(())
}

/// Tries what may be refused on this machine, and keeps nothing of it.
///
/// # Errors
/// [`Error::Step`], with the setting to change.
pub(super) fn attempt() -> Result<()> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).step_hint("make mounts private", hints::mounts)?;
    let root = Root::new(BYTES_PER_INODE << 12)?;
    devices::fill(&root)?;
    root.bind(Path::new("/usr"))
}

impl Root {
    /// An empty tmpfs, mounted over our old root. It holds the scratch folders too, which are the
    /// only writable part of it in the end: one size bounds all.
    fn new(scratch: u64) -> Result<Self> {
        let step = "make the root file system";
        let fs = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)
            .step_hint(step, hints::mounts)?;
        let inodes = (scratch / BYTES_PER_INODE).clamp(4096, 1 << 20);
        for (key, value) in [
            ("size", scratch.to_string()),
            ("nr_inodes", inodes.to_string()),
            ("mode", "0755".to_owned()),
        ] {
            rustix::mount::fsconfig_set_string(&fs, key, value).step(step)?;
        }
        rustix::mount::fsconfig_create(&fs).step_hint(step, hints::mounts)?;
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let fd = rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, flags).step(step)?;
        rustix::mount::move_mount(&fd, "", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
            .step_hint(step, hints::mounts)?;
        let shut = Mode::empty();
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(&fd, MASK_FILE, flags, shut).step(step)?;
        rustix::fs::mkdirat(&fd, MASK_FOLDER, shut).step(step)?;
        let open = |name: &str| open_at(&fd, Path::new(name)).step(step);
        let (mask_file, mask_folder) = (open(MASK_FILE)?, open(MASK_FOLDER)?);
        Ok(Self { fd, mask_file, mask_folder })
    }

    /// HOME, `/tmp` and `/dev/shm`: mounts of their own, so that they stay writable.
    fn scratch(&self, blueprint: &Blueprint) -> Result<()> {
        for (path, mode) in [(HOME, 0o755), ("/tmp", 0o1777), ("/dev/shm", 0o1777)] {
            let step = || format!("mount {path}");
            let folder = self.folder(Path::new(path))?;
            chmod(&folder, mode).step(step())?;
            let tree = clone_tree(folder.as_fd()).step(step())?;
            attach(&tree, &folder).step(step())?;
        }
        self.folder(Path::new("/var"))?;
        // Where something of the host is mounted below it, it is a folder of its own.
        let mut all = blueprint.read.iter().chain([&blueprint.project]);
        if all.any(|tree| Path::new(&tree.path).starts_with("/var/tmp")) {
            return self.folder(Path::new("/var/tmp")).map(drop);
        }
        self.link(Path::new("/var/tmp"), OsStr::new("/tmp"))
    }

    fn system(&self) -> Result<()> {
        for name in SYSTEM {
            let path = Path::new("/").join(name);
            match fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_symlink() => {
                    let target = fs::read_link(&path).step(format!("read /{name}"))?;
                    self.link(&path, target.as_os_str())?;
                }
                Ok(meta) if meta.is_dir() => self.bind(&path)?,
                _ => {}
            }
        }
        for name in SOCKET_FOLDERS {
            if let Ok(target) = open_at(&self.fd, Path::new(name)) {
                self.mask(&target, true)?;
            }
        }
        self.mask_odd_mounts()
    }

    /// Masks what somebody has mounted beneath the system folders and is no file and no folder.
    fn mask_odd_mounts(&self) -> Result<()> {
        let mounts = fs::read("/proc/self/mountinfo").step("read the list of mounts")?;
        for line in mounts.split(|byte| *byte == b'\n') {
            let Some(point) = line.split(|byte| *byte == b' ').nth(4) else { continue };
            let point = unescape(point);
            let point = Path::new(OsStr::from_bytes(&point));
            let Ok(relative) = point.strip_prefix("/") else { continue };
            if !SYSTEM.iter().any(|name| relative.starts_with(name) && relative != Path::new(name))
            {
                continue;
            }
            let Ok(target) = open_at(&self.fd, relative) else { continue };
            let stat = rustix::fs::fstat(&target).step("stat a mount")?;
            let kind = FileType::from_raw_mode(stat.st_mode);
            if !kind.is_dir() && !kind.is_file() {
                self.mask(&target, false)?;
            }
        }
        Ok(())
    }

    /// The project and what else is granted, each read-only at its own path, parents first.
    fn trees(
        &self,
        blueprint: &Blueprint,
        passed: &mut impl Iterator<Item = OwnedFd>,
    ) -> Result<()> {
        let all = blueprint.read.iter().chain([&blueprint.project]);
        let mut all: Vec<(&Tree, Option<OwnedFd>)> =
            all.map(|tree| (tree, tree.passed.then(|| passed.next()).flatten())).collect();
        all.sort_by_key(|(tree, _)| Path::new(&tree.path).components().count());
        for (tree, fd) in all {
            let path = Path::new(&tree.path);
            let step = || format!("mount {}", path.display());
            let fd = match fd {
                Some(fd) => fd,
                None => {
                    let held = crate::ground::tree::hold(path)?;
                    held.detach()?
                }
            };
            let stat = rustix::fs::fstat(&fd).step(step())?;
            if (stat.st_dev, stat.st_ino) != (tree.dev, tree.ino) {
                return Err(Errno::STALE).step(step());
            }
            read_only(&fd).step_hint(step(), hints::mounts)?;
            let target = if tree.folder { self.folder(path)? } else { self.file(path)? };
            attach(&fd, &target).step_hint(step(), hints::mounts)?;
        }
        Ok(())
    }

    /// Mounts a system path of the host at the same place, read-only.
    pub(super) fn bind(&self, path: &Path) -> Result<()> {
        let step = || format!("mount {}", path.display());
        let from = rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .step(step())?;
        let stat = rustix::fs::fstat(&from).step(step())?;
        let tree = clone_tree(from.as_fd()).step_hint(step(), hints::mounts)?;
        read_only(&tree).step_hint(step(), hints::mounts)?;
        let folder = FileType::from_raw_mode(stat.st_mode).is_dir();
        let target = if folder { self.folder(path)? } else { self.file(path)? };
        attach(&tree, &target).step(step())
    }

    /// Puts an empty thing that nobody can open in place of another.
    pub(super) fn mask(&self, target: &OwnedFd, folder: bool) -> Result<()> {
        let step = "mask a path";
        let mask = if folder { &self.mask_folder } else { &self.mask_file };
        let tree = clone_tree(mask.as_fd()).step(step)?;
        read_only(&tree).step(step)?;
        attach(&tree, target).step(step)
    }

    /// The folder of a path, made with its parents if need be. Never made on the host: whatever
    /// comes from there is mounted read-only by then.
    pub(super) fn folder(&self, path: &Path) -> Result<OwnedFd> {
        let step = || format!("make {}", path.display());
        let mut at = open_at(&self.fd, Path::new(".")).step(step())?;
        for name in names(path) {
            match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST | Errno::ROFS | Errno::ACCESS) => {}
                Err(error) => return Err(error).step(step()),
            }
            at = open_at(&at, name).step(step())?;
        }
        Ok(at)
    }

    /// The file of a path, made empty if need be.
    pub(super) fn file(&self, path: &Path) -> Result<OwnedFd> {
        let step = || format!("make {}", path.display());
        let folder = self.folder(path.parent().unwrap_or(Path::new("/")))?;
        let name = Path::new(path.file_name().unwrap_or_default());
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::openat(&folder, name, flags, Mode::from_raw_mode(0o644)) {
            Ok(_) | Err(Errno::EXIST | Errno::ROFS | Errno::ACCESS) => {}
            Err(error) => return Err(error).step(step()),
        }
        open_at(&folder, name).step(step())
    }

    /// A file with this content.
    pub(super) fn write(&self, path: &Path, content: &[u8]) -> Result<()> {
        let step = || format!("write {}", path.display());
        let folder = self.folder(path.parent().unwrap_or(Path::new("/")))?;
        let name = path.file_name().unwrap_or_default();
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&folder, name, flags, Mode::from_raw_mode(0o644));
        let mut file = fs::File::from(file.step(step())?);
        std::io::Write::write_all(&mut file, content).step(step())
    }

    /// A symlink; one that is there already stays.
    pub(super) fn link(&self, path: &Path, target: &OsStr) -> Result<()> {
        let folder = self.folder(path.parent().unwrap_or(Path::new("/")))?;
        match rustix::fs::symlinkat(target, &folder, path.file_name().unwrap_or_default()) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error).step(format!("link {}", path.display())),
        }
    }

    /// The topmost mount at a path beneath the root.
    pub(super) fn open(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        open_at(&self.fd, path.strip_prefix("/").unwrap_or(path))
    }

    /// Makes this the root, read-only, and forgets the old one.
    fn enter(&self, working_folder: &Path) -> Result<()> {
        let step = "change to the new root";
        // What is mounted of the masks stays; only their names go.
        rustix::fs::unlinkat(&self.fd, MASK_FILE, rustix::fs::AtFlags::empty()).step(step)?;
        rustix::fs::unlinkat(&self.fd, MASK_FOLDER, rustix::fs::AtFlags::REMOVEDIR).step(step)?;
        let attributes = Attributes { set: READ_ONLY, ..Attributes::default() };
        mount_setattr(&self.fd, attributes).step(step)?;
        rustix::process::fchdir(&self.fd).step(step)?;
        rustix::process::pivot_root(".", ".").step_hint(step, hints::mounts)?;
        rustix::mount::unmount(".", UnmountFlags::DETACH).step("let go of the host's root")?;
        rustix::process::chdir(working_folder).step("change to the project")
    }
}

const MASK_FILE: &str = ".masked-file";
const MASK_FOLDER: &str = ".masked-folder";

/// `mountinfo` writes spaces, tabs, newlines and backslashes as three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let octal = match after {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] if *first == b'\\' => {
                Some(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'))
            }
            _ => None,
        };
        plain.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    plain
}

fn names(path: &Path) -> impl Iterator<Item = &Path> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(Path::new(name)),
        _ => None,
    })
}

/// Opens beneath a folder, following no symlink, on to the topmost mount.
pub(super) fn open_at(folder: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let path: PathBuf = if path.as_os_str().is_empty() { ".".into() } else { path.into() };
    rustix::fs::openat2(
        folder,
        &path,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
}

/// Mounts a detached tree on what a descriptor stands for.
pub(super) fn attach(tree: &OwnedFd, target: &OwnedFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree, "", target, "", flags)
}

/// Makes a detached tree read-only, without devices and set-id programs, with all beneath it.
pub(super) fn read_only(tree: &OwnedFd) -> std::io::Result<()> {
    let attributes =
        Attributes { set: READ_ONLY, recursive: true, private: true, ..Attributes::default() };
    mount_setattr(tree, attributes)
}

fn chmod(folder: &OwnedFd, mode: u32) -> rustix::io::Result<()> {
    // An O_PATH descriptor cannot be changed itself; through its folder it can.
    rustix::fs::chmodat(folder, ".", Mode::from_raw_mode(mode), rustix::fs::AtFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn mount_points_are_read_as_they_are() {
        assert_eq!(unescape(br"/usr/a\040b\134c"), b"/usr/a b\\c");
        assert_eq!(unescape(br"/usr/\9\04"), br"/usr/\9\04");
    }
}
