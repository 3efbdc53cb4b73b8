//! What the engine is asked to make: from values to values.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, EndpointSettings, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum,
    HostConfigLogConfig, Mount, MountBindOptions, MountBindOptionsPropagationEnum, MountType,
    NetworkCreateRequest, NetworkingConfig,
};

use super::{LABEL, Wanted};
use crate::{Limits, Rule};

/// Bytes of scratch space when no limit is set.
const SCRATCH: u64 = 1 << 30;
/// Bytes of scratch space for each file that it may hold.
const BYTES_PER_FILE: u64 = 4 << 10;
/// The smallest file system in memory, in bytes.
const PAGE: u64 = 4096;
/// Bytes of memory that a sidecar may use: a thousand tunnels take a tenth of it.
const SIDECAR_MEMORY: i64 = 512 << 20;
/// Its threads.
const SIDECAR_PIDS: i64 = 256;
/// Whom the engine's resolver is told to ask: the container's own loopback, where nobody answers.
pub(super) const NO_RESOLVER: &str = "127.0.0.1";
/// As whom it runs.
const NOBODY: &str = "65534:65534";

/// The name of a run's part in the engine.
pub(super) fn name(run: &str, part: &str) -> String {
    format!("ringfence-{run}-{part}")
}

fn labels(run: &str) -> Option<HashMap<String, String>> {
    Some(HashMap::from([(LABEL.to_owned(), run.to_owned())]))
}

/// The agent's network: internal, without IPv6, without an address on the host's side.
pub(super) fn inner(run: &str, isolated: bool) -> NetworkCreateRequest {
    let option = if isolated {
        ("com.docker.network.bridge.gateway_mode_ipv4", "isolated")
    } else {
        ("com.docker.network.bridge.inhibit_ipv4", "true")
    };
    NetworkCreateRequest {
        name: name(run, "in"),
        driver: Some("bridge".into()),
        internal: Some(true),
        enable_ipv6: Some(false),
        options: Some(HashMap::from([(option.0.to_owned(), option.1.to_owned())])),
        labels: labels(run),
        ..NetworkCreateRequest::default()
    }
}

/// The sidecar's network to the world. Containers on it do not see each other.
pub(super) fn outer(run: &str) -> NetworkCreateRequest {
    NetworkCreateRequest {
        name: name(run, "out"),
        driver: Some("bridge".into()),
        internal: Some(false),
        enable_ipv6: Some(false),
        options: Some(HashMap::from([(
            "com.docker.network.bridge.enable_icc".to_owned(),
            "false".to_owned(),
        )])),
        labels: labels(run),
        ..NetworkCreateRequest::default()
    }
}

/// What both containers have in common: nothing that they do not need.
fn locked_down() -> HostConfig {
    HostConfig {
        auto_remove: Some(false),
        cap_drop: Some(vec!["ALL".into()]),
        security_opt: Some(vec!["no-new-privileges:true".into()]),
        privileged: Some(false),
        readonly_rootfs: Some(true),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        ipc_mode: Some("private".into()),
        // Nobody answers there: names are the proxy's matter.
        dns: Some(vec![NO_RESOLVER.into()]),
        dns_search: Some(vec![".".into()]),
        log_config: Some(HostConfigLogConfig { typ: Some("none".into()), config: None }),
        oom_kill_disable: Some(false),
        ..HostConfig::default()
    }
}

fn on(network: String, endpoint: EndpointSettings) -> Option<NetworkingConfig> {
    let endpoints = HashMap::from([(network, endpoint)]);
    Some(NetworkingConfig { endpoints_config: Some(endpoints) })
}

/// The sidecar. `sockets` is the folder on this machine that is mounted into it.
pub(super) fn sidecar(wanted: &Wanted, image: &str, sockets: &str) -> ContainerCreateBody {
    let host = HostConfig {
        network_mode: Some(name(&wanted.run, "in")),
        memory: Some(SIDECAR_MEMORY),
        memory_swap: Some(SIDECAR_MEMORY),
        pids_limit: Some(SIDECAR_PIDS),
        mounts: Some(vec![bind(sockets, wanted.sidecar_folder, true)]),
        // Killed last of a run's processes when memory runs out.
        oom_score_adj: Some(0),
        // It is on two networks, and passes no packet from one to the other.
        sysctls: Some(HashMap::from([("net.ipv4.ip_forward".to_owned(), "0".to_owned())])),
        ..locked_down()
    };
    ContainerCreateBody {
        hostname: Some("sidecar".into()),
        user: Some(NOBODY.into()),
        image: Some(image.into()),
        entrypoint: Some(vec![format!("/{}", wanted.sidecar_name)]),
        cmd: Some(Vec::new()),
        env: Some(Vec::new()),
        labels: labels(&wanted.run),
        host_config: Some(host),
        networking_config: on(name(&wanted.run, "in"), EndpointSettings::default()),
        ..ContainerCreateBody::default()
    }
}

