//! The one place where a run is assembled.

mod commands;
mod fits;
mod view;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ringfence_bundle::{Id, Isolation, Manifest, OWN_NAME, SecretName, Snapshot, Who, Whose};
use ringfence_policy::{FsScopes, MachinePolicy, Ruleset};
use ringfence_sandbox::{Limits, Mount, native};
use ringfence_secrets::Chain;
use ringfence_trust::{Store, TrustedBundle};

use self::commands::{command, of_project, programs, servers, words};
use crate::project::{self, Rules};
use crate::{Error, secrets};

pub use view::{Line, View};

/// The port of the proxy inside a sandbox.
pub(crate) const PROXY_PORT: u16 = 3128;
/// The port of the MCP gate inside a sandbox.
pub(crate) const GATE_PORT: u16 = 3129;

/// The machine's ceiling on unpinned servers.
const PINNED: &str = "policy.require_pinned_tools";

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
    /// None: the agent runs on this machine, and what holds it is advice.
    Host,
    /// Namespaces, Landlock, seccomp.
    Native,
    /// A container whose one peer is a sidecar.
    Docker,
    /// The same, and nothing passes that cannot be told: no literal address, nothing but TLS, no server
    /// whose tools are not pinned, no MCP configuration beside the gate's.
    Lockdown,
}

/// OCI runtimes that put a kernel of its own under a container.
const OWN_KERNEL: [&str; 5] = ["kata", "kata-runtime", "kata-qemu", "kata-clh", "kata-fc"];

impl Backend {
    /// Every one, weakest first.
    pub const ALL: [Self; 4] = [Self::Host, Self::Native, Self::Docker, Self::Lockdown];

    /// What it is worth, under this OCI runtime where it has one.
    #[must_use]
    pub fn isolation(self, runtime: Option<&str>) -> Isolation {
        match self {
            Self::Host => Isolation::None,
            Self::Native => Isolation::Network,
            Self::Docker | Self::Lockdown => match runtime {
                Some(runtime) if OWN_KERNEL.contains(&runtime) => Isolation::Kernel,
                _ => Isolation::Network,
            },
        }
    }

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Native => "native",
            Self::Docker => "docker",
            Self::Lockdown => "lockdown",
        }
    }

    /// What a run behind it is called, once its probe has passed.
    #[must_use]
    pub fn mode(self) -> String {
        let word = if self == Self::Host { "ADVISORY" } else { "ENFORCED" };
        format!("{} / {word}", self.name().to_uppercase())
    }

    /// Whether the agent's programs are an image's, and not this machine's.
    #[must_use]
    pub fn is_container(self) -> bool {
        matches!(self, Self::Docker | Self::Lockdown)
    }

    fn named(name: &str) -> Result<Self, Error> {
        let known = Self::ALL.map(Self::name);
        Self::ALL.into_iter().find(|backend| backend.name() == name).ok_or_else(|| {
            Error::Backend(format!(
                "there is no sandbox `{}` in this version; there are: {}",
                name.escape_debug(),
                known.join(", ")
            ))
        })
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
    /// Whether the program is the manifest's, which was reviewed.
    pub(crate) reviewed: bool,
    /// Whether the manifest's command is a file of the project. Found out once: what is there may change.
    pub(crate) of_project: bool,
    /// Where programs are looked up.
    pub(crate) search: Option<OsString>,
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
        let contained = match request.backend.as_deref() {
            Some(name) => Backend::named(name)?.is_container(),
            None => false,
        };
        // What a person typed is theirs; what the manifest names was reviewed. Programs of an image are
        // the image's, whose digest is recorded; what is mounted into it is this machine's.
        let typed = !request.command.is_empty();
        let whose = |of_project: bool| match typed {
            false if !contained || of_project => Whose::All,
            _ => Whose::Servers,
        };
        let program = |manifest: &Manifest, project: &Path, of_project: bool| match contained {
            true if typed || !of_project => words(request, manifest),
            _ => command(request, manifest, project),
        };
        let plan = Self::assemble(request, whose, program)?;
        pinned(&plan)?;
        fits::check(&plan, typed)?;
        Ok(plan)
    }

    /// The same for a session that runs no agent, whose servers are asked what they offer: whatever
    /// holds a server in a run holds it there. `words` stand for the command in its record.
    pub(crate) fn without_agent(request: &Request, words: Vec<String>) -> Result<Self, Error> {
        let program = |_: &Manifest, _: &Path, _| Ok(Program { file: PathBuf::new(), args: words });
        Self::assemble(request, |_| Whose::Servers, program)
    }

    /// The same for a session that serves clients outside any sandbox. The agent that they belong to is
    /// held by none.
    pub(crate) fn serving(request: &Request, words: Vec<String>) -> Result<Self, Error> {
        let plan = Self::without_agent(request, words)?;
        pinned(&plan)?;
        Ok(plan)
    }

    /// Whether a session by this plan goes on as one by the other would.
    pub(crate) fn same(&self, other: &Self) -> bool {
        let files = |plan: &Self| -> Vec<_> {
            plan.servers.iter().map(|(id, program)| (id.clone(), program.file.clone())).collect()
        };
        self.bundle.consent() == other.bundle.consent()
            && self.bundle.programs() == other.bundle.programs()
            && self.ruleset.digest() == other.ruleset.digest()
            && files(self) == files(other)
    }

    fn assemble(
        request: &Request,
        whose: impl FnOnce(bool) -> Whose,
        command: impl FnOnce(&Manifest, &Path, bool) -> Result<Program, Error>,
    ) -> Result<Self, Error> {
        let store = Store::new(&request.home);
        let snapshot = Snapshot::read(&request.project)?;
        let of_project = of_project(&snapshot.manifest, &snapshot.project);
        let whose = whose(of_project);
        let bundle = store.check(snapshot, request.path.as_deref(), whose)?;
        let machine = MachinePolicy::load(&request.home)?;
        let manifest = &bundle.snapshot().manifest;
        let ruleset = Ruleset::compile(&machine, manifest)?;
        let runtime = manifest.sandbox.runtime.as_deref();
        let backend = backend(request.backend.as_deref(), ruleset.required_isolation(), runtime)?;
        let project = bundle.snapshot().project.clone();
        // Rules that keep something shut are held against where it really is.
        let home = real(&request.home);
        let user_home = real(&request.user_home);
        separate(&project, &home, &user_home)?;
        let program = command(manifest, &project, of_project)?;
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
            programs: &programs(&bundle, &servers, &project),
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
            reviewed: request.command.is_empty(),
            of_project,
            search: request.path.clone(),
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

    /// What a person is told before it starts, and that does not refuse it: settings that are not as
    /// the lock pins them.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let rows = self.bundle.warnings().iter();
        rows.map(|row| format!("{} {}: not as the lock pins it", row.kind, row.name)).collect()
    }

    pub(crate) fn project(&self) -> &Path {
        &self.bundle.snapshot().project
    }

    /// Which proxy is to be the one way out.
    pub(crate) fn engine(&self) -> ringfence_bundle::Engine {
        self.manifest().sandbox.network.engine
    }

    pub(crate) fn manifest(&self) -> &Manifest {
        &self.bundle.snapshot().manifest
    }

    /// Looks again at what a command runs, right before it starts.
    pub(crate) fn prove(&self, who: &Who, program: &Program) -> Result<(), Error> {
        if program.args.first().is_some_and(|name| name == OWN_NAME) {
            return Ok(());
        }
        Ok(self.bundle.prove_program(who, &program.file, self.search.as_deref())?)
    }

    /// Whether the agent's program is a file of this machine that was reviewed: not what a person typed,
    /// and not one of an image.
    pub(crate) fn is_proven(&self) -> bool {
        self.reviewed && (!self.backend.is_container() || self.of_project)
    }

    /// Whether nothing passes any of its proxies but TLS to a name.
    pub(crate) fn is_strict(&self) -> bool {
        self.backend == Backend::Lockdown
    }

    /// What a person is told before a run that nothing holds.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        if self.backend != Backend::Host {
            return None;
        }
        let mut text =
            "no wall: the agent can reach every file and host that you can, and pass proxy and \
                        gate by"
                .to_owned();
        let limits = &self.limits;
        let declared = [
            (limits.memory.is_some(), "memory"),
            (limits.disk.is_some(), "disk"),
            (limits.pids.is_some(), "pids"),
            (limits.cpus.is_some(), "cpus"),
        ];
        let lost: Vec<_> = declared.into_iter().filter(|(set, _)| *set).map(|(_, n)| n).collect();
        if !lost.is_empty() {
            text += &format!("; limits that are not kept: {}", lost.join(", "));
        }
        Some(text)
    }

    /// The image that a container is made from.
    pub(crate) fn image(&self) -> Option<&str> {
        self.manifest().sandbox.image.as_deref()
    }

    /// Who keeps each limit here.
    pub(crate) fn keepers(&self) -> Vec<(&'static str, ringfence_sandbox::Keeper)> {
        let mut keepers = native::keepers(&self.limits);
        if self.backend == Backend::Host {
            for (name, keeper) in &mut keepers {
                if *name != "duration" {
                    *keeper = ringfence_sandbox::Keeper::Nobody;
                }
            }
        }
        if self.backend.is_container() {
            // By the container, or it is not started.
            for (name, keeper) in &mut keepers {
                if *name != "duration" {
                    *keeper = ringfence_sandbox::Keeper::Enforced;
                }
            }
        }
        keepers
    }
}

