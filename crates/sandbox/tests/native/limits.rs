//! Limits, kept by the kernel.

use crate::Test;
use crate::support::{Case, REFUSED, User};
use ringfence_sandbox::{Keeper, Limits, native};

pub const TESTS: &[Test] = &[
    ("processes_are_counted_exactly", processes_are_counted_exactly),
    ("scratch_space_ends", scratch_space_ends),
    ("memory_ends", memory_ends),
    ("cpus_are_bound", cpus_are_bound),
    ("usage_is_seen", usage_is_seen),
    ("nonsense_is_refused", nonsense_is_refused),
];

fn processes_are_counted_exactly(user: User) {
    // The shell is one; the seventh more is one too many for eight.
    let script = r#"
import os, sys
made = 0
try:
    for _ in range(20):
        if os.fork() == 0:
            import signal; signal.pause()
        made += 1
except BlockingIOError:
    pass
print(made)
sys.stdout.flush()
"#;
    for limit in [8, 3] {
        let mut case = Case::new(user);
        case.wish.pids = Some(limit);
        let out = case.run(&["/usr/bin/python3", "-c", script]).fine();
        assert_eq!(out, format!("{}\n", limit - 1));
    }
}

fn scratch_space_ends(user: User) {
    let mut case = Case::new(user);
    case.wish.disk = Some(8 << 20);
    let script = "head -c 4M /dev/zero > /tmp/a && echo fits
        head -c 3M /dev/zero > /home/agent/b && echo fits
        head -c 3M /dev/zero > /dev/shm/c 2>/dev/null || echo full";
    assert_eq!(case.sh(script).fine(), "fits\nfits\nfull\n");
    let many = "i=0; while (: > /tmp/$i) 2>/dev/null && [ $i -lt 100000 ]; do i=$((i+1)); done; [ $i -lt 100000 ] && echo bounded";
    assert_eq!(case.sh(many).fine(), "bounded\n");
}

fn memory_ends(user: User) {
    let mut case = Case::new(user);
    case.wish.memory = Some(96 << 20);
    let script = "x = bytearray(16 << 20); print('small'); import sys; sys.stdout.flush(); y = bytearray(b'x') * (256 << 20); print(len(y))";
    let ran = case.run(&["/usr/bin/python3", "-c", script]);
    let limits = Limits { memory: Some(96 << 20), ..Limits::default() };
    if user == User::Root {
        assert_eq!(native::keepers(&limits), [("memory", Keeper::Enforced)]);
        assert_eq!(ran.ends(137), "small\n");
    } else {
        // No cgroup for an ordinary user here: the supervisor's caller watches.
        assert_eq!(ran.fine(), format!("small\n{}\n", 256 << 20));
    }
    assert_eq!(case.groups(), Vec::<std::path::PathBuf>::new());
    assert_eq!(case.journals(), 0);
}

fn cpus_are_bound(user: User) {
    let mut case = Case::new(user);
    case.wish.cpus = Some(1.0);
    let script = r#"
import os, time
start = time.process_time(), time.monotonic()
pids = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        end = time.monotonic() + 0.6
        while time.monotonic() < end: pass
        os._exit(0)
    pids.append(pid)
for pid in pids: os.waitpid(pid, 0)
t = os.times()
used, wall = t.children_user + t.children_system, time.monotonic() - start[1]
print("bound" if used <= wall * 1.35 else (used, wall))
try:
    os.sched_setaffinity(0, range(os.cpu_count()))
    print("moved")
except OSError:
    print("held")
"#;
    let out = case.run(&["/usr/bin/python3", "-c", script]).fine();
    // Root's sandbox is bound by a quota, and may then choose its CPUs.
    let expected = if user == User::Root { "bound\nmoved\n" } else { "bound\nheld\n" };
    assert_eq!(out, expected);
}

fn usage_is_seen(user: User) {
    let mut case = Case::new(user);
    let script = "x = bytearray(b'x') * (64 << 20)
import os, time
if os.fork() == 0: time.sleep(1); os._exit(0)
time.sleep(0.6)";
    case.run(&["/usr/bin/python3", "-c", script]).fine();
    let report = case.report();
    assert!(report.memory >= 64 << 20, "{report:?}");
    assert_eq!(report.pids, 2, "{report:?}");
}

fn nonsense_is_refused(user: User) {
    let mut case = Case::new(user);
    case.wish.cpus = Some(-1.0);
    case.sh("true").ends(i32::from(REFUSED));
    case.wish.cpus = Some(0.5);
    case.sh("true").fine();
}
