//! Which wall stands around an agent, and the ways through it.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ringfence_egress::remote::{self, Attending, Ended as SidecarEnded, Relay, Remote, Setup};
use ringfence_egress::{Begun, Token};
use ringfence_gateway::At;
use ringfence_policy::Principal;
use ringfence_record::{Event, Recorder, RunId};
use ringfence_sandbox::docker::{self, Engine, Image, Wanted};
use ringfence_sandbox::{Doors, Exit, Prepared, Spec, host, native};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::execute::Ended;
use crate::plan::{Backend, GATE_PORT, PROXY_PORT};
use crate::{Error, Plan, environment, proxy};

/// How long it may take until a sidecar's end is seen, once the agent is known to be gone.
const SEEN: Duration = Duration::from_millis(500);

/// How long a sidecar has to say what became of what was open, and the record to take it.
const LAST: Duration = Duration::from_secs(10);

/// Builds a plan's wall.
pub(crate) async fn stand(
    plan: &Plan,
    run: &RunId,
    recorder: &Recorder,
    spec: &Spec,
) -> Result<Box<dyn Prepared>, Error> {
    match plan.backend {
        Backend::Host => Ok(Box::new(host::prepare(spec)?)),
        Backend::Native => Ok(Box::new(native::prepare(spec)?)),
        Backend::Docker | Backend::Lockdown => {
            Ok(Box::new(contain(plan, run, recorder, spec).await?))
        }
    }
}

async fn contain(
    plan: &Plan,
    run: &RunId,
    recorder: &Recorder,
    spec: &Spec,
) -> Result<docker::Prepared, Error> {
    let host = std::env::var("DOCKER_HOST").ok();
    let engine = Engine::connect(host.as_deref()).await?;
    let limits = &plan.limits;
    for (name, set) in [
        ("memory", limits.memory.is_some()),
        ("cpus", limits.cpus.is_some()),
        ("pids", limits.pids.is_some()),
    ] {
        if set && !engine.keeps(name) {
            return Err(Error::Backend(format!(
                "a limit is set on {name}, and the engine's kernel keeps none for containers"
            )));
        }
    }
    let name = plan.image().ok_or(Error::NoImage { backend: plan.backend.name() })?;
    let image = Image::find(&engine, name).await?;
    let declared = plan.manifest().sandbox.runtime.clone();
    let runtime = engine.runtime(declared.as_deref())?;
    recorder.note(Event::SandboxImage {
        principal: Principal::Agent.to_string(),
        image: image.name.clone(),
        digest: image.id.clone(),
        repository: image.repository.clone(),
        engine: engine.version().to_owned(),
        runtime,
    })?;
    let program = std::env::current_exe()
        .map_err(|source| Error::Io { path: "/proc/self/exe".into(), source })?;
    let wanted = Wanted {
        image,
        runtime: declared,
        run: run.to_string(),
        mounted_program: plan.is_proven() || !plan.reviewed,
        program,
        kept: plan.home.join("sidecar-image"),
        sidecar_name: remote::SIDECAR_NAME,
        sidecar_folder: remote::SIDECAR_FOLDER,
        control_socket: remote::CONTROL,
    };
    Ok(docker::prepare(&engine, spec, &wanted).await?)
}

/// Whether there is a terminal to carry.
pub(crate) fn on_terminal() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// What an agent's environment says of its peer.
pub(crate) fn around(
    plan: &Plan,
    proxy: &proxy::Way,
    token: &Token,
    peer: IpAddr,
) -> Vec<(OsString, OsString)> {
    let terminal = std::env::var("TERM").ok();
    let mut env = environment::base(&proxy.url(&Principal::Agent, token, peer), peer);
    env.extend(environment::agent(plan.manifest(), peer, terminal.as_deref()));
    env
}

/// The proxy of an agent while it is served, here or by a sidecar.
pub(crate) struct Exits {
    token: Token,
    gate: Option<At>,
    served: Served,
}

enum Served {
    /// With the address, where it is another than usual.
    Here(JoinHandle<Result<(), ringfence_egress::Error>>, Option<IpAddr>),
    Beside {
        remote: Remote,
        attending: Option<Attending>,
        address: IpAddr,
    },
}

