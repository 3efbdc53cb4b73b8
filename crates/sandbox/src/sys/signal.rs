//! Signal dispositions and a descriptor that tells of ended children.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use rustix::process::Pid;

/// Blocks SIGCHLD and returns a descriptor that is readable when a child has ended.
///
/// # Errors
/// `EMFILE` and the like.
pub(crate) fn child_signal_fd() -> io::Result<OwnedFd> {
    signal_fd(&[libc::SIGCHLD])
}

/// The same for everything that a keeper hears of, and for what a terminal would stop it by.
///
/// # Errors
/// As [`child_signal_fd`].
pub(crate) fn keeper_signal_fd() -> io::Result<OwnedFd> {
    signal_fd(&[
        libc::SIGCHLD,
        libc::SIGHUP,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGTERM,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGCONT,
        libc::SIGWINCH,
        libc::SIGTSTP,
        libc::SIGTTIN,
        libc::SIGTTOU,
    ])
}

/// The next signal of such a descriptor, and which process sent it, if one did. `None` when there is none.
pub(crate) fn next_signal(signals: &OwnedFd) -> Option<(i32, Option<Pid>)> {
    // `signalfd_siginfo`, signalfd(2): number, error, code and sender are the first four words.
    let mut info = [0; 128];
    let read = rustix::io::read(signals, &mut info).ok()?;
    let word = |at: usize| Some(i32::from_ne_bytes(*info.get(..read)?.get(at..)?.first_chunk()?));
    // A code above zero is the kernel's own.
    let sender = word(12).filter(|_| word(8).is_some_and(|code| code <= 0)).and_then(Pid::from_raw);
    Some((word(0)?, sender))
}

fn signal_fd(signals: &[i32]) -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before use and outlives the calls; the
    // descriptor that signalfd returns is new and ours.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
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
