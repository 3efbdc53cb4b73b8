//! A container whose agent runs.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use bollard::query_parameters::{InspectContainerOptions, WaitContainerOptions};
use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout};

use super::engine::Engine;
use super::stdio::Stdio;
use crate::backend::{self, Boxed};
use crate::error::{Error, Result, Step};
use crate::ground::placeholder::Ground;
use crate::inside::channel::Channel;
use crate::inside::wire::{Order, Reply};
use crate::{Exit, Usage, sys};

/// How long a container may take to be gone once its process 1 is told to end.
const GONE: Duration = Duration::from_secs(10);
/// How long the line may be silent once the engine has let go of the agent's streams.
const LAST_WORD: Duration = Duration::from_millis(300);
/// How long the agent's last output may take.
const OUTPUT: Duration = Duration::from_secs(10);

/// A container whose agent has been released. When it is dropped the line to its process 1 is cut, which
/// ends everything in it.
#[derive(Debug)]
pub(crate) struct Running {
    engine: Engine,
    name: String,
    channel: Channel,
    stdio: Stdio,
    terminal: Option<OwnedFd>,
    _ground: Ground,
    keeps_memory: bool,
    /// When the engine let go of the agent's streams.
    let_go_at: Option<Instant>,
    /// What was said on the line, before all is gone.
    said: Option<std::result::Result<Exit, String>>,
    exit: Option<Exit>,
    limit: Option<(&'static str, String)>,
}

impl Running {
    pub(super) fn new(
        engine: Engine,
        name: String,
        channel: Channel,
        stdio: Stdio,
        terminal: Option<OwnedFd>,
        ground: Ground,
        keeps_memory: bool,
    ) -> Self {
        Self {
            engine,
            name,
            channel,
            stdio,
            terminal,
            _ground: ground,
            keeps_memory,
            let_go_at: None,
            said: None,
            exit: None,
            limit: None,
        }
    }

    fn cut(&self) {
        // Cut already is as good.
        let _ = rustix::net::shutdown(&self.channel, rustix::net::Shutdown::Both);
    }

    async fn ended(&mut self) -> Result<Exit> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        if self.said.is_none() {
            let said = self.last_word().await?;
            self.said = Some(said);
        }
        self.cut();
        self.gone().await;
        let _ = timeout(OUTPUT, self.stdio.finish()).await;
        match self.said.clone() {
            Some(Ok(exit)) => {
                self.exit = Some(exit);
                Ok(exit)
            }
            Some(Err(reason)) => Err(Error::Spec(reason)),
            None => Err(Error::Spec("the container ended without a word".into())),
        }
    }

    /// What process 1 says last; a line that is cut means that everything in the container was killed.
    async fn last_word(&mut self) -> Result<std::result::Result<Exit, String>> {
        let line = self.channel.as_fd().try_clone_to_owned();
        let line = line.and_then(sys::watch_readable).step("watch the container")?;
        let (stdio, let_go_at) = (&self.stdio, &mut self.let_go_at);
        let lost = async {
            stdio.let_go().await;
            // Kept, since whoever waits may stop and begin again.
            let since = *let_go_at.get_or_insert_with(Instant::now);
            tokio::time::sleep_until(since + LAST_WORD).await;
        };
        tokio::select! {
            biased;
            ready = line.readable() => drop(ready.step("wait for the container")?),
            () = lost => {
                return Ok(Err("the engine has let go of the container: it was stopped, or is gone".into()));
            }
        }
        Ok(match self.channel.receive::<Reply>() {
            Ok(Some((Reply::Exited(exit), _))) => Ok(exit),
            Ok(Some((Reply::Failed(failure), _))) => Err(Error::from(failure).to_string()),
            Ok(Some(_)) => Err("the container's process 1 said what nobody asked".into()),
            // Cut by us, by the container's end, or by the sidecar's.
            Ok(None) | Err(_) => Ok(Exit::Signal(libc::SIGKILL)),
        })
    }

    /// Waits until the engine says that the container is gone, and looks why.
    async fn gone(&mut self) {
        let docker = &self.engine.docker;
        let options = WaitContainerOptions { condition: "not-running".into() };
        let mut wait = Box::pin(docker.wait_container(&self.name, Some(options)));
        if timeout(GONE, wait.next()).await.is_err() {
            let options = None::<bollard::query_parameters::KillContainerOptions>;
            let _ = timeout(GONE, docker.kill_container(&self.name, options)).await;
        }
        let found = docker.inspect_container(&self.name, None::<InspectContainerOptions>);
        let Ok(Ok(found)) = timeout(GONE, found).await else { return };
        if found.state.and_then(|state| state.oom_killed).unwrap_or(false) {
            self.limit = Some(("memory", "the kernel ended a process that asked for more".into()));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cut();
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
        self.cut();
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

    fn limit(&self) -> Option<(&'static str, String)> {
        self.limit.clone()
    }
}
