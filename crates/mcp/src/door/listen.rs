//! Streams of what belongs to no request: the GET stream of a session, a subscription, and streams
//! that are taken up again.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::header::ALLOW;
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde_json::{Map, Value, json};

use super::body::{DoorBody, Events, Of};
use super::session::{EventId, Session};
use super::{Came, HttpRefusal, Inner, answered, empty, event_response, judge};
use crate::envelope::call;
use crate::exchange::{Asking, Driver, Exchange, Hears, tagged};
use crate::revision::META_SUBSCRIPTION;
use crate::{Answer, Asker, Boxed, Client, Id, RpcError, Wanted, code};

const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// Resources that one subscription may name.
const URIS: usize = 1024;

impl Inner {
    /// GET.
    pub(super) async fn stream(
        self: &Arc<Self>,
        came: &Came<'_>,
    ) -> Result<Response<DoorBody>, HttpRefusal> {
        let session = self.session(came)?;
        if !judge::accepts(came.headers, "text/event-stream") {
            let status = StatusCode::NOT_ACCEPTABLE;
            return Err(HttpRefusal::new(status, "Accept must include text/event-stream"));
        }
        match judge::text(came.headers, &LAST_EVENT)? {
            Some(event) => self.resume(&session, event),
            None => Ok(self.listen(session).await),
        }
    }

    /// Goes on with a stream whose connection broke.
    fn resume(
        self: &Arc<Self>,
        session: &Arc<Session>,
        event: &str,
    ) -> Result<Response<DoorBody>, HttpRefusal> {
        let found = EventId::parse(event).and_then(|event| session.after(event));
        let Some((texts, stream)) = found else {
            let status = StatusCode::BAD_REQUEST;
            return Err(HttpRefusal::new(status, "nothing is kept of this stream"));
        };
        let mut events = match stream {
            None => Events::new(self, None, None, Of::Once),
            Some(stream) => {
                let exchange = Arc::clone(&stream.exchange);
                let reader = exchange.attach();
                let (session, id) = (Arc::clone(session), stream.id.clone());
                let of = Of::Session { session, stream };
                Events::new(self, Some((exchange, reader)), id, of)
            }
        };
        events.again(texts);
        Ok(event_response(events))
    }

    async fn listen(self: &Arc<Self>, session: Arc<Session>) -> Response<DoorBody> {
        let exchange = Exchange::new(
            session.asker().into(),
            Arc::clone(&session.capabilities),
            Asking::Requests(Arc::clone(&session.questions)),
            Hears::All,
            true,
        );
        let client: Arc<dyn Client> = Arc::clone(&exchange) as Arc<dyn Client>;
        let wanted = Wanted {
            tools: true,
            prompts: true,
            resources: true,
            uris: BTreeSet::new(),
            rest: true,
        };
        let Ok(listening) = self.backend.listen(session.asker(), &client, wanted).await else {
            let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST, DELETE"));
            return response;
        };
        let Some(stream) = session.listen(&exchange) else {
            return empty(StatusCode::NOT_FOUND);
        };
        let passing = passing(listening.passing, client, json!({}));
        let (of, closing) = (Arc::clone(&session), stream.number);
        self.go_on(Driver::new(passing, Arc::clone(&exchange)), move |_| session.closed(closing));
        let of = Of::Session { session: of, stream };
        let mut events = Events::new(self, Some((exchange, 0)), None, of);
        events.prime();
        event_response(events)
    }

