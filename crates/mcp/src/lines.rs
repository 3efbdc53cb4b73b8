//! MCP over a pair of byte streams, one JSON text a line, from a server that is not trusted to keep to it.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, Weak};
use std::time::Duration;

use rmcp::model::{JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, ServiceRole as _, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::replies::{BEGUN, REST};
use crate::role::{RawClient, Reply};
use crate::upstream::UpstreamLimits;
use crate::upstream::desk::Desk;
use crate::upstream::exchange::Exchange;
use crate::upstream::listener::Listener;
use crate::upstream::mailbox::Told;
use crate::upstream::questions::{Answering, Question};
use crate::{Answer, Boxed, Held, Id, Message, envelope, strict};

/// Why a connection ended, for whoever finds it ended.
pub(crate) type Ended = Arc<OnceLock<String>>;

/// How long a message may wait for a server to read it.
const UNREAD: Duration = Duration::from_secs(120);
/// Answers to a server's own requests that may wait to be read.
const ANSWERS: usize = 64;

/// A connection.
pub(crate) struct Lines<R, W> {
    read: BufReader<R>,
    line: Vec<u8>,
    /// All of it is there.
    whole: bool,
    /// The room for one that is long, and when the rest of it must be there.
    begun: Option<(Held, Instant)>,
    /// Read, and not handed on yet.
    read_ahead: VecDeque<RxJsonRpcMessage<RawClient>>,
    writer: Arc<Writer<W>>,
    desk: Arc<Desk>,
    limits: UpstreamLimits,
    junk: usize,
}

/// Its way in to the server.
struct Writer<W> {
    write: Mutex<Option<W>>,
    /// Answers of ours that are not written yet.
    answers: AtomicUsize,
    /// The server does not read, so that nothing more is heard of it either.
    given_up: CancellationToken,
    /// Requests that have no answer yet.
    asked: std::sync::Mutex<HashMap<RequestId, Option<Weak<Exchange>>>>,
    ended: Ended,
}

impl<W: AsyncWrite + Send + Unpin + 'static> Writer<W> {
    fn asked(&self) -> std::sync::MutexGuard<'_, HashMap<RequestId, Option<Weak<Exchange>>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write(&self, message: &impl Serialize) -> Result<(), std::io::Error> {
        self.write_text(serde_json::to_vec(message)?).await
    }

    async fn write_text(&self, mut text: Vec<u8>) -> Result<(), std::io::Error> {
        text.push(b'\n');
        let mut write = self.write.lock().await;
        let open = write.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
        let written = async {
            open.write_all(&text).await?;
            open.flush().await
        };
        let unread = tokio::time::sleep(UNREAD);
        tokio::select! {
            written = written => return written,
            () = self.given_up.cancelled() => {}
            () = unread => {
                let _ = self.ended.set(format!("it has read nothing for {} s", UNREAD.as_secs()));
                self.given_up.cancel();
            }
        }
        // Half a message may be written: nothing can follow it.
        *write = None;
        Err(std::io::ErrorKind::BrokenPipe.into())
    }
}

impl<W: AsyncWrite + Send + Unpin + 'static> Answering for Writer<W> {
    fn answer(self: Arc<Self>, id: Id, answer: Answer, _asked: bool) -> Boxed<'static, ()> {
        if self.answers.fetch_add(1, Ordering::AcqRel) >= ANSWERS {
            let _ = self.ended.set("it asks and does not read the answers".into());
            self.given_up.cancel();
        }
        let waiting = Waiting(Arc::clone(&self));
        Box::pin(async move {
            let _waiting = waiting;
            let _ = self.write_text(envelope::response(Some(&id), &answer)).await;
        })
    }
}

/// One answer that waits to be written.
struct Waiting<W>(Arc<Writer<W>>);