/// What the agent's container is made from, besides [`Wanted`].
#[derive(Debug)]
pub(super) struct Agent<'a> {
    /// `uid:gid`.
    pub(super) ids: (u32, u32),
    /// The project on this machine, as it is to be mounted.
    pub(super) source: &'a str,
    /// Where it is inside, and on this machine for a person.
    pub(super) project: &'a str,
    /// Rules on paths of it, in order, and whether each is a folder.
    pub(super) rules: &'a [(String, Rule, bool)],
    /// Other paths that are mounted read-only.
    pub(super) read: &'a [String],
    /// An empty file that nobody can read.
    pub(super) empty: &'a str,
    /// Where process 1 is inside.
    pub(super) init: &'a str,
    /// The file with the sidecar's address.
    pub(super) door: &'a str,
    /// Where that is inside.
    pub(super) door_inside: &'a str,
    /// A folder that nobody can open.
    pub(super) shut: &'a str,
    /// The agent's `/etc/resolv.conf`.
    pub(super) names: &'a str,
    pub(super) limits: &'a Limits,
    pub(super) runtime: &'a str,
    /// Whether settings of an interface are given with its endpoint.
    pub(super) by_endpoint: bool,
    /// Whether a terminal is between.
    pub(super) terminal: bool,
}

/// The agent's container.
pub(super) fn agent(wanted: &Wanted, agent: &Agent<'_>) -> ContainerCreateBody {
    let (uid, gid) = agent.ids;
    let volumes = &wanted.image.volumes;
    let scratch = Scratch::of(agent.limits, volumes.len());
    // The runtime gives a folder the mode that the image's has, so it is at least the agent's own.
    let own = |mode: &str| format!("mode={mode},uid={uid},gid={gid}");
    let mut tmpfs = HashMap::from([
        ("/tmp".to_owned(), options(scratch.tmp, &own("1777"))),
        ("/home/agent".to_owned(), options(scratch.home, &own("0700"))),
        ("/dev/shm".to_owned(), options(scratch.shm, &own("1777"))),
    ]);
    let volume = |folder: &String| (folder.clone(), options(scratch.volume, &own("0700")));
    tmpfs.extend(volumes.iter().map(volume));
    let program = wanted.program.to_string_lossy();
    let mut mounts =
        vec![bind(&program, agent.init, true), bind(agent.door, agent.door_inside, true)];
    // Without it each lookup would wait for the engine's resolver, which has nobody to ask.
    mounts.push(bind(agent.names, "/etc/resolv.conf", true));
    mounts.push(bind(agent.source, agent.project, true));
    for (path, rule, folder) in agent.rules {
        let inside = under(agent.project, path);
        mounts.push(match rule {
            Rule::Writable | Rule::Pinned => bind(&under(agent.source, path), &inside, false),
            Rule::ReadOnly => bind(&under(agent.source, path), &inside, true),
            Rule::Masked if *folder => bind(agent.shut, &inside, true),
            Rule::Masked => bind(agent.empty, &inside, true),
        });
    }
    mounts.extend(agent.read.iter().map(|path| bind(path, path, true)));
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let host = HostConfig {
        network_mode: Some(name(&wanted.run, "in")),
        runtime: Some(agent.runtime.to_owned()),
        memory: agent.limits.memory.map(signed),
        // As much as the memory: no swap on top.
        memory_swap: agent.limits.memory.map(signed),
        pids_limit: Some(agent.limits.pids.map_or(4096, signed)),
        nano_cpus: agent.limits.cpus.map(nano),
        tmpfs: Some(tmpfs),
        mounts: Some(last_of_each(mounts)),
        oom_score_adj: Some(500),
        sysctls: shares_kernel(agent.runtime).then(|| sysctls(agent.by_endpoint)),
        ..locked_down()
    };
    ContainerCreateBody {
        hostname: Some("sandbox".into()),
        user: Some(format!("{uid}:{gid}")),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        open_stdin: Some(true),
        stdin_once: Some(true),
        tty: Some(agent.terminal),
        image: Some(wanted.image.id.clone()),
        entrypoint: Some(vec![agent.init.into()]),
        cmd: Some(Vec::new()),
        // The agent's environment does not come by this way: whoever may look at a container reads it.
        env: Some(Vec::new()),
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".into()]),
            ..HealthConfig::default()
        }),
        working_dir: Some("/".into()),
        labels: labels(&wanted.run),
        host_config: Some(host),
        networking_config: on(
            name(&wanted.run, "in"),
            endpoint(agent.by_endpoint && shares_kernel(agent.runtime)),
        ),
        ..ContainerCreateBody::default()
    }
}

