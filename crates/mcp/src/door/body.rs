//! Bodies of answers: one text, or events as they come.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::Inner;
use super::session::{Session, Stream};
use crate::Id;
use crate::envelope::response;
use crate::exchange::{Exchange, Next};
use crate::parked::{self, Binding, Size};

/// A stream that has nothing to say says so this often: who went away without a word is noticed,
/// and nothing between takes it for dead.
const ALIVE: Duration = Duration::from_secs(15);
/// How long a client should wait before it takes a stream up again, in milliseconds.
const RETRY: u64 = 500;

/// The body of a door's answer.
pub struct DoorBody(Kind);

enum Kind {
    Whole(Option<Bytes>),
    Events(Box<Events>),
}

impl DoorBody {
    pub(super) fn whole(text: impl Into<Bytes>) -> Self {
        Self(Kind::Whole(Some(text.into()).filter(|text| !text.is_empty())))
    }

    pub(super) fn events(events: Events) -> Self {
        Self(Kind::Events(Box::new(events)))
    }
}

impl std::fmt::Debug for DoorBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            Kind::Whole(_) => "DoorBody(whole)",
            Kind::Events(_) => "DoorBody(events)",
        })
    }
}

impl http_body::Body for DoorBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = match &mut self.0 {
            Kind::Whole(text) => text.take(),
            Kind::Events(events) => std::task::ready!(events.poll_event(cx)),
        };
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(text) => text.is_none(),
            Kind::Events(events) => events.over && events.backlog.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(text) => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
            Kind::Events(_) => SizeHint::default(),
        }
    }
}

/// What a stream is a part of.
pub(super) enum Of {
    /// A request of a session whose stream can be taken up again by this number.
    Session { session: Arc<Session>, stream: Arc<Stream> },
    /// A request that may wait for a retry.
    Rounds { binding: Binding, size: Size },
    /// A request that ends with its stream.
    Once,
}

/// A stream of events to one client.
pub(super) struct Events {
    door: Arc<Inner>,
    exchange: Option<(Arc<Exchange>, u64)>,
    /// The request that the last event answers. `None` when there is none.
    id: Option<Id>,
    of: Of,
    backlog: VecDeque<Bytes>,
    over: bool,
    /// How long the work goes on without a reader.
    wait: Duration,
    alive: Pin<Box<Sleep>>,
}

impl Events {
    pub(super) fn new(
        door: &Arc<Inner>,
        exchange: Option<(Arc<Exchange>, u64)>,
        id: Option<Id>,
        of: Of,
    ) -> Self {
        let over = exchange.is_none();
        let wait = match &of {
            Of::Session { session, .. } if session.resumes() => door.options.resume_wait,
            _ => Duration::ZERO,
        };
        let alive = Box::pin(tokio::time::sleep(ALIVE));
        let door = Arc::clone(door);
        Self { door, exchange, id, of, backlog: VecDeque::new(), over, wait, alive }
    }

    /// An event that says nothing, but from which the client can go on.
    pub(super) fn prime(&mut self) {
        if let Of::Session { session, stream } = &self.of
            && session.revision() >= "2025-11-25"
        {
            let text = format!("id: {}\nretry: {RETRY}\ndata: \n\n", stream.last());
            self.backlog.push_back(text.into());
        }
    }

    /// Events that were sent before.
    pub(super) fn again(&mut self, texts: Vec<Bytes>) {
        self.backlog.extend(texts);
    }

    /// A message that was taken from the exchange already.
    pub(super) fn message(&mut self, text: &[u8]) {
        let event = self.event(text, false);
        self.backlog.push_back(event);
    }

    /// The event that stands for a message; the last one takes what is held for the answer along.
    fn event(&self, text: &[u8], last: bool) -> Bytes {
        let mut event = Vec::with_capacity(text.len() + 32);
        let named = match &self.of {
            Of::Session { session, stream } if session.resumes() => Some((session, stream.next())),
            _ => None,
        };
        if let Some((_, id)) = &named {
            event.extend_from_slice(format!("id: {id}\n").as_bytes());
        }
        // JSON as it is written here has no line breaks.
        event.extend_from_slice(b"data: ");
        event.extend_from_slice(text);
        event.extend_from_slice(b"\n\n");
        if let Some((session, id)) = named {
            session.keep(id, &event);
        }
        match &self.exchange {
            Some((exchange, _)) if last => exchange.outgoing(event),
            _ => event.into(),
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(event) = self.backlog.pop_front() {
            return Poll::Ready(Some(event));
        }
        let Some((exchange, reader)) = self.exchange.as_ref().filter(|_| !self.over) else {
            return Poll::Ready(None);
        };
        let answer = match exchange.poll_next(*reader, cx) {
            Poll::Pending => {
                std::task::ready!(self.alive.as_mut().poll(cx));
                self.alive.as_mut().reset(Instant::now() + ALIVE);
                return Poll::Ready(Some(Bytes::from_static(b":\n\n")));
            }
            Poll::Ready(Next::Message(text)) => return Poll::Ready(Some(self.event(&text, false))),
            Poll::Ready(Next::Over) => {
                self.over = true;
                return Poll::Ready(None);
            }
            Poll::Ready(Next::Done(answer)) => answer,
            Poll::Ready(Next::Round(requests)) => {
                let Of::Rounds { binding, size } = &self.of else {
                    self.over = true;
                    return Poll::Ready(None);
                };
                self.wait = parked::WAIT;
                self.door.parked().park(exchange, binding, *size, requests)
            }
        };
        self.over = true;
        if self.id.is_none() {
            return Poll::Ready(None);
        }
        let text = response(self.id.as_ref(), &answer);
        Poll::Ready(Some(self.event(&text, true)))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if let Some((exchange, reader)) = &self.exchange {
            exchange.detach(*reader, self.wait);
        }
    }
}
