//! Requests: of no session, of one, and the one that begins it.

use std::sync::Arc;

use http::{HeaderValue, Response, StatusCode};
use serde_json::{Map, Value};

use super::answer::{self, Era};
use super::body::{DoorBody, Events, Of};
use super::session::{DECLARED, DECLARED_VALUES, Session};
use super::{
    Came, HttpRefusal, Inner, answered, answered_by, empty, event_response, judge, member,
};
use crate::exchange::rounds::Rounds;
use crate::exchange::{Asking, Driver, Exchange, Hears, Next};
use crate::http_client::{SESSION, VERSION};
use crate::parked::{self, Binding, Round, Size, random};
use crate::revision::{META_CAPABILITIES, meta};
use crate::strict;
use crate::{Answer, Asker, Backend, Boxed, Client, Id, Nobody, Revision, RpcError, code};

/// What is done when an exchange becomes a stream, or is left for a retry.
enum Kind {
    Session(Arc<Session>),
    Rounds(Binding),
    Once,
}

/// The backend's work on one request. `kept` lives as long as it.
fn work(
    backend: &Arc<dyn Backend>,
    asker: Asker,
    exchange: &Arc<Exchange>,
    method: String,
    params: Option<Value>,
    kept: impl Send + 'static,
) -> Boxed<'static, Answer> {
    let era = if asker.revision.is_stateless() { Era::Stateless } else { Era::Handshake };
    let (backend, client) = (Arc::clone(backend), Arc::clone(exchange) as Arc<dyn Client>);
    Box::pin(async move {
        let _kept = kept;
        answer::answer(backend.as_ref(), era, &asker, &client, &method, params).await
    })
}

/// The HTTP status of an answer.
fn status(era: Era, answer: &Answer) -> StatusCode {
    match answer {
        Err(error) if era == Era::Stateless => match error.code {
            code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
            code::MISSING_CAPABILITY => StatusCode::BAD_REQUEST,
            _ => StatusCode::OK,
        },
        _ => StatusCode::OK,
    }
}

fn refused(id: &Id, error: RpcError) -> Response<DoorBody> {
    answered(StatusCode::BAD_REQUEST, Some(id), &Err(error))
}

impl Inner {
    /// 2026-07-28: the request says all there is to know, twice, and both must agree.
    pub(super) async fn stateless(
        self: &Arc<Self>,
        came: &Came<'_>,
        id: Id,
        method: String,
        mut params: Option<Value>,
    ) -> Response<DoorBody> {
        if let Err(error) = judge::stateless(came.headers, &method, params.as_ref()) {
            return refused(&id, error);
        }
        let principal = came.principal.clone();
        let asker = Asker { session: None, revision: Revision::STATELESS, principal };
        if let Err(error) = self.headers_agree(came, &asker, &method, params.as_ref()).await {
            return refused(&id, error);
        }
        if method == "subscriptions/listen" {
            return self.subscribe(came, id, asker, params).await;
        }
        let mut kind = Kind::Once;
        let mut asking = Asking::No;
        if parked::METHODS.contains(&method.as_str()) {
            let round = match Round::take(&mut params) {
                Ok(round) => round,
                Err(error) => return refused(&id, error),
            };
            let binding =
                Binding::new(self.number, came.principal.clone(), &method, params.as_ref());
            if let Some(state) = round.state {
                return match self.parked().resume(&state, &binding, round.responses) {
                    Ok((exchange, size)) => {
                        self.retry(came, id, exchange, binding, size.max(came.size)).await
                    }
                    Err(error) => refused(&id, error),
                };
            }
            asking = Asking::Rounds(Rounds::new(round.responses));
            kind = Kind::Rounds(binding);
        }
        let declared = meta(params.as_ref(), META_CAPABILITIES).cloned().unwrap_or_default();
        let hears = Hears::of_request(&asker.revision, params.as_ref());
        let streams = judge::accepts(came.headers, "text/event-stream");
        let exchange = Exchange::new((&asker).into(), Arc::new(declared), asking, hears, streams);
        let work = work(&self.backend, asker, &exchange, method, params, ());
        self.exchange(came, id, Driver::new(work, exchange), Era::Stateless, kind).await
    }

