//! Sends an approval webhook's requests: to public addresses, or to the loopback address that the
//! person wrote.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::Request;
use hyper::header::{HOST, RETRY_AFTER};
use hyper_util::rt::TokioIo;
use ringfence_approval::{Boxed, Post, Posted, Received, is_loopback};
use ringfence_bundle::{Endpoint, Host};
use ringfence_egress::{Locals, Resolver, check_addresses, dial};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// One connection a request, made as the proxy makes one: the name is resolved once, one address that
/// is not public refuses the whole answer, and an address that was checked is dialled. Redirects are
/// answers like others, and no proxy variable is read.
pub(crate) struct Poster {
    resolver: Resolver,
    locals: Locals,
    tls: OnceLock<Result<Arc<rustls::ClientConfig>, String>>,
}

impl Poster {
    pub(crate) fn new() -> Self {
        Self {
            resolver: Resolver::system(),
            locals: Locals::of_this_machine(),
            tls: OnceLock::new(),
        }
    }

    async fn send(&self, request: Posted) -> Result<Received, String> {
        let stream = self.connect(&request.url).await?;
        if !request.url.tls {
            return exchange(stream, request).await;
        }
        let config = self.tls.get_or_init(tls).clone()?;
        let name = match &request.url.host {
            Host::Name(name) => ServerName::try_from(name.clone())
                .map_err(|_| "its name is not one for TLS".to_owned())?,
            Host::V4(address) => ServerName::from(IpAddr::from(*address)),
            Host::V6(address) => ServerName::from(IpAddr::from(*address)),
        };
        let stream = TlsConnector::from(config)
            .connect(name, stream)
            .await
            .map_err(|error| format!("no TLS connection: {error}"))?;
        exchange(stream, request).await
    }

    async fn connect(&self, url: &Endpoint) -> Result<TcpStream, String> {
        let literal = match &url.host {
            Host::Name(_) => None,
            Host::V4(address) => Some(IpAddr::from(*address)),
            Host::V6(address) => Some(IpAddr::from(*address)),
        };
        if let (true, Some(address)) = (is_loopback(url), literal) {
            return TcpStream::connect(SocketAddr::new(address, url.port))
                .await
                .map_err(|error| format!("no connection: {error}"));
        }
        let answers = match (&url.host, literal) {
            (Host::Name(name), _) => {
                self.resolver.lookup(name).await.map_err(|error| error.to_string())?
            }
            (_, Some(address)) => vec![address],
            (_, None) => Vec::new(),
        };
        // An address is not shown: it belongs to one that is secret.
        let addresses = check_addresses(&answers, &self.locals)
            .map_err(|_| "it is not at a public address".to_owned())?;
        dial(&addresses, url.port).await.map_err(|error| format!("no connection: {error}"))
    }
}

impl Post for Poster {
    fn post(&self, request: Posted) -> Boxed<'_, Result<Received, String>> {
        let limit = request.timeout;
        Box::pin(async move {
            match tokio::time::timeout(limit, self.send(request)).await {
                Ok(received) => received,
                Err(_) => Err(format!("no answer within {} s", limit.as_secs())),
            }
        })
    }
}

/// One request and its answer. The connection ends with it.
async fn exchange<S>(stream: S, request: Posted) -> Result<Received, String>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let Posted { url, headers, body, most, .. } = request;
    let usual = if url.tls { 443 } else { 80 };
    let host =
        if url.port == usual { url.host.to_string() } else { format!("{}:{}", url.host, url.port) };
    let mut built = Request::post(url.path).header(HOST, host);
    for (name, value) in headers {
        built = built.header(name, value);
    }
    let built = built
        .body(Full::new(Bytes::from(body)))
        .map_err(|_| "its address cannot be asked for".to_owned())?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let ended = Ended(connection.abort_handle());
    let answer = sender.send_request(built).await.map_err(|error| error.to_string())?;
    let status = answer.status().as_u16();
    let retry_after = answer
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let body = Limited::new(answer.into_body(), most)
        .collect()
        .await
        .map_err(|_| "its answer is cut off, or longer than a decision".to_owned())?;
    drop(ended);
    Ok(Received { status, retry_after, body: body.to_bytes().to_vec() })
}

/// Ends the connection's task, whatever becomes of the request.
struct Ended(tokio::task::AbortHandle);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The machine's certificate authorities.
fn tls() -> Result<Arc<rustls::ClientConfig>, String> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("no CA certificates are installed on this machine".into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
