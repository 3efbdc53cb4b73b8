//! Signal dispositions and a descriptor that tells of ended children.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Blocks SIGCHLD and returns a descriptor that is readable when a child has ended.
///
/// # Errors
/// `EMFILE` and the like.
pub(crate) fn child_signal_fd() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before use and outlives the calls; the
    // descriptor that signalfd returns is new and ours.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) < 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Gives every signal its default disposition and blocks none, as a program expects at its start.
pub(crate) fn default_signals() {
    // SAFETY: sets default dispositions only; the calls fail harmlessly for the signals whose
    // disposition cannot be changed.
    unsafe {
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Ignores the signals by which a terminal stops a background process: a sandboxed process that
/// holds the terminal must not be able to stop its init.
pub(crate) fn ignore_terminal_stops() {
    for signal in [libc::SIGTTIN, libc::SIGTTOU, libc::SIGTSTP] {
        // SAFETY: SIG_IGN is a valid disposition for these signals.
        unsafe {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}
