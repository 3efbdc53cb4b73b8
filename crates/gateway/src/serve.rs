//! The agent's doors on one listener: `/<server>/mcp`, `/mcp` and `/compact/mcp`.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use ringfence_mcp::{Carrier, DoorBody, DoorOptions, HttpDoor, HttpRefusal, route};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::{Caller, Gateway, aggregated, compact, transparent};

/// Connections at once. The agent's own; beyond it the next one waits.
const CONNECTIONS: usize = 256;
/// The door of many servers as one: no path names it so.
const MANY: &str = "";
/// The compact door: no server has this name.
const COMPACT: &str = "compact";
/// Bytes of a request's head.
const HEAD: usize = 32 * 1024;
/// For a request's head to arrive, counted from the answer before it: an agent may think for long.
const HEAD_WAIT: Duration = Duration::from_secs(600);

impl Gateway {
    /// Serves the agent's doors: `http://127.0.0.1:<port>/<server>/mcp` for each server, `/mcp` for
    /// the default selection as one, `/compact/mcp` for a search over it. Ends when
    /// `stop` is true; calls in flight are given up and settled, and the servers are let go.
    ///
    /// # Errors
    /// When the listener cannot be used.
    pub async fn serve(
        self: Arc<Self>,
        at: At,
        mut stop: tokio::sync::watch::Receiver<bool>,
    ) -> std::io::Result<()> {
        let (listener, options) = at.open()?;
        let doors = Arc::new(self.doors(&options));
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let mut connections = JoinSet::new();
        let stopped = async move {
            // An owner that is gone wants no more of it either.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        tokio::pin!(stopped);
        loop {
            let accepted = tokio::select! {
                () = &mut stopped => break,
                Some(_) = connections.join_next() => continue,
                accepted = accept(&listener, &places) => accepted,
            };
            let Some((stream, place)) = accepted else { continue };
            let doors = Arc::clone(&doors);
            connections.spawn(async move {
                let carrier = Carrier::new();
                let mark = carrier.mark();
                let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
                    let doors = Arc::clone(&doors);
                    request.extensions_mut().insert(mark.clone());
                    async move { Ok::<_, Infallible>(answer(&doors, request).await) }
                });
                // Errors of a connection are the agent's own.
                let _ = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_WAIT)
                    .max_buf_size(HEAD)
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
                drop((place, carrier));
            });
        }
        drop(listener);
        // What is dropped settles itself as cancelled, before this returns.
        connections.shutdown().await;
        for door in doors.values() {
            door.close().await;
        }
        self.upstreams.close().await;
        Ok(())
    }

    fn doors(self: &Arc<Self>, options: &DoorOptions) -> BTreeMap<String, HttpDoor> {
        let door = |backend| HttpDoor::with(backend, options.clone());
        let mut doors: BTreeMap<_, _> = self
            .servers
            .keys()
            .map(|server| {
                let backend = transparent(self, Caller::agent(), server.clone());
                (server.to_string(), door(backend))
            })
            .collect();
        // Without a name there is always a selection.
        if let Ok(selection) = self.selection(None) {
            doors.insert(MANY.into(), door(aggregated(self, Caller::agent(), selection.clone())));
            doors.insert(COMPACT.into(), door(compact(self, Caller::agent(), selection)));
        }
        doors
    }
}

/// Where the agent's doors are.
#[derive(Debug)]
pub enum At {
    /// On a loopback port.
    Loopback(TcpListener),
    /// On a socket to which a sidecar passes what comes to this address of its own.
    Relayed(UnixListener, SocketAddr),
}

enum Listener {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

/// A connection of either kind.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl At {
    fn open(self) -> std::io::Result<(Listener, DoorOptions)> {
        match self {
            Self::Loopback(listener) => {
                listener.set_nonblocking(true)?;
                let listener = tokio::net::TcpListener::from_std(listener)?;
                let at = listener.local_addr()?;
                let options = match at.ip() == std::net::Ipv4Addr::LOCALHOST {
                    true => DoorOptions::loopback(at.port()),
                    // Another loopback address goes by no name.
                    false => DoorOptions::at(vec![at.to_string()]),
                };
                Ok((Listener::Tcp(listener), options))
            }
            Self::Relayed(listener, address) => {
                listener.set_nonblocking(true)?;
                let listener = tokio::net::UnixListener::from_std(listener)?;
                Ok((Listener::Unix(listener), DoorOptions::at(vec![address.to_string()])))
            }
        }
    }
}

impl Listener {
    async fn accept(&self) -> std::io::Result<Box<dyn Stream>> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Small messages go at once; where that cannot be had they go a little later.
                let _ = stream.set_nodelay(true);
                Ok(Box::new(stream))
            }
            Self::Unix(listener) => Ok(Box::new(listener.accept().await?.0)),
        }
    }
}

async fn accept(
    listener: &Listener,
    places: &Arc<Semaphore>,
) -> Option<(Box<dyn Stream>, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok(stream) => Some((stream, place)),
        Err(_) => {
            // Out of descriptors, most likely: some will come free.
            tokio::time::sleep(Duration::from_millis(50)).await;
            None
        }
    }
}

async fn answer(
    doors: &BTreeMap<String, HttpDoor>,
    request: Request<Incoming>,
) -> http::Response<DoorBody> {
    let missing = HttpRefusal::new(StatusCode::NOT_FOUND, "there is no such server");
    let named = if request.uri() == "/mcp" { Ok(MANY) } else { route(request.uri()) };
    let door = named.and_then(|name| doors.get(name).ok_or(missing));
    match door {
        Ok(door) => door.handle(request).await,
        Err(refusal) => refusal.into_response(),
    }
}
