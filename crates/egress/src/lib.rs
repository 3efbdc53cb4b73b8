//! May this connection leave, and to which address? The built-in proxy.

use std::net::TcpListener;
use std::sync::Arc;

use ringfence_policy::{Principal, Ruleset};
use ringfence_record::Recorder;

/// A run's proxy token: 256 random bits, hex. Compared in constant time.
#[derive(Clone)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// A fresh one from the system's random source.
    ///
    /// # Errors
    /// [`Error::Random`].
    pub fn fresh() -> Result<Self, Error> {
        todo!()
    }

    /// The value for `HTTPS_PROXY`: `http://ringfence:<token>@127.0.0.1:<port>`.
    #[must_use]
    pub fn proxy_url(&self, port: u16) -> String {
        format!("http://ringfence:{}@127.0.0.1:{port}", self.0)
    }
}

/// Why the proxy could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system has no random bytes.
    #[error("no random bytes: {0}")]
    Random(String),
    /// The resolver could not be set up; nothing may be resolved, so nothing runs.
    #[error("no resolver: {0}")]
    Resolver(String),
    /// The listener could not be used.
    #[error("proxy listener: {0}")]
    Listener(#[from] std::io::Error),
}

/// The proxy of one run: many listeners (one a sandbox), one ruleset, one record.
#[derive(Debug, Clone)]
pub struct Proxy {
    ruleset: Arc<Ruleset>,
    recorder: Recorder,
}

impl Proxy {
    /// A proxy.
    ///
    /// # Errors
    /// [`Error::Resolver`].
    pub fn new(ruleset: Arc<Ruleset>, recorder: Recorder) -> Result<Self, Error> {
        Ok(Self { ruleset, recorder })
    }

    /// Serves one listener for one principal, who must show this token. Ends when `stop` is done;
    /// open tunnels are cut then.
    ///
    /// # Errors
    /// [`Error::Listener`].
    pub async fn serve(
        &self,
        _listener: TcpListener,
        _who: Principal,
        _token: Token,
        _stop: tokio::sync::watch::Receiver<bool>,
    ) -> Result<(), Error> {
        let _ = (&self.ruleset, &self.recorder);
        todo!()
    }
}
