//! The ids as which this thread makes files.

use std::io;

/// While it lives, what this thread makes belongs to others than itself, and it may no more in the
/// file system than they. Giving a file away after it was made could give away another that an agent
/// has put in its place meanwhile.
#[derive(Debug)]
pub(crate) struct FileIds {
    before: Option<(u32, u32)>,
}

impl FileIds {
    /// Takes these ids (uid, gid); `None` keeps our own.
    ///
    /// # Errors
    /// `EPERM` when we may not.
    pub(crate) fn of(owner: Option<(u32, u32)>) -> io::Result<Self> {
        let Some((uid, gid)) = owner else { return Ok(Self { before: None }) };
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        // From here on a failure puts back what was.
        let ids = Self { before: Some(own) };
        // The group first: without our uid we may not change it any more.
        if set_group(gid) && set_user(uid) {
            return Ok(ids);
        }
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }
}

impl Drop for FileIds {
    fn drop(&mut self) {
        if let Some((uid, gid)) = self.before {
            set_user(uid);
            set_group(gid);
        }
    }
}

/// Whether it is so now: the calls themselves tell only what was before.
fn set_user(uid: u32) -> bool {
    // SAFETY: takes and returns integers, and concerns this thread alone. The second call fails for
    // sure, changes nothing, and returns what is set.
    unsafe {
        libc::setfsuid(uid);
        libc::setfsuid(libc::uid_t::MAX).cast_unsigned() == uid
    }
}

/// See [`set_user`].
fn set_group(gid: u32) -> bool {
    // SAFETY: as above.
    unsafe {
        libc::setfsgid(gid);
        libc::setfsgid(libc::gid_t::MAX).cast_unsigned() == gid
    }
}
