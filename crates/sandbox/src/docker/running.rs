//! A container whose agent runs.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bollard::query_parameters::{InspectContainerOptions, WaitContainerOptions};
use futures_util::StreamExt as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::engine::Engine;
use super::stdio::Stdio;
use crate::backend::{self, Boxed};
use crate::error::{Error, Result, Step};
use crate::ground::guard::Guard;
use crate::ground::placeholder::Ground;
use crate::inside::channel::Channel;
use crate::inside::wire::{Order, Reply};
use crate::{Exit, Usage, sys};

/// How long a container may take to be gone once its process 1 is told to end.
const GONE: Duration = Duration::from_secs(10);
/// How long the line may be silent once the engine says that the container ended, or says nothing any more.
const LAST_WORD: Duration = Duration::from_millis(300);
/// How long the agent's last output may take on its way through the engine.
const OUTPUT: Duration = Duration::from_secs(10);

/// A container whose agent has been released. When it is dropped the line to its process 1 is cut, which
/// ends everything in it.
#[derive(Debug)]
pub(crate) struct Running {
    channel: Arc<Channel>,
    terminal: Option<OwnedFd>,
    _ground: Ground,
    guard: Arc<Guard>,
    keeps_memory: bool,
    /// Waits for the end: by itself, since whoever asks for it may stop asking and begin again.
    ending: JoinHandle<Result<Ended>>,
    ended: Option<Ended>,
    /// Told once nobody wants the agent to go on.
    killed: watch::Sender<bool>,
}

/// How it ended.
#[derive(Debug, Clone)]
struct Ended {
    exit: Exit,
    limit: Option<(&'static str, String)>,
}

/// What waits for the end of a container.
struct Watch {
    engine: Engine,
    name: String,
    channel: Arc<Channel>,
    stdio: Stdio,
    killed: watch::Receiver<bool>,
}

impl Running {
    pub(super) fn new(
        engine: Engine,
        name: String,
        channel: Channel,
        stdio: Stdio,
        terminal: Option<OwnedFd>,
        (ground, guard): (Ground, Guard),
        keeps_memory: bool,
    ) -> Self {
        let channel = Arc::new(channel);
        let (killed, told) = watch::channel(false);
        let watch = Watch { engine, name, channel: Arc::clone(&channel), stdio, killed: told };
        let ending = tokio::spawn(watch.ended());
        Self {
            channel,
            terminal,
            _ground: ground,
            guard: Arc::new(guard),
            keeps_memory,
            ending,
            ended: None,
            killed,
        }
    }

    async fn ended(&mut self) -> Result<Exit> {
        if let Some(ended) = &self.ended {
            return Ok(ended.exit);
        }
        let ended = (&mut self.ending).await;
        let ended = ended.map_err(std::io::Error::other).step("wait for the container")??;
        let exit = ended.exit;
        self.ended = Some(ended);
        Ok(exit)
    }
}

fn cut(channel: &Channel) {
    // Cut already is as good.
    let _ = rustix::net::shutdown(channel, rustix::net::Shutdown::Both);
}

impl Watch {
    async fn ended(mut self) -> Result<Ended> {
        let line = self.channel.as_fd().try_clone_to_owned();
        let line = line.and_then(sys::watch_readable).step("watch the container")?;
        let docker = self.engine.docker.clone();
        let options = WaitContainerOptions { condition: "not-running".into() };
        // An engine that is gone breaks this off, and one that lives answers when the container has ended:
        // unlike the streams, which an agent may close.
        let mut over = Box::pin(docker.wait_container(&self.name, Some(options)));
        let mut is_over = false;
        let heard = tokio::select! {
            biased;
            ready = line.readable() => {
                drop(ready.step("wait for the container")?);
                Some(())
            }
            _ = over.next() => {
                is_over = true;
                timeout(LAST_WORD, line.readable()).await.ok().map(drop)
            }
        };
        let said = heard.map(|()| self.last_word());
        cut(&self.channel);
        if !is_over && timeout(GONE, over.next()).await.is_err() {
            let options = None::<bollard::query_parameters::KillContainerOptions>;
            let _ = timeout(GONE, docker.kill_container(&self.name, options)).await;
        }
        // It may kill any process of the container; only the agent's own end is the run's.
        let limit = match said {
            Some(Ok(Exit::Signal(libc::SIGKILL))) => self.limit().await,
            _ => None,
        };
        self.stdio.finish(OUTPUT, &mut self.killed).await;
        match said {
            Some(Ok(exit)) => Ok(Ended { exit, limit }),
            Some(Err(reason)) => Err(Error::Spec(reason)),
            None => {
                let words = "the engine has let go of the container: it was stopped, or is gone";
                Err(Error::Spec(words.into()))
            }
        }
    }

    /// What process 1 says last; a line that is cut means that everything in the container was killed.
    fn last_word(&self) -> std::result::Result<Exit, String> {
        // It is there, or as good as: process 1 sends it at once.
        let _ = self.channel.patience(Some(LAST_WORD));
        match self.channel.receive::<Reply>() {
            Ok(Some((Reply::Exited(exit), _))) => Ok(exit),
            Ok(Some((Reply::Failed(failure), _))) => Err(Error::from(failure).to_string()),
            Ok(Some(_)) => Err("the container's process 1 said what nobody asked".into()),
            // Cut by us, by the container's end, or by the sidecar's.
            Ok(None) | Err(_) => Ok(Exit::Signal(libc::SIGKILL)),
        }
    }

    /// The limit that the kernel kept, if one did.
    async fn limit(&self) -> Option<(&'static str, String)> {
        let found =
            self.engine.docker.inspect_container(&self.name, None::<InspectContainerOptions>);
        let found = timeout(GONE, found).await.ok()?.ok()?;
        let killed = found.state.and_then(|state| state.oom_killed).unwrap_or(false);
        killed.then(backend::out_of_memory)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ending.abort();
        cut(&self.channel);
    }
}

impl backend::Running for Running {
    fn take_terminal(&mut self) -> Option<OwnedFd> {
        self.terminal.take()
    }

    fn wait(&mut self) -> Boxed<'_, Result<Exit>> {
        Box::pin(self.ended())
    }

    fn kill(&self) {
        let _ = self.killed.send(true);
        cut(&self.channel);
    }

    fn signal(&self, signal: i32) {
        // Gone already: then `wait` tells.
        let _ = self.channel.send(&Order::Signal(signal), &[]);
    }

    fn shares_terminal(&self) -> bool {
        // The engine is between.
        false
    }

    fn usage(&self) -> Usage {
        Usage::default()
    }

    fn keeps_memory(&self) -> bool {
        self.keeps_memory
    }

    fn guard(&self) -> Option<Arc<Guard>> {
        Some(Arc::clone(&self.guard))
    }

    fn limit(&self) -> Option<(&'static str, String)> {
        self.ended.as_ref().and_then(|ended| ended.limit.clone())
    }
}
