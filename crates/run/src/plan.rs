//! The one place where a run is assembled.

mod view;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ringfence_bundle::{Id, Isolation, Manifest, SecretName, Snapshot, Template, Transport};
use ringfence_policy::{FsScopes, MachinePolicy, Ruleset};
use ringfence_sandbox::{Limits, Mount, native};
use ringfence_secrets::Chain;
use ringfence_trust::{Store, TrustedBundle};

use crate::project::{self, Rules};
use crate::{Error, program, secrets};

pub use view::{Line, View};

/// The port of the proxy inside a sandbox.
pub(crate) const PROXY_PORT: u16 = 3128;
/// The port of the MCP gate inside a sandbox.
pub(crate) const GATE_PORT: u16 = 3129;

const MIB: u64 = 1 << 20;
/// Processes and threads, where the manifest says nothing.
const DEFAULT_PIDS: u64 = 1024;
/// MiB of scratch space, where the manifest says nothing.
const DEFAULT_DISK_MIB: u64 = 1024;

/// What a person asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// The project folder, as given.
    pub project: PathBuf,
    /// The machine's state, `~/.ringfence` or `RINGFENCE_HOME`.
    pub home: PathBuf,
    /// The person's home folder, for `~/` in policy.
    pub user_home: PathBuf,
    /// Where programs are looked up.
    pub path: Option<OsString>,
    /// A command instead of the manifest's.
    pub command: Vec<String>,
    /// A backend by name, or the default.
    pub backend: Option<String>,
}

/// Which wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// Namespaces, Landlock, seccomp.
    Native,
}

impl Backend {
    /// What it is worth.
    #[must_use]
    pub fn isolation(self) -> Isolation {
        match self {
            Self::Native => Isolation::Network,
        }
    }

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
        }
    }
}

/// One program in one sandbox, decided.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) file: PathBuf,
    pub(crate) args: Vec<String>,
}

/// Everything a run needs, decided once. Only [`Plan::build`] makes one; `execute` consumes it.
#[derive(Debug, Clone)]
pub struct Plan {
    pub(crate) home: PathBuf,
    pub(crate) store: Store,
    pub(crate) bundle: Arc<TrustedBundle>,
    pub(crate) ruleset: Arc<Ruleset>,
    pub(crate) backend: Backend,
    pub(crate) program: Program,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) read: Vec<PathBuf>,
    pub(crate) limits: Limits,
    pub(crate) credentials: Vec<SecretName>,
    pub(crate) servers: Vec<(Id, Program)>,
    pub(crate) secrets: Chain,
}

impl Plan {
    /// Checks trust, compiles the ruleset, resolves program, mounts, limits and backend. Starts,
    /// contacts and resolves nothing.
    ///
    /// # Errors
    /// [`Error`]: the bundle, trust, policy, program, project or backend refuse.
    pub fn build(request: &Request) -> Result<Self, Error> {
        let store = Store::new(&request.home);
        let bundle = store.check(Snapshot::read(&request.project)?)?;
        let machine = MachinePolicy::load(&request.home)?;
        let manifest = &bundle.snapshot().manifest;
        let ruleset = Ruleset::compile(&machine, manifest)?;
        let backend = backend(request.backend.as_deref(), ruleset.required_isolation())?;
        let project = bundle.snapshot().project.clone();
        // Rules that keep something shut are held against where it really is.
        let home = real(&request.home);
        let user_home = real(&request.user_home);
        separate(&project, &home, &user_home)?;
        let program = command(request, manifest, &project)?;
        let servers = servers(request, manifest, &project)?;
        let scopes = scopes(&ruleset, &user_home, &home)?;
        let denied = |relative: &str, absolute: &str| ruleset.denied(relative, absolute).is_some();
        let never = [home.clone(), user_home.join(".ssh"), user_home.join(".gnupg")];
        project::outside::check(&scopes.read_outside, &denied, &never)?;
        project::outside::check_system(&ruleset.denied_elsewhere())?;
        let mounts = project::mounts(&Rules {
            project: &project,
            scopes: &scopes,
            protected: &ringfence_adapters::protected(),
            programs: &programs(manifest, &servers, &project),
            literals: &ruleset.denied_literals(),
            denied_below: ruleset.denies_below_folders(),
            git_configs: &[
                PathBuf::from("/etc/gitconfig"),
                user_home.join(".config/git/config"),
                user_home.join(".gitconfig"),
            ],
            denied: &denied,
        })?;
        let limits = limits(manifest, ruleset.max_duration());
        let credentials = manifest.sandbox.credentials.clone();
        let path = request.path.clone();
        let secrets = secrets::chain(&home, Some(&bundle), &ruleset, &scopes, path);
        Ok(Self {
            home,
            store,
            bundle: Arc::new(bundle),
            ruleset: Arc::new(ruleset),
            backend,
            program,
            mounts,
            read: scopes.read_outside,
            limits,
            credentials,
            servers,
            secrets,
        })
    }

