//! One connection of the sandbox, passed on to Squid: read once strictly, then byte for byte.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::Method;
use ringfence_bundle::Host;
use ringfence_policy::Principal;
use ringfence_record::{Outcome, Step};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::desk::{Case, Desk, Ticket, closing};
use crate::decide::{shown, without_secrets};
use crate::engine::Limits;
use crate::head::{Head, HeadError, MAX_HEAD, find_end};
use crate::hello::HelloReader;
use crate::proxy::Begun;
use crate::reply::Reply;
use crate::request::Request;
use crate::target::Authority;
use crate::traffic::{Counted, Traffic};
use crate::tunnel::{ACCESS_DENIED, Client as _, Refused, first_answer, hold};

/// How long, and how much, a refused client is listened to, so that it can read the answer.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 256 * 1024;
/// How long a line of the log may take after its connection has ended.
const LATE: Duration = Duration::from_secs(10);

/// Whose connections these are.
pub(crate) struct Peer {
    pub(crate) who: Principal,
    /// Squid's port for it.
    pub(crate) port: u16,
    pub(crate) begun: Begun,
}

/// Serves one connection: one request.
pub(crate) async fn serve(desk: &Arc<Desk>, peer: &Peer, mut client: TcpStream) {
    // Without it the answers only come later.
    let _ = client.set_nodelay(true);
    let begun = peer.begun.has();
    let mut buffer = BytesMut::new();
    let head = read_head(&mut client, &mut buffer, &desk.limits).await;
    if !begun {
        if !matches!(head, Ok(None)) {
            tell(client, &Reply::no_token()).await;
        }
        return;
    }
    // What is judged is recorded, so that a client can ask no faster than evidence is kept.
    desk.journal.room().await;
    let case = |method| Case { desk, who: &peer.who, number: desk.number(), method };
    let (head, bytes) = match head {
        Ok(Some(head)) => head,
        Ok(None) => return,
        Err(error) => {
            // The request line alone: a header line may hold a secret.
            let line = buffer.as_ref().split(|byte: &u8| matches!(byte, b'\r' | b'\n')).next();
            let given = String::from_utf8_lossy(line.unwrap_or_default()).into_owned();
            refuse(&case("?"), "request", error.0, &given);
            return tell(client, &Reply::bad_request(400, error.0)).await;
        }
    };
    let (method, target) = (head.method.clone(), head.target.clone());
    let case = case(method.as_str());
    let request = match Request::new(head) {
        Ok(request) => request,
        Err(error) => {
            refuse(&case, error.check, error.reason, &target);
            return tell(client, &Reply::bad_request(error.status, error.reason)).await;
        }
    };
    let to = match request {
        Request::Tunnel(to) => to,
        Request::Exchange(exchange) => exchange.authority,
    };
    let opened = if desk.has_failed() {
        Err("Squid has failed".to_owned())
    } else {
        let squid = TcpStream::connect((Ipv4Addr::LOCALHOST, peer.port)).await;
        squid
            .and_then(|squid| squid.local_addr().map(|address| (squid, address.port())))
            .map_err(|error| error.to_string())
    };
    let (squid, from) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let _ = case.note(
                (to.host.to_string(), to.port),
                vec![step("squid", Outcome::Refused, &error)],
                None,
            );
            return tell(client, &Reply::bad_gateway("the proxy is not there")).await;
        }
    };
    let _ = squid.set_nodelay(true);
    let ticket = desk.expect(from);
    let going = Going { case, to, ticket, bytes, early: buffer };
    if method == Method::CONNECT {
        tunnel(client, squid, going).await;
    } else {
        exchange(client, squid, going).await;
    }
}

/// A request on its way to Squid.
struct Going<'a> {
    case: Case<'a>,
    to: Authority,
    ticket: Ticket,
    /// Its head, as it came.
    bytes: Vec<u8>,
    /// What came behind it.
    early: BytesMut,
}

fn step(check: &str, outcome: Outcome, rule: &str) -> Step {
    Step { check: check.to_owned(), outcome, rule: rule.to_owned() }
}

/// A refusal stands whether or not it can be recorded.
fn refuse(case: &Case<'_>, check: &str, reason: &str, given: &str) {
    let host = shown(&without_secrets(given));
    let _ = case.note((host, 0), vec![step(check, Outcome::Refused, reason)], None);
}

