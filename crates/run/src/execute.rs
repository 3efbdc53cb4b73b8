//! Carries out a plan: record, sandbox, proxy, gate, supervision, seal.

use std::io::IsTerminal as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_approval::Channel;
use ringfence_bundle::Who;
use ringfence_egress::Begun;
use ringfence_gateway::{Gateway, Parts, Stop};
use ringfence_policy::Principal;
use ringfence_record::{Attempt, Event, Kind, Recorder, RunId};
use ringfence_sandbox::{Exit, Probe, Spec, Streams};
use ringfence_secrets::{Resolver, SignIns};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::launch::Launching;
use crate::live;
use crate::plan::{Backend, GATE_PORT, PROXY_PORT};
use crate::proxy::{self, Way};
use crate::rooms::{Counted, Rooms};
use crate::session::Session;
use crate::supervise::{Signals, supervise};
use crate::terminal::{Front, Notice, Tty};
use crate::{Error, Plan, approvals, project, secrets as names, wall};

/// How long a sandbox has to be gone once it was killed.
const GONE: std::time::Duration = std::time::Duration::from_secs(30);

/// What is told while a run goes on.
pub trait Progress {
    /// The record is open; nothing has started.
    fn begun(&self, run: &RunId, plan: &Plan);
    /// The probe passed; the agent starts now.
    fn released(&self, mode: &str);
    /// Something that a person is to know, while the run goes on.
    fn warned(&self, words: &str);
}

/// Where a run's person is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// On the terminal that runs it, if it has one.
    Here,
    /// Elsewhere only: by commands and webhooks.
    Elsewhere,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// The agent exited.
    Exit,
    /// The agent was killed by a signal of its own.
    Signal,
    /// A limit was reached.
    Limit,
    /// Nobody answered a question in time, and the manifest says `on_timeout = "abort"`.
    Approval,
    /// A person stopped it.
    Stopped,
    /// The run could not go on.
    Error,
}

impl EndedBy {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Exit => "exit",
            Self::Signal => "signal",
            Self::Limit => "limit",
            Self::Approval => "approval",
            Self::Stopped => "stopped",
            Self::Error => "error",
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finished {
    /// Its id.
    pub run: RunId,
    /// The status to return: the agent's own, 124 for a limit or a question that nobody answered, 128+n for a signal.
    pub status: i32,
    /// Why.
    pub ended_by: EndedBy,
    /// The limit that ended it (`duration`, `memory`, `record`, `approval`, a cap…), where one did.
    pub limit: Option<String>,
    /// More words.
    pub detail: Option<String>,
}

/// How the agent ended, before it is recorded.
pub(crate) struct Ended {
    pub(crate) exit: Option<Exit>,
    pub(crate) by: EndedBy,
    pub(crate) limit: Option<String>,
    pub(crate) detail: Option<String>,
}

impl Ended {
    fn status(&self) -> i32 {
        match (self.by, self.exit) {
            (EndedBy::Limit | EndedBy::Approval, _) => 124,
            (_, Some(Exit::Code(code))) => code,
            (_, Some(Exit::Signal(signal))) => 128 + signal,
            (_, None) => 255,
        }
    }
}

/// Runs a plan to its end on this thread, which must be the program's main one.
///
/// # Errors
/// [`Error`] when the run could not start, or its evidence could not be written.
pub fn execute(plan: &Plan, ask: Ask, progress: &dyn Progress) -> Result<Finished, Error> {
    let session = Session::open(plan, Kind::Run, None)?;
    progress.begun(&session.run, plan);
    let runtime = runtime()?;
    let mut outcome =
        runtime.block_on(contained(plan, ask, &session.run, &session.recorder, progress));
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));

    if let (Ok(ended), Some(made)) =
        (&mut outcome, project::made::repositories(plan.project(), &plan.mounts))
    {
        let before = ended.detail.take().map(|detail| format!("{detail}; ")).unwrap_or_default();
        ended.detail = Some(format!("{before}{made}"));
    }
    let run = session.run.clone();
    let ended = session.close(outcome, |ended| Event::RunFinished {
        status: ended.status(),
        ended_by: ended.by.word().into(),
        detail: ended.detail.clone(),
    })?;
    Ok(Finished {
        run,
        status: ended.status(),
        ended_by: ended.by,
        limit: ended.limit,
        detail: ended.detail,
    })
}

/// What the tasks of one client's gateway go on: one thread, so that no message waits for another thread to
/// wake.
pub(crate) fn runtime_for_one() -> Result<tokio::runtime::Runtime, Error> {
    built(&mut tokio::runtime::Builder::new_current_thread())
}

