// Tries system calls that a sandbox refuses, and a few that it must allow.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static void report(const char *name, long result) {
    printf("%s %d\n", name, result < 0 ? errno : 0);
    fflush(stdout);
}

#define TRY(name, ...) do { errno = 0; report(name, syscall(__VA_ARGS__)); } while (0)

int main(void) {
    char buffer[256] = {0};
    TRY("control-getpid", SYS_getpid);
    TRY("control-memfd", SYS_memfd_create, "x", 0);
    TRY("control-unix", SYS_socket, AF_UNIX, SOCK_STREAM, 0);
    TRY("control-inet", SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    TRY("control-inet6", SYS_socket, AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    TRY("control-affinity", SYS_sched_getaffinity, 0, sizeof buffer, buffer);
    TRY("control-personality", SYS_personality, 0xffffffff);
    TRY("control-chmod", SYS_chmod, "/tmp/calls", 0755);
    TRY("control-sticky", SYS_chmod, "/tmp/calls", 01755);
    TRY("control-open", SYS_openat, -100, "/tmp/mode", O_CREAT | O_RDWR, 0755);
    TRY("control-open-without-making", SYS_openat, -100, "/tmp/mode", O_RDWR, 06755);
    int made = open("/tmp/mode", O_RDWR);
    TRY("chmod-set-uid", SYS_chmod, "/tmp/mode", 04755);
    TRY("chmod-set-gid", SYS_chmod, "/tmp/mode", 02755);
    TRY("chmod-high-bits", SYS_chmod, "/tmp/mode", 0x100000000L | 06755);
    TRY("fchmod-set-uid", SYS_fchmod, made, 04755);
    TRY("fchmodat-set-uid", SYS_fchmodat, -100, "/tmp/mode", 04755);
    TRY("fchmodat2-set-uid", 452, -100, "/tmp/mode", 04755, 0);
    TRY("open-set-uid", SYS_open, "/tmp/mode1", O_CREAT | O_RDWR, 04755);
    TRY("openat-set-uid", SYS_openat, -100, "/tmp/mode2", O_CREAT | O_RDWR, 04755);
    TRY("openat-set-gid", SYS_openat, -100, "/tmp/mode2", O_CREAT | O_RDWR, 02755);
    TRY("tmpfile-set-uid", SYS_openat, -100, "/tmp", O_TMPFILE | O_RDWR, 04755);
    TRY("creat-set-uid", SYS_creat, "/tmp/mode3", 04755);
    TRY("mknod-set-uid", SYS_mknod, "/tmp/mode4", 0100000 | 04755, 0);
    TRY("mknodat-set-uid", SYS_mknodat, -100, "/tmp/mode5", 0100000 | 04755, 0);
    TRY("openat2", 437, -100, "/tmp/mode", buffer, 24);
    TRY("family-netlink", SYS_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0);
    TRY("family-vsock", SYS_socket, 40, SOCK_STREAM, 0);
    TRY("family-alg", SYS_socket, 38, SOCK_SEQPACKET, 0);
    TRY("family-bluetooth", SYS_socket, 31, SOCK_STREAM, 0);
    TRY("family-xdp", SYS_socket, 44, SOCK_STREAM, 0);
    TRY("family-packet", SYS_socket, AF_PACKET, SOCK_RAW, 0);
    TRY("raw", SYS_socket, AF_INET, SOCK_RAW, 1);
    TRY("raw6", SYS_socket, AF_INET6, SOCK_RAW | SOCK_CLOEXEC, 58);
    TRY("old-packet", SYS_socket, AF_INET, 10, 0);
    TRY("sctp", SYS_socket, AF_INET, SOCK_STREAM, 132);
    TRY("sctp6", SYS_socket, AF_INET6, SOCK_SEQPACKET | SOCK_CLOEXEC, 132);
    TRY("seqpacket", SYS_socket, AF_INET, SOCK_SEQPACKET, 0);
    TRY("control-unix-seqpacket", SYS_socket, AF_UNIX, SOCK_SEQPACKET, 0);
    TRY("mptcp", SYS_socket, AF_INET, SOCK_STREAM, 262);
    TRY("smc", SYS_socket, AF_INET6, SOCK_STREAM, 256);
    TRY("control-tcp", SYS_socket, AF_INET, SOCK_STREAM, 6);
    TRY("control-udp6", SYS_socket, AF_INET6, SOCK_DGRAM, 17);
    unsigned long limits[2] = {0, 0}, files[2] = {64, 64};
    TRY("control-getrlimit", SYS_getrlimit, 4, limits);
    TRY("control-prlimit", SYS_prlimit64, 0, 4, 0, limits);
    if (limits[0] != 1 || limits[1] != 1) printf("core-limit 0\n");
    TRY("control-setrlimit", SYS_setrlimit, 7, files);
    limits[0] = 0;
    TRY("setrlimit-core", SYS_setrlimit, 4, limits);
    TRY("prlimit-core", SYS_prlimit64, 0, 4, limits, 0);
    // Scheduling: one's own is one's own, and the init has the same ids.
    unsigned long mask[16] = {1}, zero[8] = {0};
    unsigned int attributes[14] = {48, 3, 0, 0, 19};
    TRY("control-scheduler", SYS_sched_setscheduler, 0, 3, zero);
    TRY("control-affinity-set", SYS_sched_setaffinity, 0, sizeof mask, mask);
    TRY("control-attributes", SYS_sched_setattr, 0, attributes, 0);
    TRY("control-priority", SYS_setpriority, 0, 0, 19);
    TRY("control-ioprio", SYS_ioprio_set, 1, 0, 3 << 13);
    TRY("scheduler", SYS_sched_setscheduler, 1, 5, zero);
    TRY("scheduler-high-bits", SYS_sched_setscheduler, 0x100000001UL, 5, zero);
    TRY("parameters", SYS_sched_setparam, 1, zero);
    TRY("attributes", SYS_sched_setattr, 1, attributes, 0);
    TRY("affinity", SYS_sched_setaffinity, 1, sizeof mask, mask);
    TRY("priority", SYS_setpriority, 0, 1, 19);
    TRY("priority-of-group", SYS_setpriority, 1, 0, 19);
    TRY("priority-of-user", SYS_setpriority, 2, 0, 19);
    TRY("ioprio", SYS_ioprio_set, 1, 1, 3 << 13);
    TRY("ioprio-of-group", SYS_ioprio_set, 2, 0, 3 << 13);
    TRY("ioprio-of-user", SYS_ioprio_set, 3, getuid(), 3 << 13);
    TRY("prlimit", SYS_prlimit64, 1, 7, files, 0);
    TRY("unshare-user", SYS_unshare, CLONE_NEWUSER);
    TRY("unshare-net", SYS_unshare, CLONE_NEWNET);
    TRY("setns", SYS_setns, 0, 0);
    TRY("clone-user", SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    TRY("clone-mount", SYS_clone, CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0);
    TRY("clone-pid", SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
    TRY("clone3", SYS_clone3, buffer, 64);
    TRY("mount", SYS_mount, "x", "/tmp", "tmpfs", 0, 0);
    TRY("umount", SYS_umount2, "/tmp", 0);
    TRY("open_tree", SYS_open_tree, -100, "/", 0);
    TRY("move_mount", SYS_move_mount, -1, "", -1, "", 0);
    TRY("fsopen", SYS_fsopen, "tmpfs", 0);
    TRY("fsmount", SYS_fsmount, -1, 0, 0);
    TRY("fsconfig", SYS_fsconfig, -1, 0, 0, 0, 0);
    TRY("fspick", SYS_fspick, -100, "/", 0);
    TRY("mount_setattr", 442, -1, "", 0, 0, 0);
    TRY("pivot_root", SYS_pivot_root, ".", ".");
    TRY("chroot", SYS_chroot, "/tmp");
    TRY("ptrace", SYS_ptrace, 0x4206, 1, 0, 0);
    TRY("process_vm_readv", SYS_process_vm_readv, 1, 0, 0, 0, 0, 0);
    TRY("process_vm_writev", SYS_process_vm_writev, 1, 0, 0, 0, 0, 0);
    TRY("pidfd_getfd", 438, 0, 0, 0);
    TRY("kcmp", SYS_kcmp, 1, 1, 0, 0, 0);
    TRY("bpf", SYS_bpf, 0, buffer, sizeof buffer);
    TRY("perf_event_open", SYS_perf_event_open, buffer, 0, -1, -1, 0);
    TRY("userfaultfd", SYS_userfaultfd, 1);
    TRY("io_uring_setup", SYS_io_uring_setup, 1, buffer);
    TRY("io_uring_enter", SYS_io_uring_enter, 0, 0, 0, 0, 0, 0);
    TRY("io_uring_register", SYS_io_uring_register, 0, 0, 0, 0);
    TRY("keyctl", SYS_keyctl, 0, -3, 0);
    TRY("add_key", SYS_add_key, "user", "x", "y", 1, -3);
    TRY("request_key", SYS_request_key, "user", "x", 0, 0);
    TRY("kexec_load", SYS_kexec_load, 0, 0, 0, 0);
    TRY("init_module", SYS_init_module, buffer, 0, "");
    TRY("finit_module", SYS_finit_module, 0, "", 0);
    TRY("delete_module", SYS_delete_module, "x", 0);
    TRY("reboot", SYS_reboot, 0, 0, 0, 0);
    TRY("swapon", SYS_swapon, "/tmp/x", 0);
    TRY("quotactl", SYS_quotactl, 0, 0, 0, 0);
    TRY("acct", SYS_acct, 0);
    TRY("name_to_handle_at", SYS_name_to_handle_at, -100, "/tmp", buffer, buffer, 0);
    TRY("open_by_handle_at", SYS_open_by_handle_at, -100, buffer, 0);
    TRY("syslog", SYS_syslog, 3, buffer, 1);
    TRY("settimeofday", SYS_settimeofday, 0, 0);
    TRY("clock_settime", SYS_clock_settime, 0, buffer);
    TRY("personality", SYS_personality, 0x0400000);
    TRY("tiocsti", SYS_ioctl, 0, 0x5412, "x");
    TRY("tiocsti-high-bits", SYS_ioctl, 0, 0x100005412UL, "x");
    TRY("tioclinux", SYS_ioctl, 0, 0x541c, buffer);
    TRY("tiocsetd", SYS_ioctl, 0, 0x5423, buffer);
#ifdef __x86_64__
    TRY("iopl", SYS_iopl, 0);
    TRY("ioperm", SYS_ioperm, 0, 0, 0);
    TRY("x32", 0x40000000 | SYS_getpid);
#endif
    TRY("statmount", 457, 0, 0, 0, 0);
    TRY("sethostname", SYS_sethostname, "x", 1);
    return 0;
}
