//! Bodies of answers, which hold their client's place while they last.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use ringfence_mcp::DoorBody;
use tokio::sync::OwnedSemaphorePermit;

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
