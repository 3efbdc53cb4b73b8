//! What a supervisor and its sidecar say to each other: JSON, each message behind its length.

use std::io;
use std::net::IpAddr;

use ringfence_record::Event;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::resolve::ResolveError;

/// Form of these messages.
pub(crate) const VERSION: u32 = 2;
/// Bytes of the longest message that is read.
const MESSAGE_MAX: u32 = 32 << 20;

/// From the supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// The first one.
    Begin(Box<Begin>),
    /// From now on requests are judged and recorded.
    Go,
    /// Answer to [`Word::Resolve`].
    Resolved { question: u64, answer: Result<Vec<IpAddr>, Unresolved> },
    /// Answer to [`Word::Check`]: why not, if not.
    Checked { question: u64, refusal: Option<Refusal> },
    /// Cut what is open, and end.
    Stop,
    /// So many events were taken into the record since the last time.
    Kept { events: u64 },
}

/// What a sidecar is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Begin {
    /// [`VERSION`].
    pub(crate) version: u32,
    /// The serialised ruleset.
    pub(crate) ruleset: String,
    /// What peers must show.
    pub(crate) token: String,
    /// Where it listens: its address in the sandbox's network.
    pub(crate) address: IpAddr,
    /// The proxy's port.
    pub(crate) proxy: u16,
    /// Other ports.
    pub(crate) relays: Vec<Relay>,
    /// See [`crate::Strictness`].
    pub(crate) strict: bool,
}

/// A port whose connections are passed on.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Relay {
    /// The port, at the sidecar's address.
    pub port: u16,
    /// The socket in the sidecar's folder to which it leads.
    pub socket: String,
    /// Whether it takes one connection in all, and is shut behind that.
    pub once: bool,
}

/// From the sidecar.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Word {
    /// It listens.
    Ready,
    /// It does not, and why.
    Refused { reason: String },
    /// It has begun to judge.
    Going,
    /// What are this name's addresses?
    Resolve { question: u64, name: String },
    /// May these be dialled?
    Check { question: u64, addresses: Vec<IpAddr> },
    /// This happened.
    Event(Box<Event>),
    /// It has ended, and this was all.
    Bye,
}

/// A [`ResolveError`] that can be sent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Unresolved {
    Configuration(String),
    NoName,
    NoAddress,
    Lookup(String),
    Timeout,
}

impl From<ResolveError> for Unresolved {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::Configuration(reason) => Self::Configuration(reason),
            ResolveError::NoName => Self::NoName,
            ResolveError::NoAddress => Self::NoAddress,
            ResolveError::Lookup(reason) => Self::Lookup(reason),
            ResolveError::Timeout => Self::Timeout,
        }
    }
}

impl From<Unresolved> for ResolveError {
    fn from(error: Unresolved) -> Self {
        match error {
            Unresolved::Configuration(reason) => Self::Configuration(reason),
            Unresolved::NoName => Self::NoName,
            Unresolved::NoAddress => Self::NoAddress,
            Unresolved::Lookup(reason) => Self::Lookup(reason),
            Unresolved::Timeout => Self::Timeout,
        }
    }
}

/// Why addresses are not dialled, as far as the sidecar cannot tell itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// One of them is the machine's.
    Local(IpAddr),
    /// It cannot be told, and why.
    Unknown(IpAddr, String),
}

/// Writes one message.
pub(crate) async fn send<M: Serialize>(
    to: &mut (impl AsyncWrite + Unpin),
    message: &M,
) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?;
    if length > MESSAGE_MAX {
        return Err(io::Error::other("the message is too long"));
    }
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend_from_slice(&body);
    to.write_all(&frame).await
}

/// Reads one message; `None` at the end.
pub(crate) async fn receive<M: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<M>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    };
    let length = u32::from_be_bytes(length);
    if length > MESSAGE_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length as usize];
    from.read_exact(&mut body).await?;
    Ok(Some(serde_json::from_slice(&body)?))
}
