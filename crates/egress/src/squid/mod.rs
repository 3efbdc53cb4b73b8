//! Squid as the engine of a run, by the same rules as the built-in proxy.
//!
//! Squid decides, resolves, checks the addresses and connects. Between it and the sandbox stands a relay
//! of ours, which passes bytes on as they are, and refuses what has no one meaning, or a TLS hello that
//! names another host than the tunnel was asked for. What Squid did is read from its log as it is
//! written.

mod blocks;
mod desk;
mod follow;
mod log;
mod process;
mod relay;
mod render;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_policy::{Principal, Ruleset};
use ringfence_record::Recorder;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::local::Locals;
use crate::proxy::{MAX_ERRORS, accept, passing, stopped};
use crate::slots::Slots;
use crate::{Begun, Error, Token};

use desk::Desk;

/// What a Squid is started with.
pub struct Setup<'a> {
    /// The rules.
    pub ruleset: Arc<Ruleset>,
    /// Where evidence is kept.
    pub recorder: Recorder,
    /// Everybody who may be served.
    pub principals: Vec<Principal>,
    /// Where programs are looked up.
    pub path: Option<&'a OsStr>,
    /// A folder for its files, which is made: nobody else may be able to write to its parent, and an
    /// unprivileged user must be able to come through, where we are root.
    pub folder: &'a Path,
    /// Its name among the Squids of this machine, letters and digits alone: its shared memory is named
    /// after it.
    pub name: &'a str,
    /// Done to its command before it is started, so that it dies with us.
    pub prepare: fn(&mut std::process::Command),
}

impl std::fmt::Debug for Setup<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// The Squid of one run. A clone is the same one; it ends with [`Squid::stop`], and with the last clone.
#[derive(Clone)]
pub struct Squid(Arc<Inner>);

struct Inner {
    desk: Arc<Desk>,
    tokens: BTreeMap<Principal, Token>,
    pid: u32,
    version: String,
    folder: PathBuf,
    name: String,
    halt: watch::Sender<bool>,
    kept: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Squid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Squid").field("pid", &self.0.pid).finish_non_exhaustive()
    }
}

impl Squid {
    /// Finds Squid, renders its configuration, starts it and waits until it listens. It is started by
    /// the thread that polls this, and may end with that thread.
    ///
    /// # Errors
    /// [`Error::Squid`], [`Error::Rule`].
    pub async fn start(setup: &Setup<'_>) -> Result<Self, Error> {
        let mut tokens = BTreeMap::new();
        for who in &setup.principals {
            tokens.insert(who.clone(), Token::fresh()?);
        }
        let started = process::start(setup, &tokens).await?;
        let process::Started { child, log, doors, pid, version, tail } = started;
        let doors = doors.into_iter().map(|door| (door.who, door.port)).collect();
        let desk = Arc::new(Desk::new(
            Box::new(setup.recorder.clone()),
            Arc::clone(&setup.ruleset),
            Locals::of_this_machine(),
            doors,
        ));
        let (halt, halted) = watch::channel(false);
        let kept = tokio::spawn(follow::keep(child, log, tail, Arc::clone(&desk), halted));
        let (folder, name) = (setup.folder.to_owned(), setup.name.to_owned());
        let kept = tokio::sync::Mutex::new(Some(kept));
        Ok(Self(Arc::new(Inner { desk, tokens, pid, version, folder, name, halt, kept })))
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.pid
    }

    /// Its version, as it says it itself.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.0.version
    }

    /// The token of a principal: one for the whole run.
    #[must_use]
    pub fn token(&self, who: &Principal) -> Option<Token> {
        self.0.tokens.get(who).cloned()
    }

    /// As [`crate::Proxy::serve`] does it. Whoever the listener is of must be one of the principals.
    ///
    /// # Errors
    /// [`Error::Listener`]; [`Error::Squid`] for somebody else.
    pub async fn serve(
        &self,
        listener: TcpListener,
        who: Principal,
        begun: Begun,
        mut stop: watch::Receiver<bool>,
    ) -> Result<(), Error> {
        let desk = &self.0.desk;
        let port = desk.door(&who).ok_or_else(|| Error::Squid {
            reason: format!("it was not told of {who}"),
            next: None,
        })?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let peer = Arc::new(relay::Peer { who, port, begun });
        let slots = Slots::new(desk.limits.connections, Arc::clone(&desk.room));
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
                    let (desk, peer) = (Arc::clone(desk), Arc::clone(&peer));
                    connections.spawn(async move {
                        relay::serve(&desk, &peer, stream).await;
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
        ended
    }

    /// Ends when Squid has died, or has let through what it must not, and says which. Nothing goes
    /// through any more then.
    pub async fn failed(&self) -> String {
        self.0.desk.failed().await
    }

    /// Ends it, once what it has logged is in the record, and removes its folder.
    pub async fn stop(&self) {
        let _ = self.0.halt.send(true);
        if let Some(kept) = self.0.kept.lock().await.take() {
            // It ends whatever happens: it kills what does not end by itself.
            let _ = kept.await;
        }
        clear(&self.0.folder, &self.0.name);
    }
}

/// Removes what a Squid of this folder and name has left. It must be gone.
pub fn clear(folder: &Path, name: &str) {
    let _ = std::fs::remove_dir_all(folder);
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return;
    }
    let start = format!("{name}-");
    for entry in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|file| file.starts_with(&start)) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Whoever keeps it sees that nobody can say so any more, and ends it as well.
        let _ = self.halt.send(true);
        clear(&self.folder, &self.name);
    }
}
