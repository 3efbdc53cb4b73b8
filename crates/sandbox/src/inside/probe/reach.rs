//! Trying a network on which only one peer may answer.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::Seen;
use crate::inside::wire::Network;
use crate::{Probe, sys};

/// How long an answer is waited for. On this machine one takes less than a millisecond; where nobody has the
/// address the kernel says so after some 60 ms, and after 3 s where it has settings of its own.
const PATIENCE: Duration = Duration::from_secs(5);
/// The resolver that an engine puts into a container. It has been told to ask nobody, which the supervisor
/// has seen in what the engine says of the container; some engines' then say nothing at all.
const EMBEDDED: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 11));

/// How long it is listened to at least.
const EMBEDDED_PATIENCE: Duration = Duration::from_millis(100);

/// An attempt under way.
struct Attempt {
    check: String,
    what: What,
    /// Once it is decided.
    seen: Option<Seen>,
}

impl Attempt {
    fn may_be_silent(&self) -> bool {
        matches!(self.what, What::Query(_, EMBEDDED))
    }
}

enum What {
    Connect(OwnedFd),
    Query(UdpSocket, IpAddr),
    Nothing,
}

/// Tries all of it at once.
pub(super) fn all(
    world: impl Iterator<Item = SocketAddr>,
    network: &Network,
    servers: &[IpAddr],
    found: &mut Vec<Probe>,
) {
    let all = world.chain(network.connect.iter().copied()).flat_map(scoped);
    let mut attempts: Vec<Attempt> = all.map(connect).collect();
    for server in servers.iter().copied().chain([IpAddr::from([8, 8, 8, 8]), EMBEDDED]) {
        for name in &network.names {
            attempts.push(query(server, name));
        }
    }
    attempts.push(route());
    found.push(super::must_fail("an IPv6 address", foreign_six()));
    found.push(super::must_fail("a second network", second_network()));
    let (soon, end) = (Instant::now() + EMBEDDED_PATIENCE, Instant::now() + PATIENCE);
    loop {
        let open = |attempt: &&Attempt| attempt.seen.is_none();
        let until = match attempts.iter().filter(open).any(|attempt| !attempt.may_be_silent()) {
            true => end,
            false if attempts.iter().any(|attempt| attempt.seen.is_none()) => soon,
            false => break,
        };
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        wait(&mut attempts, left);
    }
    found.extend(attempts.into_iter().map(|attempt| {
        let silence = match attempt.may_be_silent() {
            true => Seen::Refused("it has nobody to ask, and is silent".into()),
            false => Seen::Unclear(format!("no answer within {} s", PATIENCE.as_secs())),
        };
        attempt.seen.unwrap_or(silence).probe(attempt.check)
    }));
}

/// An address as it can be tried: one that means something on a link alone is tried on each.
pub(super) fn scoped(address: SocketAddr) -> Vec<SocketAddr> {
    match address {
        SocketAddr::V6(six) if six.ip().is_unicast_link_local() && six.scope_id() == 0 => {
            let on = |index| SocketAddrV6::new(*six.ip(), six.port(), 0, index).into();
            interfaces().into_iter().map(on).collect()
        }
        other => vec![other],
    }
}

/// The interfaces here, by number. Loopback is always the first.
fn interfaces() -> Vec<u32> {
    let table = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let names = table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim()));
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None);
    let Ok(socket) = socket else { return vec![1] };
    let mut all: Vec<u32> = names
        .filter_map(|name| rustix::net::netdevice::name_to_index(&socket, name).ok())
        .collect();
    if all.is_empty() {
        all.push(1);
    }
    all
}

/// An IPv6 address on another interface than loopback: with one there is a link to others.
fn foreign_six() -> io::Result<()> {
    match std::fs::read_to_string("/proc/self/net/if_inet6") {
        Ok(table) if table.lines().any(|line| !line.trim_end().ends_with(" lo")) => Ok(()),
        Ok(_) => Err(io::Error::other("only loopback has one")),
        // A kernel without IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
        Err(error) => Err(io::Error::new(io::ErrorKind::WouldBlock, error.to_string())),
    }
}

/// Routes by more than one interface.
fn second_network() -> io::Result<()> {
    let table = std::fs::read_to_string("/proc/self/net/route")
        .map_err(|error| io::Error::new(io::ErrorKind::WouldBlock, error.to_string()))?;
    let names = table.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let names: BTreeSet<&str> = names.filter(|name| *name != "lo").collect();
    if names.len() > 1 {
        return Ok(());
    }
    Err(io::Error::other("there is one"))
}

