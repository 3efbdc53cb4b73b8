//! From a specification to a container that waits.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::CreateContainerOptions;
use tokio::time::timeout;

use super::engine::{Engine, failed};
use super::made::{peer, verify};
use super::place::{Folder, Whom};
use super::running::Running;
use super::stdio::{Ends, Stdio};
use super::targets::Range;
use super::{DOOR_FILE, INIT_FILE, OWN_FILES, Wanted, bodies, image};
use crate::backend::{self, Boxed, Doors, Sidecar};
use crate::error::{Error, Result, Step};
use crate::ground::guard::Guard;
use crate::ground::journal::{Contained, Journal};
use crate::ground::placeholder::{self, Ground};
use crate::ground::tree::{self, Held};
use crate::inside::channel::Channel;
use crate::inside::wire::{Blueprint, Bounds, Order, Reply, Tree};
use crate::native::random_id;
use crate::{Probe, Rule, Spec, Streams};

/// How long a container has to come up.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long its process 1 has for one answer.
const ANSWER: Duration = Duration::from_secs(30);

/// A sandbox of two containers that are up: nothing of the agent has run.
#[derive(Debug)]
pub struct Prepared {
    engine: Engine,
    run: String,
    doors: Option<Doors>,
    init: UnixListener,
    blueprint: Option<Blueprint>,
    range: Range,
    channel: Option<Channel>,
    stdio: Option<Stdio>,
    terminal: Option<OwnedFd>,
    /// Locks on what it stands on, as long as it lives.
    ground: Ground,
    guard: Guard,
    keeps_memory: bool,
}