/// What the tasks of many clients' gateway go on: every processor.
pub(crate) fn runtime_for_many() -> Result<tokio::runtime::Runtime, Error> {
    workers(std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
}

/// What tasks go on otherwise: half of the processors. The other half is for whoever is served, and a
/// message that waits for no other thread to wake is faster.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    workers(std::thread::available_parallelism().map_or(1, |all| (all.get() / 2).max(1)))
}

fn workers(workers: usize) -> Result<tokio::runtime::Runtime, Error> {
    built(tokio::runtime::Builder::new_multi_thread().worker_threads(workers))
}

fn built(builder: &mut tokio::runtime::Builder) -> Result<tokio::runtime::Runtime, Error> {
    builder
        .enable_all()
        .build()
        .map_err(|source| Error::Io { path: PathBuf::from("(runtime)"), source })
}

/// What a sweep came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Cleaned {
    /// Crashed runs of which nothing is left now.
    pub runs: usize,
    /// What was taken away of them, by kind.
    pub removed: ringfence_sandbox::Swept,
    /// Crashed runs of which something is left: an engine does not answer, or a live run stands on it.
    pub left: usize,
}

/// Puts back what crashed runs left, as far as no live run stands on it.
///
/// # Errors
/// [`Error`] when something cannot be put back.
pub fn sweep(home: &Path) -> Result<Cleaned, Error> {
    let dead = live::dead(home)?;
    let mut cleaned = Cleaned::default();
    for (live, file) in &dead {
        let folder = run_dir(home, &live.run);
        proxy::sweep(&folder);
        cleaned.removed += ringfence_sandbox::sweep_after_crash(&folder)?;
        if ringfence_sandbox::has_left(&folder) {
            cleaned.left += 1;
            continue;
        }
        cleaned.runs += 1;
        live::forget(file);
        match std::fs::remove_file(file) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::Io { path: file.clone(), source: e });
            }
            _ => {}
        }
    }
    Ok(cleaned)
}

/// A run's folder.
pub(crate) fn run_dir(home: &Path, run: &RunId) -> PathBuf {
    home.join("runs").join(run.to_string())
}

