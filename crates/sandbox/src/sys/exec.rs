//! fork, exec and exit for the sandbox's init, which has one thread.

use std::ffi::CString;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

use rustix::process::Pid;

/// Which side of a fork this is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Forked {
    /// The new process.
    Child,
    /// The old one, with the id of the new.
    Parent(Pid),
}

/// Forks. Only a process with a single thread may call it: the init starts no thread, ever.
///
/// # Errors
/// `EAGAIN` where a limit on processes is reached.
pub(crate) fn fork_single_threaded() -> io::Result<Forked> {
    // SAFETY: with one thread no lock can be held by a thread that the child lacks.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(Pid::from_raw(pid).expect("fork returns a positive process id"))),
    }
}

/// Replaces this process by a program. Returns only when that fails.
pub(crate) fn execve(program: &CString, argv: &[CString], env: &[CString]) -> io::Error {
    let pointers = |list: &[CString]| {
        list.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>()
    };
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: all pointers are to NUL-terminated strings that live until the call returns, and
    // both lists end with a null pointer.
    unsafe {
        libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr());
    }
    io::Error::last_os_error()
}

/// Makes every descriptor but 0, 1 and 2 close at exec.
///
/// # Errors
/// `ENOSYS` before Linux 5.11.
pub(crate) fn keep_only_stdio() -> io::Result<()> {
    const CLOSE_RANGE_CLOEXEC: libc::c_uint = 1 << 2;
    let first = libc::c_uint::from(3u8);
    // SAFETY: takes integers only, and closes nothing before an exec.
    let done = unsafe {
        libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, CLOSE_RANGE_CLOEXEC)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Ends the process at once, running no destructor and no exit handler.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: never returns, touches no memory.
    unsafe { libc::_exit(status) }
}

/// Has a datagram socket hear of every way in which what it sent did not arrive.
///
/// # Errors
/// What setsockopt says.
pub(crate) fn hear_errors(socket: &UdpSocket, is_ipv4: bool) -> io::Result<()> {
    let (level, option) = match is_ipv4 {
        true => (libc::IPPROTO_IP, libc::IP_RECVERR),
        false => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    };
    let on: libc::c_int = 1;
    // An int has 4 bytes.
    let length = size_of_val(&on) as libc::socklen_t;
    // SAFETY: the value is an int that lives through the call, and its length is given.
    let done = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(&on).cast(), length)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Tries to attach to a process as a debugger does, and lets go again if that works.
///
/// # Errors
/// What ptrace says: `EPERM` where it is refused.
pub(crate) fn trace(pid: Pid) -> io::Result<()> {
    let (pid, none) = (pid.as_raw_nonzero().get(), std::ptr::null_mut::<libc::c_void>());
    // SAFETY: PTRACE_SEIZE and PTRACE_DETACH take no pointers that they would follow.
    unsafe {
        if libc::ptrace(libc::PTRACE_SEIZE, pid, none, none) < 0 {
            return Err(io::Error::last_os_error());
        }
        libc::ptrace(libc::PTRACE_DETACH, pid, none, none);
    }
    Ok(())
}