/// Builds it: networks, sidecar, container. What it makes in the engine and on this machine is written
/// down first, in a file of the run's folder, and taken away by [`crate::sweep`].
///
/// # Errors
/// [`Error`].
pub async fn prepare(engine: &Engine, spec: &Spec, wanted: &Wanted) -> Result<Prepared> {
    let runtime = engine.runtime(wanted.runtime.as_deref())?;
    if let Some(path) = spec.read.iter().find(|path| !path.is_absolute()) {
        return Err(Error::Spec(format!("{}: not an absolute path", path.display())));
    }
    let project = tree::hold(&spec.project)?;
    // By name the engine mounts whatever is there by then: process 1 compares.
    let granted =
        spec.read.iter().map(|path| Ok((path, tree::hold(path)?))).collect::<Result<Vec<_>>>()?;
    let mut journal = Journal::new(&spec.run_dir, "docker", &spec.project);
    journal.entries.engine = Some(Contained { host: engine.host.clone(), run: wanted.run.clone() });
    journal.write()?;
    let whom = Whom::choose(&project)?;
    let ground =
        placeholder::prepare(&project, &spec.mounts, whom.owner(&project), "docker", &mut journal)?;
    let expected = expected(spec, &project, &granted, &ground)?;
    let guard = Guard::new(&project, &ground.rules)?;
    let folder = Folder::make(spec)?;
    let source = whom.source(&project, spec, &folder, &mut journal)?;
    let (listeners, docker) = (folder.listen(wanted)?, &engine.docker);

    let inner = bodies::inner(&wanted.run, engine.isolates_gateways());
    let outer = bodies::outer(&wanted.run);
    let image = async { image::sidecar(engine, wanted).await };
    let (image, made, other) = tokio::join!(
        image,
        async { docker.create_network(inner).await.map_err(failed("make the agent's network")) },
        async { docker.create_network(outer).await.map_err(failed("make the sidecar's network")) },
    );
    let (image, _, _) = (image?, made?, other?);

    let terminal = spec.streams == Streams::Terminal;
    let rules: Vec<_> = ground
        .rules
        .iter()
        .map(|(path, rule)| Ok((text(path)?, *rule, is_folder(&project, path)?)))
        .collect::<Result<_>>()?;
    let read = spec.read.iter().map(|path| text(path)).collect::<Result<Vec<_>>>()?;
    let own = format!("{OWN_FILES}{}{}", random_id()?, random_id()?);
    let body = bodies::agent(
        wanted,
        &bodies::Agent {
            ids: whom.ids(),
            source: &text(&source)?,
            project: &text(&spec.project)?,
            rules: &rules,
            read: &read,
            empty: &text(&folder.file("empty"))?,
            door: &text(&folder.file("door"))?,
            names: &text(&folder.file("names"))?,
            shut: &text(&folder.file("shut"))?,
            init: &format!("{own}{INIT_FILE}"),
            door_inside: &format!("{own}{DOOR_FILE}"),
            limits: &spec.limits,
            runtime: &runtime,
            by_endpoint: engine.isolates_gateways(),
            terminal,
        },
    );
    let sidecar = async {
        let sockets = text(&folder.sockets())?;
        let body = bodies::sidecar(wanted, &image, &sockets);
        let name = bodies::name(&wanted.run, "sidecar");
        create(docker, &name, body, "make the sidecar").await?;
        let network = bodies::name(&wanted.run, "out");
        let request = bollard::models::NetworkConnectRequest {
            container: name.clone(),
            ..bollard::models::NetworkConnectRequest::default()
        };
        let step = "connect the sidecar to its network";
        docker.connect_network(&network, request).await.map_err(failed(step))?;
        docker
            .start_container(&name, None::<bollard::query_parameters::StartContainerOptions>)
            .await
            .map_err(failed("start the sidecar"))
    };
    let name = bodies::name(&wanted.run, "agent");
    let (ends, terminal) = Ends::of(spec.streams)?;
    // Its process 1 waits until it is told where the sidecar is.
    let agent = async {
        create(docker, &name, body, "make the agent's container").await?;
        let stdio = Stdio::attach(docker, &name, ends).await?;
        docker
            .start_container(&name, None::<bollard::query_parameters::StartContainerOptions>)
            .await
            .map_err(|error| visible_hint(failed("start the agent's container")(error)))?;
        Ok::<_, Error>(stdio)
    };
    let (up, stdio) = tokio::join!(sidecar, agent);
    up?;
    let stdio = stdio?;
    let (address, gateway) = peer(docker, &wanted.run).await?;
    // The end of the line says that it is whole.
    fs::write(folder.file("door"), format!("{address}\n"))
        .step("write down the sidecar's address")?;
    verify(docker, &name, wanted, &runtime).await?;
    let control = accept(&listeners.control, "wait for the sidecar").await?;

    let range = Range::new(docker, spec, address, gateway, &wanted.run).await?;
    let blueprint = blueprint(spec, &project, expected, &ground, wanted)?;
    Ok(Prepared {
        engine: engine.clone(),
        run: wanted.run.clone(),
        doors: Some(Doors::Sidecar(Sidecar { control, gate: listeners.gate, address })),
        init: listeners.init,
        blueprint: Some(blueprint),
        range,
        channel: None,
        stdio: Some(stdio),
        terminal,
        ground,
        guard,
        keeps_memory: engine.keeps("memory"),
    })
}

impl Prepared {
    /// Adds to the environment of the process: what depends on where the sidecar is.
    pub fn equip(&mut self, more: Vec<(OsString, OsString)>) {
        if let Some(blueprint) = &mut self.blueprint {
            // Where programs are is the image's to say.
            blueprint.env.extend(more.into_iter().filter(|(name, _)| name != "PATH"));
        }
    }

    async fn tried(&mut self) -> Result<Vec<Probe>> {
        let socket = accept(&self.init, "wait for the container's process 1").await?;
        let channel = Channel::new(socket.into());
        channel.patience(Some(ANSWER)).step("talk with the container's process 1")?;
        let blueprint = self.blueprint.take();
        let blueprint = blueprint.ok_or_else(|| Error::Spec("it was tried already".into()))?;
        let targets = std::mem::take(&mut self.range.targets);
        // Its answers take as long as the attempts do.
        let talk = tokio::task::spawn_blocking(move || {
            let word = channel.send(&Order::Enter(Box::new(blueprint)), &[]);
            word.step("tell the container's process 1 what it holds")?;
            match said(&channel)? {
                Reply::Built => {}
                _ => return Err(unexpected()),
            }
            channel.send(&Order::Probe(targets), &[]).step("order the probe")?;
            match said(&channel)? {
                Reply::Probed(found) => Ok((channel, found)),
                _ => Err(unexpected()),
            }
        });
        let (channel, found) =
            talk.await.map_err(std::io::Error::other).step("wait for the probe")??;
        self.channel = Some(channel);
        match found.iter().find(|probe| !probe.ok) {
            Some(leak) => Err(Error::Leaky(leak.clone())),
            None => Ok(found),
        }
    }

