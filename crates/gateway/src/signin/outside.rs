//! The way out of a sign-in: to checked addresses, over TLS, one request a connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT,
};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use ringfence_bundle::{Host, ServerId};
use ringfence_egress::{CheckedAddr, Locals, Resolver, check_addresses, dial};
use ringfence_mcp::oauth::{Back, Hop, MAX_BODY, Outside, Place, Reach};
use ringfence_record::{Event, Outcome, Step};
use ringfence_secrets::{Scrubber, Secret};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use zeroize::Zeroizing;

use super::NAME;
use crate::seams::{Boxed, Journal};

/// For one request, from the lookup to the last byte of its answer.
const TIME: Duration = Duration::from_secs(30);
/// Connections of a sign-in are numbered from here on in a record, apart from those of the proxy.
const FIRST: u64 = 1 << 32;
/// Their number within this process: several servers write into one record.
static NUMBER: AtomicU64 = AtomicU64::new(FIRST);
/// Bytes of a reply's head.
const MAX_HEAD: usize = 32 * 1024;

/// Reaches out on behalf of one server. Every attempt is in the record before it is made.
pub(crate) struct Roads {
    server: ServerId,
    journal: Arc<dyn Journal>,
    resolver: Resolver,
    locals: Locals,
    tls: OnceLock<Arc<rustls::ClientConfig>>,
}

/// Where a connection may go.
enum Targets {
    /// Globally routable, by the room that checks.
    Checked(Vec<CheckedAddr>),
    /// As the person declared: the server's own, or loopback beside a server on loopback.
    Own(Vec<IpAddr>),
}

impl Roads {
    pub(crate) fn new(server: ServerId, journal: Arc<dyn Journal>) -> Self {
        Self {
            server,
            journal,
            resolver: Resolver::system(),
            locals: Locals::of_this_machine(),
            tls: OnceLock::new(),
        }
    }

    async fn addresses(&self, host: &Host) -> Result<Vec<IpAddr>, String> {
        match host {
            Host::V4(address) => Ok(vec![(*address).into()]),
            Host::V6(address) => Ok(vec![(*address).into()]),
            Host::Name(name) => self
                .resolver
                .lookup(name)
                .await
                .map_err(|error| format!("{name} was not resolved: {error}")),
        }
    }

    /// The addresses of a place, looked up once.
    async fn targets(&self, place: &Place) -> Result<Targets, String> {
        let host = Host::parse(place.host()).map_err(|error| error.to_string())?;
        match place.reach() {
            Reach::Public => {
                let found = self.addresses(&host).await?;
                let checked = check_addresses(&found, &self.locals);
                checked.map(Targets::Checked).map_err(|error| format!("{host}: {error}"))
            }
            // A name on loopback is the machine's own, whatever a name server says of it.
            Reach::Loopback | Reach::Declared if is_local(&host) => Ok(Targets::Own(match host {
                Host::V4(address) => vec![address.into()],
                Host::V6(address) => vec![address.into()],
                Host::Name(_) => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            })),
            Reach::Loopback => Err(format!("{host} is not on this machine")),
            Reach::Declared => self.addresses(&host).await.map(Targets::Own),
        }
    }

    /// Looks a place up and judges it; that is in the record before anything is dialled.
    async fn judged(&self, place: &Place, method: &str) -> Result<Targets, String> {
        let targets = self.targets(place).await;
        let (outcome, rule) = match &targets {
            Ok(Targets::Checked(all)) => (Outcome::Allowed, list(all.iter().map(|a| a.ip()))),
            Ok(Targets::Own(all)) => (Outcome::Allowed, list(all.iter().copied())),
            Err(why) => (Outcome::Refused, why.clone()),
        };
        let address = match &targets {
            Ok(Targets::Checked(all)) => all.first().map(ToString::to_string),
            Ok(Targets::Own(all)) => all.first().map(ToString::to_string),
            Err(_) => None,
        };
        let event = Event::EgressDecided {
            principal: self.server.to_string(),
            connection: NUMBER.fetch_add(1, Ordering::Relaxed),
            method: method.into(),
            host: place.host().to_owned(),
            port: place.port(),
            outcome,
            steps: vec![
                Step {
                    check: "sign-in".into(),
                    outcome: Outcome::Allowed,
                    rule: place.step().to_string(),
                },
                Step { check: "address".into(), outcome, rule },
            ],
            address,
        };
        let _evidence = self.journal.commit(event).await?;
        targets
    }

