//! The one function that every call passes.

use std::sync::Arc;
use std::time::Instant;

use ringfence_bundle::ServerId;
use ringfence_mcp::{Client, Message, Nobody, Reply, UpstreamError, Wants, strict};
use ringfence_policy::Layer;
use ringfence_record::Event;
use serde_json::{Value, json};

use crate::approve::Answered;
use crate::budget::{Paying, unaffordable};
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
        if self.is_call() { self.text("name") } else { None }
    }

    /// The arguments of `tools/call`.
    pub(crate) fn arguments(&self) -> Option<&Value> {
        let params = self.is_call().then_some(self.params.as_ref()?)?;
        params.get("arguments")
    }

    /// The other members of the parameters that `these` lets through, `None` where there are none: all of
    /// them but the name and the arguments of a tool.
    pub(crate) fn other_params(&self, these: impl Fn(&str, &Value) -> bool) -> Option<Value> {
        let judged = |key: &str| self.is_call() && matches!(key, "name" | "arguments");
        let members = self.params.as_ref()?.as_object()?.iter();
        let others = members.filter(|(key, value)| !judged(key) && these(key, value));
        let others: serde_json::Map<_, _> =
            others.map(|(key, value)| (key.clone(), value.clone())).collect();
        (!others.is_empty()).then_some(Value::Object(others))
    }

    /// What a person is shown, and says yes to, beside tool and arguments: everything else that goes to
    /// the server. But for what that server itself gave, to be given back to it alone.
    pub(crate) fn beside(&self) -> String {
        let none = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty);
        let others = self.other_params(|key, value| match key {
            "requestState" => false,
            "inputResponses" => !none(value),
            _ => true,
        });
        others.map_or_else(|| "{}".to_owned(), |others| others.to_string())
    }

    pub(crate) fn is_call(&self) -> bool {
        self.method == "tools/call"
    }

    /// A text among the parameters.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.params.as_ref()?.get(key)?.as_str()
    }

    /// The same request of one server, which has a name of its own for the thing.
    pub(crate) fn renamed(mut self, key: &str, name: String) -> Self {
        if let Some(params) = self.params.as_mut().and_then(Value::as_object_mut) {
            params.insert(key.to_owned(), name.into());
        }
        self
    }

    /// The call that stands in the arguments of this one. `_meta` is the message's own.
    pub(crate) fn inner(mut self, tool: String) -> Self {
        if let Some(params) = self.params.as_mut().and_then(Value::as_object_mut) {
            let inner = params.get_mut("arguments").and_then(|given| given.get_mut("arguments"));
            let inner = inner.map(Value::take);
            params.insert("name".into(), tool.into());
            match inner {
                Some(inner) => params.insert("arguments".into(), inner),
                None => params.shift_remove("arguments"),
            };
        }
        self
    }

    /// Whether it has answers to questions of the server.
    pub(crate) fn answers(&self) -> bool {
        let answers = self.params.as_ref().and_then(|params| params.get("inputResponses"));
        answers.is_some_and(|answers| answers.as_object().is_none_or(|all| !all.is_empty()))
    }

    /// A key that a server which ignores case takes for one that is judged here.
    pub(crate) fn misspelt(&self) -> Option<&str> {
        let keys = self.params.as_ref()?.as_object()?.keys();
        let known = |key: &str| matches!(key, "name" | "arguments" | "_meta" | "task");
        keys.map(String::as_str).find(|key| !known(key) && known(&strict::fold(key)))
    }

    /// A member that only the answer to a server's question has.
    pub(crate) fn rides(&self) -> Option<&str> {
        let keys = self.params.as_ref()?.as_object()?.keys();
        let answers = |key: &&str| matches!(&*strict::fold(key), "inputresponses" | "requeststate");
        keys.map(String::as_str).find(answers)
    }
}

/// What of one call is kept from one decision to the next.
pub(crate) struct Carried {
    /// The number of the call within its run.
    pub(crate) call: u64,
    /// The number of the next decision, where it is not that of the call.
    next: Option<u64>,
    /// What a person said to it.
    pub(crate) answered: Answered,
    /// What is set aside for it.
    pub(crate) paying: Option<Paying>,
    /// A server may have done something with it.
    sent: bool,
    /// Goes on with answers to a server's questions.
    pub(crate) rounds: usize,
}

/// How far one attempt came.
enum Took {
    Done(Value),
    /// Nothing was sent; judge anew.
    Again,
    /// A person has answered; judge anew.
    Asked,
    Wants(Wants),
}

/// What came back, and the generation of the connection that it came over.
pub(crate) type Passed = (Reply, u64);