    /// Whether this machine's rules let a manifest's declarations be: what can be said without trust,
    /// lock or program.
    ///
    /// # Errors
    /// [`Error::Policy`] with every finding.
    pub fn permitted(manifest: &Manifest, home: &Path, user_home: &Path) -> Result<(), Error> {
        let ruleset = Ruleset::compile(&MachinePolicy::load(home)?, manifest)?;
        scopes(&ruleset, &real(user_home), &real(home)).map(drop)
    }

    /// Seconds a run may last.
    #[must_use]
    pub fn duration(&self) -> Option<Duration> {
        self.limits.duration
    }

    pub(crate) fn project(&self) -> &Path {
        &self.bundle.snapshot().project
    }

    pub(crate) fn manifest(&self) -> &Manifest {
        &self.bundle.snapshot().manifest
    }

    /// Who keeps each limit here.
    pub(crate) fn keepers(&self) -> Vec<(&'static str, ringfence_sandbox::Keeper)> {
        native::keepers(&self.limits)
    }
}

/// The weakest backend that is strong enough, or the named one if it is.
fn backend(named: Option<&str>, required: Isolation) -> Result<Backend, Error> {
    let backend = match named {
        None | Some("native") => Backend::Native,
        Some(other) => {
            return Err(Error::Backend(format!(
                "there is no sandbox `{}` in this version; there is: native",
                other.escape_debug()
            )));
        }
    };
    if backend.isolation() < required {
        return Err(Error::Backend(format!(
            "this run needs `{}` isolation, and the {} sandbox gives `{}`; nothing weaker is used in \
             its place, and no stronger sandbox is in this version",
            level(required),
            backend.name(),
            level(backend.isolation()),
        )));
    }
    Ok(backend)
}

pub(crate) fn level(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::None => "none",
        Isolation::Process => "process",
        Isolation::Network => "network",
        Isolation::Kernel => "kernel",
    }
}

/// The file scopes of a run, every grant in them real. Both folders by their real paths.
pub(crate) fn scopes(ruleset: &Ruleset, user_home: &Path, home: &Path) -> Result<FsScopes, Error> {
    ruleset.check_writes(user_home)?;
    Ok(ruleset.scopes(user_home, home)?)
}

/// Without symlinks. What is not there has no other name.
pub(crate) fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// A project that holds the machine's state, or lies in it, would let the agent at it.
fn separate(project: &Path, home: &Path, user_home: &Path) -> Result<(), Error> {
    let refuse =
        |reason: &str| Err(Error::Project { path: project.to_owned(), reason: reason.into() });
    if project == Path::new("/") || project == user_home {
        return refuse("is a whole home or root folder; a run is given one project folder");
    }
    if home.starts_with(project) || project.starts_with(home) {
        return refuse(
            "holds Ringfence's own state, or lies in it; move the project or set RINGFENCE_HOME",
        );
    }
    for system in
        ["/proc", "/sys", "/dev", "/run", "/usr", "/bin", "/sbin", "/lib", "/etc", "/boot"]
    {
        if project.starts_with(system) {
            return refuse("is a system folder");
        }
    }
    Ok(())
}

fn command(request: &Request, manifest: &Manifest, project: &Path) -> Result<Program, Error> {
    let words =
        if request.command.is_empty() { &manifest.sandbox.command } else { &request.command };
    let name = words.first().ok_or(Error::NoCommand)?;
    let file = program::resolve(name, project, request.path.as_deref())?;
    Ok(Program { file, args: words.clone() })
}

/// Stdio servers whose program is not there are found out now, not in the middle of a run.
fn servers(
    request: &Request,
    manifest: &Manifest,
    project: &Path,
) -> Result<Vec<(Id, Program)>, Error> {
    let mut found = Vec::new();
    for (id, server) in &manifest.servers {
        if let Transport::Stdio { command, .. } = &server.transport {
            let file = program::resolve(command, project, request.path.as_deref())?;
            found.push((id.clone(), Program { file, args: vec![command.clone()] }));
        }
    }
    Ok(found)
}

/// What of the project servers run.
fn programs(manifest: &Manifest, servers: &[(Id, Program)], project: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for (id, program) in servers {
        if let Some(Transport::Stdio { args, .. }) =
            manifest.servers.get(id).map(|server| &server.transport)
        {
            let literal = |arg: &Template| arg.render(|_| Err::<&str, _>(())).ok();
            let args: Vec<String> = args.iter().filter_map(literal).collect();
            let args = args.iter().map(String::as_str);
            found.extend(project::programs(project, &program.file, args));
        }
    }
    found
}

fn limits(manifest: &Manifest, duration: Option<Duration>) -> Limits {
    let sandbox = &manifest.sandbox;
    Limits {
        memory: sandbox.memory_mb.map(|mib| mib.saturating_mul(MIB)),
        disk: Some(sandbox.disk_mb.unwrap_or(DEFAULT_DISK_MIB).saturating_mul(MIB)),
        pids: Some(sandbox.pids.unwrap_or(DEFAULT_PIDS)),
        cpus: sandbox.cpus,
        duration,
    }
}