    async fn reach(&self, hop: Hop<'_>) -> Result<Back, String> {
        let place = hop.place;
        let method = if hop.body.is_some() { "POST" } else { "GET" };
        let stream = match self.judged(place, method).await? {
            Targets::Checked(all) => dial(&all, place.port())
                .await
                .map_err(|error| format!("{}: {error}", place.host()))?,
            Targets::Own(all) => own(&all, place.port()).await?,
        };
        if !place.tls() {
            return exchange(stream, hop).await;
        }
        let host = place.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
        let connector = tokio_rustls::TlsConnector::from(self.tls()?);
        let stream = connector.connect(name, stream).await;
        let stream = stream.map_err(|error| format!("{}: TLS: {error}", place.host()))?;
        exchange(stream, hop).await
    }

    /// The machine's certificate authorities, read at the first use.
    fn tls(&self) -> Result<Arc<rustls::ClientConfig>, String> {
        if let Some(made) = self.tls.get() {
            return Ok(Arc::clone(made));
        }
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err("no CA certificates are installed; install ca-certificates".into());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let made = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be set up: {error}"))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::clone(self.tls.get_or_init(|| Arc::new(made))))
    }
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Name(name) => name == "localhost" || name.ends_with(".localhost"),
        Host::V4(address) => address.is_loopback(),
        Host::V6(address) => address.is_loopback(),
    }
}

fn list(addresses: impl Iterator<Item = IpAddr>) -> String {
    addresses.map(|address| address.to_string()).collect::<Vec<_>>().join(", ")
}

/// The declared server's own addresses, one after the other.
async fn own(addresses: &[IpAddr], port: u16) -> Result<TcpStream, String> {
    let mut last = "it has no address".to_owned();
    for address in addresses {
        match TcpStream::connect(SocketAddr::new(*address, port)).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = format!("{address}: {error}"),
        }
    }
    Err(last)
}

/// One request and its answer. A redirect is an answer like any other: whoever asked refuses it.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    hop: Hop<'_>,
) -> Result<Back, String> {
    let words = |error: hyper::Error| format!("{}: {error}", hop.place.host());
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(words)?;
    let mut request = http::Request::builder()
        .method(if hop.body.is_some() { "POST" } else { "GET" })
        .uri(hop.place.target())
        .header(HOST, hop.place.authority())
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, concat!("ringfence/", env!("CARGO_PKG_VERSION")))
        .header(CONNECTION, "close");
    if let Some(text) = &hop.authorization {
        let mut value = HeaderValue::from_str(text).map_err(|_| "a header that HTTP has not")?;
        value.set_sensitive(true);
        request = request.header(AUTHORIZATION, value);
    }
    let body = match hop.body {
        Some((kind, bytes)) => {
            request = request.header(CONTENT_TYPE, kind);
            // Zeroed when it has been sent.
            Bytes::from_owner(bytes)
        }
        None => Bytes::new(),
    };
    let request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
    let talk = async {
        let response = sender.send_request(request).await.map_err(words)?;
        let (head, body) = response.into_parts();
        let read = Limited::new(body, MAX_BODY).collect().await;
        let read = read.map_err(|_| {
            format!("{}: its answer breaks off, or is longer than 256 KiB", hop.place.host())
        })?;
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        Ok(Back {
            status: head.status.as_u16(),
            content_type: content_type.map(str::to_owned),
            body: Zeroizing::new(read.to_bytes().to_vec()),
        })
    };
    // The connection is driven here, and ends here.
    tokio::pin!(connection);
    tokio::pin!(talk);
    let mut open = true;
    loop {
        tokio::select! {
            biased;
            back = &mut talk => return back,
            _ = &mut connection, if open => open = false,
        }
    }
}

/// An answer that is no success is shown and recorded: whatever secret was sent is taken out of it first,
/// however it is spelt there.
fn without(sent: &[Zeroizing<String>], mut back: Back) -> Back {
    if !(200..300).contains(&back.status) {
        let value = |text: &Zeroizing<String>| Zeroizing::new(text.as_bytes().to_vec());
        let secrets: Vec<Secret> =
            sent.iter().filter_map(|text| Secret::from_bytes(value(text)).ok()).collect();
        let scrubber = Scrubber::new(secrets.iter().map(|secret| (NAME, secret)));
        if let std::borrow::Cow::Owned(clean) = scrubber.bytes(&back.body) {
            back.body = Zeroizing::new(clean);
        }
    }
    back
}

impl Outside for Roads {
    fn look<'a>(&'a self, place: &'a Place) -> Boxed<'a, Result<(), String>> {
        Box::pin(async move { self.judged(place, "BROWSER").await.map(drop) })
    }

    fn send<'a>(&'a self, hop: Hop<'a>) -> Boxed<'a, Result<Back, String>> {
        Box::pin(async move {
            let host = hop.place.host().to_owned();
            let sent = hop.secrets();
            let back = tokio::time::timeout(TIME, self.reach(hop)).await.unwrap_or_else(|_| {
                Err(format!("{host}: no whole answer within {} s", TIME.as_secs()))
            });
            back.map(|back| without(&sent, back))
        })
    }
}
