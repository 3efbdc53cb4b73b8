//! The conformance suites' client scenarios about sign-in, `auth/*`: the product's own sign-in, with
//! a browser that reads one redirect.

use std::sync::Arc;
use std::time::Duration;

use ringfence_mcp::oauth::{
    Back, Browser, Callback, Grant, Ground, Hop, Identity, Interactive, Keep, Known, MAX_BODY,
    Outside, Place, StateCheck, Visit, Wish,
};
use ringfence_mcp::{
    Authorize, Boxed, Client, HttpOptions, Nobody, Reply, Upstream, UpstreamLimits,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zeroize::Zeroizing;

/// How long one step may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// What describes us, as far as the suite is concerned.
const DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";

/// Runs one of them against the server at `url`. `context` is what the suite gives beside it.
///
/// # Errors
/// In words, when the scenario could not be carried out.
pub async fn run(_scenario: &str, url: &str, context: &Value) -> Result<(), String> {
    let text = |key: &str| context[key].as_str().map(str::to_owned);
    let known =
        text("client_id").map(|id| Known { id, secret: text("client_secret").map(Zeroizing::new) });
    let wish = Wish {
        scopes: None,
        issuer: text("issuer"),
        identity: Identity { known, document: Some(DOCUMENT.to_owned()) },
    };
    let ground = Ground::new(url).map_err(|error| error.to_string())?;
    let person = Arc::new(Interactive::new(
        Arc::new(Loopback),
        Arc::new(Reads),
        Arc::new(Forgets),
        ground,
        wish,
    ));
    let done = calls(url, &person).await;
    // Why there is no token says more than that the server refused.
    done.map_err(|words| person.failed().map_or(words, |error| error.to_string()))
}

/// Connects, and uses the server twice: some scenarios ask for more, or change, in between.
async fn calls(url: &str, person: &Arc<Interactive>) -> Result<(), String> {
    let authorize = Arc::clone(person) as Arc<dyn Authorize>;
    let options = HttpOptions { authorize: Some(authorize), ..HttpOptions::default() };
    let words = |error: ringfence_mcp::UpstreamError| error.detail();
    let upstream =
        Upstream::http(url, &options, UpstreamLimits::default(), PATIENCE).await.map_err(words)?;
    let nobody: Arc<dyn Client> = Arc::new(Nobody);
    let Reply::Done(list) =
        upstream.request(&nobody, "tools/list", None, PATIENCE).await.map_err(words)?
    else {
        return Err("it wants answers to a list".to_owned());
    };
    let name = list["tools"][0]["name"].as_str().unwrap_or("test-tool").to_owned();
    let params = json!({"name": name, "arguments": {}});
    upstream.request(&nobody, "tools/call", Some(params), PATIENCE).await.map(drop).map_err(words)
}

/// Plain HTTP to loopback, which is where the suite's servers are.
struct Loopback;

impl Outside for Loopback {
    fn look<'a>(&'a self, _place: &'a Place) -> Boxed<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn send<'a>(&'a self, hop: Hop<'a>) -> Boxed<'a, Result<Back, String>> {
        Box::pin(async move {
            let place = hop.place;
            if place.tls() {
                return Err(format!("{}: not one of the suite's servers", place.text()));
            }
            let (kind, body) = match &hop.body {
                Some((kind, body)) => (Some(*kind), body.as_slice()),
                None => (None, &b""[..]),
            };
            let mut more = String::new();
            if let Some(kind) = kind {
                more += &format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
            }
            if let Some(value) = &hop.authorization {
                more += &format!("Authorization: {}\r\n", **value);
            }
            let method = if kind.is_some() { "POST" } else { "GET" };
            let (status, head, body) =
                exchange(method, &place.authority(), &place.target(), &more, body).await?;
            let content_type = header(&head, "content-type");
            Ok(Back { status, content_type, body: Zeroizing::new(body) })
        })
    }
}

fn header(head: &str, name: &str) -> Option<String> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim().to_owned())
}

async fn exchange(
    method: &str,
    authority: &str,
    target: &str,
    more: &str,
    body: &[u8],
) -> Result<(u16, String, Vec<u8>), String> {
    let words = |error: std::io::Error| format!("{authority}: {error}");
    let mut stream = TcpStream::connect(authority).await.map_err(words)?;
    // Of 1.0, so that the answer comes whole and ends with the connection.
    let head = format!("{method} {target} HTTP/1.0\r\nHost: {authority}\r\n{more}\r\n");
    stream.write_all(head.as_bytes()).await.map_err(words)?;
    stream.write_all(body).await.map_err(words)?;
    let mut answer = Vec::new();
    (&mut stream).take(2 * MAX_BODY as u64).read_to_end(&mut answer).await.map_err(words)?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.ok_or_else(|| format!("{authority}: no answer"))?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|text| text.parse().ok());
    let status = status.ok_or_else(|| format!("{authority}: no status"))?;
    Ok((status, head, answer.split_off(end + 4)))
}

/// A browser that opens the page and reads where it is sent, without going there.
struct Reads;

impl Browser for Reads {
    fn tell(&self, _words: &str) {}

    fn prepare(&self, _fixed: bool) -> Boxed<'_, Result<Box<dyn Visit>, String>> {
        Box::pin(std::future::ready(Ok(Box::new(OneVisit) as Box<dyn Visit>)))
    }
}

struct OneVisit;

impl Visit for OneVisit {
    fn redirect(&self) -> &str {
        "http://127.0.0.1:3000/callback"
    }

    fn answer<'a>(
        self: Box<Self>,
        url: &'a str,
        state: &'a StateCheck,
    ) -> Boxed<'a, Result<Callback, String>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let rest = url.strip_prefix("http://").ok_or("not one of the suite's servers")?;
            let (authority, target) = rest.split_once('/').ok_or("a page has a path")?;
            let (_, head, _) = exchange("GET", authority, &format!("/{target}"), "", b"").await?;
            let back = header(&head, "location").ok_or("the page sends nobody back")?;
            let (place, query) = back.split_once('?').ok_or("the answer has no query")?;
            if place != self.redirect() {
                return Err(format!("the page sends to {place}"));
            }
            state.read(query).ok_or_else(|| "the answer is to another question".to_owned())
        })
    }
}

/// Keeps nothing.
struct Forgets;

impl Keep for Forgets {
    fn keep<'a>(&'a self, _grant: &'a Grant) -> Boxed<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