fn connect(address: SocketAddr) -> Attempt {
    let check = format!("connect {address}");
    let open = || -> Result<(OwnedFd, Result<(), Errno>), Errno> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        let done = rustix::net::connect(&socket, &address);
        Ok((socket, done))
    };
    match open() {
        Err(error) => Attempt { check, what: What::Nothing, seen: Some(judged(error)) },
        Ok((socket, Err(Errno::INPROGRESS))) => {
            Attempt { check, what: What::Connect(socket), seen: None }
        }
        Ok((_, Ok(()))) => Attempt { check, what: What::Nothing, seen: Some(worked()) },
        Ok((_, Err(error))) => Attempt { check, what: What::Nothing, seen: Some(judged(error)) },
    }
}

fn worked() -> Seen {
    Seen::Worked("it worked".into())
}

/// A refusal of a peer is an answer: somebody was there to refuse. One of this kernel is not.
fn judged(error: Errno) -> Seen {
    let words = io::Error::from(error).to_string();
    match error {
        Errno::CONNREFUSED | Errno::CONNRESET => Seen::Worked(words),
        Errno::ACCESS
        | Errno::ADDRNOTAVAIL
        | Errno::AFNOSUPPORT
        | Errno::HOSTDOWN
        | Errno::HOSTUNREACH
        | Errno::NETDOWN
        | Errno::NETUNREACH
        | Errno::PERM
        | Errno::TIMEDOUT => Seen::Refused(words),
        _ => Seen::Unclear(words),
    }
}

/// What went wrong with a question. On loopback a refusal says that nobody listens: this sandbox itself.
fn unanswered(server: IpAddr, error: &io::Error) -> Seen {
    match Errno::from_io_error(error) {
        Some(Errno::CONNREFUSED) if server.is_loopback() => Seen::Refused(error.to_string()),
        Some(error) => judged(error),
        None => Seen::Unclear(error.to_string()),
    }
}

/// Asks a name server for an address.
fn query(server: IpAddr, name: &OsString) -> Attempt {
    let check = format!("ask {server} for {}", name.display());
    let open = || -> io::Result<UdpSocket> {
        let any: IpAddr = if server.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            "::".parse().map_err(io::Error::other)?
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.set_nonblocking(true)?;
        // Otherwise nobody is told that there is no way.
        sys::hear_errors(&socket, server.is_ipv4())?;
        socket.connect((server, 53))?;
        socket.send(&question(name.as_bytes()))?;
        Ok(socket)
    };
    match open() {
        Ok(socket) => Attempt { check, what: What::Query(socket, server), seen: None },
        Err(error) => {
            Attempt { check, what: What::Nothing, seen: Some(unanswered(server, &error)) }
        }
    }
}

/// A question for the address (A) of a name (RFC 1035, section 4.1).
fn question(name: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x52, 0x46, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split(|byte| *byte == b'.') {
        bytes.push(u8::try_from(label.len().min(63)).unwrap_or(63));
        bytes.extend(&label[..label.len().min(63)]);
    }
    bytes.extend([0, 0, 1, 0, 1]);
    bytes
}

/// What an answer says: an address, or that there is no such name, which only the world's servers know.
/// The container's own resolver may say that it asks nobody (any other code).
fn understood(answer: &[u8]) -> Seen {
    let code = answer.get(3).map_or(15, |flags| flags & 15);
    let addresses = answer.get(6..8).map_or(0, |count| u16::from_be_bytes([count[0], count[1]]));
    match (code, addresses) {
        (0, 0) => Seen::Refused("no address".into()),
        (0, _) => Seen::Worked(format!("{addresses} addresses")),
        (3, _) => Seen::Worked("there is no such name: it was looked up".into()),
        (code, _) => Seen::Refused(format!("refused, code {code}")),
    }
}

/// A route out of the container's own network leads to an address that nobody has.
fn route() -> Attempt {
    let check = "default route".to_owned();
    let decided = |seen| Attempt { check: check.clone(), what: What::Nothing, seen: Some(seen) };
    let routes = match std::fs::read_to_string("/proc/self/net/route") {
        Ok(routes) => routes,
        Err(error) => return decided(Seen::Unclear(error.to_string())),
    };
    match gateway(&routes) {
        None => decided(Seen::Refused("there is none".into())),
        Some(0) => decided(Seen::Worked("everything is on this network".into())),
        Some(address) => {
            // In the byte order of the network, as the kernel shows it.
            let address = Ipv4Addr::from(address.to_ne_bytes());
            let mut attempt = connect(SocketAddr::from((address, 80)));
            attempt.check = format!("{check}: its gateway {address}");
            attempt
        }
    }
}

/// By whom a table of routes leads out: nobody; 0, directly; or this address, as the kernel shows it.
fn gateway(routes: &str) -> Option<u32> {
    routes.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok();
        let (to, by, mask) = (number(1)?, number(2)?, number(7)?);
        // Halves of everything are everything, and whatever has a gateway leads out of this network.
        (by != 0 || to == 0 || mask.count_ones() < 8).then_some(by)
    })
}

