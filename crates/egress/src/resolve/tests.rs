use std::net::{IpAddr, Ipv4Addr};

use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::proto::rr::Name;
use tokio::net::UdpSocket;

use super::{ResolveError, Resolver};
use crate::support::dns_server as server;

fn resolver(port: u16) -> Resolver {
    let mut server = NameServerConfig::udp(Ipv4Addr::LOCALHOST.into());
    for connection in &mut server.connections {
        connection.port = port;
    }
    let search = vec![Name::from_ascii("search.example.").unwrap()];
    let domain = Some(Name::from_ascii("domain.example.").unwrap());
    Resolver::with_config_in_test(ResolverConfig::from_parts(domain, search, vec![server]))
}

#[tokio::test]
async fn every_address_of_a_name_is_given() {
    let addresses = vec![Ipv4Addr::new(1, 1, 1, 1), Ipv4Addr::new(10, 0, 0, 1)];
    let (port, _) = server(addresses.clone()).await;
    let mut found = resolver(port).lookup("api.example.com").await.unwrap();
    found.sort();
    assert_eq!(found, addresses.into_iter().map(IpAddr::from).collect::<Vec<_>>());
}

#[tokio::test]
async fn only_the_name_itself_is_asked_for() {
    let (port, asked) = server(Vec::new()).await;
    for name in ["api.example.com", "single", "_under_score.example.com"] {
        let missing = resolver(port).lookup(name).await;
        assert_eq!(missing, Err(ResolveError::NoAddress), "{name}");
    }
    let asked = asked.lock().unwrap();
    assert!(asked.iter().any(|name| name == "api.example.com."));
    assert!(asked.iter().any(|name| name == "single."));
    assert!(
        asked.iter().all(|name| name.ends_with(".example.com.") || name == "single."),
        "{asked:?}"
    );
}

#[tokio::test]
async fn the_hosts_file_is_honoured() {
    let (port, asked) = server(vec![Ipv4Addr::new(1, 1, 1, 1)]).await;
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap();
    let (address, name) = hosts
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .find_map(|line| {
            let mut words = line.split_whitespace();
            let address: Ipv4Addr = words.next()?.parse().ok()?;
            words.next().map(|name| (address, name.to_owned()))
        })
        .expect("/etc/hosts has an IPv4 line");
    let found = resolver(port).lookup(&name).await.unwrap();
    assert!(found.contains(&address.into()), "{name}: {found:?}");
    drop(asked);
}

#[tokio::test]
async fn the_system_configuration_is_read_at_the_first_use() {
    let resolver = Resolver::system();
    assert!(!resolver.inner.initialized());
    // Answered without a server (RFC 6761, section 6.3).
    let found = resolver.lookup("a.localhost").await.unwrap();
    assert!(found.contains(&Ipv4Addr::LOCALHOST.into()), "{found:?}");
    assert!(resolver.inner.initialized());
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error() {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = socket.local_addr().unwrap().port();
    drop(socket);
    let missing = resolver(port).lookup("api.example.com").await;
    assert_eq!(missing, Err(ResolveError::Timeout));
}
