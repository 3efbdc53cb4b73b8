//! A tunnel: the ClientHello is judged before a byte goes out, then bytes are copied both ways.

use std::cell::RefCell;
use std::fmt::Display;
use std::future::Future;
use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use ringfence_bundle::Host;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep, timeout_at};

use crate::decide::Permit;
use crate::engine::Limits;
use crate::hello::{Hello, HelloReader, Progress, asks_for_retry};
use crate::traffic::Traffic;

/// Bytes moved at a time.
const CHUNK: usize = 64 * 1024;
/// A TLS alert, fatal, `access_denied` (RFC 8446, section 6.2): the client learns at once that it was
/// refused and not cut off.
pub(crate) const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// The client's end of a tunnel.
pub(crate) trait Client: AsyncRead + AsyncWrite + Unpin + Send {
    /// Copies until both sides have ended or one fails. What is held goes first.
    fn relay(
        &mut self,
        held: Vec<u8>,
        server: &mut TcpStream,
        traffic: &Traffic,
    ) -> impl Future<Output = Result<(), Broken>> + Send;

    /// Lets the client see that the tunnel was cut, and did not end.
    fn abort(&mut self);
}

/// Why copying stopped before both sides had ended.
pub(crate) struct Broken {
    pub(crate) reason: String,
    /// The side that was being read when its connection broke: what was still to come from it is lost.
    pub(crate) lost: Option<Lost>,
}

/// Whose bytes are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    Client,
    Server,
}

/// Runs a tunnel to its end and records it. `early` is what came behind the CONNECT request.
pub(crate) async fn run<C: Client>(
    client: &mut C,
    early: BytesMut,
    mut server: TcpStream,
    permit: Permit,
    limits: &Limits,
) {
    let traffic = Arc::clone(permit.traffic());
    let moving = async {
        let held = if permit.is_opaque() {
            early.into()
        } else {
            // On the heap, and gone once the tunnel is open.
            let opening = Box::pin(open(client, early, &mut server, &permit, limits));
            match opening.await {
                Ok(held) => held,
                Err(refused) => {
                    if refused.tls {
                        let _ = client.write_all(&ACCESS_DENIED).await;
                    }
                    let _ = client.shutdown().await;
                    return refused.reason;
                }
            }
        };
        match client.relay(held, &mut server, &traffic).await {
            Ok(()) => "closed".to_owned(),
            Err(broken) => {
                // So that the other side does not take what came for all there was.
                match broken.lost {
                    Some(Lost::Client) => drop(server.set_zero_linger()),
                    Some(Lost::Server) => client.abort(),
                    None => {}
                }
                broken.reason
            }
        }
    };
    let (reason, cut) = tokio::select! {
        reason = moving => (reason, false),
        () = traffic.idle_for(limits.idle) => (format!("idle for {} s", limits.idle.as_secs()), true),
        () = sleep(limits.total) => (format!("open for {} s", limits.total.as_secs()), true),
    };
    if cut {
        client.abort();
    }
    permit.close(&reason);
}

/// Why a tunnel is not opened.
pub(crate) struct Refused {
    pub(crate) reason: String,
    /// Whether the client speaks TLS and can be sent an alert.
    pub(crate) tls: bool,
}

impl Refused {
    pub(crate) fn new(reason: impl Into<String>, tls: bool) -> Self {
        Self { reason: reason.into(), tls }
    }
}

/// Lets the hello through, and the second one where the server asks for it: it too is sent in the
/// clear and could name another host. Gives what the client has sent since.
async fn open(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    early: BytesMut,
    server: &mut TcpStream,
    permit: &Permit,
    limits: &Limits,
) -> Result<Vec<u8>, Refused> {
    let (host, traffic) = (&permit.to().host, permit.traffic());
    let (hello, behind) = hold(client, HelloReader::new(), &early, host, limits).await?;
    drop(early);
    server.write_all(&hello).await.map_err(|e| Refused::new(format!("server: {e}"), true))?;
    traffic.add_sent(hello.len());

    // Nothing more is let through until the server's answer shows what may follow.
    let (answer, retry) = first_answer(server)
        .await
        .map_err(|error| Refused::new(format!("server: {error}"), true))?;
    client.write_all(&answer).await.map_err(|e| Refused::new(format!("client: {e}"), false))?;
    traffic.add_received(answer.len());
    if !retry {
        return Ok(behind);
    }
    let reader = HelloReader::after_retry();
    let (mut hello, behind) = hold(client, reader, &behind, host, limits).await?;
    hello.extend(behind);
    Ok(hello)
}

/// Holds what the client sends until its hello is whole, and judges it. Gives the bytes up to the
/// hello's end, and those behind it.
pub(crate) async fn hold(
    client: &mut (impl AsyncRead + Unpin),
    mut reader: HelloReader,
    early: &[u8],
    host: &Host,
    limits: &Limits,
) -> Result<(Vec<u8>, Vec<u8>), Refused> {
    let deadline = Instant::now() + limits.hello;
    let mut progress = if early.is_empty() { Progress::NeedMore } else { reader.push(early) };
    let mut bytes = vec![0; 4096];
    loop {
        match progress {
            Progress::Hello(hello) => {
                judge(&hello, host).map_err(|reason| Refused::new(reason, true))?;
                return Ok(reader.into_parts());
            }
            Progress::NotTls => return Err(Refused::new("not-tls", false)),
            Progress::Malformed(reason) => {
                return Err(Refused::new(format!("malformed-hello: {reason}"), true));
            }
            Progress::NeedMore => {}
        }
        progress = match timeout_at(deadline, client.read(&mut bytes)).await {
            Err(_) => return Err(Refused::new("hello-timeout", false)),
            Ok(Ok(0)) => return Err(Refused::new("closed by the client before its hello", false)),
            Ok(Ok(read)) => reader.push(&bytes[..read]),
            Ok(Err(error)) => return Err(Refused::new(format!("client: {error}"), false)),
        };
    }
}

