//! What the tests of this crate share: real sockets, a real resolver, and rules of their own.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use ringfence_bundle::Host;
use ringfence_policy::{Decision, Layer, Principal};
use ringfence_record::Event;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::address::CheckedAddr;
use crate::engine::{Addresses, Check, Engine, Journal, Judge, Limits, Strictness};
use crate::local::Locals;
use crate::resolve::Resolver;
use crate::{Begun, Error, Proxy, Token};

/// Nothing in a test takes longer; an await that does is a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A DNS server on loopback that answers A with these addresses, AAAA with nothing, and keeps the
/// names it was asked for.
pub(crate) async fn dns_server(answers: Vec<Ipv4Addr>) -> (u16, Arc<Mutex<Vec<String>>>) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = socket.local_addr().unwrap().port();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut query = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut query).await {
            let query = &query[..length];
            let (name, end) = question(query);
            kept.lock().unwrap().push(name);
            let is_a = query[end..end + 2] == [0, 1];
            let count = if is_a { answers.len() } else { 0 };
            let mut reply = query[..2].to_vec();
            reply.extend([0x81, 0x80, 0, 1, 0, u8::try_from(count).unwrap(), 0, 0, 0, 0]);
            reply.extend(&query[12..end + 4]);
            for address in answers.iter().take(count) {
                reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
                reply.extend(address.octets());
            }
            socket.send_to(&reply, from).await.unwrap();
        }
    });
    (port, asked)
}

/// The name that a query asks for, and where its type stands.
fn question(query: &[u8]) -> (String, usize) {
    let (mut at, mut name) = (12, String::new());
    while query[at] != 0 {
        let length = usize::from(query[at]);
        name.push_str(std::str::from_utf8(&query[at + 1..=at + length]).unwrap());
        name.push('.');
        at += 1 + length;
    }
    (name.to_ascii_lowercase(), at + 1)
}

/// Allows what ends in `.localhost` on any port, and loopback literals. What begins with `opaque` is.
struct Rules;

impl Judge for Rules {
    fn egress(&self, _who: &Principal, host: &Host, port: u16) -> Decision {
        let allowed = match host {
            Host::Name(name) => name.ends_with(".localhost") && name != "refused.localhost",
            Host::V4(address) => address.is_loopback(),
            Host::V6(_) => false,
        };
        Decision { allowed, layer: Layer::Declared, rule: format!("test rule for port {port}") }
    }
    fn is_opaque(&self, _who: &Principal, host: &Host, _port: u16) -> bool {
        matches!(host, Host::Name(name) if name.starts_with("opaque"))
    }
}

/// Takes loopback addresses for public ones.
struct Loopback;

impl Addresses for Loopback {
    fn check<'a>(&'a self, answers: &'a [IpAddr]) -> Check<'a> {
        let four = answers.iter().copied().filter(IpAddr::is_ipv4);
        let checked = four.map(CheckedAddr::unchecked_in_test).collect();
        Box::pin(async { Ok(checked) })
    }
}

/// Keeps events where a test can wait for them.
pub(crate) struct Notes {
    events: watch::Sender<Vec<Event>>,
    broken: bool,
    /// Far behind: who asks for room waits.
    pub(crate) behind: watch::Sender<bool>,
}

impl Journal for Arc<Notes> {
    fn note(&self, event: Event) -> Result<(), String> {
        if self.broken {
            return Err("disk full".to_owned());
        }
        self.events.send_modify(|events| events.push(event));
        Ok(())
    }
    fn room(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let _ = self.behind.subscribe().wait_for(|behind| !behind).await;
        })
    }
}

impl Notes {
    /// The first event that suits, now or later.
    pub(crate) async fn wait_for<T>(&self, suits: impl Fn(&Event) -> Option<T>) -> T {
        let mut events = self.events.subscribe();
        let found = events.wait_for(|events| events.iter().any(|event| suits(event).is_some()));
        let found = timeout(PATIENCE, found).await;
        let found = found.unwrap_or_else(|_| panic!("not noted: {:#?}", self.events.borrow()));
        found.unwrap().iter().find_map(&suits).unwrap()
    }

    pub(crate) fn all(&self) -> Vec<Event> {
        self.events.borrow().clone()
    }

    /// Sent, received and reason of a connection's end.
    pub(crate) async fn closed(&self, number: u64) -> (u64, u64, String) {
        self.wait_for(|event| match event {
            Event::EgressClosed { connection, sent, received, reason } if *connection == number => {
                Some((*sent, *received, reason.clone()))
            }
            _ => None,
        })
        .await
    }

    /// A decision as one line: method, host, port, `+` or `-` with each step.
    pub(crate) async fn decided(&self, number: u64) -> String {
        self.wait_for(|event| match event {
            Event::EgressDecided { connection, method, host, port, steps, .. }
                if *connection == number =>
            {
                let steps = steps.iter().map(|step| {
                    let allowed = step.outcome == ringfence_record::Outcome::Allowed;
                    format!("{}{}", if allowed { '+' } else { '-' }, step.check)
                });
                Some(format!("{method} {host} {port} {}", steps.collect::<Vec<_>>().join(" ")))
            }
            _ => None,
        })
        .await
    }
}

