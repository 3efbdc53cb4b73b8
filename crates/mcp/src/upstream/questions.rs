//! What a server asks while a request is under way, put to the client behind it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::exchange::able::lack;
use crate::{Answer, Boxed, Client, Id, Party, RpcError, code};

/// Questions of one request, or of one listener, that may wait for the client at once.
const AT_ONCE: usize = 8;
/// Questions of one request in all: a server that asks more asks without end.
const IN_ALL: usize = 1000;
/// How long a client may think about one.
const THINKING: Duration = Duration::from_secs(3600);

/// What a server may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sampling,
    Elicitation,
    Roots,
}

impl Kind {
    pub(crate) fn of(method: &str) -> Option<Self> {
        match method {
            "sampling/createMessage" => Some(Self::Sampling),
            "elicitation/create" => Some(Self::Elicitation),
            "roots/list" => Some(Self::Roots),
            _ => None,
        }
    }
}

/// Whether a client with these capabilities has declared that it can answer this.
///
/// # Errors
/// What the server is told.
pub(crate) fn declared(
    kind: Kind,
    params: Option<&Value>,
    capabilities: &Value,
) -> Result<(), RpcError> {
    let named = |key: &str| params.is_some_and(|params| params.get(key).is_some());
    let (capability, part, code) = match kind {
        Kind::Roots => ("roots", None, code::METHOD_NOT_FOUND),
        Kind::Sampling => {
            let tools = named("tools") || named("toolChoice");
            ("sampling", tools.then_some("tools"), code::INVALID_PARAMS)
        }
        Kind::Elicitation => {
            let mode = params.and_then(|p| p.get("mode")).and_then(Value::as_str);
            ("elicitation", Some(mode.unwrap_or("form")), code::INVALID_PARAMS)
        }
    };
    let Some(declared) = capabilities.get(capability).and_then(Value::as_object) else {
        let words = format!("{capability} is not offered");
        return Err(RpcError::new(code::METHOD_NOT_FOUND, words));
    };
    match part {
        None => Ok(()),
        Some(part) if declared.get(part).is_some_and(Value::is_object) => Ok(()),
        // An empty declaration means forms (2025-06-18 knew nothing else).
        Some("form") if !declared.contains_key("url") => Ok(()),
        Some(part) => {
            let words = format!("{capability}.{} is not offered", part.escape_debug());
            Err(RpcError::new(code, words))
        }
    }
}

/// Takes answers to a server's questions back to it.
pub(crate) trait Answering: Send + Sync + 'static {
    /// `asked`: a client was asked for it. What is refused may be left out when there is much of it.
    fn answer(self: Arc<Self>, id: Id, answer: Answer, asked: bool) -> Boxed<'static, ()>;
}

/// The questions to one client.
pub(crate) struct Questions {
    client: Arc<dyn Client>,
    open: Mutex<JoinSet<()>>,
    waiting: Arc<AtomicUsize>,
    asked: AtomicUsize,
    /// What a server was told because the client has not declared that it can answer, and how the
    /// client itself is told so.
    lack: Mutex<Option<(RpcError, RpcError)>>,
}

/// One question of a server.
pub(crate) struct Question {
    pub(crate) id: Id,
    pub(crate) method: String,
    pub(crate) params: Option<Value>,
    pub(crate) to: Arc<dyn Answering>,
}

impl Question {
    /// Says no, without asking anybody.
    pub(crate) fn refuse(self, error: RpcError) {
        answer_later(self.to, self.id, Err(error), false);
    }
}

fn answer_later(to: Arc<dyn Answering>, id: Id, answer: Answer, asked: bool) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(to.answer(id, answer, asked));
    }
}

/// An answer that is owed: when nobody gives it, the server is told so.
struct Owed(Option<(Arc<dyn Answering>, Id)>);

impl Owed {
    fn settled(mut self) {
        self.0 = None;
    }
}

