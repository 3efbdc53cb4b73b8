//! Starts a stdio server in a sandbox of its own, with its own token and hosts.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::future::Future;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use ringfence_bundle::{ServerId, Transport, Who};
use ringfence_egress::{Begun, Token};
use ringfence_gateway::{Fate, Launched, Launcher, Told};
use ringfence_policy::Principal;
use ringfence_record::{Event, Recorder, RunId};
use ringfence_sandbox::native::{self, Running};
use ringfence_sandbox::{Exit, Spec, Streams};
use ringfence_secrets::{Resolver, Scrubber, Secret};
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};

use crate::execute::{base_spec, probed, run_dir};
use crate::plan::{Backend, PROXY_PORT, Program};
use crate::proxy::Way;
use crate::stderr::{self, Mouth};
use crate::supervise::{LOOK, Watched, uncovered};
use crate::{Error, Plan, environment};

/// How long a server has to end by itself once its stdin is closed.
const GRACE: Duration = Duration::from_millis(500);
/// How long it has once it was asked to end, before it is killed.
const ASKED: Duration = Duration::from_secs(2);

/// A started server: its process, its streams, and its proxy's end.
struct Parts {
    running: Running,
    stdin: OwnedFd,
    stdout: OwnedFd,
    proxy: EndProxy,
}

type Started = Result<Parts, String>;

struct Order {
    server: ServerId,
    spec: Spec,
    token: Token,
    /// Held until the server has its own copy: the spec names it by its number.
    stderr: Mouth,
    reply: oneshot::Sender<Started>,
}

/// The launcher of one run. Its sandboxes are started by one thread that lives as long as it does:
/// the kernel ends a sandbox with the thread that made it.
pub(crate) struct Launching {
    plan: Plan,
    run: RunId,
    recorder: Recorder,
    proxy: Way,
    secrets: Resolver,
    orders: mpsc::UnboundedSender<Order>,
    runtime: Handle,
    alive: watch::Sender<usize>,
}

/// Knows how many servers of a launcher, and proxies of theirs, have not ended.
pub(crate) struct Alive(watch::Receiver<usize>);

impl Alive {
    /// Waits until every server that was let go is gone, which its guard sees to, and its proxy with it.
    pub(crate) async fn none(mut self) {
        // A launcher that is gone has none.
        let _ = self.0.wait_for(|alive| *alive == 0).await;
    }
}

/// Counts one server, until dropped.
struct Counted(watch::Sender<usize>);

impl Counted {
    fn one(all: &watch::Sender<usize>) -> Self {
        all.send_modify(|alive| *alive += 1);
        Self(all.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|alive| *alive -= 1);
    }
}

impl Launching {
    pub(crate) fn new(
        plan: &Plan,
        run: &RunId,
        recorder: &Recorder,
        proxy: &Way,
        secrets: Resolver,
        stopped: watch::Receiver<bool>,
        runtime: Handle,
    ) -> Self {
        let (orders, mut inbox) = mpsc::unbounded_channel::<Order>();
        let alive = watch::channel(0).0;
        let work = Work {
            plan: plan.clone(),
            proxy: proxy.clone(),
            recorder: recorder.clone(),
            stopped,
            runtime: runtime.clone(),
            alive: alive.clone(),
        };
        std::thread::spawn(move || {
            while let Some(order) = inbox.blocking_recv() {
                let started = work.start(&order.server, &order.spec, order.token);
                drop(order.stderr);
                let started = started.map_err(|error| match error.next() {
                    Some(next) => format!("{error}; next: {next}"),
                    None => error.to_string(),
                });
                // Nobody waits any more when the run ended meanwhile; the sandbox goes with the reply.
                let _ = order.reply.send(started);
            }
        });
        Self {
            plan: plan.clone(),
            run: run.clone(),
            recorder: recorder.clone(),
            proxy: proxy.clone(),
            secrets,
            orders,
            runtime,
            alive,
        }
    }

    /// To be asked before the launcher is given away.
    pub(crate) fn alive(&self) -> Alive {
        Alive(self.alive.subscribe())
    }

