//! Trying a network on which only one peer may answer.

use std::ffi::OsString;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::Probe;
use crate::inside::wire::Network;

/// How long an answer is waited for. On this machine one takes less than a millisecond, and where nobody
/// has the address the kernel says so after some 60 ms.
const PATIENCE: Duration = Duration::from_millis(300);
/// The resolver that an engine puts into a container.
const EMBEDDED: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 11));

/// An attempt under way.
struct Attempt {
    check: String,
    what: What,
    /// Once it is decided: what was seen, and whether something answered.
    seen: Option<(bool, String)>,
}

enum What {
    Connect(OwnedFd),
    Query(UdpSocket),
    Nothing,
}

/// Tries all of it at once.
pub(super) fn all(
    world: impl Iterator<Item = SocketAddr>,
    network: &Network,
    servers: &[IpAddr],
    found: &mut Vec<Probe>,
) {
    let mut attempts: Vec<Attempt> =
        world.chain(network.connect.iter().copied()).map(connect).collect();
    for server in servers.iter().copied().chain([IpAddr::from([8, 8, 8, 8]), EMBEDDED]) {
        for name in &network.names {
            attempts.push(query(server, name));
        }
    }
    attempts.push(route());
    let end = Instant::now() + PATIENCE;
    while attempts.iter().any(|attempt| attempt.seen.is_none()) {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        wait(&mut attempts, left);
    }
    found.extend(attempts.into_iter().map(|attempt| {
        let (answered, detail) = attempt
            .seen
            .unwrap_or((false, format!("no answer within {} ms", PATIENCE.as_millis())));
        let result = if answered { "reachable" } else { "blocked" };
        Probe { check: attempt.check, result: result.into(), ok: !answered, detail }
    }));
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
        Ok((_, Ok(()))) => {
            Attempt { check, what: What::Nothing, seen: Some((true, "it worked".into())) }
        }
        Ok((_, Err(error))) => Attempt { check, what: What::Nothing, seen: Some(judged(error)) },
    }
}

/// A refusal is an answer: somebody was there to refuse.
fn judged(error: Errno) -> (bool, String) {
    let answered = matches!(error, Errno::CONNREFUSED | Errno::CONNRESET);
    (answered, io::Error::from(error).to_string())
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
        socket.connect((server, 53))?;
        socket.send(&question(name.as_bytes()))?;
        Ok(socket)
    };
    match open() {
        Ok(socket) => Attempt { check, what: What::Query(socket), seen: None },
        Err(error) => {
            Attempt { check, what: What::Nothing, seen: Some((false, error.to_string())) }
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
fn understood(answer: &[u8]) -> (bool, String) {
    let code = answer.get(3).map_or(15, |flags| flags & 15);
    let addresses = answer.get(6..8).map_or(0, |count| u16::from_be_bytes([count[0], count[1]]));
    match (code, addresses) {
        (0, 0) => (false, "no address".into()),
        (0, _) => (true, format!("{addresses} addresses")),
        (3, _) => (true, "there is no such name: it was looked up".into()),
        (code, _) => (false, format!("refused, code {code}")),
    }
}

/// A route out of the container's own network leads to an address that nobody has.
fn route() -> Attempt {
    let check = "default route".to_owned();
    let routes = std::fs::read_to_string("/proc/self/net/route").unwrap_or_default();
    let gateway = routes.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (to, by) = (words.get(1)?, words.get(2)?);
        (*to == "00000000").then(|| u32::from_str_radix(by, 16).ok()).flatten()
    });
    match gateway {
        None => Attempt { check, what: What::Nothing, seen: Some((false, "there is none".into())) },
        Some(0) => {
            let seen = Some((true, "everything is on this network".into()));
            Attempt { check, what: What::Nothing, seen }
        }
        Some(address) => {
            // In the byte order of the network, as the kernel shows it.
            let address = Ipv4Addr::from(address.to_ne_bytes());
            let mut attempt = connect(SocketAddr::from((address, 80)));
            attempt.check = format!("{check}: its gateway {address}");
            attempt
        }
    }
}

fn wait(attempts: &mut [Attempt], most: Duration) {
    let mut fds = Vec::new();
    let mut whose = Vec::new();
    for (at, attempt) in attempts.iter().enumerate().filter(|(_, attempt)| attempt.seen.is_none()) {
        match &attempt.what {
            What::Connect(socket) => fds.push(PollFd::new(socket, PollFlags::OUT)),
            What::Query(socket) => fds.push(PollFd::new(socket, PollFlags::IN)),
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
                Ok(Ok(())) => (true, "it worked".into()),
                Ok(Err(error)) | Err(error) => judged(error),
            },
            What::Query(socket) => {
                let mut answer = [0; 512];
                match socket.recv(&mut answer) {
                    Ok(read) => understood(&answer[..read]),
                    // Nobody listens there: the container itself, or the resolver that it has none.
                    Err(error) => (false, error.to_string()),
                }
            }
            What::Nothing => continue,
        };
        attempts[at].seen = Some(seen);
    }
}

#[cfg(test)]
mod tests {
    use super::{question, understood};

    #[test]
    fn only_an_answer_of_the_world_counts_as_one() {
        let head =
            |code: u8, answers: u8| [0x52, 0x46, 0x81, 0x80 | code, 0, 1, 0, answers, 0, 0, 0, 0];
        assert!(understood(&head(0, 1)).0);
        assert!(understood(&head(3, 0)).0);
        for silent in [head(0, 0), head(2, 0), head(5, 0)] {
            assert!(!understood(&silent).0);
        }
        assert!(!understood(&[]).0);
        assert_eq!(question(b"a.bc")[12..], [1, b'a', 2, b'b', b'c', 0, 0, 1, 0, 1]);
    }
}
