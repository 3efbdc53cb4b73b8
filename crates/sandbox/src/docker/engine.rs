//! Docker Engine on this machine: reached, and fit for it.

use std::path::Path;

use bollard::{API_DEFAULT_VERSION, Docker};

use crate::error::{Error, Result};

/// Where the engine listens when nothing else is said.
const SOCKET: &str = "/var/run/docker.sock";
/// The oldest API that has what is needed (Docker Engine 20.10).
const OLDEST: (u64, u64) = (1, 41);
/// The API that knows the gateway mode `isolated` (Docker Engine 28).
const ISOLATED: (u64, u64) = (1, 48);
/// Seconds for one request.
const PATIENCE: u64 = 60;

/// An engine that can hold a sandbox.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(super) docker: Docker,
    /// `unix://…`
    pub(super) host: String,
    version: String,
    api: (u64, u64),
    /// Runtimes by name.
    runtimes: Vec<String>,
    default_runtime: String,
    keeps_memory: bool,
    keeps_cpu: bool,
    keeps_pids: bool,
}

impl Engine {
    /// Connects to the engine that `DOCKER_HOST` names, or to the one at `/var/run/docker.sock`, and
    /// looks whether it can hold a sandbox.
    ///
    /// # Errors
    /// [`Error::Spec`]: a remote engine, Podman, a rootless engine or one with remapped ids, one that is
    /// too old or has no seccomp; [`Error::Step`]: it does not answer. Each says what to do.
    pub async fn connect(host: Option<&str>) -> Result<Self> {
        let host = host.filter(|host| !host.is_empty());
        let path = local(host)?;
        let docker = open(&path)?;
        let failed = |error| unreachable(&path, error);
        let version = docker.version().await.map_err(failed)?;
        let parts = version.components.unwrap_or_default();
        if parts.iter().any(|part| part.name.contains("Podman")) {
            return Err(unfit(
                "this is Podman's Docker-compatible socket: its networks have no embedded gateway \
                 switch, so that a container would reach this machine",
            ));
        }
        let api = version.api_version.as_deref().and_then(parse_api).unwrap_or((0, 0));
        let shown = version.version.unwrap_or_else(|| "unknown".into());
        if api < OLDEST {
            return Err(unfit(&format!(
                "Docker Engine {shown} speaks API {}.{}; 1.41 is needed (Docker Engine 20.10)",
                api.0, api.1
            )));
        }
        let docker = docker.negotiate_version().await.map_err(failed)?;
        let info = docker.info().await.map_err(failed)?;
        fit(&info)?;
        let runtimes = info.runtimes.unwrap_or_default().into_keys().collect();
        Ok(Self {
            docker,
            host: format!("unix://{path}"),
            version: shown,
            api,
            runtimes,
            default_runtime: info.default_runtime.unwrap_or_default(),
            // Without a limit on swap the memory that is over the limit goes there, where there is any.
            keeps_memory: info.memory_limit.unwrap_or(false)
                && (info.swap_limit.unwrap_or(false) || !has_swap()),
            keeps_cpu: info.cpu_cfs_quota.unwrap_or(false),
            keeps_pids: info.pids_limit.unwrap_or(false),
        })
    }

    /// The engine's version, as it says it.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Whether the kernel will keep a limit in a container, memory with its swap: `memory`, `cpus` or `pids`.
    #[must_use]
    pub fn keeps(&self, limit: &str) -> bool {
        match limit {
            "memory" => self.keeps_memory,
            "cpus" => self.keeps_cpu,
            "pids" => self.keeps_pids,
            _ => false,
        }
    }

    /// The runtime that a run will have.
    ///
    /// # Errors
    /// [`Error::Spec`]: the engine has none of that name.
    pub fn runtime(&self, named: Option<&str>) -> Result<String> {
        let Some(name) = named else { return Ok(self.default_runtime.clone()) };
        if self.runtimes.iter().any(|known| known == name) {
            return Ok(name.to_owned());
        }
        let mut known = self.runtimes.clone();
        known.sort();
        Err(unfit(&format!(
            "the engine has no runtime `{}`; it has: {}. Next: add it to the engine's daemon.json and \
             restart the engine",
            name.escape_debug(),
            known.join(", ")
        )))
    }

    /// Whether its bridges can do without an address on the host's side by a mode of their own.
    pub(super) fn isolates_gateways(&self) -> bool {
        self.api >= ISOLATED
    }
}

