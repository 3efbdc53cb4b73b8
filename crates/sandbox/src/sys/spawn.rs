//! Starting a process in new namespaces: clone3, and what the child does before its exec.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::process::Pid;

/// The name by which a sandbox's init is started, and known again.
pub(crate) const INIT_NAME: &CStr = c"ringfence-init";

/// Where a sandbox's init finds its end of the control channel.
pub(crate) const CONTROL_FD: i32 = 3;

/// A child process, and the descriptor that stands for it.
#[derive(Debug)]
pub(crate) struct Child {
    /// Its process id as we see it.
    pub(crate) pid: Pid,
    /// Readable once it has ended.
    pub(crate) pidfd: OwnedFd,
}

/// Namespaces of a sandbox. The cgroup namespace is made by the init itself, once it stands in
/// its own cgroup.
const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWNET;

/// Starts this program again as the init of new namespaces.
///
/// The child waits for one byte on `control` (its identity is mapped by then), keeps `null` as
/// its standard streams and `control` as descriptor 3, closes everything else, makes its
/// capabilities survive the exec, and executes `/proc/self/exe` with an empty environment: nothing
/// of our memory is left in it. It exits with the error number if a step fails.
///
/// `control` and `null` must be above 3. `ours` is the other end of `control`: the child closes
/// its copy at once, so that our death ends its wait.
///
/// # Errors
/// What clone3 says: `EPERM` or `ENOSPC` where user namespaces are not to be had.
pub(crate) fn spawn_init(
    ours: BorrowedFd<'_>,
    control: BorrowedFd<'_>,
    null: BorrowedFd<'_>,
) -> io::Result<Child> {
    debug_assert!(control.as_raw_fd() > CONTROL_FD && null.as_raw_fd() > CONTROL_FD);
    let (ours, control, null) = (ours.as_raw_fd(), control.as_raw_fd(), null.as_raw_fd());
    clone_process(NAMESPACES, || become_init(ours, control, null))
}

/// Starts a child that only holds a new user namespace open, until it is killed.
///
/// # Errors
/// What clone3 says.
pub(crate) fn spawn_holder() -> io::Result<Child> {
    let parent = rustix::process::getpid().as_raw_nonzero().get();
    clone_process(libc::CLONE_NEWUSER, || {
        // SAFETY: plain system calls without pointers.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // Gone before that call: nobody would send the signal.
            if libc::getppid() != parent {
                return libc::EPERM;
            }
            loop {
                libc::pause();
            }
        }
    })
}

fn clone_process(flags: i32, child: impl FnOnce() -> i32) -> io::Result<Child> {
    let mut pidfd: libc::c_int = -1;
    // SAFETY: all fields are integers, for which zero is a valid value.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = u64::from((flags | libc::CLONE_PIDFD).cast_unsigned());
    args.pidfd = (&raw mut pidfd) as u64;
    args.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
    // SAFETY: `args` is a valid clone_args of the size given, and without CLONE_VM the child gets
    // a copy of the memory. Other threads do not exist in it, so the child calls nothing that
    // takes a lock or allocates: `child` holds to that (see its two callers).
    let result =
        unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let status = child();
            // SAFETY: ends the process without running anything of the parent's.
            unsafe { libc::_exit(status) }
        }
        pid => {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            let pid = pid.expect("clone3 returns a positive process id in the parent");
            // SAFETY: with CLONE_PIDFD the kernel stored a new descriptor here, owned by us.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Child { pid, pidfd })
        }
    }
}

/// What the child does between clone and exec. Only system calls: no lock, no allocation.
/// Returns the error number of the step that failed.
fn become_init(ours: i32, control: i32, null: i32) -> i32 {
    // SAFETY: system calls on descriptors that are open, with buffers that outlive them. The
    // function runs in a single-threaded copy of the process and touches no shared state.
    unsafe {
        libc::close(ours);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        let mut go = 0u8;
        loop {
            match libc::read(control, (&raw mut go).cast(), 1) {
                1 => break,
                -1 if errno() == libc::EINTR => {}
                // The parent gave up, or died.
                _ => return libc::EPIPE,
            }
        }
        for (from, to) in [(null, 0), (null, 1), (null, 2), (control, CONTROL_FD)] {
            if libc::dup2(from, to) < 0 {
                return errno();
            }
        }
        let first = libc::c_uint::from(4u8);
        if libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) < 0 {
            return errno();
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        if let Err(error) = keep_capabilities() {
            return error;
        }
        let argv = [INIT_NAME.as_ptr(), std::ptr::null()];
        let envp = [std::ptr::null()];
        libc::execve(c"/proc/self/exe".as_ptr(), argv.as_ptr(), envp.as_ptr());
        errno()
    }
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Makes every permitted capability inheritable and ambient, so that the exec keeps it although
/// the uid is not 0.
fn keep_capabilities() -> Result<(), i32> {
    const VERSION_3: u32 = 0x2008_0522;
    let mut header = CapHeader { version: VERSION_3, pid: 0 };
    let mut data = [CapData { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: version 3 of the interface reads and writes one header and two data elements.
    unsafe {
        if libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) < 0 {
            return Err(errno());
        }
        for half in &mut data {
            half.inheritable = half.permitted;
        }
        if libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) < 0 {
            return Err(errno());
        }
    }
    for cap in 0..64u32 {
        let half = &data[(cap / 32) as usize];
        if half.permitted & (1 << (cap % 32)) == 0 {
            continue;
        }
        // SAFETY: takes integers only.
        let raised = unsafe {
            libc::prctl(
                libc::PR_CAP_AMBIENT,
                libc::PR_CAP_AMBIENT_RAISE,
                libc::c_ulong::from(cap),
                0 as libc::c_ulong,
                0 as libc::c_ulong,
            )
        };
        if raised < 0 {
            return Err(errno());
        }
    }
    Ok(())
}

fn errno() -> i32 {
    // SAFETY: the address is this thread's own errno.
    unsafe { *libc::__errno_location() }
}

/// The init's end of the control channel.
pub(crate) fn control_channel() -> OwnedFd {
    // SAFETY: called once, by the init, which was started with this descriptor open and which
    // nothing else in it has taken.
    let control = unsafe { OwnedFd::from_raw_fd(CONTROL_FD) };
    // A failure to set the flag shows when the agent's descriptors are limited to three.
    let _ = rustix::io::fcntl_setfd(&control, rustix::io::FdFlags::CLOEXEC);
    control
}

/// Leaves a namespace for a new one of its kind. Not for the file descriptor table, so nothing
/// that Rust relies on is unshared.
///
/// # Errors
/// `EPERM` where it is refused, `EINVAL` where the kernel lacks the kind.
pub(crate) fn unshare(namespace: i32) -> io::Result<()> {
    debug_assert!(namespace & libc::CLONE_FILES == 0);
    // SAFETY: takes an integer only.
    if unsafe { libc::unshare(namespace) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