/// The next head, and its bytes. `None` when the connection ends, or is left alone, before one begins.
async fn read_head(
    client: &mut TcpStream,
    buffer: &mut BytesMut,
    limits: &Limits,
) -> Result<Option<(Head, Vec<u8>)>, HeadError> {
    match timeout(limits.waiting, client.read_buf(buffer)).await {
        Ok(Ok(read)) if read > 0 => {}
        _ => return Ok(None),
    }
    let whole = async {
        let mut scanned = 0;
        loop {
            if let Some(end) = find_end(buffer, scanned)? {
                let head = Head::parse(&buffer[..end])?;
                return Ok((head, buffer.split_to(end).to_vec()));
            }
            scanned = buffer.len();
            buffer.reserve(2048);
            if !matches!(client.read_buf(buffer).await, Ok(read) if read > 0) {
                return Err(HeadError("the connection ended inside the head of a request"));
            }
        }
    };
    let late = HeadError("the head of the request did not come in time");
    timeout(limits.head, whole).await.unwrap_or(Err(late)).map(Some)
}

/// Writes an answer of our own, ends our side and listens on for a moment.
async fn tell(mut client: TcpStream, reply: &Reply) {
    if client.write_all(&reply.render(true, true)).await.is_ok() {
        linger(&mut client).await;
    }
}

async fn linger(client: &mut TcpStream) {
    let _ = timeout(LINGER, async {
        client.shutdown().await?;
        let (mut total, mut bytes) = (0, vec![0; 1024]);
        while total < LINGER_BYTES {
            match client.read(&mut bytes).await? {
                0 => break,
                read => total += read,
            }
        }
        std::io::Result::Ok(())
    })
    .await;
}

/// A tunnel that is open, until its end is in the record.
struct Open<'a> {
    case: Case<'a>,
    traffic: Arc<Traffic>,
    ticket: Option<Ticket>,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            ticket.told();
            self.case.end(self.traffic.totals(), "stopped");
        }
    }
}

async fn tunnel(mut client: TcpStream, mut squid: TcpStream, going: Going<'_>) {
    let Going { case, to, ticket, bytes, early } = going;
    let limits = &case.desk.limits;
    let answered = match squid.write_all(&bytes).await {
        Ok(()) => answer(&mut squid).await,
        Err(error) => Err(error),
    };
    let (answer, behind) = match answered {
        Ok(answered) => answered,
        Err(error) => {
            drop(squid);
            by_line(&case, &to, ticket, (0, 0), &format!("squid: {error}")).await;
            return tell(client, &Reply::bad_gateway("the proxy gave no answer")).await;
        }
    };
    if !is_open(&answer) {
        let mut refusal = answer;
        refusal.extend(behind);
        let told = client.write_all(&refusal).await;
        if told.is_ok() {
            // To its end: Squid closes after it.
            let _ = timeout(limits.idle, tokio::io::copy(&mut squid, &mut client)).await;
        }
        drop(squid);
        by_line(&case, &to, ticket, (0, 0), "closed").await;
        return linger(&mut client).await;
    }
    let decision = case.desk.ruleset.egress(case.who, &to.host, to.port);
    if !decision.allowed {
        let (host, port) = (&to.host, to.port);
        case.desk.fail(format!("Squid opened a tunnel to {host}:{port}: {}", decision.rule));
        return;
    }
    let opaque = case.desk.ruleset.is_opaque(case.who, &to.host, to.port);
    let mut steps: Vec<Step> = [
        ("token", "the request shows the run's token"),
        ("name", "one host and one port"),
        ("ruleset", decision.rule.as_str()),
        ("address", "Squid found none that is refused"),
    ]
    .map(|(check, rule)| step(check, Outcome::Allowed, rule))
    .into();
    if opaque {
        steps.push(step("opaque", Outcome::Allowed, "what goes through is not looked at"));
    }
    if let Err(error) = case.note((to.host.to_string(), to.port), steps, None) {
        return tell(client, &Reply::unrecorded(&error)).await;
    }
    let traffic = Arc::new(Traffic::new());
    let mut open = Open { case, traffic: Arc::clone(&traffic), ticket: Some(ticket) };
    let limits = &open.case.desk.limits;
    let moving = async {
        if let Err(error) = client.write_all(&answer).await {
            return format!("client: {error}");
        }
        let greeted = if opaque {
            match client.write_all(&behind).await {
                Ok(()) => Ok(early.into()),
                Err(error) => return format!("client: {error}"),
            }
        } else {
            let said = (early, behind);
            greet(&mut client, said, &mut squid, &to.host, (&traffic, limits)).await
        };
        match greeted {
            Ok(held) => match client.relay(held, &mut squid, &traffic).await {
                Ok(()) => "closed".to_owned(),
                Err(broken) => broken.reason,
            },
            Err(refused) => {
                if refused.tls {
                    let _ = client.write_all(&ACCESS_DENIED).await;
                }
                refused.reason
            }
        }
    };
    let reason = tokio::select! {
        reason = moving => reason,
        () = traffic.idle_for(limits.idle) => format!("idle for {} s", limits.idle.as_secs()),
        () = sleep(limits.total) => format!("open for {} s", limits.total.as_secs()),
        reason = open.case.desk.failed() => reason,
    };
    drop((client, squid));
    let Some(ticket) = open.ticket.take() else { return };
    let reason = match timeout(LATE, ticket.line()).await.ok().flatten() {
        Some(line) => {
            open.case.desk.watch(&line, Some((open.case.who, &to)));
            let reason = closing(&line, &reason);
            match line.address {
                Some(address) => format!("{reason}; {address}"),
                None => reason,
            }
        }
        None => format!("{reason}; no line in Squid's log"),
    };
    open.case.end(traffic.totals(), &reason);
}