    /// What is started, and the secrets that are put into its environment.
    async fn spec(
        &self,
        server: &ServerId,
        token: &Token,
    ) -> Result<(Spec, Vec<(String, Secret)>), String> {
        let declared = self.plan.manifest().servers.get(server).ok_or("no such server")?;
        let Transport::Stdio { args, env, .. } = &declared.transport else {
            return Err("not a stdio server".into());
        };
        let program = program(&self.plan, server)?;
        let who = Principal::Server(server.clone());
        let at = std::net::Ipv4Addr::LOCALHOST.into();
        let mut full = environment::base(&self.proxy.url(&who, token, at), at);
        let mut values = BTreeMap::new();
        for (name, template) in env {
            for reference in template.references() {
                if let Entry::Vacant(place) = values.entry(reference) {
                    let value = self.secrets.resolve(&who, place.key()).await;
                    place.insert(value.map_err(|e| e.to_string())?);
                }
            }
            let text = template
                .render(|reference| {
                    values.get(reference).map(Secret::expose).ok_or(reference.clone())
                })
                .map_err(|missing| format!("{name}: {missing} has no value"))?;
            full.push((name.into(), text.into()));
        }
        let mut command = vec![program.file.clone().into_os_string()];
        for argument in args {
            // A secret in an argument list would be shown to everyone on this host.
            let text = argument
                .render(|name| Err::<&str, _>(name.clone()))
                .map_err(|name| format!("an argument may not refer to {name}; give it in `env`"))?;
            command.push(text.into());
        }
        let spec = Spec {
            command,
            arg0: program.args.first().map(Into::into).unwrap_or_default(),
            env: full,
            streams: Streams::Piped,
            // Given by whoever starts it.
            stderr: None,
            listen: vec![PROXY_PORT],
            ..base_spec(&self.plan, &self.run)
        };
        Ok((spec, values.into_iter().map(|(name, value)| (name.into(), value)).collect()))
    }

    fn stderr(&self, server: &ServerId) -> PathBuf {
        run_dir(&self.plan.home, &self.run).join(format!("{server}.stderr"))
    }

    async fn start(&self, server: &ServerId) -> Result<Launched, String> {
        let who = Principal::Server(server.clone());
        let token = self.proxy.token(&who).map_err(|e| e.to_string())?;
        let (mut spec, secrets) = self.spec(server, &token).await?;
        let scrubber = Scrubber::new(secrets.iter().map(|(name, secret)| (name.as_str(), secret)));
        // Earlier starts of it may have written before.
        let file = self.stderr(server);
        let from = std::fs::metadata(&file).map_or(0, |file| file.len());
        let (stderr, kept) = stderr::keep(&file, scrubber)
            .map_err(|error| format!("its stderr cannot be kept: {error}"))?;
        spec.stderr = Some(stderr.path());
        let (reply, started) = oneshot::channel();
        self.orders
            .send(Order { server: server.clone(), spec, token, stderr, reply })
            .map_err(|_| "the run is ending")?;
        let Parts { running, stdin, stdout, proxy } =
            started.await.map_err(|_| "the run is ending")??;
        let stdin = pipe::Sender::from_owned_fd(stdin).map_err(|e| e.to_string())?;
        let stdout = pipe::Receiver::from_owned_fd(stdout).map_err(|e| e.to_string())?;
        let (how, end) = watch::channel(None);
        Ok(Launched {
            stdin: Box::new(stdin),
            stdout: Box::new(stdout),
            secrets,
            guard: Box::new(self.watch(server, running, proxy, how)),
            fate: Some(Box::new(Aftermath { end, kept, file, from })),
        })
    }
}

impl Launching {
    /// Keeps a server's limits until it ends, or is ended. Its proxy goes with it: it may still say
    /// goodbye to somebody.
    fn watch(
        &self,
        server: &ServerId,
        mut running: Running,
        proxy: EndProxy,
        how: watch::Sender<Option<String>>,
    ) -> Ending {
        let (ending, mut ended) = oneshot::channel();
        let watched = Watched::new(&self.plan.limits, &running);
        let guard = running.guard();
        let (recorder, server) = (self.recorder.clone(), server.to_string());
        let counted = Counted::one(&self.alive);
        self.runtime.spawn(async move {
            let _counted = counted;
            let _proxy = proxy;
            let mut look = tokio::time::interval(LOOK);
            look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            loop {
                tokio::select! {
                    _ = &mut ended => {
                        if tokio::time::timeout(GRACE, running.wait()).await.is_err() {
                            running.signal(15);
                            // Dropping it kills what is left.
                            let _ = tokio::time::timeout(ASKED, running.wait()).await;
                        }
                        return;
                    }
                    exit = running.wait() => {
                        how.send_replace(Some(match exit {
                            Ok(Exit::Code(code)) => format!("it exited with status {code}"),
                            Ok(Exit::Signal(signal)) => format!("it was killed by signal {signal}"),
                            Err(error) => format!("its sandbox failed: {error}"),
                        }));
                        return;
                    }
                    _ = look.tick() => {
                        let exceeded = watched.any().then(|| watched.exceeded(&running)).flatten();
                        let Some((limit, detail)) = uncovered(&guard).or(exceeded) else { continue };
                        running.kill();
                        how.send_replace(Some(format!("it was ended by a limit, {limit}: {detail}")));
                        let (limit, detail) = (limit.into(), format!("server {server}: {detail}"));
                        // A record that fails ends the run, and says so.
                        let _ = recorder.commit(Event::LimitReached { limit, detail }).await;
                        return;
                    }
                }
            }
        });
        Ending { _ending: ending }
    }
}

