//! No way out but the listeners that are handed over.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::Test;
use crate::support::{Case, REFUSED, User};

pub const TESTS: &[Test] = &[
    ("a_listener_is_handed_over", a_listener_is_handed_over),
    ("only_loopback", only_loopback),
    ("sockets_of_the_host_are_out_of_reach", sockets_of_the_host_are_out_of_reach),
    ("the_probe_reports_everything", the_probe_reports_everything),
    ("the_probe_refuses_what_it_can_see", the_probe_refuses_what_it_can_see),
];

fn a_listener_is_handed_over(user: User) {
    let mut case = Case::new(user);
    case.wish.listen = vec![42001, 42002];
    let script = r#"
import socket
for port in (42001, 42002):
    s = socket.create_connection(("127.0.0.1", port))
    s.sendall(b"GET / HTTP/1.1\r\n\r\n")
    print(s.recv(12).decode())
"#;
    let out = case.run(&["/usr/bin/python3", "-c", script]).fine();
    assert_eq!(out, "HTTP/1.1 204\nHTTP/1.1 204\n");
}

fn only_loopback(user: User) {
    let mut case = Case::new(user);
    let outside = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = outside.local_addr().unwrap().port();
    let script = format!(
        r#"
import socket, errno
print(open("/proc/net/dev").read().count(":"))
def attempt(family, kind, address):
    s = socket.socket(family, kind)
    s.settimeout(5)
    try:
        s.connect(address)
        return "connected"
    except OSError as e:
        return errno.errorcode[e.errno]
print(attempt(socket.AF_INET, socket.SOCK_STREAM, ("1.1.1.1", 443)))
print(attempt(socket.AF_INET6, socket.SOCK_STREAM, ("2606:4700:4700::1111", 443)))
print(attempt(socket.AF_INET, socket.SOCK_DGRAM, ("8.8.8.8", 53)))
print(attempt(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", {port})))
try:
    socket.getaddrinfo("example.com", 80)
    print("resolved")
except socket.gaierror:
    print("unresolved")
print(socket.getaddrinfo("localhost", 80, socket.AF_INET)[0][4][0])
"#
    );
    let out = case.run(&["/usr/bin/python3", "-c", &script]).fine();
    assert_eq!(
        out,
        "1\nENETUNREACH\nENETUNREACH\nENETUNREACH\nECONNREFUSED\nunresolved\n127.0.0.1\n"
    );
}

fn sockets_of_the_host_are_out_of_reach(user: User) {
    let mut case = Case::new(user);
    let name = format!("ringfence-test-{}-{user}", std::process::id());
    let _abstract =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let path = case.outside().join("daemon.sock");
    let _path = UnixListener::bind(&path).unwrap();
    let script = format!(
        r#"
import socket
def attempt(address):
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(address)
        return "connected"
    except OSError as e:
        return "no"
print(attempt("\0{name}"), attempt("{}"))
l = socket.socket(socket.AF_UNIX)
l.bind("/tmp/own"); l.listen()
print(attempt("/tmp/own"))
m = socket.socket(socket.AF_UNIX)
m.bind("\0own"); m.listen()
print(attempt("\0own"))
"#,
        path.display()
    );
    let out = case.run(&["/usr/bin/python3", "-c", &script]).fine();
    assert_eq!(out, "no no\nconnected\nconnected\n");
}

fn the_probe_reports_everything(user: User) {
    let mut case = Case::new(user);
    case.wish.listen = vec![42003];
    case.wish.probe = true;
    case.wish.must_not_see = vec![case.wish.run_dir.clone()];
    case.file("kept", "k");
    case.rule("kept", ringfence_sandbox::Rule::ReadOnly);
    case.sh("true").fine();
    let probes = case.report().probes;
    assert!(probes.iter().all(|probe| probe.ok));
    for expected in [
        "default route",
        "connect 1.1.1.1:443",
        "connect [2606:4700:4700::1111]:443",
        "connect 169.254.169.254:80",
        "send a query to 8.8.8.8:53",
        "connect host ",
        "connect the host's loopback",
        "connect the host's abstract socket ringfence-probe-",
        "connect /run/docker.sock",
        "create a file in /",
        "create a file in the project",
        "write ",
        "read ",
        "make a user namespace",
        "open a raw socket",
        "trace the init",
        "open /proc/1/environ",
        "kill the init",
        "control: ask 127.0.0.1:42003",
        "control: create a file in /tmp",
        "control: the program",
    ] {
        assert!(probes.iter().any(|probe| probe.check.starts_with(expected)), "{expected}");
    }
}

fn the_probe_refuses_what_it_can_see(user: User) {
    let mut case = Case::new(user);
    case.wish.probe = true;
    // Visible by the rules, and said to be secret: one of the two is wrong.
    let seen = case.file("state", "x");
    case.wish.must_not_see = vec![seen];
    let ran = case.sh("echo ran");
    assert_eq!(ran.ends(i32::from(REFUSED)), "");
    assert!(ran.stderr().contains("not shown to be tight"), "{}", ran.stderr());
    // The control: a listener that nobody serves is no working network.
    case.wish.must_not_see.clear();
    case.sh("true").fine();
}