    async fn let_go(mut self) -> Result<Running> {
        let step = "start the agent";
        let (Some(channel), Some(stdio)) = (self.channel.take(), self.stdio.take()) else {
            return Err(Error::Spec("a sandbox that was not tried starts nothing".into()));
        };
        let started = tokio::task::spawn_blocking(move || {
            channel.send(&Order::Start, &[]).step(step)?;
            match said(&channel)? {
                Reply::Started => {}
                _ => return Err(unexpected()),
            }
            channel.patience(None).step(step)?;
            Ok(channel)
        });
        let channel = started.await.map_err(std::io::Error::other).step(step)??;
        Ok(Running::new(
            self.engine,
            bodies::name(&self.run, "agent"),
            channel,
            stdio,
            self.terminal,
            (self.ground, self.guard),
            self.keeps_memory,
        ))
    }
}

impl backend::Prepared for Prepared {
    fn doors(&mut self) -> Option<Doors> {
        self.doors.take()
    }

    fn equip(&mut self, more: Vec<(OsString, OsString)>) {
        Prepared::equip(self, more);
    }

    fn probe(&mut self) -> Boxed<'_, Result<Vec<Probe>>> {
        Box::pin(self.tried())
    }

    fn release(self: Box<Self>) -> Boxed<'static, Result<Box<dyn backend::Running>>> {
        Box::pin(async {
            let running: Box<dyn backend::Running> = Box::new(self.let_go().await?);
            Ok(running)
        })
    }
}

/// Its next answer; a failure in it is an error here.
fn said(channel: &Channel) -> Result<Reply> {
    match channel.receive().step("read the answer of the container's process 1")? {
        Some((Reply::Failed(failure), _)) => Err(failure.into()),
        Some((reply, _)) => Ok(reply),
        None => Err(std::io::Error::other("it ended too early"))
            .step("read the answer of the container's process 1"),
    }
}

fn unexpected() -> Error {
    Error::Spec("the container's process 1 gave another answer than was asked for".into())
}

fn visible_hint(error: Error) -> Error {
    match error {
        Error::Step { step, source, hint } => Error::Step {
            step,
            hint: hint.or_else(|| {
                Some(
                    "the project, the program of Ringfence and granted paths must be visible to the \
                     engine under the same paths: an engine in another machine or mount namespace \
                     cannot be used"
                        .into(),
                )
            }),
            source,
        },
        other => other,
    }
}

async fn create(
    docker: &Docker,
    name: &str,
    body: bollard::models::ContainerCreateBody,
    step: &'static str,
) -> Result<()> {
    let options =
        CreateContainerOptions { name: Some(name.to_owned()), ..CreateContainerOptions::default() };
    let made = docker.create_container(Some(options), body).await;
    made.map(drop).map_err(|error| visible_hint(failed(step)(error)))
}

/// One connection, on a listener of our own.
async fn accept(
    listener: &UnixListener,
    step: &'static str,
) -> Result<std::os::unix::net::UnixStream> {
    let listener = listener.try_clone().step(step)?;
    listener.set_nonblocking(true).step(step)?;
    let listener = tokio::net::UnixListener::from_std(listener).step(step)?;
    let accepted = timeout(PATIENCE, listener.accept()).await;
    let (stream, _) = accepted
        .map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))
        .and_then(std::convert::identity)
        .step(step)?;
    let stream = stream.into_std().step(step)?;
    stream.set_nonblocking(false).step(step)?;
    Ok(stream)
}

