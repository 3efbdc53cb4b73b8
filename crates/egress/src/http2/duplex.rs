//! The two directions of one stream as a tunnel's end.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf as _, Bytes};
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use crate::traffic::Traffic;
use crate::tunnel::{Broken, Client, SCRATCH, Side, both, write_out};

/// Bytes moved towards the client at a time: one frame.
pub(super) const CHUNK: usize = 16 * 1024;

/// What a client sends on a stream, and what it gets.
pub(super) struct Duplex {
    from: RecvStream,
    to: SendStream<Bytes>,
    /// Came, and is not taken yet.
    pending: Bytes,
    aborted: bool,
}

impl Duplex {
    pub(super) fn new(from: RecvStream, to: SendStream<Bytes>) -> Self {
        Self { from, to, pending: Bytes::new(), aborted: false }
    }

    /// Whether the client has taken the stream back.
    pub(super) fn was_reset(&mut self) -> bool {
        !self.aborted && self.to.poll_reset(&mut Context::from_waker(Waker::noop())).is_ready()
    }
}

impl AsyncRead for Duplex {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.pending.is_empty() {
            match ready!(self.from.poll_data(context)) {
                Some(data) => self.pending = data.map_err(io::Error::other)?,
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = self.pending.len().min(buffer.remaining());
        buffer.put_slice(&self.pending[..length]);
        self.pending.advance(length);
        // The window opens by what was taken, so that no more than a window waits here.
        let _ = self.from.flow_control().release_capacity(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Duplex {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.to.reserve_capacity(bytes.len().min(CHUNK));
        loop {
            let room = match ready!(self.to.poll_capacity(context)) {
                Some(room) => room.map_err(io::Error::other)?,
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            };
            let length = room.min(bytes.len());
            if length > 0 {
                let data = Bytes::copy_from_slice(&bytes[..length]);
                self.to.send_data(data, false).map_err(io::Error::other)?;
                return Poll::Ready(Ok(length));
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.to.send_data(Bytes::new(), true).map_err(io::Error::other))
    }
}

impl Client for Duplex {
    async fn relay(
        &mut self,
        held: Vec<u8>,
        server: &mut TcpStream,
        traffic: &Traffic,
    ) -> Result<(), Broken> {
        let pending = std::mem::take(&mut self.pending);
        let (reads, writes) = server.split();
        let up = up(&mut self.from, pending, writes, held, |bytes| traffic.add_sent(bytes));
        let down = down(reads, &mut self.to, |bytes| traffic.add_received(bytes));
        both(up, down).await
    }

    fn abort(&mut self) {
        self.aborted = !self.was_reset();
        // What a tunnel's broken connection is to its client (RFC 9113, section 8.5).
        self.to.send_reset(Reason::CONNECT_ERROR);
    }
}

/// Moves what the client sends, frame by frame, then the end.
async fn up(
    from: &mut RecvStream,
    pending: Bytes,
    mut writes: WriteHalf<'_>,
    held: Vec<u8>,
    count: impl Fn(usize),
) -> Result<(), Broken> {
    let send = async |writes: &WriteHalf<'_>, bytes: &[u8]| {
        write_out(writes, bytes, &count).await.map_err(Side::up)
    };
    send(&writes, &held).await?;
    drop(held);
    let mut next = Some(Ok(pending));
    while let Some(data) = next {
        let data = data.map_err(|error| Broken::client(error, true))?;
        send(&writes, &data).await?;
        let _ = from.flow_control().release_capacity(data.len());
        drop(data);
        next = poll_fn(|context| from.poll_data(context)).await;
    }
    // The other side may be gone already: then its own direction says so.
    let _ = tokio::io::AsyncWriteExt::shutdown(&mut writes).await;
    Ok(())
}

/// Moves what the server sends, no more than the client has asked for, then the end. A stream at rest
/// holds no buffer, and none of the window that it shares.
async fn down(
    reads: ReadHalf<'_>,
    to: &mut SendStream<Bytes>,
    count: impl Fn(usize),
) -> Result<(), Broken> {
    let lost = |error: h2::Error| Broken::client(error, false);
    let gone = || Broken::client("the stream is closed", false);
    loop {
        tokio::task::coop::consume_budget().await;
        tokio::select! {
            ready = reads.readable() => ready.map_err(|e| Broken::server(e, true))?,
            reset = poll_fn(|context| to.poll_reset(context)) => {
                let reason = reset.map_err(lost)?;
                return Err(Broken::client(reason, true));
            }
        }
        to.reserve_capacity(CHUNK);
        while to.capacity() == 0 {
            poll_fn(|context| to.poll_capacity(context)).await.ok_or_else(gone)?.map_err(lost)?;
        }
        let room = to.capacity().min(CHUNK);
        let read = SCRATCH.with_borrow_mut(|scratch| match reads.try_read(&mut scratch[..room]) {
            Ok(read) => Ok(Some(Bytes::copy_from_slice(&scratch[..read]))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(Broken::server(error, true)),
        });
        match read? {
            None => to.reserve_capacity(0),
            Some(data) if data.is_empty() => {
                to.reserve_capacity(0);
                // The client may be gone already: then its own direction says so.
                let _ = to.send_data(data, true);
                return Ok(());
            }
            Some(data) => {
                let length = data.len();
                to.send_data(data, false).map_err(lost)?;
                to.reserve_capacity(0);
                count(length);
            }
        }
    }
}
