//! What is refused. Each group says why it is there.

/// What is refused with `EPERM` whatever its arguments.
pub(super) const REFUSED: &[&[i64]] = &[
    REFUSED_PORTS,
    REFUSED_NAMESPACES,
    REFUSED_MOUNTS,
    REFUSED_OTHER_PROCESSES,
    REFUSED_KERNEL,
    REFUSED_MACHINE,
];

/// Namespaces: a new user namespace gives capabilities within it, and with them most of the
/// kernel's rarely tested code.
const REFUSED_NAMESPACES: &[i64] = &[libc::SYS_setns, libc::SYS_unshare];

/// Mounts and roots: the walls of the sandbox are mounts. Handles open files past any path.
const REFUSED_MOUNTS: &[i64] = &[
    libc::SYS_chroot,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_umount2,
];

/// Reaching into other processes: their memory, registers and descriptors.
const REFUSED_OTHER_PROCESSES: &[i64] = &[
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
];

/// Large kernel interfaces that have been the way out of sandboxes before: programs in the kernel,
/// asynchronous rings, fault handling in user space, keys that no namespace holds.
const REFUSED_KERNEL: &[i64] = &[
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_perf_event_open,
    libc::SYS_request_key,
    libc::SYS_userfaultfd,
];

/// Settings of the whole machine.
const REFUSED_MACHINE: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_nfsservctl,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_vhangup,
];

/// Calls that take a process or a thread, and say when or on which CPU it runs.
pub(super) const SCHEDULING: &[i64] = &[
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
];

/// Calls that set a priority, and the value by which they are told that what follows is one process: not a
/// group, and not everything under one id.
pub(super) const PRIORITIES: &[(i64, i32)] = &[
    (libc::SYS_setpriority, libc::PRIO_PROCESS as i32),
    // IOPRIO_WHO_PROCESS of `linux/ioprio.h`.
    (libc::SYS_ioprio_set, 1),
];

/// Flags of `clone` that make namespaces.
pub(super) const NAMESPACE_FLAGS: &[i32] = &[
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// `ioctl` requests that act on whoever else uses the terminal: typing into it (`TIOCSTI`), a
/// console's selection (`TIOCLINUX`), its line discipline (`TIOCSETD`).
pub(super) const TERMINAL_REQUESTS: &[u64] = &[0x5412, 0x541c, 0x5423];

/// Calls that set a file's mode: the argument that holds flags, where only some flags make a file, and
/// the argument that holds the mode. A file with a set-user-id or set-group-id bit is refused: in the
/// project it would outlive the sandbox, and give the project's owner away to whoever executes it
/// on the host. `openat2`, whose mode cannot be seen, is not on the list at all.
pub(super) const MODES: &[&[(i64, Option<u8>, u8)]] = &[
    OLDER_MODES,
    &[
        (libc::SYS_fchmod, None, 1),
        (libc::SYS_fchmodat, None, 2),
        (libc::SYS_fchmodat2, None, 2),
        (libc::SYS_mknodat, None, 2),
        (libc::SYS_openat, Some(2), 3),
    ],
];

#[cfg(target_arch = "x86_64")]
const OLDER_MODES: &[(i64, Option<u8>, u8)] = &[
    (libc::SYS_chmod, None, 1),
    (libc::SYS_creat, None, 1),
    (libc::SYS_mknod, None, 1),
    (libc::SYS_open, Some(1), 2),
];

#[cfg(not(target_arch = "x86_64"))]
const OLDER_MODES: &[(i64, Option<u8>, u8)] = &[];

/// Flags with which `open` makes a file. The second is the bit of `O_TMPFILE` that is its own.
pub(super) const MAKING_FLAGS: [i32; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];

/// Protocols of internet sockets that are not refused: the type's own, ICMP, TCP, UDP, ICMPv6.
pub(super) const PROTOCOLS: [u64; 5] = [0, 1, 6, 17, 58];

/// The resource whose limit may not be set any more.
pub(super) const RLIMIT_CORE: u64 = libc::RLIMIT_CORE as u64;

/// `fcntl` request that chooses the signal by which a file tells of input.
pub(super) const F_SETSIG: i32 = 10;

/// Execution domains: Linux, 32-bit uname, the two with a 2.6 version number, and the question
/// which one it is.
pub(super) const PERSONALITIES: &[u64] = &[0, 0x0008, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// Ports, and calls of the past that this architecture still has.
#[cfg(target_arch = "x86_64")]
const REFUSED_PORTS: &[i64] =
    &[libc::SYS_ioperm, libc::SYS_iopl, libc::SYS_sysfs, libc::SYS_ustat, libc::SYS__sysctl];

#[cfg(not(target_arch = "x86_64"))]
const REFUSED_PORTS: &[i64] = &[];
