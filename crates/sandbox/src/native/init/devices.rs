//! A minimal `/dev`, and a `/proc` of the sandbox's own.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use super::root::{Root, attach, open_at, read_only};
use crate::error::{Error, Result, Step};
use crate::ground::tree::clone_tree;
use crate::hints;
use crate::sys::{Attributes, mount_setattr};

/// Devices that do nothing to the host.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Parts of `/proc` that set the kernel, or that it writes: read-only.
const PROC_READ_ONLY: [&str; 6] = ["sys", "sysrq-trigger", "irq", "bus", "fs", "acpi"];

/// Parts of `/proc` that tell of the kernel's memory, its keys or other people's work.
const PROC_MASKED: [&str; 13] = [
    "kcore",
    "keys",
    "key-users",
    "kallsyms",
    "kmsg",
    "kpagecount",
    "kpageflags",
    "kpagecgroup",
    "timer_list",
    "latency_stats",
    "sched_debug",
    "scsi",
    "config.gz",
];

/// Fills `/dev` and `/proc`.
///
/// # Errors
/// [`Error::Step`].
pub(super) fn fill(root: &Root) -> Result<()> {
    for name in DEVICES {
        device(root, &Path::new("/dev").join(name))?;
    }
    terminals(root)?;
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        root.link(&Path::new("/dev").join(name), OsStr::new(target))?;
    }
    processes(root)
}

fn device(root: &Root, path: &Path) -> Result<()> {
    let step = || format!("mount {}", path.display());
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let from = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        // A container may lack a terminal device, for one.
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        from => from.step(step())?,
    };
    let stat = rustix::fs::fstat(&from).step(step())?;
    if !FileType::from_raw_mode(stat.st_mode).is_char_device() {
        return Err(Error::Spec(format!("{}: not a device on this machine", path.display())));
    }
    let tree = clone_tree(from.as_fd()).step_hint(step(), hints::mounts)?;
    let set = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
    let attributes = Attributes { set, private: true, recursive: true, ..Attributes::default() };
    mount_setattr(&tree, attributes).step(step())?;
    let target = root.file(path)?;
    attach(&tree, &target).step(step())
}

/// Pseudo-terminals of its own: those of the host cannot be opened by number.
fn terminals(root: &Root) -> Result<()> {
    let step = "mount /dev/pts";
    let fs = rustix::mount::fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC)
        .step_hint(step, hints::mounts)?;
    for (key, value) in [("ptmxmode", "0666"), ("mode", "0620")] {
        rustix::mount::fsconfig_set_string(&fs, key, value).step(step)?;
    }
    rustix::mount::fsconfig_create(&fs).step_hint(step, hints::mounts)?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, flags).step(step)?;
    attach(&mount, &root.folder(Path::new("/dev/pts"))?).step(step)
}

fn processes(root: &Root) -> Result<()> {
    let step = "mount /proc";
    let fs = rustix::mount::fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)
        .step_hint(step, hints::proc_mount)?;
    rustix::mount::fsconfig_create(&fs).step_hint(step, hints::proc_mount)?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mount = rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, flags)
        .step_hint(step, hints::proc_mount)?;
    attach(&mount, &root.folder(Path::new("/proc"))?).step_hint(step, hints::proc_mount)?;
    for name in PROC_READ_ONLY {
        let Ok(target) = open_at(&mount, Path::new(name)) else { continue };
        let tree = clone_tree(target.as_fd()).step(step)?;
        read_only(&tree).step(step)?;
        attach(&tree, &target).step(step)?;
    }
    for name in PROC_MASKED {
        let Ok(target) = open_at(&mount, Path::new(name)) else { continue };
        let stat = rustix::fs::fstat(&target).step(step)?;
        root.mask(&target, FileType::from_raw_mode(stat.st_mode).is_dir())?;
    }
    Ok(())
}
