//! What the probe of a container tries to reach. Some of it is made for the purpose.

use std::collections::HashMap;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

use bollard::Docker;
use bollard::query_parameters::ListContainersOptions;

use super::LABEL;
use crate::Spec;
use crate::inside::wire::{Network, Targets};

/// Addresses of each kind that are tried.
const MOST: usize = 16;

/// Targets, and the listener behind them: it must outlive the probe.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) targets: Targets,
    _host: Option<TcpListener>,
}

impl Range {
    /// `peer` is the sidecar; `gateway` is what nobody must be in the agent's network.
    pub(super) async fn new(
        docker: &Docker,
        spec: &Spec,
        peer: IpAddr,
        gateway: Option<IpAddr>,
        run: &str,
    ) -> Self {
        // On every address of this machine, so that a refusal means something. Nothing is accepted.
        let host = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).ok();
        let port = host.as_ref().and_then(|host| host.local_addr().ok()).map(|at| at.port());
        let mut hosts = crate::native::host_addresses();
        hosts.extend(gateway);
        let mut others = Vec::new();
        for address in others_addresses(docker, run).await {
            for port in spec.listen.iter().copied().chain([super::INIT_PORT]) {
                others.push(SocketAddr::new(address, port));
            }
        }
        let mut connect: Vec<SocketAddr> = Vec::new();
        for address in hosts.into_iter().take(MOST) {
            connect.extend([port.unwrap_or(22), 2375].map(|port| SocketAddr::new(address, port)));
        }
        connect.extend(others.into_iter().take(MOST));
        let proxy = spec.listen.first().copied().unwrap_or(0);
        let targets = Targets {
            name_servers: crate::native::system_name_servers(),
            sockets: Vec::new(),
            unseen: spec.must_not_see.iter().cloned().map(PathBuf::into_os_string).collect(),
            control: Some(SocketAddr::new(peer, proxy)),
            network: Some(Network { connect, names: NAMES.map(OsString::from).to_vec() }),
            ..Targets::default()
        };
        Self { targets, _host: host }
    }
}

/// Names by which engines lead to the host.
const NAMES: [&str; 4] = [
    "host.docker.internal",
    "gateway.docker.internal",
    "host.containers.internal",
    "probe.ringfence.example.com",
];

/// The addresses of other runs' containers.
async fn others_addresses(docker: &Docker, run: &str) -> Vec<IpAddr> {
    let filters = HashMap::from([("label".to_owned(), vec![LABEL.to_owned()])]);
    let options =
        ListContainersOptions { filters: Some(filters), ..ListContainersOptions::default() };
    let found = docker.list_containers(Some(options)).await.unwrap_or_default();
    let others = found.into_iter().filter(|container| {
        let labels = container.labels.as_ref();
        labels.and_then(|labels| labels.get(LABEL)).is_none_or(|value| value != run)
    });
    others
        .filter_map(|container| container.network_settings?.networks)
        .flat_map(HashMap::into_values)
        .filter_map(|endpoint| endpoint.ip_address?.parse().ok())
        .collect()
}
