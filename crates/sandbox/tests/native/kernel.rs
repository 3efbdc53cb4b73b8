//! System calls, capabilities, descriptors, other processes.

use std::fs;

use crate::Test;
use crate::support::{Case, User};

pub const TESTS: &[Test] = &[
    ("refused_system_calls", refused_system_calls),
    ("a_foreign_abi_is_killed", a_foreign_abi_is_killed),
    ("no_capability_is_left", no_capability_is_left),
    ("the_host_sees_an_unprivileged_user", the_host_sees_an_unprivileged_user),
    ("three_descriptors_and_no_more", three_descriptors_and_no_more),
    ("the_environment_is_what_was_given", the_environment_is_what_was_given),
    ("other_processes_are_out_of_reach", other_processes_are_out_of_reach),
    ("streams_can_be_opened_again", streams_can_be_opened_again),
    ("names_of_the_host_are_hidden", names_of_the_host_are_hidden),
];

/// Each line tries one call and prints its name and error number; controls print 0.
const CALLS: &str = include_str!("calls.c");

const FOREIGN: &str = "int main(void) {
    int r;
    __asm__ volatile (\"int $0x80\" : \"=a\"(r) : \"a\"(20));
    return 0;
}";

fn refused_system_calls(user: User) {
    let mut case = Case::new(user);
    case.file("calls.c", CALLS);
    case.wish.cpus = None;
    let out = case.sh("cc -w -o /tmp/calls calls.c && /tmp/calls").fine();
    let found: Vec<(&str, i32)> = out
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(name, error)| (name, error.parse().unwrap()))
        .collect();
    assert!(found.len() > 40, "{out}");
    for (name, error) in found {
        let expected = match name {
            name if name.starts_with("control") => 0,
            "clone3" | "x32" | "statmount" | "openat2" => libc::ENOSYS,
            name if name.starts_with("family") => libc::EAFNOSUPPORT,
            _ => libc::EPERM,
        };
        assert_eq!(error, expected, "{name}");
    }
}

fn a_foreign_abi_is_killed(user: User) {
    let mut case = Case::new(user);
    case.file("foreign.c", FOREIGN);
    let out = case.sh("cc -o /tmp/foreign foreign.c && echo built && /tmp/foreign; echo $?").fine();
    assert_eq!(out, format!("built\n{}\n", 128 + libc::SIGSYS));
}

fn no_capability_is_left(user: User) {
    let mut case = Case::new(user);
    let status = case.sh("cat /proc/self/status").fine();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1".into(), "2".into()));
    // A set-id program gives nothing.
    let out = case.sh("for p in /usr/bin/su /usr/bin/passwd; do [ -u $p ] && echo setuid; done; grep -c nosuid /proc/self/mountinfo > /dev/null && echo end").fine();
    assert!(out.ends_with("end\n"));
}

fn the_host_sees_an_unprivileged_user(user: User) {
    let mut case = Case::new(user);
    let mut child = case.start("echo up; exec sleep 60");
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0; 3]).unwrap();
    let init = case.report().pid;
    let children = fs::read_to_string(format!("/proc/{init}/task/{init}/children")).unwrap();
    let agent: u32 = children.trim().parse().unwrap();
    for pid in [init, agent] {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        for name in ["Uid:", "Gid:"] {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            let ids: Vec<u32> =
                line.split_whitespace().skip(1).map(|id| id.parse().unwrap()).collect();
            assert!(ids.iter().all(|id| *id == ids[0] && *id != 0), "{pid} {line}");
            if user == User::Root {
                assert!((0x7000_0000..=0x7000_ffff).contains(&ids[0]), "{pid} {line}");
            }
        }
        let groups = status.lines().find(|line| line.starts_with("Groups:")).unwrap();
        assert!(!groups.split_whitespace().any(|group| group == "0"), "{groups}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

fn three_descriptors_and_no_more(user: User) {
    let mut case = Case::new(user);
    case.wish.listen = vec![42004];
    // The listing itself opens one more.
    assert_eq!(case.run(&["/bin/ls", "/proc/self/fd"]).fine(), "0\n1\n2\n3\n");
    assert_eq!(case.sh("readlink /proc/self/fd/3 | grep -v /proc/; true").fine(), "");
}

fn the_environment_is_what_was_given(user: User) {
    let mut case = Case::new(user);
    case.wish.env = vec![("GIVEN".into(), "yes".into()), ("USER".into(), "other".into())];
    let mut lines: Vec<String> =
        case.run(&["/usr/bin/env"]).fine().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(
        lines,
        [
            "GIVEN=yes",
            "HOME=/home/agent",
            "PATH=/usr/local/bin:/usr/bin:/bin",
            "SHELL=/bin/sh",
            "TMPDIR=/tmp",
            "USER=other",
        ]
    );
}

fn other_processes_are_out_of_reach(user: User) {
    let mut case = Case::new(user);
    let script = "ls /proc | grep -c '^[0-9]*$' | { read n; [ $n -lt 8 ] && echo few; }
        kill -9 1 2>/dev/null; sleep 0; kill -0 1 2>/dev/null; cat /proc/1/comm > /dev/null && echo alive
        sh -c 'kill -9 0' ; echo killed";
    // Only its own process group within the sandbox: the supervisor, which shares it, lives and
    // reports how the agent ended.
    let ran = case.sh(script);
    assert_eq!(ran.ends(137), "few\nalive\n");
}

fn streams_can_be_opened_again(user: User) {
    let mut case = Case::new(user);
    if user == User::Root {
        // The ordinary user did not make these pipes, so nobody could open them again.
        let script =
            "echo one > /dev/stdout; echo two > /dev/stderr; : < /dev/stdin; : > /dev/null";
        let ran = case.sh(script);
        assert_eq!(ran.fine(), "one\n");
        assert_eq!(ran.stderr(), "two\n");
    }
    case.wish.piped = true;
    let ran = case.sh("echo one > /dev/stdout; echo two >&2; : < /dev/stdin && echo three");
    assert_eq!(ran.fine(), "one\nthree\n");
    assert_eq!(fs::read_to_string(case.wish.run_dir.join("stderr.log")).unwrap(), "two\n");
}

fn names_of_the_host_are_hidden(user: User) {
    let mut case = Case::new(user);
    case.wish.memory = Some(512 << 20);
    assert_eq!(case.sh("uname -n; cat /etc/hostname").fine(), "sandbox\nsandbox\n");
    let groups = case.sh("cut -d: -f3 /proc/self/cgroup | sort -u").fine();
    assert!(!groups.contains("ringfence") && !groups.contains(".."), "{groups}");
}