/// What a test may set.
pub(crate) struct Setup {
    pub(crate) limits: Limits,
    pub(crate) real_address_check: bool,
    pub(crate) broken_record: bool,
    pub(crate) dns_port: Option<u16>,
    /// Nothing was started in the sandbox yet.
    pub(crate) before_it_begins: bool,
    pub(crate) strictness: Strictness,
    /// Others than [`Rules`].
    pub(crate) judge: Option<Box<dyn Judge>>,
}

impl Default for Setup {
    fn default() -> Self {
        let limits =
            Limits { waiting: PATIENCE, head: PATIENCE, hello: PATIENCE, ..Limits::default() };
        Self {
            limits,
            real_address_check: false,
            broken_record: false,
            dns_port: None,
            before_it_begins: false,
            strictness: Strictness::default(),
            judge: None,
        }
    }
}

/// A running proxy.
pub(crate) struct World {
    pub(crate) port: u16,
    pub(crate) token: Token,
    pub(crate) notes: Arc<Notes>,
    pub(crate) begun: Begun,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) served: JoinHandle<Result<(), Error>>,
    pub(crate) proxy: Proxy,
}

/// The header line that shows a token.
pub(crate) fn shown(token: &Token) -> String {
    let url = token.proxy_url((Ipv4Addr::LOCALHOST, 1).into());
    let pair = url.strip_prefix("http://").unwrap().split('@').next().unwrap();
    let pair = base64::engine::general_purpose::STANDARD.encode(pair);
    format!("Proxy-Authorization: Basic {pair}\r\n")
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Setup::default()).await
    }

    pub(crate) async fn with(setup: Setup) -> Self {
        let notes = Arc::new(Notes {
            events: watch::Sender::new(Vec::new()),
            broken: setup.broken_record,
            behind: watch::Sender::new(false),
        });
        // Names below `.localhost` are answered without a server (RFC 6761); port 9 is for no one.
        let mut server = NameServerConfig::udp(Ipv4Addr::LOCALHOST.into());
        server.connections[0].port = setup.dns_port.unwrap_or(9);
        let addresses: Box<dyn Addresses> = match setup.real_address_check {
            true => Box::new(Locals::of_this_machine()),
            false => Box::new(Loopback),
        };
        let engine = Engine::new(
            setup.judge.unwrap_or_else(|| Box::new(Rules)),
            Box::new(Arc::clone(&notes)),
            addresses,
            Box::new(Resolver::with_config_in_test(ResolverConfig::from_parts(
                None,
                Vec::new(),
                vec![server],
            ))),
            setup.limits,
        )
        .with_strictness(setup.strictness);
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stop, stopped) = watch::channel(false);
        let token = Token::fresh().unwrap();
        let (proxy, shown) = (Proxy::with_engine(engine), token.clone());
        let again = proxy.clone();
        let begun = Begun::default();
        if !setup.before_it_begins {
            begun.begin();
        }
        let begins = begun.clone();
        let served = tokio::spawn(async move {
            proxy.serve(listener, Principal::Agent, shown, begins, stopped).await
        });
        Self { port, token, notes, begun, stop, served, proxy: again }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.unwrap()
    }

    /// The header line that shows the token.
    pub(crate) fn authorization(&self) -> String {
        shown(&self.token)
    }

    /// Sends a CONNECT with the token and gives the connection and the answer's head.
    pub(crate) async fn tunnel(&self, to: &str) -> (TcpStream, String) {
        let mut stream = self.connect().await;
        let head = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n{}\r\n", self.authorization());
        stream.write_all(head.as_bytes()).await.unwrap();
        let answer = read_head(&mut stream).await;
        (stream, answer)
    }

    /// Sends bytes and reads to the end of the connection.
    pub(crate) async fn ask(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes.as_ref()).await.unwrap();
        read_all(&mut stream).await
    }
}

/// What a client of TLS would send first to this host.
pub(crate) fn hello(host: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from(host.to_owned()).unwrap();
    let mut connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

/// Reads up to an empty line, and not a byte more.
pub(crate) async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = timeout(PATIENCE, stream.read_u8()).await.expect("a head in time");
        head.push(byte.unwrap_or_else(|error| panic!("{error} after {}", head.escape_ascii())));
    }
    String::from_utf8(head).unwrap()
}

/// Reads to the end; a reset ends it too.
pub(crate) async fn read_all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("an end in time");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A listener on 127.0.0.1 and its port.
pub(crate) async fn upstream() -> (TcpListener, u16) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// The next connection of a listener.
pub(crate) async fn accepted(listener: &TcpListener) -> TcpStream {
    timeout(PATIENCE, listener.accept()).await.expect("a connection in time").unwrap().0
}

/// Whether nobody has connected: the queue is looked at without waiting.
pub(crate) async fn untouched(listener: &TcpListener) -> bool {
    tokio::select! {
        biased;
        _ = listener.accept() => false,
        () = tokio::task::yield_now() => true,
    }
}