/// Opens an engine without looking at it: to take away what is left there.
pub(super) fn open(path: &str) -> Result<Docker> {
    if !Path::new(path).exists() {
        return Err(Error::Step {
            step: format!("reach Docker Engine at {path}").into(),
            source: std::io::ErrorKind::NotFound.into(),
            hint: Some(
                "next: start Docker Engine, or name its socket: DOCKER_HOST=unix:///path".into(),
            ),
        });
    }
    Docker::connect_with_unix(path, PATIENCE, API_DEFAULT_VERSION)
        .map_err(|error| unreachable(path, error))
}

/// The path of the socket of an engine on this machine.
pub(super) fn local(host: Option<&str>) -> Result<String> {
    let Some(host) = host else { return Ok(SOCKET.into()) };
    match host.split_once("://") {
        Some(("unix", path)) if path.starts_with('/') => Ok(path.into()),
        Some((scheme @ ("ssh" | "tcp" | "http" | "https"), _)) => Err(unfit(&format!(
            "DOCKER_HOST names a remote engine ({scheme}): the project and the sidecar's sockets are \
             folders of this machine, which a remote engine cannot mount. Next: run Ringfence on that \
             machine, or use an engine here: DOCKER_HOST=unix://{SOCKET}"
        ))),
        _ => Err(unfit(&format!(
            "DOCKER_HOST: expected unix:///path, found {:?}",
            host.chars().take(100).collect::<String>()
        ))),
    }
}

fn fit(info: &bollard::models::SystemInfo) -> Result<()> {
    let options = info.security_options.clone().unwrap_or_default();
    let has = |name: &str| options.iter().any(|option| option.contains(&format!("name={name}")));
    if has("rootless") {
        return Err(unfit(
            "the engine is rootless: files of the project would belong to other ids in a container, and \
             its networks are not this machine's. Next: use an engine that runs as root, or \
             `--sandbox native`, which needs neither root nor an engine",
        ));
    }
    if has("userns") {
        return Err(unfit(
            "the engine remaps user ids (userns-remap): files of the project would belong to other ids \
             in a container. Next: switch it off in daemon.json, or use `--sandbox native`",
        ));
    }
    if !has("seccomp") {
        return Err(unfit(
            "the engine has no seccomp, so that a container could use every system call",
        ));
    }
    if info.os_type.as_deref() != Some("linux") {
        return Err(unfit("the engine runs no Linux containers"));
    }
    Ok(())
}

fn parse_api(text: &str) -> Option<(u64, u64)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn unfit(reason: &str) -> Error {
    Error::Spec(format!("this engine cannot hold a sandbox: {reason}"))
}

fn unreachable(path: &str, error: bollard::errors::Error) -> Error {
    Error::Step {
        step: format!("reach Docker Engine at {path}").into(),
        source: std::io::Error::other(chain(&error)),
        hint: Some(
            "next: see whether it runs (`docker info`), and whether you may use its socket (the group \
             `docker`)"
                .into(),
        ),
    }
}

/// An engine's refusal, as a failed step.
pub(super) fn failed(
    step: impl Into<std::borrow::Cow<'static, str>>,
) -> impl FnOnce(bollard::errors::Error) -> Error {
    let step = step.into();
    move |error| {
        let said = chain(&error);
        let hint = said.contains("no space left").then(|| {
            "the engine's disk is full; next: `docker system df`, then `docker system prune`"
                .to_owned()
        });
        Error::Step { step, source: std::io::Error::other(said), hint }
    }
}

/// An error with what is behind it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let said = error.to_string();
        if !words.contains(&said) {
            words = format!("{words}: {said}");
        }
        next = error.source();
    }
    words.escape_debug().to_string().replace("\\\"", "\"").replace("\\'", "'")
}

/// Whether this machine has swap space; one that cannot be asked has.
fn has_swap() -> bool {
    // Its first line names the columns.
    std::fs::read_to_string("/proc/swaps").map_or(true, |text| text.lines().count() > 1)
}

#[cfg(test)]
mod tests {
    use super::{local, parse_api};

    #[test]
    fn an_engine_elsewhere_is_refused_with_the_reason() {
        assert_eq!(local(None).unwrap(), "/var/run/docker.sock");
        assert_eq!(local(Some("unix:///x/y.sock")).unwrap(), "/x/y.sock");
        for remote in ["ssh://me@there", "tcp://10.0.0.1:2376", "https://x", "http://x"] {
            let error = local(Some(remote)).unwrap_err().to_string();
            assert!(error.contains("remote engine") && error.contains("Next:"), "{error}");
        }
        for odd in ["", "unix://relative", "npipe:////./x", "/var/run/docker.sock"] {
            assert!(local(Some(odd)).is_err(), "{odd}");
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(parse_api("1.41"), Some((1, 41)));
        assert!(parse_api("1.9") < parse_api("1.41"));
        assert_eq!(parse_api("x"), None);
    }
}
