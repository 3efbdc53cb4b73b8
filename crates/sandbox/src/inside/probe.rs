//! Trying the sandbox from inside: what must fail, and what must work so that failing means
//! something.

mod reach;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::Access;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, Signal};

use super::wire::{Blueprint, Targets};
use crate::sys;
use crate::{Probe, Rule};

/// Addresses of the world: by each family, of a public resolver, of a cloud's metadata service.
const WORLD: [&str; 4] =
    ["1.1.1.1:443", "[2606:4700:4700::1111]:443", "169.254.169.254:80", "8.8.8.8:53"];

/// Sockets by which daemons of the host are reached.
const SOCKETS: [&str; 6] = [
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/tmp/.X11-unix/X0",
];

/// Devices of the host.
const DEVICES: [&str; 9] = [
    "/dev/kvm",
    "/dev/mem",
    "/dev/kmsg",
    "/dev/fuse",
    "/dev/net/tun",
    "/dev/vsock",
    "/dev/vhost-vsock",
    "/dev/sda",
    "/dev/vda",
];

/// How long the positive control may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Rules of the project that are told one by one; all are tried.
const RULES_TOLD: usize = 64;

/// Beginning of the name of a file that must not come into being.
const ATTEMPT: &str = ".ringfence-probe";

/// Tries everything.
pub(super) fn run(blueprint: &Blueprint, targets: &Targets) -> Vec<Probe> {
    let mut found = Vec::new();
    network(targets, &mut found);
    sockets(targets, &mut found);
    devices(&mut found);
    files(blueprint, targets, &mut found);
    kernel(&mut found);
    controls(blueprint, targets, &mut found);
    found
}

/// What became of an attempt.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// It worked, or somebody answered.
    Worked(String),
    /// It was refused.
    Refused(String),
    /// It could not be tried, or nothing was heard: that says nothing of what an agent could do.
    Unclear(String),
}

impl Seen {
    fn probe(self, check: String) -> Probe {
        let (result, ok, detail) = match self {
            Self::Worked(detail) => ("reachable", false, detail),
            Self::Refused(detail) => ("blocked", true, detail),
            Self::Unclear(detail) => ("unclear", false, detail),
        };
        Probe { check, result: result.into(), ok, detail }
    }
}

/// What says of the one who tries that they could not, and nothing of what was tried.
const NOT_TRIED: [Errno; 10] = [
    Errno::AGAIN,
    Errno::FAULT,
    Errno::INPROGRESS,
    Errno::INTR,
    Errno::INVAL,
    Errno::IO,
    Errno::MFILE,
    Errno::NFILE,
    Errno::NOBUFS,
    Errno::NOMEM,
];

/// Something that must fail.
fn must_fail<T>(check: impl Into<String>, attempt: io::Result<T>) -> Probe {
    let seen = match attempt {
        Ok(_) => Seen::Worked("it worked".into()),
        Err(error) => {
            let not_tried = Errno::from_io_error(&error).map_or(
                // Words of our own say what was seen; silence says nothing.
                matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock),
                |errno| NOT_TRIED.contains(&errno),
            );
            let words = error.to_string();
            if not_tried { Seen::Unclear(words) } else { Seen::Refused(words) }
        }
    };
    seen.probe(check.into())
}

/// Something that is there, and must be refused: that it is not there is no refusal.
fn must_refuse<T>(check: impl Into<String>, attempt: io::Result<T>, refusals: &[Errno]) -> Probe {
    let seen = match attempt {
        Ok(_) => Seen::Worked("it worked".into()),
        Err(error) => {
            let refused = Errno::from_io_error(&error).is_some_and(|it| refusals.contains(&it));
            let words = error.to_string();
            if refused { Seen::Refused(words) } else { Seen::Unclear(words) }
        }
    };
    seen.probe(check.into())
}

/// How the kernel refuses to open what is masked.
const MASKED: [Errno; 2] = [Errno::ACCESS, Errno::PERM];
/// How it refuses to write what may be read; the last two are links, and sockets or FIFOs nobody reads.
const READ_ONLY: [Errno; 5] = [Errno::ROFS, Errno::ACCESS, Errno::PERM, Errno::LOOP, Errno::NXIO];

/// Something that must work.
fn must_work(check: impl Into<String>, attempt: io::Result<String>) -> Probe {
    let (ok, detail) = match attempt {
        Ok(detail) => (true, detail),
        Err(error) => (false, error.to_string()),
    };
    Probe { check: check.into(), result: "control".into(), ok, detail }
}

