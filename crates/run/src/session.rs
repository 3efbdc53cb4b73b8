//! One record from its opening to its seal, and what a machine must be told meanwhile.

use std::path::PathBuf;
use std::sync::Arc;

use ringfence_gateway::{Parts, Stop};
use ringfence_identity::{Did, Signer};
use ringfence_record::{Event, Kind, MachineLog, Recorder, RunId};
use ringfence_secrets::{Resolver, SignIns};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::execute::{EndedBy, run_dir, sweep};
use crate::launch::{Alive, Launching};
use crate::live::{self, Lease, Live};
use crate::proxy::{self, Way};
use crate::{Error, Plan};

/// Descriptors that the supervisor takes if it may.
const DESCRIPTORS: u64 = 65_536;

/// An open record. Whoever opens one closes it: one that is dropped reads as a crash.
pub(crate) struct Session {
    pub(crate) run: RunId,
    pub(crate) recorder: Recorder,
    home: PathBuf,
    machine: MachineLog,
    lease: Lease,
}

impl Session {
    /// Clears away what crashed runs left, opens the record and announces the run. `mode` is the label of
    /// a session that has no sandbox of its own; of any other it is known once the probe has passed.
    pub(crate) fn open(plan: &Plan, kind: Kind, mode: Option<&str>) -> Result<Self, Error> {
        more_descriptors();
        let machine = MachineLog::open(&plan.home, Signer::machine(&plan.home)?)?;
        sweep(&plan.home)?;
        let signer = signer(plan)?;
        let run = RunId::fresh();
        let recorder = Recorder::create(&plan.home, &run, signer, &machine)?;
        let pid = std::process::id();
        let pid_started = live::started_at(pid).unwrap_or(0);
        let lease = live::announce(
            &plan.home,
            &Live {
                run: run.clone(),
                kind,
                pid,
                pid_started,
                started: jiff::Timestamp::now().to_string(),
                project: plan.project().to_owned(),
                backend: plan.backend.name().into(),
                command: plan.program.args.clone(),
                mode: mode.map(str::to_owned),
                connections: None,
            },
        )?;
        // On disk with the first event that somebody waits for, before anything is released.
        recorder.note(Event::RunStarted {
            kind,
            project: plan.project().display().to_string(),
            consent: plan.bundle.consent().to_string(),
            backend: plan.backend.name().into(),
            mode: mode.map(str::to_owned),
            command: plan.program.args.clone(),
            ruleset: plan.ruleset.digest(),
            pid,
            pid_started,
        })?;
        Ok(Self { run, recorder, home: plan.home.clone(), machine, lease })
    }

    /// Records the end, seals, and clears away. Nothing of the run may be alive any more.
    pub(crate) fn close<T>(
        self,
        outcome: Result<T, Error>,
        ended: impl FnOnce(&T) -> Event,
    ) -> Result<T, Error> {
        let Self { run, recorder, home, machine, lease } = self;
        let ended = match &outcome {
            Ok(done) => ended(done),
            Err(error) => Event::RunFinished {
                status: 255,
                ended_by: match error {
                    Error::Stopped | Error::StoppedLogin => EndedBy::Stopped.word().into(),
                    _ => EndedBy::Error.word().into(),
                },
                detail: Some(error.to_string()),
            },
        };
        // Whoever asks for a stop from now on is late: nothing ends by it.
        let _ = live::stop_asked(&run_dir(&home, &run));
        // A record that failed says so itself; the first error is the one to show.
        let closed = recorder.commit_blocking(ended).and_then(|_| recorder.seal(&machine));
        // The servers' sandboxes are gone by now, and with them what stood on the agent's
        // placeholders; another run may still do.
        let own = run_dir(&home, &run);
        proxy::sweep(&own);
        // What failed in the middle may have asked an engine for something that is still to come.
        let _ = match &outcome {
            Ok(_) => ringfence_sandbox::sweep(&own),
            Err(_) => ringfence_sandbox::sweep_after_crash(&own),
        };
        if ringfence_sandbox::has_left(&own) {
            lease.leave()
        } else {
            drop(lease)
        }
        // What an earlier run left to us, since we stood on it. The next run tries again.
        let _ = sweep(&home);
        // Where the record failed first, the rest only followed.
        if let Some(error) = recorder.failure() {
            return Err(error.into());
        }
        let done = outcome?;
        closed?;
        Ok(done)
    }
}

/// The gateway of a session in which nobody is served: a person asks, or signs in. Nobody is asked for a
/// yes, and nothing is paid. Also what is left of its servers. `stopped` ends their proxies.
pub(crate) fn alone(
    plan: &Plan,
    session: &Session,
    proxy: &Way,
    stopped: watch::Receiver<bool>,
) -> Result<(Parts, Alive), Error> {
    let recorder = &session.recorder;
    let secrets = Resolver::new(Arc::clone(&plan.ruleset), recorder.clone(), plan.secrets.clone());
    let launcher = Launching::new(
        plan,
        &session.run,
        recorder,
        proxy,
        secrets.clone(),
        stopped,
        Handle::current(),
    );
    let servers = launcher.alive();
    let parts = Parts {
        bundle: Arc::clone(&plan.bundle),
        store: plan.store.clone(),
        ruleset: Arc::clone(&plan.ruleset),
        recorder: recorder.clone(),
        secrets,
        signins: SignIns::new(&plan.home),
        launcher: Arc::new(launcher),
        approver: None,
        purse: None,
        stop: Stop::default(),
        leases: None,
    };
    Ok((parts, servers))
}

/// A tunnel takes two descriptors, and an agent may hold a thousand: with the usual soft limit the
/// supervisor would have none left for its own work. The sandboxes set limits of their own.
fn more_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(DESCRIPTORS).min(DESCRIPTORS);
    if limit.current.is_some_and(|current| current < most) {
        // Where it cannot be raised, connections wait until others end.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit });
    }
}

/// The agent's own key where a DID is declared, the machine's otherwise.
fn signer(plan: &Plan) -> Result<Signer, Error> {
    match plan.manifest().agent.as_ref().and_then(|agent| agent.did.as_deref()) {
        Some(did) => Ok(Signer::for_did(&plan.home, &Did::parse(did)?)?),
        None => Ok(Signer::machine(&plan.home)?),
    }
}
