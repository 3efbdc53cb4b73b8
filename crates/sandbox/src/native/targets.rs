//! What the probe tries to reach on the host. Some of it is made for the purpose, so that a
//! refusal means something.

use std::env;
use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::{fs, io};

use super::launch::random_id;
use crate::Spec;
use crate::error::{Result, Step as _};
use crate::inside::wire::Targets;

/// Targets, and the listeners behind them: they must outlive the probe.
#[derive(Debug)]
pub(crate) struct Range {
    pub(crate) targets: Targets,
    _tcp: TcpListener,
    _unix: UnixListener,
}

impl Range {
    /// # Errors
    /// [`crate::Error::Step`]: what is to be tried cannot be learnt or made, so that nothing would be tried.
    pub(crate) fn new(spec: &Spec) -> Result<Self> {
        let step = "make what the probe must not reach";
        let mut tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).step(step)?;
        let mut port = tcp.local_addr().step(step)?.port();
        // The same number inside would be one of our own listeners.
        while spec.listen.contains(&port) {
            tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).step(step)?;
            port = tcp.local_addr().step(step)?.port();
        }
        let name = format!("ringfence-probe-{}", random_id()?);
        let address = SocketAddr::from_abstract_name(&name).step(step)?;
        let unix = UnixListener::bind_addr(&address).step(step)?;
        let targets = Targets {
            host_addresses: host_addresses()?,
            name_servers: system_name_servers()?,
            host_port: Some(port),
            host_abstract: host_names(|name| env::var_os(name))
                .into_iter()
                .chain([name])
                .map(String::into_bytes)
                .collect(),
            sockets: host_sockets(|name| env::var_os(name)),
            unseen: spec.must_not_see.iter().cloned().map(PathBuf::into_os_string).collect(),
            control: spec.listen.first().map(|port| (Ipv4Addr::LOCALHOST, *port).into()),
            network: None,
        };
        Ok(Self { targets, _tcp: tcp, _unix: unix })
    }
}

/// The addresses of this machine's interfaces, but for loopback.
///
/// # Errors
/// [`crate::Error::Step`]: the kernel does not say.
pub(crate) fn host_addresses() -> Result<Vec<IpAddr>> {
    let all = if_addrs::get_if_addrs().step("list this machine's addresses")?;
    let others = all.into_iter().filter(|interface| !interface.is_loopback());
    Ok(others.map(|interface| interface.ip()).collect())
}

/// The name servers of this machine.
///
/// # Errors
/// [`crate::Error::Step`]: there is a list of them, and it cannot be read.
pub(crate) fn system_name_servers() -> Result<Vec<IpAddr>> {
    match fs::read_to_string("/etc/resolv.conf") {
        Ok(text) => Ok(name_servers(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).step("read /etc/resolv.conf"),
    }
}

fn name_servers(text: &str) -> Vec<IpAddr> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        // A scope, `%eth0`, means nothing inside.
        let address = |word: &str| word.split('%').next()?.parse().ok();
        (words.next() == Some("nameserver")).then(|| address(words.next()?)).flatten()
    });
    servers.collect()
}