fn wait(attempts: &mut [Attempt], most: Duration) {
    let mut fds = Vec::new();
    let mut whose = Vec::new();
    for (at, attempt) in attempts.iter().enumerate().filter(|(_, attempt)| attempt.seen.is_none()) {
        match &attempt.what {
            What::Connect(socket) => fds.push(PollFd::new(socket, PollFlags::OUT)),
            What::Query(socket, _) => fds.push(PollFd::new(socket, PollFlags::IN)),
            What::Nothing => continue,
        }
        whose.push(at);
    }
    let timeout = rustix::time::Timespec::try_from(most).ok();
    if rustix::event::poll(&mut fds, timeout.as_ref()).is_err() {
        return;
    }
    let ready: Vec<usize> = fds
        .iter()
        .zip(whose)
        .filter(|(fd, _)| !fd.revents().is_empty())
        .map(|(_, at)| at)
        .collect();
    drop(fds);
    for at in ready {
        let seen = match &attempts[at].what {
            What::Connect(socket) => match sockopt::socket_error(socket) {
                Ok(Ok(())) => worked(),
                Ok(Err(error)) | Err(error) => judged(error),
            },
            What::Query(socket, server) => {
                let mut answer = [0; 512];
                match socket.recv(&mut answer) {
                    Ok(read) => understood(&answer[..read]),
                    Err(error) => unanswered(*server, &error),
                }
            }
            What::Nothing => continue,
        };
        attempts[at].seen = Some(seen);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::IpAddr;

    use rustix::io::Errno;

    use super::{Seen, gateway, judged, question, scoped, unanswered, understood};

    #[test]
    fn every_route_that_leads_out_is_seen() {
        let own = "Iface ...\neth0 0000A8C0 00000000 0001 0 0 0 00FFFFFF 0 0 0\n";
        assert_eq!(gateway(own), None);
        for (line, by) in [
            ("eth0 00000000 0100A8C0 0003 0 0 0 00000000 0 0 0\n", 0x0100_A8C0),
            // A half of everything, and one host.
            ("eth0 00000080 0100A8C0 0003 0 0 0 00000080 0 0 0\n", 0x0100_A8C0),
            ("eth0 00000080 00000000 0003 0 0 0 00000080 0 0 0\n", 0),
            ("eth0 0101010A 0100A8C0 0003 0 0 0 FFFFFFFF 0 0 0\n", 0x0100_A8C0),
            ("eth0 00000000 00000000 0001 0 0 0 00000000 0 0 0\n", 0),
        ] {
            assert_eq!(gateway(&format!("{own}{line}")), Some(by), "{line}");
        }
    }

    #[test]
    fn what_could_not_be_tried_is_no_refusal() {
        for error in [Errno::INVAL, Errno::MFILE, Errno::NOMEM, Errno::INTR] {
            assert!(matches!(judged(error), Seen::Unclear(_)), "{error}");
        }
        for error in [Errno::HOSTUNREACH, Errno::NETUNREACH] {
            assert!(matches!(judged(error), Seen::Refused(_)), "{error}");
        }
        assert!(matches!(judged(Errno::CONNREFUSED), Seen::Worked(_)));
        // A name server that refuses is there, but for the loopback, where it would be our own.
        let refused = || io::Error::from(Errno::CONNREFUSED);
        let at = |text: &str| -> IpAddr { text.parse().expect("an address") };
        assert!(matches!(unanswered(at("10.0.0.1"), &refused()), Seen::Worked(_)));
        assert!(matches!(unanswered(at("127.0.0.53"), &refused()), Seen::Refused(_)));
        let silent = io::Error::from(io::ErrorKind::TimedOut);
        assert!(matches!(unanswered(at("127.0.0.53"), &silent), Seen::Unclear(_)));
    }

    #[test]
    fn an_address_of_a_link_is_tried_on_every_link() {
        let tried = scoped("[fe80::1]:80".parse().expect("an address"));
        assert!(!tried.is_empty());
        for address in tried {
            assert!(matches!(address, std::net::SocketAddr::V6(six) if six.scope_id() > 0));
        }
        let other = "[2001:db8::1]:80".parse().expect("an address");
        assert_eq!(scoped(other), [other]);
    }

    #[test]
    fn only_an_answer_of_the_world_counts_as_one() {
        let head =
            |code: u8, answers: u8| [0x52, 0x46, 0x81, 0x80 | code, 0, 1, 0, answers, 0, 0, 0, 0];
        assert!(matches!(understood(&head(0, 1)), Seen::Worked(_)));
        assert!(matches!(understood(&head(3, 0)), Seen::Worked(_)));
        for silent in [head(0, 0), head(2, 0), head(5, 0)] {
            assert!(matches!(understood(&silent), Seen::Refused(_)));
        }
        assert!(matches!(understood(&[]), Seen::Refused(_)));
        assert_eq!(question(b"a.bc")[12..], [1, b'a', 2, b'b', b'c', 0, 0, 1, 0, 1]);
    }
}