    /// `subscriptions/listen` (2026-07-28): the request's own stream, until the client closes it.
    pub(super) async fn subscribe(
        self: &Arc<Self>,
        came: &Came<'_>,
        id: Id,
        asker: Asker,
        params: Option<Value>,
    ) -> Response<DoorBody> {
        if !judge::accepts(came.headers, "text/event-stream") {
            let status = StatusCode::NOT_ACCEPTABLE;
            let words = "Accept must include text/event-stream";
            return HttpRefusal::new(status, words).into_response();
        }
        let begun = begin(self.backend.as_ref(), &asker, &id, params.as_ref()).await;
        let (exchange, passing, acknowledged) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                let status = match error.code {
                    code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
                    code::INVALID_PARAMS => StatusCode::BAD_REQUEST,
                    _ => StatusCode::OK,
                };
                return answered(status, Some(&id), &Err(error));
            }
        };
        self.go_on(Driver::new(passing, Arc::clone(&exchange)), |_| {});
        let mut events = Events::new(self, Some((exchange, 0)), Some(id), Of::Once);
        events.message(&acknowledged);
        event_response(events)
    }
}

/// Passes notifications on, and ends with this result.
fn passing(
    passing: Boxed<'static, ()>,
    client: Arc<dyn Client>,
    result: Value,
) -> Boxed<'static, Answer> {
    Box::pin(async move {
        let _client = client;
        passing.await;
        Ok(result)
    })
}

/// A subscription: its exchange, its work, and the acknowledgement that comes first.
pub(crate) async fn begin(
    backend: &dyn crate::Backend,
    asker: &Asker,
    id: &Id,
    params: Option<&Value>,
) -> Result<(Arc<Exchange>, Boxed<'static, Answer>, Vec<u8>), RpcError> {
    let wanted = wanted(params)?;
    let hears = Hears::Subscription { wanted: wanted.clone(), id: id.to_value() };
    let nothing = Arc::new(Map::new().into());
    let exchange = Exchange::new(asker.into(), nothing, Asking::No, hears, true);
    let client: Arc<dyn Client> = Arc::clone(&exchange) as Arc<dyn Client>;
    let listening = backend.listen(asker, &client, wanted.clone()).await?;
    let granted = granted(&wanted, &listening.granted);
    let params = tagged(Some(json!({ "notifications": granted })), &id.to_value());
    let method = "notifications/subscriptions/acknowledged";
    let acknowledged = call(None, method, Some(&params));
    let result = json!({
        "resultType": "complete",
        "_meta": { META_SUBSCRIPTION: id.to_value() },
    });
    Ok((exchange, passing(listening.passing, client, result), acknowledged))
}

fn wanted(params: Option<&Value>) -> Result<Wanted, RpcError> {
    let wrong = |words: &str| RpcError::new(code::INVALID_PARAMS, words);
    let filter = params.and_then(|params| params.get("notifications"));
    let filter = filter.and_then(Value::as_object).ok_or(wrong("\"notifications\" is missing"))?;
    let flag = |name: &str| match filter.get(name) {
        None => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(wrong("a member of \"notifications\" is neither true nor false")),
    };
    let uris = match filter.get("resourceSubscriptions") {
        None => BTreeSet::new(),
        Some(Value::Array(uris)) if uris.len() <= URIS => {
            let uris: Option<_> = uris.iter().map(|uri| uri.as_str().map(str::to_owned)).collect();
            uris.ok_or(wrong("\"resourceSubscriptions\" must be URIs"))?
        }
        Some(_) => return Err(wrong("\"resourceSubscriptions\" must be at most 1024 URIs")),
    };
    Ok(Wanted {
        tools: flag("toolsListChanged")?,
        prompts: flag("promptsListChanged")?,
        resources: flag("resourcesListChanged")?,
        uris,
        rest: false,
    })
}

/// What of the wishes is fulfilled, in the protocol's words.
fn granted(wanted: &Wanted, granted: &Wanted) -> Value {
    let mut filter = Map::new();
    for (name, yes) in [
        ("toolsListChanged", wanted.tools && granted.tools),
        ("promptsListChanged", wanted.prompts && granted.prompts),
        ("resourcesListChanged", wanted.resources && granted.resources),
    ] {
        if yes {
            filter.insert(name.into(), true.into());
        }
    }
    let uris: Vec<_> = wanted.uris.intersection(&granted.uris).cloned().collect();
    if !uris.is_empty() {
        filter.insert("resourceSubscriptions".into(), uris.into());
    }
    filter.into()
}
