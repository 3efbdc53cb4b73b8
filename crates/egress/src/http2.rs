//! HTTP/2 to the proxy, in the clear and with prior knowledge (RFC 9113, section 3.3): many requests on
//! one connection, each judged on its own and by the same function as one of HTTP/1.

use std::sync::Arc;

use bytes::BytesMut;
use h2::Reason;
use h2::server::Builder;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::connection::{LINGER, Peer};
use crate::engine::Engine;
use crate::head::MAX_HEAD;
use crate::slots::Slots;

mod duplex;
mod exchange;
mod head;
mod rewound;
mod stream;
#[cfg(test)]
mod tests;

use rewound::Rewound;
use stream::Ended;

/// What a connection begins with.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Streams of a connection at a time.
pub(crate) const STREAMS: u32 = 100;
/// Bytes of one stream that wait for a slow server.
const STREAM_WINDOW: u32 = 64 * 1024;
/// Bytes of all streams that do. Less than all of them could use: one that stalls takes its share only.
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;
/// Bytes of one stream that wait for a slow client.
const SEND_BUFFER: usize = 64 * 1024;
/// Streams that a client may take back before they were of use, more than were: then it is abuse
/// (CVE-2023-44487).
const RESETS: u32 = 100;

/// Serves one connection whose first bytes, the preface, are in the buffer.
pub(crate) async fn serve(
    engine: Arc<Engine>,
    peer: Arc<Peer>,
    slots: Arc<Slots>,
    stream: TcpStream,
    buffer: BytesMut,
) {
    let mut builder = Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(STREAMS)
        // A whole head of HTTP/1 has the same bound.
        .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX))
        .max_send_buffer_size(SEND_BUFFER)
        // So that who asks for another protocol is told, not cut off (RFC 8441, section 3).
        .enable_connect_protocol();
    let io = Rewound::new(buffer, stream);
    let Ok(Ok(mut connection)) = timeout(engine.limits.head, builder.handshake(io)).await else {
        return;
    };
    let mut streams = JoinSet::new();
    let mut resets = 0_u32;
    loop {
        let quiet = streams.is_empty();
        tokio::select! {
            biased;
            Some(ended) = streams.join_next(), if !quiet => {
                resets = match ended {
                    Ok(Ended::Useless) => resets + 1,
                    Ok(Ended::Used) => resets.saturating_sub(1),
                    Ok(Ended::Cut) | Err(_) => resets,
                };
                if resets >= RESETS {
                    connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                }
            }
            next = connection.accept() => {
                // A connection that has failed, or has ended.
                let Some(Ok((request, mut respond))) = next else { break };
                let Some(slot) = slots.try_take() else {
                    respond.send_reset(Reason::REFUSED_STREAM);
                    continue;
                };
                let (engine, peer) = (Arc::clone(&engine), Arc::clone(&peer));
                streams.spawn(async move {
                    let ended = stream::serve(&engine, &peer, request, respond).await;
                    drop(slot);
                    ended
                });
            }
            () = sleep(engine.limits.waiting), if quiet => {
                connection.graceful_shutdown();
                let _ = timeout(LINGER, std::future::poll_fn(|cx| connection.poll_closed(cx))).await;
                return;
            }
        }
    }
    // Each says why it ended, which is that the client has gone.
    let _ = timeout(LINGER, async { while streams.join_next().await.is_some() {} }).await;
}
