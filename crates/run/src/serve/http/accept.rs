//! The listener: connections, how many and for how long, and their end.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ringfence_mcp::Carrier;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::super::told;
use super::doors::Doors;
use super::stall::Read;

/// Bytes of a request's head.
const HEAD: usize = 16 * 1024;
/// For a request's head to arrive, counted from the answer before it.
const HEAD_WAIT: Duration = Duration::from_secs(120);
/// For the first request of a known client, counted from the beginning: who is nobody holds no place
/// for long.
const FIRST: Duration = Duration::from_secs(10);
/// For a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// For what was cut off to say so.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What a connection leads to.
pub(super) struct Door {
    pub(super) doors: Arc<Doors>,
    /// Where connections are encrypted.
    pub(super) tls: watch::Sender<Option<TlsAcceptor>>,
}

/// Accepts until it is told to stop; then lets every request that is under way finish, up to `drain`,
/// and cuts the rest off.
pub(super) async fn accept(
    door: Arc<Door>,
    listener: std::net::TcpListener,
    most: usize,
    drain: Duration,
    mut stopping: watch::Receiver<bool>,
) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(most));
    let mut connections = JoinSet::new();
    let also = stopping.clone();
    let stopped = told(&mut stopping);
    tokio::pin!(stopped);
    loop {
        let accepted = tokio::select! {
            () = &mut stopped => break,
            Some(_) = connections.join_next() => continue,
            accepted = next(&listener, &places) => accepted,
        };
        let Some((stream, place)) = accepted else { continue };
        connections.spawn(connection(Arc::clone(&door), stream, place, also.clone()));
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(drain, all).await.is_err() {
        door.doors.cut_off();
        let all = async { while connections.join_next().await.is_some() {} };
        let _ = timeout(LAST_WORDS, all).await;
    }
    // What is dropped settles itself as cancelled.
    connections.shutdown().await;
    Ok(())
}

async fn next(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => {
            // Small messages go at once; where that cannot be had they go a little later.
            let _ = stream.set_nodelay(true);
            Some((stream, place))
        }
        Err(_) => {
            // Out of descriptors, most likely: some will come free.
            sleep(Duration::from_millis(50)).await;
            None
        }
    }
}

async fn connection(
    door: Arc<Door>,
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
    stopping: watch::Receiver<bool>,
) {
    let acceptor = door.tls.borrow().clone();
    match acceptor {
        None => serve(door, stream, stopping).await,
        Some(acceptor) => {
            let accepted = timeout(HANDSHAKE, acceptor.accept(stream)).await;
            if let Ok(Ok(stream)) = accepted {
                serve(door, stream, stopping).await;
            }
        }
    }
}

async fn serve(
    door: Arc<Door>,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    mut stopping: watch::Receiver<bool>,
) {
    let _connected = door.doors.connect();
    let carrier = Carrier::new();
    let mark = carrier.mark();
    let known = Arc::new(AtomicBool::new(false));
    let first = Arc::clone(&known);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (door, first) = (Arc::clone(&door), Arc::clone(&first));
        request.extensions_mut().insert(mark.clone());
        async move { Ok::<_, Infallible>(door.doors.answer(request, &first).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_buf_size(HEAD)
        .serve_connection(TokioIo::new(Read::new(stream)), service);
    tokio::pin!(connection);
    // Errors of a connection are its client's own.
    let nobody = async {
        sleep(FIRST).await;
        if known.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        _ = connection.as_mut() => {}
        () = nobody => {}
        () = told(&mut stopping) => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
