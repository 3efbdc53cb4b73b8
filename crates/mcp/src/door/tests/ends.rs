//! What ends with a session, and with the connections that carry it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::{Answer, Asker, Backend, Boxed, Carrier, Client, DoorBody, DoorOptions, HttpDoor};

/// Keeps something for each session, from the end of a call on.
#[derive(Default)]
struct Keeps {
    kept: Arc<Mutex<BTreeSet<Arc<str>>>>,
    away: Mutex<Vec<String>>,
    hanging: Notify,
    dropped: Arc<Notify>,
}

struct Late(Arc<Mutex<BTreeSet<Arc<str>>>>, Arc<str>, Arc<Notify>);
impl Drop for Late {
    fn drop(&mut self) {
        self.0.lock().unwrap().insert(Arc::clone(&self.1));
        self.2.notify_one();
    }
}

impl Backend for Keeps {
    fn request<'a>(
        &'a self,
        asker: &'a Asker,
        _client: &'a Arc<dyn Client>,
        method: &'a str,
        params: Option<Value>,
    ) -> Boxed<'a, Answer> {
        Box::pin(async move {
            if method == "initialize" {
                return Ok(json!({ "capabilities": {}, "serverInfo": { "name": "k" } }));
            }
            let session = Arc::clone(asker.session.as_ref().unwrap());
            let _late = Late(Arc::clone(&self.kept), session, Arc::clone(&self.dropped));
            if params.unwrap_or_default()["name"] == "hang" {
                self.hanging.notify_one();
                std::future::pending::<()>().await;
            }
            Ok(json!({ "content": [] }))
        })
    }

    fn ended(&self, session: &str) {
        self.kept.lock().unwrap().remove(session);
    }

    fn away(&self, session: &str) {
        self.away.lock().unwrap().push(session.to_owned());
    }
}

fn request(session: Option<&str>, method: &str, body: &Value) -> Request<Full<Bytes>> {
    let mut request = Request::builder()
        .method(method)
        .uri("/echo/mcp")
        .header("host", "127.0.0.1:1")
        .header("content-type", "application/json");
    if let Some(session) = session {
        request = request.header("mcp-session-id", session);
    }
    request.body(Full::from(body.to_string())).unwrap()
}

async fn over(
    door: &HttpDoor,
    carrier: &Carrier,
    mut request: Request<Full<Bytes>>,
) -> Response<DoorBody> {
    request.extensions_mut().insert(carrier.mark());
    door.handle(request).await
}

fn call(name: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": name } })
}

async fn session(door: &HttpDoor, carrier: &Carrier) -> String {
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    let reply = over(door, carrier, request(None, "POST", &hello)).await;
    reply.headers()["mcp-session-id"].to_str().unwrap().to_owned()
}

fn door() -> (Arc<Keeps>, Arc<HttpDoor>) {
    let keeps = Arc::new(Keeps::default());
    let backend = Arc::clone(&keeps) as Arc<dyn Backend>;
    (keeps, Arc::new(HttpDoor::with(backend, DoorOptions::loopback(1))))
}

#[tokio::test]
async fn what_a_request_leaves_behind_after_its_session_has_ended_goes_too() {
    let (keeps, door) = door();
    let carrier = Carrier::new();
    let name = session(&door, &carrier).await;
    let carried = request(Some(&name), "POST", &call("keep"));
    assert_eq!(over(&door, &carrier, carried).await.status(), 200);
    assert_eq!(keeps.kept.lock().unwrap().len(), 1, "the control: it is kept while the session is");
    keeps.dropped.notified().await;
    let hanging = {
        let (door, carried) = (Arc::clone(&door), request(Some(&name), "POST", &call("hang")));
        tokio::spawn(async move { door.handle(carried).await })
    };
    keeps.hanging.notified().await;
    let gone = over(&door, &carrier, request(Some(&name), "DELETE", &json!({}))).await;
    assert_eq!(gone.status(), 204);
    hanging.await.unwrap();
    keeps.dropped.notified().await;
    door.close().await;
    assert!(keeps.kept.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_last_connection_is_gone_is_away_unless_it_comes_back() {
    let (keeps, door) = door();
    let away = || keeps.away.lock().unwrap().clone();
    let pass = async |seconds| tokio::time::sleep(Duration::from_secs(seconds)).await;
    let first = Carrier::new();
    let name = session(&door, &first).await;
    let other = session(&door, &first).await;
    // As long as the connection is there, so is the client.
    pass(300).await;
    assert!(away().is_empty());
    let second = Carrier::new();
    let ask = |carrier: &Carrier| {
        let carried = request(Some(&name), "POST", &call("keep"));
        let (door, mark) = (Arc::clone(&door), carrier.mark());
        async move {
            let mut carried = carried;
            carried.extensions_mut().insert(mark);
            assert_eq!(door.handle(carried).await.status(), 200);
        }
    };
    drop(first);
    pass(20).await;
    ask(&second).await;
    pass(60).await;
    assert_eq!(away(), [other.as_str()], "one came back in time, one did not");
    drop(second);
    pass(31).await;
    assert_eq!(away(), [other.as_str(), name.as_str()]);
    // The session itself is there still, and carried anew.
    let third = Carrier::new();
    ask(&third).await;
    drop(third);
    pass(61).await;
    assert_eq!(away()[2..], [name.as_str()]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_a_proxy_keeps_does_not_keep_a_session_at_work() {
    let (keeps, door) = door();
    let carrier = Carrier::new();
    let name = session(&door, &carrier).await;
    tokio::time::sleep(Duration::from_secs(3500)).await;
    assert!(keeps.away.lock().unwrap().is_empty());
    tokio::time::sleep(Duration::from_secs(3800)).await;
    assert!(keeps.away.lock().unwrap().contains(&name));
    // One that is asked something is at work.
    let hanging = {
        let (door, carried) = (Arc::clone(&door), request(Some(&name), "POST", &call("hang")));
        tokio::spawn(async move { door.handle(carried).await })
    };
    keeps.hanging.notified().await;
    let before = keeps.away.lock().unwrap().len();
    tokio::time::sleep(Duration::from_secs(10_000)).await;
    assert_eq!(keeps.away.lock().unwrap().len(), before);
    hanging.abort();
}