impl Gateway {
    /// Judges one request, records the decision, forwards the judged message if it was allowed, and
    /// records what became of it. What the server tells or asks about it meanwhile goes to `client`.
    /// Where a rule wants a person's yes, it waits for it, and then everything is judged anew.
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
        let who = caller.to_string();
        let mut carried = Carried::new(self.next_call());
        let result = self.rounds(&who, client, server, request, &mut carried).await;
        // What may have reached a server is spent, and the rest is given back: dropped, it is.
        drop(carried.paying.take());
        if let Some(detail) = carried.answered.abort() {
            self.stop.now("approval", detail);
        }
        result
    }

    async fn rounds(
        &self,
        who: &str,
        client: &Arc<dyn Client>,
        server: &ServerId,
        mut request: JudgedRequest,
        carried: &mut Carried,
    ) -> Result<Value, Error> {
        let mut restarts = 0;
        loop {
            match self.attempt(who, client, server, &request, carried).await? {
                Took::Done(result) => return Ok(result),
                Took::Asked => {}
                // A server that was restarted between pin and forward is judged anew, from the
                // first step.
                Took::Again => {
                    restarts += 1;
                    if restarts == 3 {
                        let reason = "it was restarted again and again".to_owned();
                        return Err(Error::Upstream { error: UpstreamError::Closed { reason } });
                    }
                }
                Took::Wants(wants) => {
                    carried.rounds += 1;
                    let answers = crate::rounds::ask(client, &wants, carried.rounds).await?;
                    request.params = Some(wants.answered(request.params.take(), answers));
                }
            }
        }
    }

    async fn attempt(
        &self,
        who: &str,
        client: &Arc<dyn Client>,
        server: &ServerId,
        request: &JudgedRequest,
        carried: &mut Carried,
    ) -> Result<Took, Error> {
        let mut course = self.first_steps(server, request, carried.rounds);
        let mut generation = None;
        let mut cannot_list = None;
        let held = matches!(request.method.as_str(), "tools/call" | "tools/list");
        if held && course.is_open() {
            match self.hold(server).await {
                Ok(now) => {
                    generation = Some(now.generation);
                    if now.fresh {
                        // The server had its time: what held before may no longer hold.
                        course = self.first_steps(server, request, carried.rounds);
                    }
                }
                Err(error) => {
                    // What was found on the way may be the better reason.
                    course = self.first_steps(server, request, carried.rounds);
                    let rule = format!("the tool definitions cannot be seen: {error}");
                    if course.is_open() {
                        course.refuse("pin", Layer::Builtin, &rule, "ringfence report");
                        cannot_list = Some(error);
                    }
                }
            }
        }
        if request.is_call() && course.is_open() {
            self.pinned(&mut course, server, request);
            if let Some(question) = self.approved(&mut course, who, server, request, carried) {
                self.ask_a_person(question, carried).await;
                // The tool's definition is seen anew, too.
                self.look_again(server);
                return Ok(Took::Asked);
            }
            self.affordable(&mut course, server, request, carried).await;
        }
        let list = request.method == "tools/list";
        let passed = self.pass(who, client, course, server, request, generation, carried).await;
        match (passed, cannot_list) {
            // What went wrong says more than that the pin could not be seen.
            (Err(Attempt::Failed(Error::Refused(_))), Some(error)) => Err(error),
            (Err(Attempt::Failed(error)), _) => Err(error),
            (Err(Attempt::Again), _) => Ok(Took::Again),
            (Ok((Reply::Wants(wants), _)), _) => Ok(Took::Wants(wants)),
            (Ok((Reply::Done(page), over)), _) if list => {
                self.filter(server, page, over).await.map(Took::Done)
            }
            (Ok((Reply::Done(result), _)), _) => Ok(Took::Done(result)),
        }
    }

    /// Decision, forward, settlement.
    #[expect(clippy::too_many_arguments, reason = "they are one decision")]
    async fn pass(
        &self,
        who: &str,
        client: &Arc<dyn Client>,
        course: Course,
        server: &ServerId,
        request: &JudgedRequest,
        generation: Option<u64>,
        carried: &mut Carried,
    ) -> Result<Passed, Attempt> {
        let call = carried.next.take().unwrap_or_else(|| self.next_call());
        // Stands before the decision: whoever goes away while it is being written leaves it allowed.
        let mut settling = Settling {
            journal: self.journal.as_ref(),
            call,
            since: Instant::now(),
            open: course.is_open(),
            // Nothing is spent by what was not sent.
            cost: carried.paying.as_ref().filter(|_| carried.sent).map(Paying::most),
        };
        // Both are written at the same time, and the call waits for both.
        let decided = self.decide(who, call, course, server, request);
        let (decided, reserved) = match carried.paying.take() {
            None => (decided.await, None),
            Some(paying) => {
                let (decided, reserved) = tokio::join!(decided, paying.durable());
                (decided, Some(reserved))
            }
        };
        settling.open &= decided.is_ok();
        match reserved.transpose() {
            Ok(reservation) => carried.paying = reservation.map(Paying::Now),
            Err(reason) if decided.is_ok() => {
                // It was allowed, and now it is not: nothing was sent.
                settling.end("failed", Some(reason.clone()))?;
                return Err(Error::Refused(unaffordable(reason)).into());
            }
            Err(_) => {}
        }
        let permit = decided?;
        settling.cost = carried.goes_out();
        match self.forward(who, client, permit, generation).await {
            Ok((Reply::Done(result), over)) => {
                let (cost, result) = self.paid(carried, "result", result).await;
                settling.cost = cost;
                settling.end("answered", None)?;
                Ok((Reply::Done(result), over))
            }
            Ok((Reply::Wants(wants), over)) => {
                carried.sent = true;
                // It is settled with the last round.
                settling.cost = None;
                settling.end("answered", Some(crate::rounds::words(&wants)))?;
                Ok((Reply::Wants(wants), over))
            }
            Err(Failure::Stale) => {
                settling.cost = carried.comes_back();
                settling.end("failed", Some("the server was restarted; judged anew".into()))?;
                Err(Attempt::Again)
            }
            Err(Failure::Stranger(rule)) => {
                settling.cost = carried.comes_back();
                settling.end("failed", Some(rule))?;
                Err(Attempt::Again)
            }
            Err(Failure::Unsent(error)) => {
                settling.cost = carried.comes_back();
                settling.end("failed", Some(self.detail(server, &error)))?;
                Err(Error::Upstream { error }.into())
            }
            Err(Failure::Upstream(UpstreamError::Rpc(error))) => {
                let said =
                    json!({ "code": error.code, "message": error.message, "data": error.data });
                let (cost, _) = self.paid(carried, "error", said).await;
                settling.cost = cost;
                settling.end("error", Some(format!("error {}", error.code)))?;
                Err(Error::Answered(error).into())
            }
            Err(Failure::Upstream(error)) => {
                if let Some(paying) = carried.paying.take() {
                    settling.cost = Some(self.settled(carried.call, paying, None).await);
                }
                settling.end("failed", Some(self.detail(server, &error)))?;
                Err(Error::Upstream { error }.into())
            }
        }
    }

    /// [`Gateway::pass`] for a request of the gateway's own, which nobody answers questions about.
    pub(crate) async fn pass_own(
        &self,
        who: &str,
        course: Course,
        server: &ServerId,
        request: &JudgedRequest,
        generation: Option<u64>,
    ) -> Result<(Value, u64), Attempt> {
        let mut carried = Carried::new(self.next_call());
        let client: Arc<dyn Client> = Arc::new(Nobody);
        let passed =
            self.pass(who, &client, course, server, request, generation, &mut carried).await?;
        match passed {
            (Reply::Done(result), over) => Ok((result, over)),
            (Reply::Wants(_), _) => {
                Err(Attempt::Failed(crate::list::nonsense("it asks for input, where nobody is")))
            }
        }
    }

    /// A number for a decision.
    pub(crate) fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
    }
}