impl Exits {
    /// Opens the doors, which let nothing through yet.
    pub(crate) async fn open(
        plan: &Plan,
        proxy: &proxy::Way,
        doors: Doors,
        token: Token,
        begun: &Begun,
        stopped: &watch::Receiver<bool>,
    ) -> Result<Self, Error> {
        let none = || Error::Backend("the sandbox handed out no listeners".into());
        let (doors, own) = match doors {
            Doors::Here { listeners, address } => (Doors::Inside(listeners), Some(address)),
            doors => (doors, None),
        };
        match doors {
            Doors::Here { .. } => Err(none()),
            Doors::Inside(listeners) => {
                let mut listeners = listeners.into_iter();
                let for_proxy = listeners.next().ok_or_else(none)?;
                let for_gate = listeners.next().ok_or_else(none)?;
                let served = tokio::spawn({
                    let (proxy, token) = (proxy.clone(), token.clone());
                    let (begun, stopped) = (begun.clone(), stopped.clone());
                    async move { proxy.serve(for_proxy, Principal::Agent, token, begun, stopped).await }
                });
                let gate = Some(At::Loopback(for_gate));
                Ok(Self { token, gate, served: Served::Here(served, own) })
            }
            Doors::Sidecar(sidecar) => {
                let setup = Setup {
                    ruleset: &plan.ruleset,
                    token: &token,
                    address: sidecar.address,
                    proxy: PROXY_PORT,
                    relays: vec![
                        Relay { port: GATE_PORT, socket: docker::GATE_SOCKET.into(), once: false },
                        // Process 1 takes it before there is an agent.
                        Relay {
                            port: docker::init_port(),
                            socket: docker::INIT_SOCKET.into(),
                            once: true,
                        },
                    ],
                    strict: plan.is_strict(),
                };
                let (remote, attending) =
                    Remote::begin(proxy.of_ours().ok_or_else(none)?, sidecar.control, setup)
                        .await?;
                let (address, attending) = (sidecar.address, Some(attending));
                let at = SocketAddr::new(address, GATE_PORT);
                let gate = Some(At::Relayed(sidecar.gate, at));
                Ok(Self { token, gate, served: Served::Beside { remote, attending, address } })
            }
        }
    }

    /// The gate's door; taken once.
    pub(crate) fn gate(&mut self) -> Option<At> {
        self.gate.take()
    }

    /// Where the sandbox's peer is, where that was not known beforehand.
    pub(crate) fn peer(&self) -> Option<IpAddr> {
        match &self.served {
            Served::Here(_, own) => *own,
            Served::Beside { address, .. } => Some(*address),
        }
    }

    pub(crate) fn token(&self) -> &Token {
        &self.token
    }

    /// From now on requests are judged and recorded.
    pub(crate) async fn go(&mut self) -> Result<(), Error> {
        if let Served::Beside { remote, .. } = &mut self.served {
            remote.go().await?;
        }
        Ok(())
    }

    /// Over when the sidecar is gone, which it must not be before the run is; never, where there is none.
    pub(crate) async fn lost(&mut self) -> Error {
        let Served::Beside { attending, .. } = &mut self.served else {
            return std::future::pending().await;
        };
        let Some(attended) = attending else { return std::future::pending().await };
        let why = match attended.await {
            Ok(ended) => ended.to_string(),
            Err(error) => error.to_string(),
        };
        *attending = None;
        Error::Egress(ringfence_egress::Error::Sidecar(format!("it is gone: {why}")))
    }

    /// An agent that was killed with its sidecar did not end by itself.
    pub(crate) async fn explain(&mut self, ended: Ended) -> Result<Ended, Error> {
        let killed = matches!(ended.exit, Some(Exit::Signal(9)));
        let by_itself = matches!(ended.by, crate::EndedBy::Exit | crate::EndedBy::Signal);
        if killed
            && by_itself
            && let Ok(lost) = timeout(SEEN, self.lost()).await
        {
            return Err(lost);
        }
        Ok(ended)
    }

    /// Waits until everything open is closed and recorded.
    ///
    /// # Errors
    /// [`Error`]: the proxy failed, or not all of what a sidecar did is known to be in the record.
    pub(crate) async fn closed(self) -> Result<(), Error> {
        let (remote, mut attending) = match self.served {
            Served::Here(served, _) => {
                return match served.await {
                    Ok(ended) => Ok(ended?),
                    Err(error) => Err(Error::Backend(format!("the proxy failed: {error}"))),
                };
            }
            Served::Beside { remote, attending: Some(attending), .. } => (remote, attending),
            // How it ended was told already.
            Served::Beside { .. } => return Ok(()),
        };
        remote.stop();
        let why = match timeout(LAST, &mut attending).await {
            Ok(Ok(SidecarEnded::Whole)) => return Ok(()),
            Ok(Ok(cut)) => cut.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => {
                // The line is cut: it ends with it.
                attending.abort();
                format!("it did not come to an end within {} s", LAST.as_secs())
            }
        };
        Err(Error::Egress(ringfence_egress::Error::Sidecar(format!(
            "what it did last may be missing in the record: {why}"
        ))))
    }
}