async fn contained(
    plan: &Plan,
    ask: Ask,
    run: &RunId,
    recorder: &Recorder,
    progress: &dyn Progress,
) -> Result<Ended, Error> {
    let mut signals =
        Signals::new().map_err(|source| Error::Io { path: PathBuf::from("(signals)"), source })?;
    let (stop, stopped) = watch::channel(false);
    let proxy = Way::open(plan, run, recorder).await?;
    let secrets = Resolver::new(Arc::clone(&plan.ruleset), recorder.clone(), plan.secrets.clone());
    // Whatever is declared can be called: a name without a value would be found out in the middle.
    secrets.check(&names::wanted(plan.manifest())).await?;
    let token = proxy.token(&Principal::Agent)?;
    // Elsewhere it depends on where the doors will be.
    let mut env = match plan.backend != Backend::Native {
        true => Vec::new(),
        false => wall::around(plan, &proxy, &token, Ipv4Addr::LOCALHOST.into()),
    };
    for name in &plan.credentials {
        let value = secrets.resolve(&Principal::Agent, name).await?;
        env.push((name.as_str().into(), value.expose().into()));
    }
    // Only where somebody may be asked: a terminal that is shared is left alone otherwise.
    // An engine gives a container's terminal to us, and we carry it.
    let wanted = approvals::wanted(plan.manifest()) && ask == Ask::Here
        || plan.backend.is_container() && wall::on_terminal();
    let tty = wanted.then(Tty::open).flatten();
    let front = Front::default();
    let near: Option<Arc<dyn Channel>> = match &tty {
        Some(_) => Some(Arc::new(front.clone())),
        None if std::io::stderr().is_terminal() => None,
        None => Some(Arc::new(Notice)),
    };
    let rooms = Rooms::open(plan, run, recorder, near, &Counted::default()).await?;
    let spec = Spec {
        streams: if tty.is_some() { Streams::Terminal } else { Streams::Inherit },
        command: std::iter::once(plan.program.file.clone().into_os_string())
            .chain(plan.program.args.iter().skip(1).map(Into::into))
            .collect(),
        arg0: plan.program.args.first().map(Into::into).unwrap_or_default(),
        env,
        listen: vec![PROXY_PORT, GATE_PORT],
        ..base_spec(plan, run)
    };
    let halt = Stop::default();
    let launcher = Launching::new(
        plan,
        run,
        recorder,
        &proxy,
        secrets.clone(),
        stopped.clone(),
        Handle::current(),
    );
    let servers = launcher.alive();
    let gateway = Gateway::new(Parts {
        bundle: Arc::clone(&plan.bundle),
        store: plan.store.clone(),
        ruleset: Arc::clone(&plan.ruleset),
        recorder: recorder.clone(),
        secrets,
        signins: SignIns::new(&plan.home),
        launcher: Arc::new(launcher),
        approver: rooms.approver(),
        purse: rooms.purse(),
        stop: halt.clone(),
        leases: None,
    });

    let mut prepared = wall::stand(plan, run, recorder, &spec).await?;
    let none = || Error::Backend("the sandbox handed out no doors".into());
    let doors = prepared.doors().ok_or_else(none)?;
    let begun = Begun::default();
    let mut exits = wall::Exits::open(plan, &proxy, doors, token, &begun, &stopped).await?;
    if let Some(address) = exits.peer() {
        prepared.equip(wall::around(plan, &proxy, exits.token(), address));
    }
    let gating = tokio::spawn(Arc::clone(&gateway).serve(exits.gate().ok_or_else(none)?, stopped));
    let ended = async {
        let found = prepared.probe().await;
        if plan.backend != Backend::Host {
            probed(recorder, "agent", found)?;
        }
        // Known from here on.
        let mode = plan.backend.mode();
        let started = Event::SandboxStarted { principal: "agent".into(), mode: Some(mode.clone()) };
        let _ = recorder.commit(started).await?;
        live::tell_mode(&plan.home, run, &mode);
        if let Some(signal) = signals.pending() {
            live::record_stop(recorder).await?;
            return Ok(Ended {
                exit: Some(Exit::Signal(signal)),
                by: EndedBy::Stopped,
                limit: None,
                detail: Some("before it began".into()),
            });
        }
        if plan.is_proven() {
            plan.prove(&Who::Agent, &plan.program)?;
        } else if plan.reviewed {
            // The image's program, and what of the project it is given to run.
            plan.bundle.prove_pinned()?;
        }
        progress.released(&mode);
        begun.begin();
        exits.go().await?;
        let mut running = prepared.release().await?;
        if let Some(tty) = tty {
            let io = |source| Error::Io { path: PathBuf::from("/dev/tty"), source };
            let between = plan.backend.is_container();
            front.start(tty, running.take_terminal(), between).map_err(io)?;
        }
        tokio::select! {
            biased;
            lost = exits.lost() => {
                // Nothing of it may be alive when the record is sealed.
                running.kill();
                let _ = tokio::time::timeout(GONE, running.wait()).await;
                Err(lost)
            }
            ended = supervise(plan, recorder, running.as_mut(), &mut signals, &halt) => {
                exits.explain(ended?).await
            }
            never = told(&halt, progress) => match never {},
            reason = proxy.failed() => {
                running.kill();
                let _ = running.wait().await;
                let detail = Some(format!("the proxy failed: {reason}"));
                Ok(Ended { exit: None, by: EndedBy::Error, limit: None, detail })
            }
        }
    }
    .await;
    front.end();
    // Nobody listens any more only when the run is over already.
    let _ = stop.send(true);
    let (closed, _) = tokio::join!(exits.closed(), gating);
    servers.none().await;
    proxy.close().await;
    rooms.close().await;
    // What went wrong first is what is told.
    ended.and_then(|ended| closed.map(|()| ended))
}

/// Passes warnings on, and has no end.
async fn told(halt: &Stop, progress: &dyn Progress) -> std::convert::Infallible {
    loop {
        progress.warned(&halt.warning().await);
    }
}

/// What the agent's sandbox and every server's have in common.
pub(crate) fn base_spec(plan: &Plan, run: &RunId) -> Spec {
    Spec {
        command: Vec::new(),
        arg0: std::ffi::OsString::new(),
        env: Vec::new(),
        project: plan.project().to_owned(),
        mounts: plan.mounts.clone(),
        read: plan.read.clone(),
        limits: plan.limits.clone(),
        streams: Streams::Inherit,
        stderr: None,
        listen: Vec::new(),
        run_dir: run_dir(&plan.home, run),
        must_not_see: vec![plan.home.clone()],
    }
}

/// Records what the probe found; a way out is an error.
pub(crate) fn probed(
    recorder: &Recorder,
    principal: &str,
    result: Result<Vec<Probe>, ringfence_sandbox::Error>,
) -> Result<(), Error> {
    let note = |probes: &[Probe], tight| {
        let attempts = probes.iter().map(|probe| Attempt {
            check: probe.check.clone(),
            result: probe.result.clone(),
            ok: probe.ok,
            detail: probe.detail.clone(),
        });
        recorder.note(Event::SandboxProbed {
            principal: principal.into(),
            tight,
            attempts: attempts.collect(),
        })
    };
    match result {
        Ok(probes) => Ok(note(&probes, true)?),
        Err(error) => {
            if let ringfence_sandbox::Error::Leaky(probe) = &error {
                note(std::slice::from_ref(probe), false)?;
            }
            Err(error.into())
        }
    }
}
