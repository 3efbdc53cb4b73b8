//! `ringfence gateway serve`: many clients over HTTP, each known by its bearer token.

mod accept;
mod doors;
mod options;
mod stall;
mod wait;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringfence_bundle::Id;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::bundle::Served;
use super::open::Ending;
use super::{Say, Tokens, Wish, tls};
use crate::execute::{EndedBy, runtime_for_many};
use crate::rooms::Counted;
use crate::{Error, Request};

use accept::Door;
use doors::Doors;

/// A folder that is served.
#[derive(Debug, Clone)]
pub struct Folder {
    /// What stands before its doors in a path, where more than one is served.
    pub name: Option<Id>,
    /// Folder and machine.
    pub request: Request,
}

/// What a person asked for.
#[derive(Clone)]
pub struct Listen {
    /// Where to listen. Port 0 for any.
    pub address: SocketAddr,
    /// What is served, at least one.
    pub folders: Vec<Folder>,
    /// Names by which clients may call this gateway, beside its address.
    pub hosts: Vec<String>,
    /// Pages that may call it, `scheme://host[:port]`.
    pub origins: Vec<String>,
    /// Certificate chain and key, in PEM.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Whether tokens and calls may cross a network unencrypted.
    pub plain: bool,
    /// How long calls in flight may go on at the end.
    pub drain: Duration,
    /// Connections at once.
    pub connections: usize,
    /// Requests of one client at once.
    pub per_client: usize,
    /// As typed, for the record.
    pub words: Vec<String>,
    /// Where people are told something.
    pub say: Say,
}

/// Where clients find it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listening {
    /// The address that is listened on.
    pub address: SocketAddr,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// One a folder.
    pub doors: Vec<Doorway>,
}

/// The addresses of one folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Doorway {
    /// The project folder.
    pub folder: PathBuf,
    /// Every selected server as one.
    pub all: String,
    /// Three tools over all of them.
    pub compact: String,
    /// One server as it is: `{server}` stands for its name.
    pub server: String,
}

/// Listens until SIGTERM or SIGINT, says where, and returns when calls in flight are over and every
/// record is sealed. SIGHUP looks at everything anew.
///
/// # Errors
/// [`Error::Listen`] when the address cannot be had, or is not to be used so; [`Error::Tls`];
/// [`Error::Tokens`] when the file of tokens cannot be used; [`Error::Io`].
pub fn gateway(listen: Listen, ready: impl FnOnce(&Listening)) -> Result<(), Error> {
    let fail = |reason: String| Error::Listen { address: listen.address.to_string(), reason };
    let tls = listen.tls.clone().map(|(certificate, key)| tls::Files { certificate, key });
    options::allowed(listen.address, tls.is_some(), listen.plain).map_err(fail)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let home = listen.folders.first().map(|folder| folder.request.home.clone());
    let tokens = Tokens::of(&home.ok_or_else(|| fail("no folder is served".into()))?);
    let known = tokens.list()?;
    let acceptor = tls.as_ref().map(tls::acceptor).transpose()?;
    let listener = TcpListener::bind(listen.address).map_err(|error| fail(error.to_string()))?;
    let address = listener.local_addr().map_err(|error| fail(error.to_string()))?;
    let (hosts, origins) =
        options::names(address, scheme, &listen.hosts, &listen.origins).map_err(fail)?;
    if known.is_empty() {
        (listen.say)(
            "there is no token yet, so nobody can come in; next: ringfence gateway token create NAME",
        );
    }
    let runtime = runtime_for_many()?;
    let ended = runtime.block_on(async {
        let folders =
            listen.folders.iter().map(|folder| (folder.name.clone(), served(folder, &listen)));
        let (end, ending) = watch::channel(false);
        let doors =
            Doors::new(folders.collect(), hosts, origins, tokens, ending, listen.per_client);
        let shown = doors.addresses(&format!("{scheme}://{address}"));
        let door = Door { doors: Arc::new(doors), tls: watch::Sender::new(acceptor) };
        let serve = Serve { listen: &listen, files: tls, door: Arc::new(door), end };
        serve.until_told(listener, || ready(&Listening { address, scheme, doors: shown })).await
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended
}

fn served(folder: &Folder, listen: &Listen) -> Arc<Served> {
    Served::new(Wish {
        request: folder.request.clone(),
        words: listen.words.clone(),
        toolset: None,
        drain: listen.drain,
        notices: true,
        counted: Counted::default(),
        say: Arc::clone(&listen.say),
    })
}

struct Serve<'l> {
    listen: &'l Listen,
    files: Option<tls::Files>,
    door: Arc<Door>,
    end: watch::Sender<bool>,
}

impl Serve<'_> {
    async fn until_told(&self, listener: TcpListener, ready: impl FnOnce()) -> Result<(), Error> {
        let io = |source| Error::Io { path: "(signals)".into(), source };
        let mut terminate = signal(SignalKind::terminate()).map_err(io)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(io)?;
        let mut hangup = signal(SignalKind::hangup()).map_err(io)?;
        let (stop, stopping) = watch::channel(false);
        let accepting = accept::accept(
            Arc::clone(&self.door),
            listener,
            self.listen.connections,
            self.listen.drain,
            stopping,
        );
        tokio::pin!(accepting);
        ready();
        let ending = loop {
            tokio::select! {
                accepted = &mut accepting => {
                    let reason = accepted.err().map_or("it ended".into(), |error| error.to_string());
                    break Ending::new(EndedBy::Error, reason);
                }
                _ = terminate.recv() => break Ending::new(EndedBy::Stopped, "signal 15"),
                _ = interrupt.recv() => break Ending::new(EndedBy::Stopped, "signal 2"),
                _ = hangup.recv() => self.reload().await,
            }
        };
        let error = matches!(ending.by, EndedBy::Error).then(|| ending.detail.clone()).flatten();
        if error.is_none() {
            (self.listen.say)("no new connections; calls in flight are given their time");
            // Streams have no end of their own.
            self.end.send_replace(true);
            stop.send_replace(true);
            let _ = accepting.await;
        }
        self.door.doors.close(ending).await;
        match error {
            None => Ok(()),
            Some(reason) => Err(Error::Listen { address: self.listen.address.to_string(), reason }),
        }
    }

    async fn reload(&self) {
        let say = &self.listen.say;
        if let Some(files) = &self.files {
            match tls::acceptor(files) {
                Ok(acceptor) => {
                    self.door.tls.send_replace(Some(acceptor));
                }
                Err(error) => say(&format!("the certificate stays as it was: {error}")),
            }
        }
        for served in self.door.doors.folders() {
            if served.reload().await.is_ok() {
                say(&format!("looked at {} anew", served.wish().request.project.display()));
            }
        }
    }
}