fn network(targets: &Targets, found: &mut Vec<Probe>) {
    if let Some(network) = &targets.network {
        let world = WORLD.iter().filter_map(|address| address.parse().ok());
        return reach::all(world, network, &targets.name_servers, found);
    }
    found.push(routes().probe("default route".into()));
    let world = WORLD.iter().filter_map(|address| address.parse().ok());
    for address in world {
        found.push(must_fail(format!("connect {address}"), connect(address)));
    }
    let servers = targets.name_servers.iter().copied().chain([IpAddr::from([8, 8, 8, 8])]);
    for server in servers {
        found.push(must_fail(format!("send a query to {server}:53"), query(server)));
    }
    let hosts = targets.host_addresses.iter().map(|host| SocketAddr::new(*host, 80));
    for address in hosts.flat_map(reach::scoped) {
        found.push(must_fail(format!("connect host {address}"), connect(address)));
    }
    if let Some(port) = targets.host_port {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // Here there is a route, so the answer is worth waiting for: it comes at once.
        let attempt = TcpStream::connect_timeout(&address, PATIENCE);
        found.push(must_fail("connect the host's loopback", attempt));
    }
}

/// No route is by another interface than loopback.
fn routes() -> Seen {
    let table = |name: &str| match fs::read_to_string(Path::new("/proc/self/net").join(name)) {
        // A kernel without IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound && name != "route" => {
            Ok(String::new())
        }
        text => text,
    };
    let (four, six) = match (table("route"), table("ipv6_route")) {
        (Ok(four), Ok(six)) => (four, six),
        (Err(error), _) | (_, Err(error)) => return Seen::Unclear(error.to_string()),
    };
    let four = four.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let six = six.lines().filter_map(|line| line.split_whitespace().last());
    match four.chain(six).find(|interface| *interface != "lo") {
        Some(other) => Seen::Worked(format!("there is one by {other}")),
        None => Seen::Refused("only loopback has routes".into()),
    }
}

/// A connection that does not wait: one under way counts as made.
fn connect(address: SocketAddr) -> io::Result<()> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn query(server: IpAddr) -> io::Result<usize> {
    let family = if server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    let address = SocketAddr::new(server, 53);
    let sent = rustix::net::sendto(&socket, b"?", rustix::net::SendFlags::empty(), &address)?;
    // A name server on the loopback address of the host: inside, nobody listens there. The refusal
    // comes back at once, and the next call tells.
    if server.is_loopback() {
        rustix::net::connect(&socket, &address)?;
        rustix::net::send(&socket, b"?", rustix::net::SendFlags::empty())?;
        let mut buffer = [0u8; 1];
        rustix::net::recv(&socket, &mut buffer, rustix::net::RecvFlags::empty())?;
    }
    Ok(sent)
}

/// Devices by which the host, its disks or its memory are reached. A container's engine makes none of them.
fn devices(found: &mut Vec<Probe>) {
    for path in DEVICES {
        let options = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        found.push(must_fail(format!("open {path}"), options));
    }
}

fn sockets(targets: &Targets, found: &mut Vec<Probe>) {
    let known = SOCKETS.iter().map(PathBuf::from);
    for path in known.chain(targets.sockets.iter().map(PathBuf::from)) {
        found.push(must_fail(format!("connect {}", path.display()), reach_socket(&path)));
    }
    for name in &targets.host_abstract {
        let connect = || -> io::Result<()> {
            let address = SocketAddrUnix::new_abstract_name(name)?;
            let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
            let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
            Ok(rustix::net::connect(&socket, &address)?)
        };
        let shown = String::from_utf8_lossy(name);
        let check = format!("connect the host's abstract socket {}", shown.escape_debug());
        found.push(must_fail(check, connect()));
    }
}

/// Connects to a socket. A path that is too long for that must not even be there: a link to it could be
/// shorter.
fn reach_socket(path: &Path) -> io::Result<()> {
    match UnixStream::connect(path) {
        Err(error) if error.raw_os_error().is_none() => fs::symlink_metadata(path).map(drop),
        done => done.map(drop),
    }
}

fn files(blueprint: &Blueprint, targets: &Targets, found: &mut Vec<Probe>) {
    for folder in ["/", "/usr", "/etc", "/proc/sys/kernel"] {
        found.push(must_fail(format!("create a file in {folder}"), create(Path::new(folder))));
    }
    for path in &targets.unseen {
        let path = Path::new(path);
        found.push(must_fail(format!("read {}", path.display()), read(path)));
    }
    let project = Path::new(&blueprint.project.path);
    let rules: Vec<(PathBuf, Rule)> = blueprint
        .rules
        .iter()
        .map(|(path, rule)| (project.join(path).components().collect(), *rule))
        .collect();
    // Where two rules name one path, the later one holds.
    let last = |at: usize| !rules[at + 1..].iter().any(|(path, _)| *path == rules[at].0);
    if !rules.iter().any(|(path, rule)| path == project && *rule == Rule::Writable) {
        found.push(must_fail("create a file in the project", create(project)));
    }
    let held = rules.iter().enumerate().filter(|(at, _)| last(*at)).map(|(_, pair)| pair);
    let mut more = 0;
    for (at, (path, rule)) in held.enumerate() {
        let shown = path.display();
        let probe = match rule {
            Rule::ReadOnly => must_refuse(format!("write {shown}"), write(path), &READ_ONLY),
            Rule::Masked => must_refuse(format!("read {shown}"), read(path), &MASKED),
            Rule::Writable | Rule::Pinned => continue,
        };
        if at < RULES_TOLD || !probe.ok {
            found.push(probe);
        } else {
            more += 1;
        }
    }
    if more > 0 {
        let seen = Seen::Refused("each as its rule says".into());
        found.push(seen.probe(format!("{more} more rules of the project")));
    }
}