/// An address without a host is known to be one within some 60 ms and not after 3 s: the probe waits for
/// it.
const QUICK_TO_GIVE_UP: [(&str, &str); 2] = [("mcast_solicit", "3"), ("retrans_time_ms", "20")];

/// Settings of the agent's network, where the runtime has the host's kernel. No ICMP sockets.
fn sysctls(by_endpoint: bool) -> HashMap<String, String> {
    let mut all = HashMap::from([("net.ipv4.ping_group_range".to_owned(), "1 0".to_owned())]);
    if !by_endpoint {
        // There is one interface, and older engines always call it so.
        let named = QUICK_TO_GIVE_UP
            .map(|(name, value)| (format!("net.ipv4.neigh.eth0.{name}"), value.to_owned()));
        all.extend(named);
    }
    all
}

/// The same settings as newer engines take them, who do not promise the interface's name.
fn endpoint(by_endpoint: bool) -> EndpointSettings {
    let settings =
        QUICK_TO_GIVE_UP.map(|(name, value)| format!("net.ipv4.neigh.IFNAME.{name}={value}"));
    let options =
        HashMap::from([("com.docker.network.endpoint.sysctls".to_owned(), settings.join(","))]);
    EndpointSettings { driver_opts: by_endpoint.then_some(options), ..EndpointSettings::default() }
}

/// Whether containers of this runtime have the host's kernel, and its settings.
fn shares_kernel(runtime: &str) -> bool {
    matches!(runtime, "runc" | "crun" | "io.containerd.runc.v2")
}

/// How scratch space is parted, in bytes: a container has no one file system for all of it. All together
/// are what the limit says.
#[derive(Debug, PartialEq, Eq)]
struct Scratch {
    home: u64,
    tmp: u64,
    shm: u64,
    /// Each of the image's volumes.
    volume: u64,
}

impl Scratch {
    fn of(limits: &Limits, volumes: usize) -> Self {
        let all = limits.disk.unwrap_or(SCRATCH);
        let shm = (all / 8).min(64 << 20);
        // A quarter for the volumes, where there are any.
        let volume = match u64::try_from(volumes) {
            Ok(0) | Err(_) => 0,
            Ok(count) => all / 4 / count,
        };
        let taken = volume.saturating_mul(volumes as u64).saturating_add(shm);
        let half = all.saturating_sub(taken) / 2;
        Self { home: half, tmp: half, shm, volume }
    }
}

/// A file system in memory with a bound on its bytes and on its files. One of 0 bytes would have none.
fn options(bytes: u64, more: &str) -> String {
    let bytes = bytes.max(PAGE);
    let files = (bytes / BYTES_PER_FILE).clamp(64, 1 << 20);
    format!("rw,exec,nosuid,nodev,size={bytes},nr_inodes={files},{more}")
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a number of CPUs times a billion, clamped to what fits"
)]
fn nano(cpus: f64) -> i64 {
    (cpus * 1e9).clamp(1e7, 1e15) as i64
}

fn under(folder: &str, path: &str) -> String {
    if path.is_empty() || path == "." { folder.to_owned() } else { format!("{folder}/{path}") }
}

fn bind(source: &str, target: &str, read_only: bool) -> Mount {
    Mount {
        target: Some(target.to_owned()),
        source: Some(source.to_owned()),
        typ: Some(MountType::BIND),
        read_only: Some(read_only),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            // What else is mounted beneath stays out: a read-only mount would leave it writable.
            non_recursive: Some(true),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

/// Where two mounts have one target, the later one holds: the engine takes each target once.
fn last_of_each(mounts: Vec<Mount>) -> Vec<Mount> {
    let mut kept: Vec<Mount> = Vec::new();
    for mount in mounts {
        kept.retain(|other| other.target != mount.target);
        kept.push(mount);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::{Scratch, options};
    use crate::Limits;

    #[test]
    fn all_scratch_space_together_is_what_the_limit_says() {
        for disk in [None, Some(1 << 20), Some(64 << 20), Some(1 << 40)] {
            for volumes in [0, 1, 3, 1000] {
                let it = Scratch::of(&Limits { disk, ..Limits::default() }, volumes);
                let all = it.home + it.tmp + it.shm + it.volume * volumes as u64;
                let most = disk.unwrap_or(super::SCRATCH);
                assert!(all <= most && all * 100 >= most * 99, "{disk:?} {volumes} {it:?}");
            }
        }
    }

    #[test]
    fn every_one_is_bounded_in_bytes_and_files() {
        assert_eq!(
            options(64 << 20, "mode=0700"),
            "rw,exec,nosuid,nodev,size=67108864,nr_inodes=16384,mode=0700"
        );
        // 0 would be no bound at all.
        assert!(options(0, "").contains("size=4096,nr_inodes=64,"));
    }
}
