//! May this call go through? The one dispatch function and the MCP gate.

use std::future::Future;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;

use ringfence_bundle::ServerId;
use ringfence_policy::Ruleset;
use ringfence_record::Recorder;
use ringfence_secrets::Resolver;
use ringfence_trust::{Store, TrustedBundle};
use tokio::io::{AsyncRead, AsyncWrite};

/// A started stdio server.
pub struct Launched {
    /// Its stdin.
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    /// Its stdout.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// Ends it, gently then firmly, when dropped.
    pub guard: Box<dyn Send>,
}

/// Starts stdio servers; `run` implements it, so that `gateway` knows no sandbox.
pub trait Launcher: Send + Sync + 'static {
    /// Starts one. The error is for people and says what to do.
    fn launch<'a>(
        &'a self,
        server: &'a ServerId,
    ) -> Pin<Box<dyn Future<Output = Result<Launched, String>> + Send + 'a>>;
}

/// What a gateway is made of.
pub struct Parts {
    /// The bundle whose servers it serves.
    pub bundle: Arc<TrustedBundle>,
    /// Asked at every call whether the bundle is still the trusted one.
    pub store: Store,
    /// The rules.
    pub ruleset: Arc<Ruleset>,
    /// The evidence.
    pub recorder: Recorder,
    /// Resolves `${NAME}` in headers.
    pub secrets: Resolver,
    /// Starts stdio servers.
    pub launcher: Arc<dyn Launcher>,
}

/// The chokepoint of every MCP call.
pub struct Gateway {
    parts: Parts,
}

impl Gateway {
    /// A gateway. Contacts nobody yet.
    #[must_use]
    pub fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self { parts })
    }

    /// Serves the agent's door: `http://127.0.0.1:<port>/<server>/mcp` for each server. Ends when
    /// `stop` is true; calls in flight are given up and settled.
    ///
    /// # Errors
    /// When the listener cannot be used.
    pub async fn serve(
        self: Arc<Self>,
        _listener: TcpListener,
        _stop: tokio::sync::watch::Receiver<bool>,
    ) -> std::io::Result<()> {
        let _ = &self.parts;
        todo!()
    }
}