fn create(folder: &Path) -> io::Result<()> {
    // No name that an agent could have taken before: that it is there already would be no refusal.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = now.map_err(io::Error::other)?.as_nanos();
    let path = folder.join(format!("{ATTEMPT}-{nanos:x}"));
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).custom_flags(libc::O_NOFOLLOW).open(&path)?;
    let _ = fs::remove_file(path);
    Ok(())
}

fn write(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.is_dir() {
        return create(path);
    }
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    fs::OpenOptions::new().write(true).custom_flags(flags).open(path).map(drop)
}

/// Opens a file, or lists a folder that is not empty.
fn read(path: &Path) -> io::Result<()> {
    if !fs::metadata(path)?.is_dir() {
        let options = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        return options.map(drop);
    }
    fs::read_dir(path).map(drop)
}

fn kernel(found: &mut Vec<Probe>) {
    let init = Pid::INIT;
    let unshare = sys::unshare(libc::CLONE_NEWUSER);
    found.push(must_fail("make a user namespace", unshare));
    for (name, family, kind) in [
        ("open a raw socket", AddressFamily::INET, SocketType::RAW),
        ("open a packet socket", AddressFamily::PACKET, SocketType::RAW),
        ("open a netlink socket", AddressFamily::NETLINK, SocketType::DGRAM),
    ] {
        let socket = rustix::net::socket(family, kind, None);
        found.push(must_fail(name, socket.map_err(io::Error::from)));
    }
    found.push(must_fail("trace the init", sys::trace(init)));
    for file in ["environ", "mem", "root/", "cwd/", "fd/3"] {
        let path = Path::new("/proc/1").join(file);
        found.push(must_fail(format!("open {}", path.display()), read(&path)));
    }
    // Where the kernel lets the signal through it has no effect: otherwise this answer would not
    // come.
    let killed = rustix::process::kill_process(init, Signal::KILL).map_err(io::Error::from);
    let ignored = killed.and_then(|()| Err::<(), _>(io::Error::other("the init ignores it")));
    found.push(must_fail("kill the init", ignored));
}

fn controls(blueprint: &Blueprint, targets: &Targets, found: &mut Vec<Probe>) {
    if let Some(address) = targets.control {
        found.push(must_work(format!("control: ask {address}"), ask(address)));
    }
    let scratch = create(Path::new("/tmp")).map(|()| "made and removed".to_owned());
    found.push(must_work("control: create a file in /tmp", scratch));
    let program = rustix::fs::access(PathBuf::from(&blueprint.program), Access::EXEC_OK);
    let program = program.map(|()| "may be executed".to_owned()).map_err(io::Error::from);
    found.push(must_work("control: the program", program));
}

/// An HTTP request, to which any answer will do.
fn ask(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    if !head.starts_with(b"HTTP/1.") {
        return Err(io::Error::other("not an HTTP answer"));
    }
    let head = OsString::from_vec(head.to_vec());
    Ok(head.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;

    use super::{create, reach_socket};

    #[test]
    fn a_file_that_is_there_already_hides_no_folder_that_may_be_written() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        create(folder.path()).expect("it may be written");
        fs::write(folder.path().join(super::ATTEMPT), "").expect("our own");
        create(folder.path()).expect("it still may");
        assert_eq!(fs::read_dir(folder.path()).expect("our own").count(), 1, "nothing is left");
        assert!(create(&folder.path().join("missing")).is_err(), "the control");
    }

    #[test]
    fn a_socket_with_a_long_path_is_seen() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let short = folder.path().join("s");
        let _listener = UnixListener::bind(&short).expect("our own");
        reach_socket(&short).expect("it answers");
        let long = folder.path().join("x".repeat(120));
        assert!(reach_socket(&long).is_err(), "the control: it is not there");
        fs::rename(&short, &long).expect("our own");
        reach_socket(&long).expect("it is there");
    }
}