/// The server's first bytes, and whether they ask for a second hello.
pub(crate) async fn first_answer(server: &mut TcpStream) -> io::Result<(Vec<u8>, bool)> {
    let mut answer = Vec::with_capacity(4096);
    loop {
        let ended = server.read_buf(&mut answer).await? == 0;
        match asks_for_retry(&answer) {
            Some(retry) => return Ok((answer, retry)),
            None if ended => return Ok((answer, false)),
            None => {}
        }
    }
}

/// Compares a hello with the host that CONNECT named.
fn judge(hello: &Hello, host: &Host) -> Result<(), String> {
    if hello.ech {
        return Err("encrypted-hello".to_owned());
    }
    match (&hello.sni, host) {
        (Some(sni), host) if sni == host => Ok(()),
        (Some(sni), _) => Err(format!("sni-mismatch: {sni}")),
        (None, Host::Name(_)) => Err("no-sni".to_owned()),
        // No name can be asked for, so none can differ.
        (None, Host::V4(_) | Host::V6(_)) => Ok(()),
    }
}

impl Client for TcpStream {
    async fn relay(
        &mut self,
        held: Vec<u8>,
        server: &mut TcpStream,
        traffic: &Traffic,
    ) -> Result<(), Broken> {
        let (client_reads, client_writes) = self.split();
        let (server_reads, server_writes) = server.split();
        let up = pump(client_reads, server_writes, held, |bytes| traffic.add_sent(bytes));
        let down =
            pump(server_reads, client_writes, Vec::new(), |bytes| traffic.add_received(bytes));
        let up = async { up.await.map_err(Side::up) };
        let down = async { down.await.map_err(Side::down) };
        both(up, down).await
    }

    fn abort(&mut self) {
        let _ = self.set_zero_linger();
    }
}

/// Runs both directions to their ends. A server that takes no more may still have an answer to give,
/// so that direction is let end by itself.
pub(crate) async fn both(
    up: impl Future<Output = Result<(), Broken>>,
    down: impl Future<Output = Result<(), Broken>>,
) -> Result<(), Broken> {
    let (mut up, mut down) = (std::pin::pin!(up), std::pin::pin!(down));
    let first = tokio::select! {
        ended = &mut up => match ended {
            Ok(()) => return down.await,
            Err(broken) if broken.lost.is_some() => return Err(broken),
            Err(broken) => broken,
        },
        ended = &mut down => {
            ended?;
            return up.await;
        }
    };
    let lost = down.await.err().and_then(|broken| broken.lost);
    Err(Broken { lost, ..first })
}

impl Broken {
    /// The client's connection.
    pub(crate) fn client(error: impl Display, lost: bool) -> Self {
        Self { reason: format!("client: {error}"), lost: lost.then_some(Lost::Client) }
    }

    /// The server's.
    pub(crate) fn server(error: impl Display, lost: bool) -> Self {
        Self { reason: format!("server: {error}"), lost: lost.then_some(Lost::Server) }
    }
}

/// Which end of a pump failed.
pub(crate) enum Side {
    Reading(io::Error),
    Writing(io::Error),
}

impl Side {
    /// Of the direction from the client to the server.
    pub(crate) fn up(self) -> Broken {
        match self {
            Self::Reading(error) => Broken::client(error, true),
            Self::Writing(error) => Broken::server(error, false),
        }
    }

    /// Of the other.
    fn down(self) -> Broken {
        match self {
            Self::Reading(error) => Broken::server(error, true),
            Self::Writing(error) => Broken::client(error, false),
        }
    }
}

thread_local! {
    /// Every tunnel of a thread reads into the same buffer and writes out of it at once, so that a
    /// tunnel at rest holds no buffer at all.
    pub(crate) static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK].into_boxed_slice());
}

/// Moves one direction to its end, then passes the end on. `rest` goes first. At most one chunk waits
/// for a slow writer, and meanwhile nothing is read.
async fn pump(
    reader: ReadHalf<'_>,
    mut writer: WriteHalf<'_>,
    mut rest: Vec<u8>,
    count: impl Fn(usize),
) -> Result<(), Side> {
    loop {
        write_out(&writer, &rest, &count).await?;
        rest = Vec::new();
        tokio::task::coop::consume_budget().await;
        reader.readable().await.map_err(Side::Reading)?;
        let ended = SCRATCH.with_borrow_mut(|scratch| {
            let read = match reader.try_read(scratch) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(Side::Reading(error)),
            };
            let written = try_write(&writer, &scratch[..read], &count)?;
            rest.extend_from_slice(&scratch[written..read]);
            Ok(read == 0)
        })?;
        if ended {
            // The other side may be gone already: then its own direction says so.
            let _ = writer.shutdown().await;
            return Ok(());
        }
    }
}

pub(crate) async fn write_out(
    writer: &WriteHalf<'_>,
    mut bytes: &[u8],
    count: &impl Fn(usize),
) -> Result<(), Side> {
    while !bytes.is_empty() {
        writer.writable().await.map_err(Side::Writing)?;
        bytes = &bytes[try_write(writer, bytes, count)?..];
    }
    Ok(())
}

/// Writes what the socket takes now, perhaps nothing.
fn try_write(writer: &WriteHalf<'_>, bytes: &[u8], count: &impl Fn(usize)) -> Result<usize, Side> {
    if bytes.is_empty() {
        return Ok(0);
    }
    match writer.try_write(bytes) {
        Ok(written) => {
            count(written);
            Ok(written)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        Err(error) => Err(Side::Writing(error)),
    }
}