impl Carried {
    fn new(call: u64) -> Self {
        Self {
            call,
            next: Some(call),
            answered: Answered::default(),
            paying: None,
            sent: false,
            rounds: 0,
        }
    }

    /// From here on a server may do something with it: what is set aside is spent, unless the reply says
    /// otherwise. How much, in USD.
    fn goes_out(&mut self) -> Option<String> {
        let paying = self.paying.as_mut()?;
        paying.sent(true);
        Some(paying.most())
    }

    /// It did not get there: what is set aside is given back, unless an earlier round did get there. What
    /// is spent then stands with the last round.
    fn comes_back(&mut self) -> Option<String> {
        if let Some(paying) = self.paying.as_mut() {
            paying.sent(self.sent);
        }
        None
    }
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
pub(crate) struct Settling<'j> {
    pub(crate) journal: &'j dyn Journal,
    pub(crate) call: u64,
    pub(crate) since: Instant,
    pub(crate) open: bool,
    /// What it cost, in USD; all that was set aside as long as nothing else is known.
    pub(crate) cost: Option<String>,
}

impl Settling<'_> {
    fn note(&mut self, result: &str, detail: Option<String>) -> Result<(), Error> {
        self.open = false;
        let elapsed_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (call, result, cost_usd) = (self.call, result.to_owned(), self.cost.take());
        self.journal
            .note(Event::CallSettled { call, result, detail, elapsed_ms, cost_usd })
            .map_err(|detail| Error::Record { detail })
    }

    pub(crate) fn end(mut self, result: &str, detail: Option<String>) -> Result<(), Error> {
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