    /// Headers that repeat arguments of a tool.
    async fn headers_agree(
        &self,
        came: &Came<'_>,
        asker: &Asker,
        method: &str,
        params: Option<&Value>,
    ) -> Result<(), RpcError> {
        let tool = member(params, "name").filter(|_| method == "tools/call");
        let known = tool.and_then(|tool| self.backend.header_params(asker, tool));
        let Some(known) = known else { return Ok(()) };
        let arguments = params.and_then(|params| params.get("arguments"));
        if known.await.iter().all(|param| param.matches(came.headers, arguments)) {
            return Ok(());
        }
        let words = "an Mcp-Param header does not say what its argument says";
        Err(RpcError::new(code::HEADER_MISMATCH, words))
    }

    pub(super) async fn initialize(
        self: &Arc<Self>,
        came: &Came<'_>,
        id: Id,
        params: Option<Value>,
    ) -> Response<DoorBody> {
        let Some(wanted) = member(params.as_ref(), "protocolVersion") else {
            let error = RpcError::new(code::INVALID_PARAMS, "\"protocolVersion\" is missing");
            return refused(&id, error);
        };
        // A header is not needed here, but one that says other than the body is not let in.
        if judge::text(came.headers, &VERSION).is_ok_and(|found| found.is_some_and(|v| v != wanted))
        {
            let error = RpcError::new(code::INVALID_REQUEST, "the header names another revision");
            return refused(&id, error);
        }
        let revision = Revision::negotiate(wanted);
        let declared = params.as_ref().and_then(|params| params.get("capabilities")).cloned();
        let declared = declared.filter(Value::is_object).unwrap_or_else(|| Map::new().into());
        let text = declared.to_string();
        if text.len() > DECLARED || strict::values(text.as_bytes()) > DECLARED_VALUES {
            let words = format!(
                "\"capabilities\" are larger than {DECLARED} bytes or {DECLARED_VALUES} values"
            );
            return refused(&id, RpcError::new(code::INVALID_PARAMS, words));
        }
        let Some(name) = random() else { return empty(StatusCode::SERVICE_UNAVAILABLE) };
        let Ok(mut header) = HeaderValue::from_str(&name) else {
            return empty(StatusCode::SERVICE_UNAVAILABLE);
        };
        header.set_sensitive(true);
        let principal = came.principal.clone();
        let session = Session::new(name.into(), revision, principal, Arc::new(declared));
        let unopened = Unopened { door: self, session: &session, opened: false };
        let nobody: Arc<dyn Client> = Arc::new(Nobody);
        let (backend, asker) = (self.backend.as_ref(), session.asker());
        let method = "initialize";
        let answer = answer::answer(backend, Era::Handshake, asker, &nobody, method, params).await;
        let mut response = answered(StatusCode::OK, Some(&id), &answer);
        if answer.is_ok() {
            unopened.open();
            self.carried(&session, came.mark.as_ref());
            response.headers_mut().insert(SESSION, header);
        }
        response
    }

    pub(super) async fn in_session(
        self: &Arc<Self>,
        came: &Came<'_>,
        id: Id,
        method: String,
        params: Option<Value>,
    ) -> Result<Response<DoorBody>, HttpRefusal> {
        let session = self.session(came)?;
        let exchange = Exchange::new(
            session.asker().into(),
            Arc::clone(&session.capabilities),
            Asking::Requests(Arc::clone(&session.questions)),
            Hears::All,
            judge::accepts(came.headers, "text/event-stream"),
        );
        let Some(slot) = session.begin(&id, &exchange, &self.backend) else {
            let words = "this id is already in flight, or too many requests are";
            return Ok(refused(&id, RpcError::new(code::INVALID_REQUEST, words)));
        };
        let asker = session.asker().clone();
        let work = work(&self.backend, asker, &exchange, method, params, slot);
        let driver = Driver::new(work, exchange);
        Ok(self.exchange(came, id, driver, Era::Handshake, Kind::Session(session)).await)
    }

