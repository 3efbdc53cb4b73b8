//! What the engine made, held against what it was asked for: no flag is believed where it can be looked at.

use std::net::IpAddr;

use bollard::Docker;
use bollard::query_parameters::{InspectContainerOptions, InspectNetworkOptions};

use super::engine::failed;
use super::{Wanted, bodies};
use crate::error::{Error, Result};

/// The sidecar's address in the agent's network, and the gateway that nobody must have there.
pub(super) async fn peer(docker: &Docker, run: &str) -> Result<(IpAddr, Option<IpAddr>)> {
    let name = bodies::name(run, "in");
    let network = docker
        .inspect_network(&name, None::<InspectNetworkOptions>)
        .await
        .map_err(failed("look at the agent's network"))?;
    closed(&network, run)?;
    let configs = network.ipam.and_then(|ipam| ipam.config).unwrap_or_default();
    let hosts = crate::native::host_addresses()?;
    if configs.is_empty() {
        return Err(Error::Spec("the engine does not say which addresses the network has".into()));
    }
    for subnet in configs.iter().map(|config| config.subnet.as_deref().unwrap_or_default()) {
        if let Some(host) = hosts.iter().find(|host| holds(subnet, **host) != Some(false)) {
            return Err(Error::Spec(format!(
                "the agent's network {subnet} holds {host}, which is this machine's own address"
            )));
        }
    }
    let gateway = configs.into_iter().find_map(|config| config.gateway?.parse().ok());
    let step = "look at the sidecar";
    let sidecar = docker
        .inspect_container(&bodies::name(run, "sidecar"), None::<InspectContainerOptions>)
        .await
        .map_err(failed(step))?;
    let networks =
        sidecar.network_settings.and_then(|settings| settings.networks).unwrap_or_default();
    let address = networks.get(&name).and_then(|endpoint| endpoint.ip_address.as_deref());
    let address = address.and_then(|address| address.parse().ok());
    match address {
        Some(address) => Ok((address, gateway)),
        None => Err(Error::Spec("the sidecar has no address in the agent's network".into())),
    }
}

/// Whether the engine made the network as it was asked to: it says so itself, and the probe tries it.
fn closed(network: &bollard::models::NetworkInspect, run: &str) -> Result<()> {
    let refuse = |why: &str| Err(Error::Spec(format!("the agent's network {why}")));
    if network.internal != Some(true) {
        return refuse("is not internal: the engine gives it a way out");
    }
    if network.enable_ipv6 != Some(false) {
        return refuse("has IPv6, which was not asked for, or the engine does not say");
    }
    if network.driver.as_deref() != Some("bridge") {
        return refuse("is not a bridge of this machine");
    }
    let own = ["agent", "sidecar"].map(|part| bodies::name(run, part));
    let containers = network.containers.iter().flatten();
    let mut names = containers.filter_map(|(_, container)| container.name.as_ref());
    match names.find(|name| !own.contains(name)) {
        Some(other) => refuse(&format!("has another container on it: {}", other.escape_debug())),
        None => Ok(()),
    }
}

/// Whether an address lies in a subnet, `10.0.0.0/8`; `None` where that is not one.
fn holds(subnet: &str, address: IpAddr) -> Option<bool> {
    let (start, length) = subnet.split_once('/')?;
    let (start, length): (IpAddr, u32) = (start.parse().ok()?, length.parse().ok()?);
    let (start, address, bits) = match (start, address) {
        (IpAddr::V4(start), IpAddr::V4(address)) => {
            (u128::from(start.to_bits()), u128::from(address.to_bits()), 32)
        }
        (IpAddr::V6(start), IpAddr::V6(address)) => (start.to_bits(), address.to_bits(), 128),
        _ => return Some(false),
    };
    let rest = u32::checked_sub(bits, length)?;
    // Shifted by all of its bits, everything is alike.
    let prefix = |bits: u128| bits.checked_shr(rest).unwrap_or(0);
    Some(prefix(start) == prefix(address))
}

/// Holds what was made against what was asked for, as far as the engine can tell.
pub(super) async fn verify(
    docker: &Docker,
    agent: &str,
    wanted: &Wanted,
    runtime: &str,
) -> Result<()> {
    let found = docker
        .inspect_container(agent, None::<InspectContainerOptions>)
        .await
        .map_err(failed("look at the agent's container"))?;
    let host = found.host_config.unwrap_or_default();
    if host.runtime.as_deref().is_some_and(|given| given != runtime) {
        return Err(Error::Spec(format!(
            "the container runs under `{}`, not under `{runtime}`",
            host.runtime.unwrap_or_default()
        )));
    }
    if found.image.as_deref() != Some(wanted.image.id.as_str()) {
        return Err(Error::Spec("the container was made from another image".into()));
    }
    if host.dns.as_deref() != Some(&[bodies::NO_RESOLVER.to_owned()]) {
        return Err(Error::Spec("the engine's resolver asks others than it was told to".into()));
    }
    let mut mounts = found.mounts.into_iter().flatten();
    if let Some(volume) = mounts.find(|it| it.typ.as_deref() == Some("volume")) {
        return Err(Error::Spec(format!(
            "the engine made a volume on this machine's disk, at {}: a run has none",
            volume.destination.unwrap_or_default().escape_debug()
        )));
    }
    let networks =
        found.network_settings.and_then(|settings| settings.networks).unwrap_or_default();
    let only = bodies::name(&wanted.run, "in");
    if networks.len() != 1 || !networks.contains_key(&only) {
        return Err(Error::Spec("the agent's container is on another network than its own".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::holds;

    #[test]
    fn an_address_lies_in_a_subnet_or_not() {
        for (subnet, address, expected) in [
            ("172.27.0.0/16", "172.27.255.1", Some(true)),
            ("172.27.0.0/16", "172.28.0.1", Some(false)),
            ("0.0.0.0/0", "10.0.0.1", Some(true)),
            ("10.0.0.1/32", "10.0.0.1", Some(true)),
            ("10.0.0.1/32", "10.0.0.2", Some(false)),
            ("fd00::/8", "fd12::1", Some(true)),
            ("::/0", "fe80::1", Some(true)),
            ("fd00::/8", "10.0.0.1", Some(false)),
            ("10.0.0.0/33", "10.0.0.1", None),
            ("10.0.0.0", "10.0.0.1", None),
        ] {
            assert_eq!(holds(subnet, address.parse().unwrap()), expected, "{subnet} {address}");
        }
    }
}