/// The engine takes paths as text, and a colon or a comma in one is not its own.
fn text(path: &Path) -> Result<String> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Error::Spec(format!("{}: an engine takes UTF-8 paths only", path.display())))
}

fn is_folder(project: &Held, path: &Path) -> Result<bool> {
    let fd = placeholder::open(project, path).step(format!("open {}", path.display()))?;
    let stat = rustix::fs::fstat(&fd).step(format!("stat {}", path.display()))?;
    Ok(rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir())
}

/// What process 1 must find: everything that the engine mounts by name, as it is before it is asked.
fn expected(
    spec: &Spec,
    project: &Held,
    granted: &[(&PathBuf, Held)],
    ground: &Ground,
) -> Result<Vec<(OsString, u64, u64)>> {
    let mut expected = vec![held(&spec.project, project)];
    expected.extend(granted.iter().map(|(path, granted)| held(path, granted)));
    let masked = |path: &Path| {
        let mut masks = ground.rules.iter().filter(|(_, rule)| *rule == Rule::Masked);
        masks.any(|(mask, _)| path.starts_with(mask))
    };
    for (path, rule) in &ground.rules {
        let path = match rule {
            // It lies in a folder, which must be the one that was looked at: exchanged for a decoy, it
            // would leave the real one open under another name.
            Rule::Masked => path.parent().filter(|folder| !masked(folder)),
            _ => Some(path.as_path()),
        };
        if let Some(path) = path.filter(|path| !path.as_os_str().is_empty()) {
            let fd = placeholder::open(project, path).step(format!("open {}", path.display()))?;
            let stat = rustix::fs::fstat(&fd).step(format!("stat {}", path.display()))?;
            let place = spec.project.join(path).into_os_string();
            expected.push((place, stat.st_dev, stat.st_ino));
        }
    }
    Ok(expected)
}

fn blueprint(
    spec: &Spec,
    project: &Held,
    expected: Vec<(OsString, u64, u64)>,
    ground: &Ground,
    wanted: &Wanted,
) -> Result<Blueprint> {
    let mut argv = spec.command.clone();
    let program = argv.first().cloned().ok_or_else(|| Error::Spec("no command".into()))?;
    if let Some(first) = argv.first_mut() {
        first.clone_from(&spec.arg0);
    }
    let mut env = spec.env.clone();
    if let Some(path) = &wanted.image.path {
        env.retain(|(name, _)| name != "PATH");
        env.push(("PATH".into(), path.into()));
    }
    for (name, value) in DEFAULTS {
        if !env.iter().any(|(set, _)| set == name) {
            env.push((name.into(), value.into()));
        }
    }
    Ok(Blueprint {
        program,
        argv,
        env,
        project: Tree {
            path: spec.project.as_os_str().to_owned(),
            dev: project.dev,
            ino: project.ino,
            folder: true,
            passed: false,
        },
        rules: ground
            .rules
            .iter()
            .map(|(path, rule)| (path.clone().into_os_string(), *rule))
            .collect(),
        read: Vec::new(),
        links: Vec::new(),
        own_session: spec.streams != Streams::Terminal,
        terminal: None,
        listen: Vec::new(),
        take_identity: false,
        bounds: Bounds {
            scratch: 0,
            file_size: spec.limits.disk,
            // Counted with everything else that runs under these ids: the container's own limit holds.
            pids: None,
            cpus: None,
        },
        expected,
        mounted_program: wanted.mounted_program,
    })
}

fn held(path: &Path, held: &Held) -> (OsString, u64, u64) {
    (path.as_os_str().to_owned(), held.dev, held.ino)
}

/// What is set in an environment that lacks it.
const DEFAULTS: [(&str, &str); 5] = [
    ("HOME", "/home/agent"),
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("TMPDIR", "/tmp"),
    ("USER", "agent"),
    ("SHELL", "/bin/sh"),
];

/// Whether this is a name that is looked up, and not a path.
pub(super) fn is_name(program: &OsStr) -> bool {
    !program.as_encoded_bytes().contains(&b'/')
}
