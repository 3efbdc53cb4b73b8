//! The one place of this crate where a connection is made.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::address::CheckedAddr;

/// How long an address has before the next one is tried beside it (RFC 8305, section 5).
const STAGGER: Duration = Duration::from_millis(250);
/// How long all of them have together.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why no address could be connected to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// The last attempt's error: nothing listens there, or there is no route.
    #[error("{0}")]
    Failed(#[from] io::Error),
    /// None answered in 10 seconds.
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Timeout,
}

/// Connects to the first of these addresses that answers. They are tried in their order, the next one
/// as soon as one has failed or has taken 250 ms; no other address is ever dialled.
///
/// # Errors
/// [`DialError`].
pub async fn dial(addresses: &[CheckedAddr], port: u16) -> Result<TcpStream, DialError> {
    timeout(TIMEOUT, first_to_answer(addresses, port)).await.map_err(|_| DialError::Timeout)?
}

async fn first_to_answer(addresses: &[CheckedAddr], port: u16) -> Result<TcpStream, DialError> {
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "there is no address to dial");
    let mut waiting = addresses.iter();
    let Some(&first) = waiting.next() else { return Err(last.into()) };
    let mut attempts = JoinSet::new();
    // Nearly always the first one answers in its time, and needs no task of its own.
    let mut first = Box::pin(connect(first, port));
    tokio::select! {
        biased;
        ended = &mut first => match ended {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        },
        () = sleep(STAGGER) => drop(attempts.spawn(first)),
    }
    loop {
        let started = match waiting.next() {
            Some(&next) => {
                attempts.spawn(connect(next, port));
                true
            }
            None => false,
        };
        tokio::select! {
            biased;
            ended = attempts.join_next() => match ended {
                Some(Ok(Ok(stream))) => return Ok(stream),
                Some(Ok(Err(error))) => last = error,
                Some(Err(_)) => {}
                None => return Err(DialError::Failed(last)),
            },
            () = sleep(STAGGER), if started => {}
        }
    }
}

async fn connect(address: CheckedAddr, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(SocketAddr::new(address.ip(), port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests;
