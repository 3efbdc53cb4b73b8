//! Bodies that do not last for ever, and that hold their client's place while they last.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use ringfence_mcp::DoorBody;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};

/// A request's body, which must have arrived after so long.
pub(super) struct Timely {
    body: Incoming,
    end: Pin<Box<Sleep>>,
}

impl Timely {
    pub(super) fn new(body: Incoming, within: Duration) -> Self {
        Self { body, end: Box::pin(sleep(within)) }
    }
}

impl Body for Timely {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(self.end.as_mut().poll(context));
        Poll::Ready(Some(Err("the body took too long".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer's body, and the place of its client.
pub(super) struct Placed {
    body: DoorBody,
    _place: Option<OwnedSemaphorePermit>,
}

impl Placed {
    pub(super) fn new(body: DoorBody, place: Option<OwnedSemaphorePermit>) -> Self {
        Self { body, _place: place }
    }
}

impl Body for Placed {
    type Data = <DoorBody as Body>::Data;
    type Error = <DoorBody as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
