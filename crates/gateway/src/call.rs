//! The one function that every call passes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ringfence_bundle::ServerId;
use ringfence_mcp::{Client, Message, Nobody, UpstreamError, strict};
use ringfence_policy::Layer;
use ringfence_record::Event;
use serde_json::Value;

use crate::decide::Course;
use crate::error::Error;
use crate::seams::Journal;
use crate::upstream::Failure;
use crate::{Caller, Gateway};

/// A request that was read strictly, once: what is judged is what goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgedRequest {
    pub(crate) method: String,
    pub(crate) params: Option<Value>,
}

impl JudgedRequest {
    /// Reads a JSON-RPC request.
    ///
    /// # Errors
    /// In words: what two readers could read differently, or what is not a request.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let value = strict::parse(text, strict::Limits::default()).map_err(|e| e.to_string())?;
        match Message::from_value(value).map_err(|error| error.to_string())? {
            Message::Request { method, params, .. } => Ok(Self { method, params }),
            _ => Err("not a request".into()),
        }
    }

    /// What one of our doors has read.
    pub(crate) fn from_door(method: &str, params: Option<Value>) -> Self {
        Self { method: method.to_owned(), params }
    }

    /// The tool, of `tools/call`.
    pub(crate) fn tool(&self) -> Option<&str> {
        let named = (self.method == "tools/call").then_some(self.params.as_ref()?)?;
        named.get("name")?.as_str()
    }

    /// The arguments of `tools/call`.
    pub(crate) fn arguments(&self) -> Option<&Value> {
        let params = (self.method == "tools/call").then_some(self.params.as_ref()?)?;
        params.get("arguments")
    }

    /// A key that a server which ignores case takes for one that is judged here.
    pub(crate) fn misspelt(&self) -> Option<&str> {
        let keys = self.params.as_ref()?.as_object()?.keys();
        let known = |key: &str| matches!(key, "name" | "arguments" | "_meta" | "task");
        keys.map(String::as_str).find(|key| !known(key) && known(&strict::fold(key)))
    }
}

impl Gateway {
    /// Judges one request, records the decision, forwards the judged message if it was allowed, and
    /// records what became of it. What the server tells or asks about it meanwhile goes to `client`.
    /// Dropping the future cancels the call at the server.
    ///
    /// # Errors
    /// [`Error::Refused`] names rule and layer; the server saw nothing. [`Error::Record`] when the
    /// evidence cannot be written. [`Error::Upstream`] when the server gave nothing usable,
    /// [`Error::Answered`] when it answered with an error.
    pub async fn call(
        &self,
        caller: &Caller,
        client: &Arc<dyn Client>,
        server: &ServerId,
        request: JudgedRequest,
    ) -> Result<Value, Error> {
        let who = caller.principal.to_string();
        // A server that was restarted between pin and forward is judged anew, from the first step.
        for _ in 0..3 {
            match self.attempt(&who, client, server, request.clone()).await {
                Err(Attempt::Again) => {}
                Err(Attempt::Failed(error)) => return Err(error),
                Ok(result) => return Ok(result),
            }
        }
        let reason = "it was restarted again and again".to_owned();
        Err(Error::Upstream { error: UpstreamError::Closed { reason } })
    }

    async fn attempt(
        &self,
        who: &str,
        client: &Arc<dyn Client>,
        server: &ServerId,
        request: JudgedRequest,
    ) -> Result<Value, Attempt> {
        let mut course = self.first_steps(server, &request);
        let mut generation = None;
        let mut cannot_list = None;
        let held = matches!(request.method.as_str(), "tools/call" | "tools/list");
        if held && course.is_open() {
            match self.hold(server).await {
                Ok(now) => {
                    generation = Some(now.generation);
                    if now.fresh {
                        // The server had its time: what held before may no longer hold.
                        course = self.first_steps(server, &request);
                    }
                }
                Err(error) => {
                    // What was found on the way may be the better reason.
                    course = self.first_steps(server, &request);
                    let rule = format!("the tool definitions cannot be seen: {error}");
                    if course.is_open() {
                        course.refuse("pin", Layer::Builtin, &rule, "ringfence report");
                        cannot_list = Some(error);
                    }
                }
            }
        }
        if request.method == "tools/call" && course.is_open() {
            let tool = request.tool().unwrap_or_default();
            let verdict = self.pin(server, tool);
            self.last_steps(&mut course, server, &request, verdict);
        }
        let list = request.method == "tools/list";
        let passed = self.pass(who, client, course, server, request, generation).await;
        match (passed, cannot_list) {
            // What went wrong says more than that the pin could not be seen.
            (Err(Attempt::Failed(Error::Refused(_))), Some(error)) => Err(error.into()),
            (Ok((page, over)), _) if list => Ok(self.filter(server, page, over).await?),
            (passed, _) => passed.map(|(result, _)| result),
        }
    }

    /// Decision, forward, settlement. Gives the result, and the generation of the connection that it
    /// came over.
    pub(crate) async fn pass(
        &self,
        who: &str,
        client: &Arc<dyn Client>,
        course: Course,
        server: &ServerId,
        request: JudgedRequest,
        generation: Option<u64>,
    ) -> Result<(Value, u64), Attempt> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        // Stands before the decision: whoever goes away while it is being written leaves it allowed.
        let open = course.is_open();
        let mut settling =
            Settling { journal: self.journal.as_ref(), call, since: Instant::now(), open };
        let decided = self.decide(who, call, course, server, request).await;
        settling.open &= decided.is_ok();
        let permit = decided?;
        match self.upstreams.forward(client, permit, generation).await {
            Ok(passed) => {
                settling.end("answered", None)?;
                Ok(passed)
            }
            Err(Failure::Stale) => {
                settling.end("failed", Some("the server was restarted; judged anew".into()))?;
                Err(Attempt::Again)
            }
            Err(Failure::Stranger(rule)) => {
                settling.end("failed", Some(rule))?;
                Err(Attempt::Again)
            }
            Err(Failure::Upstream(UpstreamError::Rpc(error))) => {
                settling.end("error", Some(format!("error {}", error.code)))?;
                Err(Error::Answered(error).into())
            }
            Err(Failure::Upstream(error)) => {
                settling.end("failed", Some(self.detail(server, &error)))?;
                Err(Error::Upstream { error }.into())
            }
        }
    }

    /// A number for an event that is no call of its own.
    pub(crate) fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }
}

/// Whom nothing is told: of requests that are the gateway's own.
pub(crate) fn nobody() -> Arc<dyn Client> {
    Arc::new(Nobody)
}

/// Why an attempt gave no result.
pub(crate) enum Attempt {
    /// Nothing was sent; judge anew.
    Again,
    Failed(Error),
}

impl From<Error> for Attempt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Writes what became of a call, whatever happens: dropped, it was cancelled.
struct Settling<'j> {
    journal: &'j dyn Journal,
    call: u64,
    since: Instant,
    open: bool,
}

impl Settling<'_> {
    fn note(&mut self, result: &str, detail: Option<String>) -> Result<(), Error> {
        self.open = false;
        let elapsed_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (call, result) = (self.call, result.to_owned());
        self.journal
            .note(Event::CallSettled { call, result, detail, elapsed_ms, cost_usd: None })
            .map_err(|detail| Error::Record { detail })
    }

    fn end(mut self, result: &str, detail: Option<String>) -> Result<(), Error> {
        self.note(result, detail)
    }
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        if self.open {
            // Nobody is left to be told when this fails; the next call will be.
            let _ = self.note("cancelled", Some("nobody waited for the answer any more".into()));
        }
    }
}