/// Where the machine wants every server's tools pinned, they are.
fn pinned(plan: &Plan) -> Result<(), Error> {
    if !plan.ruleset.requires_pinned_tools() {
        return Ok(());
    }
    let ids = plan.manifest().servers.keys();
    let unpinned = ids.filter(|id| plan.bundle.snapshot().tool_pins(id).is_none());
    let servers: Vec<_> = unpinned.map(ToString::to_string).collect();
    if servers.is_empty() {
        return Ok(());
    }
    let file = plan.home.join("machine.toml");
    let line = MachinePolicy::load(&plan.home)?.places.find(PINNED).map(|place| place.line);
    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
    let rule = format!("{}{line} [policy] require_pinned_tools", file.display());
    Err(Error::UnpinnedTools { servers, rule })
}

/// The weakest backend that is strong enough, or the named one if it is.
fn backend(
    named: Option<&str>,
    required: Isolation,
    runtime: Option<&str>,
) -> Result<Backend, Error> {
    let backend = named.map_or(Ok(Backend::Native), Backend::named)?;
    let given = backend.isolation(runtime);
    if given < required {
        let stronger = match required {
            Isolation::Kernel => {
                "; a kernel of its own is to be had with `--sandbox docker` and `[sandbox] runtime = \
                 \"kata\"`, where the engine has it"
            }
            _ => "; leave `--sandbox` away to have the native one",
        };
        return Err(Error::Backend(format!(
            "this run needs `{}` isolation, by [policy] isolation in machine.toml or by what [agent] \
             capabilities call for, and the {} sandbox gives `{}`: nothing weaker is used in its place\
             {stronger}",
            level(required),
            backend.name(),
            level(given),
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
