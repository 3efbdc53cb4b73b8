//! A connection whose client reads: one that takes nothing for long is given up, and with it whatever
//! is held in memory for it.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long a client may take nothing of what is written to it.
const UNREAD: Duration = Duration::from_secs(60);

pub(super) struct Read<S> {
    stream: S,
    /// Since when nothing could be written. `None` when the last write went on.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Read<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, stalled: None }
    }

    /// What a write gave; an error when nothing has been taken for too long.
    fn judged<T>(
        stalled: &mut Option<Pin<Box<Sleep>>>,
        cx: &mut Context<'_>,
        wrote: Poll<Result<T>>,
    ) -> Poll<Result<T>> {
        if wrote.is_ready() {
            *stalled = None;
            return wrote;
        }
        let stalled = stalled.get_or_insert_with(|| Box::pin(sleep(UNREAD)));
        match stalled.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                Poll::Ready(Err(Error::new(ErrorKind::TimedOut, "the client reads nothing")))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Read<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Read<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<Result<usize>> {
        let this = &mut *self;
        let wrote = Pin::new(&mut this.stream).poll_write(cx, buffer);
        Self::judged(&mut this.stalled, cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let this = &mut *self;
        let wrote = Pin::new(&mut this.stream).poll_write_vectored(cx, buffers);
        Self::judged(&mut this.stalled, cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        Self::judged(&mut this.stalled, cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        let shut = Pin::new(&mut this.stream).poll_shutdown(cx);
        Self::judged(&mut this.stalled, cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::{Instant, sleep};

    use super::{Read, UNREAD};

    #[tokio::test(start_paused = true)]
    async fn who_reads_nothing_is_given_up_and_who_reads_slowly_is_not() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut ours = Read::new(ours);
        let writing = tokio::spawn(async move {
            let wrote = ours.write_all(&[0; 160]).await;
            (ours, wrote)
        });
        // Slowly, but on and on.
        let mut some = [0; 16];
        for _ in 0..9 {
            sleep(UNREAD - std::time::Duration::from_secs(1)).await;
            theirs.read_exact(&mut some).await.unwrap();
        }
        let (mut ours, wrote) = writing.await.unwrap();
        wrote.unwrap();
        // Not at all.
        let since = Instant::now();
        let error = ours.write_all(&[0; 160]).await.unwrap_err();
        assert_eq!((error.kind(), since.elapsed()), (ErrorKind::TimedOut, UNREAD));
    }
}