    /// Waits for the first that comes. Only when it is not the answer does the work go on apart.
    async fn exchange(
        self: &Arc<Self>,
        came: &Came<'_>,
        id: Id,
        mut driver: Driver,
        era: Era,
        kind: Kind,
    ) -> Response<DoorBody> {
        let exchange = Arc::clone(driver.exchange());
        let first = std::future::poll_fn(|cx| {
            let _ = driver.poll_work(cx);
            exchange.poll_next(0, cx)
        });
        let of = match (first.await, kind) {
            (Next::Done(answer), _) => {
                return answered_by(&exchange, status(era, &answer), &id, &answer);
            }
            (Next::Round(requests), Kind::Rounds(binding)) => {
                self.go_on(driver, |_| {});
                let answer = self.parked().park(&exchange, &binding, came.size, requests);
                exchange.detach(0, parked::WAIT);
                return answered(StatusCode::OK, Some(&id), &answer);
            }
            (Next::Message(text), Kind::Session(session)) => {
                let Some(stream) = session.stream(&exchange, Some(id.clone())) else {
                    return answered(StatusCode::OK, Some(&id), &Err(answer::cancelled()));
                };
                let (of, closing) = (Arc::clone(&session), stream.number);
                self.go_on(driver, move |_| session.closed(closing));
                (Of::Session { session: of, stream }, text)
            }
            (Next::Message(text), kind) => {
                self.go_on(driver, |_| {});
                match kind {
                    Kind::Rounds(binding) => (Of::Rounds { binding, size: came.size }, text),
                    _ => (Of::Once, text),
                }
            }
            (Next::Round(_) | Next::Over, _) => {
                return answered(StatusCode::OK, Some(&id), &Err(answer::cancelled()));
            }
        };
        let mut events = Events::new(self, Some((exchange, 0)), Some(id), of.0);
        events.prime();
        events.message(&of.1);
        event_response(events)
    }

    /// A client has come back to a call that waits. `size` is that of the largest of its requests.
    async fn retry(
        self: &Arc<Self>,
        came: &Came<'_>,
        id: Id,
        exchange: Arc<Exchange>,
        binding: Binding,
        size: Size,
    ) -> Response<DoorBody> {
        let reader = Reader { number: exchange.attach(), exchange: &exchange };
        let number = reader.number;
        let streams = judge::accepts(came.headers, "text/event-stream");
        let next = loop {
            let next = std::future::poll_fn(|cx| exchange.poll_next(number, cx)).await;
            // What came meanwhile is not for one who takes no stream.
            if streams || !matches!(next, Next::Message(_)) {
                break next;
            }
        };
        match next {
            Next::Done(answer) => {
                answered_by(&exchange, status(Era::Stateless, &answer), &id, &answer)
            }
            Next::Round(requests) => {
                reader.hand_over();
                let answer = self.parked().park(&exchange, &binding, size, requests);
                exchange.detach(number, parked::WAIT);
                answered(StatusCode::OK, Some(&id), &answer)
            }
            Next::Message(text) => {
                let of = Of::Rounds { binding, size };
                reader.hand_over();
                let mut events = Events::new(self, Some((exchange, number)), Some(id), of);
                events.message(&text);
                event_response(events)
            }
            Next::Over => answered(StatusCode::OK, Some(&id), &Err(answer::cancelled())),
        }
    }
}

/// A session that no client knows of yet.
struct Unopened<'d> {
    door: &'d Arc<Inner>,
    session: &'d Arc<Session>,
    opened: bool,
}

impl Unopened<'_> {
    fn open(mut self) {
        self.opened = true;
        if let Some(ended) = self.door.sessions.open(self.session) {
            self.door.ended(&ended);
        }
    }
}

impl Drop for Unopened<'_> {
    fn drop(&mut self) {
        if !self.opened {
            self.door.ended(self.session);
        }
    }
}

/// One who waits for an answer. When it goes away, the work is not wanted any more.
struct Reader<'e> {
    exchange: &'e Arc<Exchange>,
    number: u64,
}

impl Reader<'_> {
    /// From here on somebody else sees to it.
    fn hand_over(self) {
        std::mem::forget(self);
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.exchange.detach(self.number, std::time::Duration::ZERO);
    }
}