/// Lets the hello through, and the second one where the server asks for it, as the built-in proxy does.
/// Gives what the client has sent since.
async fn greet(
    client: &mut TcpStream,
    (early, behind): (BytesMut, Vec<u8>),
    squid: &mut TcpStream,
    host: &Host,
    (traffic, limits): (&Traffic, &Limits),
) -> Result<Vec<u8>, Refused> {
    if !behind.is_empty() {
        return Err(Refused::new("the server spoke before the hello", true));
    }
    let server = |error: std::io::Error| Refused::new(format!("server: {error}"), true);
    let (hello, rest) = hold(client, HelloReader::new(), &early, host, limits).await?;
    squid.write_all(&hello).await.map_err(server)?;
    traffic.add_sent(hello.len());
    // Nothing more is let through until the server's answer shows what may follow.
    let (answer, retry) = first_answer(squid).await.map_err(server)?;
    client.write_all(&answer).await.map_err(|e| Refused::new(format!("client: {e}"), false))?;
    traffic.add_received(answer.len());
    if !retry {
        return Ok(rest);
    }
    let (mut hello, rest) = hold(client, HelloReader::after_retry(), &rest, host, limits).await?;
    hello.extend(rest);
    Ok(hello)
}

/// The head of Squid's answer, and what came behind it.
async fn answer(squid: &mut TcpStream) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
    let mut bytes = Vec::with_capacity(1024);
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let behind = bytes.split_off(end + 4);
            return Ok((bytes, behind));
        }
        if bytes.len() > MAX_HEAD || squid.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Whether an answer opens a tunnel.
fn is_open(answer: &[u8]) -> bool {
    let word = answer.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    word.len() == 3 && word[0] == b'2'
}

async fn exchange(mut client: TcpStream, squid: TcpStream, going: Going<'_>) {
    let Going { case, to, ticket, mut bytes, early } = going;
    bytes.extend(early);
    let (traffic, limits) = (Arc::new(Traffic::new()), &case.desk.limits);
    let counted = Counted { stream: squid, traffic: Arc::clone(&traffic) };
    let (mut from_squid, mut to_squid) = tokio::io::split(counted);
    let reason = {
        let (mut reads, mut writes) = client.split();
        let up = async {
            // Squid takes the end of our side for the end of all: it is not passed on.
            let sent = match to_squid.write_all(&bytes).await {
                Ok(()) => tokio::io::copy(&mut reads, &mut to_squid).await.map(drop),
                Err(error) => Err(error),
            };
            match sent {
                // What Squid has to say of it still comes.
                Ok(()) | Err(_) => std::future::pending::<()>().await,
            }
        };
        let down = tokio::io::copy(&mut from_squid, &mut writes);
        tokio::select! {
            () = up => String::new(),
            down = down => match down {
                Ok(_) => "closed".to_owned(),
                Err(error) => error.to_string(),
            },
            () = traffic.idle_for(limits.idle) => format!("idle for {} s", limits.idle.as_secs()),
            () = sleep(limits.total) => format!("open for {} s", limits.total.as_secs()),
            reason = case.desk.failed() => reason,
        }
    };
    drop(from_squid.unsplit(to_squid));
    by_line(&case, &to, ticket, traffic.totals(), &reason).await;
    linger(&mut client).await;
}

/// Records a request whose line is all that is known of it.
async fn by_line(case: &Case<'_>, to: &Authority, ticket: Ticket, bytes: (u64, u64), reason: &str) {
    match timeout(LATE, ticket.line()).await.ok().flatten() {
        Some(line) => case.by_line(Some(to), &line, bytes, reason),
        None => {
            let steps = vec![step("squid", Outcome::Refused, "no line in Squid's log")];
            let _ = case.note((to.host.to_string(), to.port), steps, None);
        }
    }
}
