//! Host files and folders as detached mounts that can be handed over.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::mount::OpenTreeFlags;
use rustix::process::Signal;

use super::ids::{Identity, write_proc};
use crate::error::{Result, Step};
use crate::hints;
use crate::inside::wire::Tree;
use crate::sys::{Attributes, mount_setattr, spawn_holder};

/// A file or folder of the host, held open.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) fd: OwnedFd,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) folder: bool,
}

/// Opens a path without following any symlink.
///
/// # Errors
/// [`crate::Error::Step`]: it is missing, or a symlink is on the way.
pub(crate) fn hold(path: &Path) -> Result<Held> {
    let fd = rustix::fs::openat2(
        rustix::fs::CWD,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
    .step_hint(format!("open {}", path.display()), |error| {
        (error.raw_os_error() == Some(libc::ELOOP))
            .then(|| "the path has a symlink on the way: give the resolved path".into())
    })?;
    let stat = rustix::fs::fstat(&fd).step(format!("stat {}", path.display()))?;
    let folder = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
    Ok(Held { fd, dev: stat.st_dev, ino: stat.st_ino, uid: stat.st_uid, gid: stat.st_gid, folder })
}

impl Held {
    /// How the init is told of it.
    pub(crate) fn describe(&self, path: &Path, passed: bool) -> Tree {
        Tree {
            path: path.as_os_str().to_owned(),
            dev: self.dev,
            ino: self.ino,
            folder: self.folder,
            passed,
        }
    }

    /// A detached, private copy of the mount beneath it.
    ///
    /// # Errors
    /// [`crate::Error::Step`].
    pub(crate) fn detach(&self) -> Result<OwnedFd> {
        let tree = clone_tree(self.fd.as_fd()).step_hint("copy a mount", hints::mounts)?;
        let private = Attributes { private: true, recursive: true, ..Attributes::default() };
        mount_setattr(&tree, private).step("make a mount private")?;
        Ok(tree)
    }
}

/// Copies the mount at a descriptor, with all beneath it.
pub(crate) fn clone_tree(at: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    rustix::mount::open_tree(
        at,
        c"",
        OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH
            | OpenTreeFlags::AT_RECURSIVE,
    )
}

/// Maps the owner on disk to the agent's host ids, in a detached tree: the agent is the owner of
/// what it finds, and what it makes belongs to the owner.
///
/// # Errors
/// [`crate::Error::Step`]: the file system cannot be id-mapped.
pub(crate) fn map_owner(tree: &OwnedFd, owner: &Held, identity: Identity) -> Result<()> {
    let (Identity::Own { uid, gid } | Identity::Other { uid, gid }) = identity;
    let holder = spawn_holder().step_hint("make an id mapping", hints::user_namespaces)?;
    let userns = (|| {
        write_proc(holder.pid, "uid_map", &format!("{} {uid} 1", owner.uid))?;
        write_proc(holder.pid, "gid_map", &format!("{} {gid} 1", owner.gid))?;
        let path = format!("/proc/{}/ns/user", holder.pid.as_raw_nonzero());
        fs::File::open(path).step("open the id mapping")
    })();
    // Its work is done as soon as the namespace is open.
    let _ = rustix::process::pidfd_send_signal(&holder.pidfd, Signal::KILL);
    let _ = rustix::process::waitid(
        rustix::process::WaitId::PidFd(holder.pidfd.as_fd()),
        rustix::process::WaitIdOptions::EXITED,
    );
    let userns = userns?;
    let mapped = Attributes {
        set: libc::MOUNT_ATTR_IDMAP,
        userns: Some(userns.as_fd()),
        recursive: true,
        ..Attributes::default()
    };
    mount_setattr(tree, mapped).step_hint("map the project's owner to the agent", hints::id_mapping)
}