impl<W> Drop for Waiting<W> {
    fn drop(&mut self) {
        self.0.answers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Send + Unpin + 'static> Lines<R, W> {
    pub(crate) fn new(
        read: R,
        write: W,
        limits: UpstreamLimits,
        desk: Arc<Desk>,
        ended: Ended,
    ) -> Self {
        let writer = Writer {
            write: Mutex::new(Some(write)),
            answers: AtomicUsize::new(0),
            given_up: CancellationToken::new(),
            asked: std::sync::Mutex::default(),
            ended,
        };
        Self {
            read: BufReader::new(read),
            line: Vec::new(),
            whole: false,
            begun: None,
            read_ahead: VecDeque::new(),
            writer: Arc::new(writer),
            desk,
            limits,
            junk: 0,
        }
    }

    fn end(&self, why: impl Into<String>) -> bool {
        let _ = self.writer.ended.set(why.into());
        false
    }

    /// Reads on until a whole line is in `self.line`. False when there will be none. Dropping the
    /// future loses nothing: what was read stands in `self.line`.
    async fn read_line(&mut self) -> bool {
        if self.whole {
            return true;
        }
        loop {
            if self.line.len() > BEGUN && self.begun.is_none() {
                let held = self.desk.replies.begun(self.limits).await;
                self.begun = Some((held, Instant::now() + REST));
            }
            let due = self.begun.as_ref().map(|(_, due)| *due);
            let available = match in_time(due, self.read.fill_buf()).await {
                Ok(available) => available,
                Err(error) => {
                    let why = format!("its output cannot be read: {}", error.kind());
                    return self.end(why);
                }
            };
            if available.is_empty() {
                return self.end("it closed its output");
            }
            let newline = available.iter().position(|byte| *byte == b'\n');
            let take = newline.map_or(available.len(), |at| at + 1);
            if self.line.len() + take > self.limits.message {
                let why = format!("it sent a message larger than {} bytes", self.limits.message);
                return self.end(why);
            }
            self.line.extend_from_slice(&available[..take]);
            self.read.consume(take);
            if newline.is_some() {
                self.whole = true;
                return true;
            }
        }
    }

    /// Sorts the messages of a line: answers go on to the loop, everything else to the desk, in the
    /// order in which it was said.
    async fn sort_line(&mut self) {
        if let Some((held, due)) = self.begun.take() {
            // Nothing is waited for: there is more room already than it takes.
            let held = self.desk.replies.whole(&self.line, Some(held)).await;
            self.begun = held.map(|held| (held, due));
        } else if let Some(held) = self.desk.replies.whole(&self.line, None).await {
            self.begun = Some((held, Instant::now()));
        }
        self.whole = false;
        let mut held = self.begun.take().map(|(held, _)| held);
        let found = messages(&self.line, self.limits).unwrap_or_default();
        if found.is_empty() && !self.line.trim_ascii().is_empty() {
            self.junk += 1;
        }
        for message in found {
            match message {
                Message::Request { id, method, params } => {
                    let to = Arc::clone(&self.writer) as Arc<_>;
                    self.desk.ask(None, Question { id, method, params, to });
                }
                Message::Notification { method, params } => {
                    self.desk.told(Told::new(method, params, &self.line));
                }
                // Which request it is about is not known.
                Message::Response { id: None, .. } => self.desk.stray_answer(),
                Message::Response { id: Some(id), answer } => {
                    let id = request_id(id);
                    if let Some(on) = self.writer.asked().remove(&id) {
                        if let Some(exchange) = on.and_then(|on| on.upgrade()) {
                            exchange.keep(held.take());
                        }
                        self.read_ahead.push_back(match answer {
                            Ok(result) => JsonRpcMessage::response(Reply(result), id),
                            Err(error) => JsonRpcMessage::error(error.into_model(), Some(id)),
                        });
                    } else {
                        self.desk.stray_answer();
                    }
                }
            }
        }
        self.line.clear();
        self.line.shrink_to(64 * 1024);
    }
}

impl<R, W> Transport<RawClient> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = std::io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RawClient>,
    ) -> impl Future<Output = Result<(), std::io::Error>> + Send + 'static {
        match &item {
            JsonRpcMessage::Request(request) => {
                let on = request.request.carried::<Weak<Exchange>>().cloned();
                self.writer.asked().insert(request.id.clone(), on);
                if let Some(listener) = request.request.carried::<Arc<Listener>>() {
                    self.desk.subscribed(from_request_id(&request.id), listener);
                }
            }
            JsonRpcMessage::Notification(note) => {
                let cancelled = RawClient::peer_cancelled_params(&note.notification);
                if let Some(id) = cancelled.and_then(|cancelled| cancelled.request_id.as_ref()) {
                    self.writer.asked().remove(id);
                }
            }
            _ => {}
        }
        let writer = Arc::clone(&self.writer);
        async move { writer.write(&item).await }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RawClient>> {
        let given_up = self.writer.given_up.clone();
        loop {
            if let Some(message) = self.read_ahead.pop_front() {
                return Some(message);
            }
            let read = tokio::select! {
                biased;
                () = given_up.cancelled() => false,
                read = self.read_line() => read,
            };
            if !read {
                break;
            }
            self.sort_line().await;
            if self.junk > self.limits.junk {
                self.end(format!("it wrote {} lines that are not MCP messages", self.junk));
                break;
            }
        }
        self.desk.close();
        None
    }

    async fn close(&mut self) -> Result<(), std::io::Error> {
        self.desk.close();
        let write = self.writer.write.lock().await.take();
        match write {
            Some(mut write) => write.shutdown().await,
            None => Ok(()),
        }
    }
}

/// Waits no longer than that.
async fn in_time<T>(
    due: Option<Instant>,
    read: impl Future<Output = std::io::Result<T>>,
) -> std::io::Result<T> {
    match due {
        None => read.await,
        Some(due) => tokio::time::timeout_at(due, read)
            .await
            .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())),
    }
}

/// The messages of a text: one, or on 2025-03-26 a batch.
///
/// # Errors
/// In words, for [`crate::UpstreamError::Nonsense`].
pub(crate) fn messages(text: &[u8], limits: UpstreamLimits) -> Result<Vec<Message>, String> {
    if strict::values(text) > limits.values {
        return Err(format!("its answer holds more than {} values", limits.values));
    }
    let read = |value| Message::from_value(lenient(value)).map_err(|error| error.to_string());
    match serde_json::from_slice(text).map_err(|_| "its answer is not JSON".to_owned())? {
        Value::Array(all) if !all.is_empty() => all.into_iter().map(read).collect(),
        one => Ok(vec![read(one)?]),
    }
}

/// Members beside the known ones are a server's own affair.
fn lenient(mut value: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.retain(|key, _| {
            matches!(key.as_str(), "jsonrpc" | "id" | "method" | "params" | "result" | "error")
        });
        // A null says nothing, but a result that is null is a result.
        object
            .retain(|key, value| !(value.is_null() && matches!(key.as_str(), "error" | "params")));
        if object.contains_key("error") && object.get("result").is_some_and(Value::is_null) {
            object.shift_remove("result");
        }
    }
    value
}

fn request_id(id: Id) -> RequestId {
    match id {
        Id::Number(number) => RequestId::Number(number),
        Id::Text(text) => RequestId::String(text.into()),
    }
}

fn from_request_id(id: &RequestId) -> Id {
    match id {
        RequestId::Number(number) => Id::Number(*number),
        RequestId::String(text) => Id::Text(text.to_string()),
    }
}
