//! mount_setattr, and the flag that brings the loopback interface up.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// What `mount_setattr` changes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Attributes<'fd> {
    /// `MOUNT_ATTR_*` to set.
    pub(crate) set: u64,
    /// `MOUNT_ATTR_*` to clear.
    pub(crate) clear: u64,
    /// The user namespace of an id mapping, with `MOUNT_ATTR_IDMAP` set.
    pub(crate) userns: Option<BorrowedFd<'fd>>,
    /// Whether all mounts beneath change too.
    pub(crate) recursive: bool,
    /// Whether mounts made on either side stay on that side (`MS_PRIVATE`).
    pub(crate) private: bool,
}

#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Changes the attributes of the mount that `mount` stands for.
///
/// # Errors
/// `EPERM` when a locked attribute would be cleared, `EINVAL` when the file system cannot be
/// id-mapped, `ENOSYS` before Linux 5.12.
pub(crate) fn mount_setattr(mount: impl AsFd, attributes: Attributes<'_>) -> io::Result<()> {
    let mut attr = MountAttr {
        attr_set: attributes.set,
        attr_clr: attributes.clear,
        propagation: if attributes.private { libc::MS_PRIVATE } else { 0 },
        userns_fd: attributes.userns.map_or(0, |fd| fd.as_raw_fd().cast_unsigned().into()),
    };
    let recursive = if attributes.recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a NUL-terminated string, the structure has the layout of the kernel's
    // struct mount_attr and the size given; the kernel only reads it.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | recursive,
            &raw mut attr,
            size_of::<MountAttr>(),
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Brings `lo` up in the network namespace of the socket.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN` there.
pub(crate) fn loopback_up(socket: impl AsFd) -> io::Result<()> {
    // SAFETY: an all-zero ifreq is valid: integers, and a union of plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags =
        libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING).expect("small flags");
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which lives until the call returns.
    let done =
        unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
