//! A tunnel: the ClientHello is judged before a byte goes out, then bytes are copied both ways.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use ringfence_bundle::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::timeout;

use crate::decide::Permit;
use crate::engine::Limits;
use crate::hello::{Hello, HelloReader, Progress};
use crate::traffic::Traffic;

/// Bytes moved at a time.
const CHUNK: usize = 64 * 1024;
/// A TLS alert, fatal, `access_denied` (RFC 8446, section 6.2): the client learns at once that it was
/// refused and not cut off.
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// Runs a tunnel to its end and records it. `early` is what came behind the CONNECT request.
pub(crate) async fn run(
    mut client: TcpStream,
    early: BytesMut,
    server: TcpStream,
    permit: Permit,
    limits: &Limits,
) {
    let held = match timeout(limits.hello, hold(&mut client, early, &permit.to().host)).await {
        Ok(Ok(held)) => held,
        Ok(Err(refused)) => {
            if refused.tls {
                let _ = client.write_all(&ACCESS_DENIED).await;
            }
            return permit.close(&refused.reason);
        }
        Err(_) => return permit.close("hello-timeout"),
    };
    let reason = relay(client, held, server, permit.traffic(), limits).await;
    permit.close(&reason);
}

/// Why a tunnel is not opened.
struct Refused {
    reason: String,
    /// Whether the client speaks TLS and can be sent an alert.
    tls: bool,
}

/// Holds what the client sends until its hello is whole, and judges it.
async fn hold(client: &mut TcpStream, early: BytesMut, host: &Host) -> Result<Vec<u8>, Refused> {
    let refused = |reason: &str, tls| Refused { reason: reason.to_owned(), tls };
    let mut reader = HelloReader::new();
    let mut progress = if early.is_empty() { Progress::NeedMore } else { reader.push(&early) };
    drop(early);
    let mut bytes = vec![0; 4096];
    loop {
        match progress {
            Progress::Hello(hello) => {
                return match judge(&hello, host) {
                    Ok(()) => Ok(reader.into_held()),
                    Err(reason) => Err(Refused { reason, tls: true }),
                };
            }
            Progress::NotTls => return Err(refused("not-tls", false)),
            Progress::Malformed(reason) => {
                return Err(refused(&format!("malformed-hello: {reason}"), true));
            }
            Progress::NeedMore => {}
        }
        progress = match client.read(&mut bytes).await {
            Ok(0) => return Err(refused("closed by the client before its hello", false)),
            Ok(read) => reader.push(&bytes[..read]),
            Err(error) => return Err(refused(&format!("client: {error}"), false)),
        };
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

/// Copies until both sides have ended, one fails, or nothing moves. Says which.
async fn relay(
    mut client: TcpStream,
    held: Vec<u8>,
    mut server: TcpStream,
    traffic: &Arc<Traffic>,
    limits: &Limits,
) -> String {
    let (client_reads, client_writes) = client.split();
    let (server_reads, server_writes) = server.split();
    let up = pump(client_reads, server_writes, held, |bytes| traffic.add_sent(bytes));
    let down = pump(server_reads, client_writes, Vec::new(), |bytes| traffic.add_received(bytes));
    let both = async {
        tokio::try_join!(async { up.await.map_err(|end| end.named("client", "server")) }, async {
            down.await.map_err(|end| end.named("server", "client"))
        },)
    };
    tokio::select! {
        ended = both => match ended {
            Ok(_) => "closed".to_owned(),
            Err(reason) => reason,
        },
        () = traffic.idle_for(limits.idle) => format!("idle for {} s", limits.idle.as_secs()),
    }
}

/// Which side of a pump failed.
enum Failed {
    Reading(io::Error),
    Writing(io::Error),
}

impl Failed {
    fn named(self, reader: &str, writer: &str) -> String {
        match self {
            Self::Reading(error) => format!("{reader}: {error}"),
            Self::Writing(error) => format!("{writer}: {error}"),
        }
    }
}

thread_local! {
    /// Every tunnel of a thread reads into the same buffer and writes out of it at once, so that a
    /// tunnel at rest holds no buffer at all.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK].into_boxed_slice());
}

/// Moves one direction to its end, then passes the end on. `rest` goes first. At most one chunk waits
/// for a slow writer, and meanwhile nothing is read.
async fn pump(
    reader: ReadHalf<'_>,
    mut writer: WriteHalf<'_>,
    mut rest: Vec<u8>,
    count: impl Fn(usize),
) -> Result<(), Failed> {
    loop {
        write_out(&writer, &rest, &count).await?;
        rest = Vec::new();
        tokio::task::coop::consume_budget().await;
        reader.readable().await.map_err(Failed::Reading)?;
        let ended = SCRATCH.with_borrow_mut(|scratch| {
            let read = match reader.try_read(scratch) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(Failed::Reading(error)),
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

async fn write_out(
    writer: &WriteHalf<'_>,
    mut bytes: &[u8],
    count: &impl Fn(usize),
) -> Result<(), Failed> {
    while !bytes.is_empty() {
        writer.writable().await.map_err(Failed::Writing)?;
        bytes = &bytes[try_write(writer, bytes, count)?..];
    }
    Ok(())
}

/// Writes what the socket takes now, perhaps nothing.
fn try_write(
    writer: &WriteHalf<'_>,
    bytes: &[u8],
    count: &impl Fn(usize),
) -> Result<usize, Failed> {
    if bytes.is_empty() {
        return Ok(0);
    }
    match writer.try_write(bytes) {
        Ok(written) => {
            count(written);
            Ok(written)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        Err(error) => Err(Failed::Writing(error)),
    }
}

#[cfg(test)]
mod tests;
