//! MCP over a pair of byte streams, one JSON text a line, from a server that is not trusted to keep to it.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rmcp::model::{ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::role::{Call, Note, RawClient, Reply};
use crate::strict;
use crate::upstream::UpstreamLimits;
use crate::{Id, Message};

/// Why a connection ended, for whoever finds it ended.
pub(crate) type Ended = Arc<OnceLock<String>>;

/// How long a message may wait for a server to read it.
const UNREAD: Duration = Duration::from_secs(120);
/// Answers to a server's own requests that may wait to be read.
const ANSWERS: usize = 64;

pub(crate) struct Lines<R, W> {
    read: BufReader<R>,
    line: Vec<u8>,
    write: Arc<Mutex<Option<W>>>,
    /// Answers of ours that are not written yet.
    answers: Arc<AtomicUsize>,
    /// The server does not read, so that nothing more is heard of it either.
    given_up: CancellationToken,
    limits: UpstreamLimits,
    junk: usize,
    ended: Ended,
}

/// One answer that waits to be written.
struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<R: AsyncRead + Unpin, W> Lines<R, W> {
    pub(crate) fn new(read: R, write: W, limits: UpstreamLimits, ended: Ended) -> Self {
        Self {
            read: BufReader::new(read),
            line: Vec::new(),
            write: Arc::new(Mutex::new(Some(write))),
            answers: Arc::default(),
            given_up: CancellationToken::new(),
            limits,
            junk: 0,
            ended,
        }
    }

    fn end(&self, why: impl Into<String>) -> bool {
        let _ = self.ended.set(why.into());
        false
    }

    /// Reads on until a whole line is in `self.line`. False when there will be none. Dropping the
    /// future loses nothing: what was read stands in `self.line`.
    async fn read_line(&mut self) -> bool {
        loop {
            let available = match self.read.fill_buf().await {
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
                return true;
            }
        }
    }

    fn take_message(&mut self) -> Option<RxJsonRpcMessage<RawClient>> {
        let fits = strict::values(&self.line) <= self.limits.values;
        let read = fits.then(|| serde_json::from_slice::<Value>(&self.line).ok()).flatten();
        let message = read.and_then(|value| Message::from_value(lenient(value)).ok());
        if message.is_none() && !self.line.trim_ascii().is_empty() {
            self.junk += 1;
        }
        self.line.clear();
        self.line.shrink_to(64 * 1024);
        message.and_then(to_model)
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
        let write = Arc::clone(&self.write);
        let (given_up, ended) = (self.given_up.clone(), Arc::clone(&self.ended));
        let waiting =
            matches!(item, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)).then(|| {
                if self.answers.fetch_add(1, Ordering::AcqRel) >= ANSWERS {
                    self.end("it asks and does not read the answers");
                    self.given_up.cancel();
                }
                Waiting(Arc::clone(&self.answers))
            });
        async move {
            let _waiting = waiting;
            let mut text = serde_json::to_vec(&item)?;
            drop(item);
            text.push(b'\n');
            let mut write = write.lock().await;
            let open = write.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
            let written = async {
                open.write_all(&text).await?;
                open.flush().await
            };
            let unread = tokio::time::sleep(UNREAD);
            tokio::select! {
                written = written => return written,
                () = given_up.cancelled() => {}
                () = unread => {
                    let _ = ended.set(format!("it has read nothing for {} s", UNREAD.as_secs()));
                    given_up.cancel();
                }
            }
            // Half a message may be written: nothing can follow it.
            *write = None;
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RawClient>> {
        let given_up = self.given_up.clone();
        while tokio::select! {
            biased;
            () = given_up.cancelled() => false,
            read = self.read_line() => read,
        } {
            if let Some(message) = self.take_message() {
                return Some(message);
            }
            if self.junk > self.limits.junk {
                self.end(format!("it wrote {} lines that are not MCP messages", self.junk));
                break;
            }
        }
        None
    }

    async fn close(&mut self) -> Result<(), std::io::Error> {
        let write = self.write.lock().await.take();
        match write {
            Some(mut write) => write.shutdown().await,
            None => Ok(()),
        }
    }
}

/// Members beside the known ones are a server's own affair.
pub(crate) fn lenient(mut value: Value) -> Value {
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

/// The message as RMCP's loop takes it. An error that answers nothing has no place there.
pub(crate) fn to_model(message: Message) -> Option<RxJsonRpcMessage<RawClient>> {
    Some(match message {
        Message::Request { id, method, params } => {
            JsonRpcMessage::request(Call::new(&method, params), request_id(id))
        }
        Message::Notification { method, params } => {
            JsonRpcMessage::notification(Note::new(&method, params))
        }
        Message::Response { id, answer: Ok(result) } => {
            JsonRpcMessage::response(Reply(result), request_id(id?))
        }
        Message::Response { id, answer: Err(error) } => {
            let error: ErrorData = error.into_model();
            JsonRpcMessage::error(error, Some(request_id(id?)))
        }
    })
}

fn request_id(id: Id) -> RequestId {
    match id {
        Id::Number(number) => RequestId::Number(number),
        Id::Text(text) => RequestId::String(text.into()),
    }
}
