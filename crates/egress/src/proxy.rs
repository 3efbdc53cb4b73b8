//! The proxy of one run.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringfence_policy::{Principal, Ruleset};
use ringfence_record::Recorder;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::Error;
use crate::connection::{self, Peer};
use crate::engine::{Engine, Limits, Strictness};
use crate::local::Locals;
use crate::resolve::Resolver;
use crate::slots::Slots;
use crate::token::Token;

/// How long no connection is accepted after an error, for example when descriptors have run out.
const PAUSE: Duration = Duration::from_millis(50);
/// So many errors in a row are the listener's own fault.
pub(crate) const MAX_ERRORS: u32 = 200;

/// Whether a process was started in a sandbox. Before that only the sandbox's own probe is in it: its
/// requests are answered with a refusal and are no decision, so the record has none of them.
#[derive(Debug, Clone, Default)]
pub struct Begun(Arc<AtomicBool>);

impl Begun {
    /// From now on requests are judged and recorded. Said before the process is let go.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn has(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The proxy of one run: many listeners (one a sandbox), one ruleset, one record.
#[derive(Clone)]
pub struct Proxy {
    engine: Arc<Engine>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("limits", &self.engine.limits).finish_non_exhaustive()
    }
}

impl Proxy {
    /// A proxy. The resolver's configuration is read when a name is first resolved: until it can be
    /// used, every connection to a name is refused.
    ///
    /// # Errors
    /// None today; [`Error::Resolver`] is kept for engines that must be set up beforehand.
    pub fn new(ruleset: Arc<Ruleset>, recorder: Recorder) -> Result<Self, Error> {
        Self::strict(ruleset, recorder, Strictness::default())
    }

    /// As [`Proxy::new`], for a run that refuses more than its rules do.
    ///
    /// # Errors
    /// As for [`Proxy::new`].
    pub fn strict(
        ruleset: Arc<Ruleset>,
        recorder: Recorder,
        strictness: Strictness,
    ) -> Result<Self, Error> {
        let engine = Engine::new(
            Box::new(ruleset),
            Box::new(recorder),
            Box::new(Locals::of_this_machine()),
            Box::new(Resolver::system()),
            Limits::default(),
        );
        Ok(Self { engine: Arc::new(engine.with_strictness(strictness)) })
    }

    /// With parts of its own.
    pub(crate) fn with_engine(engine: Engine) -> Self {
        Self { engine: Arc::new(engine) }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Serves one listener for one principal, who must show this token. Until `begun` nothing gets
    /// through, and nothing is recorded. Ends when `stop` is true or
    /// its sender is gone; open tunnels are cut then, and each is recorded before this returns.
    ///
    /// # Errors
    /// [`Error::Listener`].
    pub async fn serve(
        &self,
        listener: TcpListener,
        who: Principal,
        token: Token,
        begun: Begun,
        mut stop: tokio::sync::watch::Receiver<bool>,
    ) -> Result<(), Error> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let peer = Arc::new(Peer { who, token, begun });
        let room = Arc::clone(&self.engine.room);
        let slots = Arc::new(Slots::new(self.engine.limits.connections, room));
        let mut connections = JoinSet::new();
        let mut errors = 0;
        // A connection that has come and has no place yet. No other is taken meanwhile.
        let mut waiting = None;
        let ended = loop {
            tokio::select! {
                biased;
                () = stopped(&mut stop) => break Ok(()),
                Some(_) = connections.join_next() => {}
                slot = slots.take(), if waiting.is_some() => {
                    let Some(stream) = waiting.take() else { continue };
                    let (engine, peer) = (Arc::clone(&self.engine), Arc::clone(&peer));
                    let more = Arc::clone(&slots);
                    connections.spawn(async move {
                        connection::serve(engine, peer, more, stream).await;
                        drop(slot);
                    });
                }
                accepted = accept(&listener), if waiting.is_none() => match accepted {
                    Ok(stream) => {
                        errors = 0;
                        waiting = Some(stream);
                    }
                    Err(error) => {
                        errors += u32::from(!passing(&error));
                        if errors > MAX_ERRORS {
                            break Err(Error::Listener(error));
                        }
                    }
                },
            }
        };
        connections.shutdown().await;
        // Streams of HTTP/2 end with their connection, each when it is next scheduled.
        slots.empty().await;
        ended
    }
}

/// Whether an error is a shortage that ends when connections do (`ENOMEM`, `ENFILE`, `EMFILE`,
/// `ENOBUFS` on Linux), so that the listener is not to blame.
pub(crate) fn passing(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(12 | 23 | 24 | 105))
}

/// Returns when the signal is true or can no longer be given.
pub(crate) async fn stopped(stop: &mut tokio::sync::watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// The next connection. After an error it waits a little.
pub(crate) async fn accept(listener: &tokio::net::TcpListener) -> std::io::Result<TcpStream> {
    match listener.accept().await {
        Ok((stream, _)) => Ok(stream),
        Err(error) => {
            tokio::time::sleep(PAUSE).await;
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests;
