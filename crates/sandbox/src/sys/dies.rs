//! A child that does not outlive us, for programs that run outside every sandbox.

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The descriptor of this number, which whoever started this program left open for it. It closes at exec
/// from now on. Call it once, before anything else opens one.
///
/// # Errors
/// `EBADF`: there is none.
pub(crate) fn inherited(number: i32) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: takes integers only; a number that is not open is an error.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and nothing of this program has it: it was handed over to be taken here.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Lets the kernel kill this command's process when the thread that starts it ends.
pub(crate) fn dies_with_us(command: &mut Command) {
    let parent = rustix::process::getpid();
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing. It runs
    // after the ids were changed, which would take the signal back.
    unsafe {
        command.pre_exec(move || {
            let kill = rustix::process::Signal::KILL;
            rustix::process::set_parent_process_death_signal(Some(kill))?;
            // We may have died before.
            match rustix::process::getppid() == Some(parent) {
                true => Ok(()),
                false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            }
        });
    }
}