/// Bytes of a server's stderr that are read.
const TAIL: u64 = 64 << 10;

/// What became of a server.
struct Aftermath {
    end: watch::Receiver<Option<String>>,
    /// Over when all that it said on stderr is kept.
    kept: stderr::Whole,
    file: PathBuf,
    /// Where in the file its own words begin.
    from: u64,
}

impl Fate for Aftermath {
    fn learn(&self, patience: Duration) -> Pin<Box<dyn Future<Output = Told> + Send + '_>> {
        Box::pin(async move {
            let mut end = self.end.clone();
            let end = {
                let known = tokio::time::timeout(patience, end.wait_for(Option::is_some)).await;
                match known {
                    Ok(Ok(end)) => end.clone().unwrap_or_default(),
                    Ok(Err(_)) => "it was ended".to_owned(),
                    Err(_) => "it still runs".to_owned(),
                }
            };
            // What it started may hold its stderr open for as long as it likes.
            let _ = tokio::time::timeout(patience, self.kept.clone().wait()).await;
            // A server whose words cannot be read has ended all the same.
            let (stderr, cut) = tail(&self.file, self.from).unwrap_or_default();
            Told { end, stderr, cut }
        })
    }
}

/// The end of a file, and whether more stood before it and after `from`.
fn tail(file: &Path, from: u64) -> std::io::Result<(String, bool)> {
    let mut file = std::fs::File::open(file)?;
    let length = file.metadata()?.len();
    // It may have emptied the file.
    let from = if from > length { 0 } else { from };
    let start = from.max(length.saturating_sub(TAIL));
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes)?;
    Ok((String::from_utf8_lossy(&bytes).into_owned(), start > from))
}

impl Launcher for Launching {
    fn launch<'a>(
        &'a self,
        server: &'a ServerId,
    ) -> Pin<Box<dyn Future<Output = Result<Launched, String>> + Send + 'a>> {
        Box::pin(self.start(server))
    }
}

fn program<'a>(plan: &'a Plan, server: &ServerId) -> Result<&'a Program, String> {
    let found = plan.servers.iter().find(|(id, _)| id == server);
    found.map(|(_, program)| program).ok_or_else(|| "its program was not resolved".to_owned())
}

struct Work {
    plan: Plan,
    proxy: Way,
    recorder: Recorder,
    stopped: watch::Receiver<bool>,
    runtime: Handle,
    alive: watch::Sender<usize>,
}

impl Work {
    fn start(&self, server: &ServerId, spec: &Spec, token: Token) -> Result<Parts, Error> {
        let mut prepared = native::prepare(spec)?;
        let listener = prepared
            .listeners()
            .pop()
            .ok_or_else(|| Error::Backend("the sandbox handed out no listener".into()))?;
        let (proxy, who) = (self.proxy.clone(), Principal::Server(server.clone()));
        // Ends with the run, and with the server: one that is started again and again would
        // otherwise leave a listener, and with it a network, each time.
        let (end, ended) = watch::channel(false);
        let begun = Begun::default();
        let begins = begun.clone();
        // What was open is recorded before the record is sealed.
        let counted = Counted::one(&self.alive);
        self.runtime.spawn(async move {
            let _counted = counted;
            proxy.serve(listener, who, token, begins, ended).await
        });
        let (mut stopped, also) = (self.stopped.clone(), end.clone());
        self.runtime.spawn(async move {
            tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => { let _ = also.send(true); }
                () = also.closed() => {}
            }
        });
        // Whatever goes wrong below takes the proxy with it.
        let end = EndProxy(end);
        probed(&self.recorder, server.as_str(), prepared.probe())?;
        let _ = self.recorder.commit_blocking(Event::SandboxStarted {
            principal: server.to_string(),
            // A server's sandbox is a native one, whatever the agent's is.
            mode: Some(Backend::Native.mode()),
        })?;
        let program = program(&self.plan, server).map_err(Error::Backend)?;
        self.plan.prove(&Who::Server(server.to_string()), program)?;
        begun.begin();
        let mut running = prepared.release()?;
        let (stdin, stdout) = running
            .take_streams()
            .ok_or_else(|| Error::Backend("the sandbox handed out no streams".into()))?;
        Ok(Parts { running, stdin, stdout, proxy: end })
    }
}

/// Ends a server's proxy when dropped.
struct EndProxy(watch::Sender<bool>);

impl Drop for EndProxy {
    fn drop(&mut self) {
        // Nobody listens any more only when the run is over already.
        let _ = self.0.send(true);
    }
}

/// Ends a server when dropped: asked first, killed after a while, killed at once when the run is over.
struct Ending {
    _ending: oneshot::Sender<()>,
}
