//! What the probe tries to reach on the host. Some of it is made for the purpose, so that a
//! refusal means something.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;

use super::launch::random_id;
use crate::Spec;
use crate::inside::wire::Targets;

/// Addresses of the host that are tried.
const ADDRESSES_MAX: usize = 8;

/// Targets, and the listeners behind them: they must outlive the probe.
#[derive(Debug)]
pub(crate) struct Range {
    pub(crate) targets: Targets,
    _tcp: Option<TcpListener>,
    _unix: Option<UnixListener>,
}

impl Range {
    pub(crate) fn new(spec: &Spec) -> Self {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok();
        let port = tcp.as_ref().and_then(|tcp| tcp.local_addr().ok()).map(|a| a.port());
        let name = random_id().map(|id| format!("ringfence-probe-{id}")).ok();
        let unix = name.as_ref().and_then(|name| {
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).ok()?).ok()
        });
        let path = |name: &str| env::var_os(name).filter(|path| !path.is_empty());
        let targets = Targets {
            host_addresses: host_addresses(),
            name_servers: system_name_servers(),
            // The same number inside would be one of our own listeners.
            host_port: port.filter(|port| !spec.listen.contains(port)),
            host_abstract: unix.as_ref().and(name).map(String::into_bytes),
            sockets: ["SSH_AUTH_SOCK", "GPG_AGENT_SOCK"].into_iter().filter_map(path).collect(),
            unseen: spec.must_not_see.iter().cloned().map(PathBuf::into_os_string).collect(),
            control: spec.listen.first().map(|port| (Ipv4Addr::LOCALHOST, *port).into()),
            network: None,
        };
        Self { targets, _tcp: tcp, _unix: unix }
    }
}

/// The addresses of this machine's interfaces, but for loopback.
pub(crate) fn host_addresses() -> Vec<std::net::IpAddr> {
    let all = if_addrs::get_if_addrs().unwrap_or_default();
    let others = all.into_iter().filter(|interface| !interface.is_loopback());
    others.map(|interface| interface.ip()).take(ADDRESSES_MAX).collect()
}

/// The name servers of this machine.
pub(crate) fn system_name_servers() -> Vec<std::net::IpAddr> {
    name_servers(&fs::read_to_string("/etc/resolv.conf").unwrap_or_default())
}

fn name_servers(text: &str) -> Vec<std::net::IpAddr> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse().ok()).flatten()
    });
    servers.take(ADDRESSES_MAX).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn name_servers_are_read() {
        let text = "# x\nnameserver 10.0.0.1\nsearch a\nnameserver ::1\nnameserver nonsense\n";
        let expected: Vec<std::net::IpAddr> =
            vec!["10.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
        assert_eq!(super::name_servers(text), expected);
    }
}