/// Sockets of this person's daemons: keys, desktop, engines, terminals that others type into.
pub(crate) fn host_sockets(variable: impl Fn(&str) -> Option<OsString>) -> Vec<OsString> {
    let path = |name: &str| variable(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let mut all: Vec<PathBuf> =
        ["SSH_AUTH_SOCK", "GPG_AGENT_SOCK"].into_iter().filter_map(path).collect();
    for (name, prefix) in [("DOCKER_HOST", "unix://"), ("DBUS_SESSION_BUS_ADDRESS", "unix:path=")] {
        let text = variable(name).and_then(|text| text.into_string().ok());
        let socket = text.as_deref().and_then(|text| text.strip_prefix(prefix));
        all.extend(socket.and_then(|socket| socket.split(',').next()).map(PathBuf::from));
    }
    // Its socket, its process, its session.
    let tmux = variable("TMUX").and_then(|text| text.into_string().ok());
    all.extend(tmux.as_deref().and_then(|text| text.split(',').next()).map(PathBuf::from));
    if let Some(folder) = path("XDG_RUNTIME_DIR") {
        let display = path("WAYLAND_DISPLAY").unwrap_or_else(|| "wayland-0".into());
        all.push(folder.join(display));
        let more =
            ["bus", "systemd/private", "podman/podman.sock", "docker.sock", "keyring/control"];
        all.extend(more.map(|name| folder.join(name)));
        all.extend(["gnupg/S.gpg-agent", "gnupg/S.gpg-agent.ssh"].map(|name| folder.join(name)));
    }
    all.extend(path("GNUPGHOME").map(|folder| folder.join("S.gpg-agent")));
    // An X server has its socket in the abstract name space too, and a bus can have its only one there.
    all.extend(display(&variable).map(PathBuf::from));
    if let Some(home) = path("HOME") {
        all.extend([".gnupg/S.gpg-agent", ".gnupg/S.gpg-agent.ssh"].map(|name| home.join(name)));
    }
    all.retain(|socket| socket.is_absolute());
    all.into_iter().map(PathBuf::into_os_string).collect()
}

/// Names of such sockets in the abstract name space, where no mount hides them.
pub(crate) fn host_names(variable: impl Fn(&str) -> Option<OsString>) -> Vec<String> {
    let mut all: Vec<String> = display(&variable).into_iter().collect();
    let bus = variable("DBUS_SESSION_BUS_ADDRESS").and_then(|text| text.into_string().ok());
    let parts = bus.as_deref().unwrap_or_default().split([';', ',']);
    all.extend(parts.filter_map(|part| {
        part.strip_prefix("unix:").unwrap_or(part).strip_prefix("abstract=").map(str::to_owned)
    }));
    all
}

/// Where the X server of `DISPLAY` listens.
fn display(variable: &impl Fn(&str) -> Option<OsString>) -> Option<String> {
    let text = variable("DISPLAY")?.into_string().ok()?;
    let (_, number) = text.rsplit_once(':')?;
    let number: u32 = number.split('.').next()?.parse().ok()?;
    Some(format!("/tmp/.X11-unix/X{number}"))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    #[test]
    fn sockets_are_found_by_what_names_them() {
        let found = super::host_sockets(|name| {
            Some(match name {
                "SSH_AUTH_SOCK" => "/tmp/ssh/agent".into(),
                "DOCKER_HOST" => "unix:///run/own.sock".into(),
                "DBUS_SESSION_BUS_ADDRESS" => "unix:path=/run/user/1/bus,guid=0".into(),
                "TMUX" => "/tmp/tmux-1/default,12,0".into(),
                "GPG_AGENT_SOCK" => "relative".into(),
                _ => return None,
            })
        });
        let expected =
            ["/tmp/ssh/agent", "/run/own.sock", "/run/user/1/bus", "/tmp/tmux-1/default"];
        assert_eq!(found, expected.map(std::ffi::OsString::from));
        assert!(super::host_sockets(|_| None).is_empty());
    }

    #[test]
    fn abstract_names_are_found_too() {
        let found = super::host_names(|name| {
            Some(match name {
                "DISPLAY" => "localhost:12.0".into(),
                "DBUS_SESSION_BUS_ADDRESS" => {
                    "unix:path=/run/bus,guid=0;unix:abstract=/tmp/dbus-1,guid=1".into()
                }
                _ => return None,
            })
        });
        assert_eq!(found, ["/tmp/.X11-unix/X12", "/tmp/dbus-1"]);
        let only = |name: &str| (name == "DISPLAY").then(|| ":3".into());
        assert_eq!(super::host_sockets(only), ["/tmp/.X11-unix/X3"]);
        assert!(super::host_names(|_| None).is_empty());
    }

    #[test]
    fn name_servers_are_read() {
        let text = "# x\nnameserver 10.0.0.1\nsearch a\nnameserver ::1\nnameserver nonsense\n";
        let expected: Vec<IpAddr> = vec!["10.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
        assert_eq!(super::name_servers(text), expected);
    }
}
