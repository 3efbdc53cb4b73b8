//! What the probe of a container tries to reach. Some of it is made for the purpose.

use std::collections::HashMap;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

use bollard::Docker;
use bollard::query_parameters::ListContainersOptions;

use super::LABEL;
use super::engine::failed;
use crate::Spec;
use crate::error::{Result, Step as _};
use crate::inside::wire::{Network, Targets};

/// Targets, and the listener behind them: it must outlive the probe.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) targets: Targets,
    _host: TcpListener,
}

impl Range {
    /// `peer` is the sidecar; `gateway` is what nobody must be in the agent's network.
    ///
    /// # Errors
    /// [`crate::Error::Step`]: what is to be tried cannot be learnt or made, so that nothing would be tried.
    pub(super) async fn new(
        docker: &Docker,
        spec: &Spec,
        peer: IpAddr,
        gateway: Option<IpAddr>,
        run: &str,
    ) -> Result<Self> {
        let step = "make what the probe must not reach";
        // On every address of this machine, so that a refusal means something. Nothing is accepted.
        let host = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).step(step)?;
        let port = host.local_addr().step(step)?.port();
        let hosts = crate::native::host_addresses()?.into_iter().chain(gateway);
        let mut connect: Vec<SocketAddr> = hosts
            .flat_map(|address| [port, 2375].map(|port| SocketAddr::new(address, port)))
            .collect();
        for address in others_addresses(docker, run).await? {
            for port in spec.listen.iter().copied().chain([super::INIT_PORT]) {
                connect.push(SocketAddr::new(address, port));
            }
        }
        let proxy = spec.listen.first().copied().unwrap_or(0);
        let targets = Targets {
            name_servers: crate::native::system_name_servers()?,
            sockets: crate::native::host_sockets(|name| std::env::var_os(name)),
            host_abstract: crate::native::host_names(|name| std::env::var_os(name))
                .into_iter()
                .map(String::into_bytes)
                .collect(),
            unseen: spec.must_not_see.iter().cloned().map(PathBuf::into_os_string).collect(),
            control: Some(SocketAddr::new(peer, proxy)),
            network: Some(Network { connect, names: NAMES.map(OsString::from).to_vec() }),
            ..Targets::default()
        };
        Ok(Self { targets, _host: host })
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
async fn others_addresses(docker: &Docker, run: &str) -> Result<Vec<IpAddr>> {
    let filters = HashMap::from([("label".to_owned(), vec![LABEL.to_owned()])]);
    let options =
        ListContainersOptions { filters: Some(filters), ..ListContainersOptions::default() };
    let found = docker.list_containers(Some(options)).await;
    let found = found.map_err(failed("list other runs' containers"))?;
    let others = found.into_iter().filter(|container| {
        let labels = container.labels.as_ref();
        labels.and_then(|labels| labels.get(LABEL)).is_none_or(|value| value != run)
    });
    let addresses = others
        .filter_map(|container| container.network_settings?.networks)
        .flat_map(HashMap::into_values)
        .filter_map(|endpoint| endpoint.ip_address?.parse().ok());
    Ok(addresses.collect())
}