impl Drop for Owed {
    fn drop(&mut self) {
        if let Some((to, id)) = self.0.take() {
            let error = RpcError::new(code::CANCELLED, "nobody is there any more to answer");
            answer_later(to, id, Err(error), true);
        }
    }
}

/// Asked without end.
#[derive(Debug)]
pub(crate) struct Endless;

impl Questions {
    pub(crate) fn new(client: Arc<dyn Client>) -> Self {
        let (open, lack) = (Mutex::default(), Mutex::default());
        Self { client, open, waiting: Arc::default(), asked: AtomicUsize::new(0), lack }
    }

    pub(crate) fn client(&self) -> &Arc<dyn Client> {
        &self.client
    }

    fn open(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a question to the client; its answer goes back by itself. `given_up` is set when the
    /// server no longer wants one, `done` is told when the client need not think any more.
    pub(crate) fn put(
        &self,
        question: Question,
        given_up: CancellationToken,
        done: impl FnOnce() + Send + 'static,
    ) -> Result<(), Endless> {
        let asked = self.asked.fetch_add(1, Ordering::AcqRel);
        let checked = match Kind::of(&question.method) {
            Some(kind) => declared(kind, question.params.as_ref(), self.client.capabilities()),
            None => {
                let words = format!("{} is not offered", question.method.escape_debug());
                Err(RpcError::new(code::METHOD_NOT_FOUND, words))
            }
        };
        if let Err(error) = checked {
            self.lacks(&question, &error);
            done();
            question.refuse(error);
        } else if self.waiting.fetch_add(1, Ordering::AcqRel) >= AT_ONCE {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            done();
            let words = format!("more than {AT_ONCE} questions at once are not put to anybody");
            question.refuse(RpcError::new(code::INTERNAL, words));
        } else {
            let Question { id, method, params, to } = question;
            let owed = Owed(Some((Arc::clone(&to), id.clone())));
            let thinking = Thinking { waiting: Arc::clone(&self.waiting), done: Some(done) };
            let client = Arc::clone(&self.client);
            let mut open = self.open();
            while open.try_join_next().is_some() {}
            open.spawn(async move {
                let answer = tokio::select! {
                    answer = client.ask(&method, params) => answer,
                    // It does not want an answer any more.
                    () = given_up.cancelled() => return owed.settled(),
                    () = tokio::time::sleep(THINKING) => {
                        Err(RpcError::new(code::CANCELLED, "nobody answered"))
                    }
                };
                drop(thinking);
                owed.settled();
                // By itself: half an answer would be worse than none.
                answer_later(to, id, answer, true);
            });
        }
        if asked >= IN_ALL { Err(Endless) } else { Ok(()) }
    }

    /// A question was refused because its client lacks something. One of the stateless revision is to
    /// be told what (2026-07-28, capabilities), should the request fail for it.
    fn lacks(&self, question: &Question, told: &RpcError) {
        if !matches!(self.client.party(), Party::Caller { session: None, .. }) {
            return;
        }
        let declared = self.client.capabilities();
        if let Some(lack) = lack(declared, &question.method, question.params.as_ref()) {
            let mut kept = self.lack.lock().unwrap_or_else(PoisonError::into_inner);
            kept.get_or_insert_with(|| (told.clone(), lack.into_error()));
        }
    }

    /// The error of a request, as its client is to hear it: a server that passes on what it was told
    /// fails for what the client lacks.
    pub(crate) fn heard_as(&self, error: RpcError) -> RpcError {
        let kept = self.lack.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some((told, lack)) if *told == error => lack.clone(),
            _ => error,
        }
    }

    /// Nobody waits any more for what was asked.
    pub(crate) fn end(&self) {
        self.open().abort_all();
    }
}

/// While the client thinks.
struct Thinking<F: FnOnce()> {
    waiting: Arc<AtomicUsize>,
    done: Option<F>,
}

impl<F: FnOnce()> Drop for Thinking<F> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        if let Some(done) = self.done.take() {
            done();
        }
    }
}
