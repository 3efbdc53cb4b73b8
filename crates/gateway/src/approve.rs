//! A person's yes to one call.

use ringfence_approval::{Approved, OnTimeout, Question, Said};
use ringfence_bundle::{ServerId, json_digest};
use ringfence_policy::Layer;
use serde_json::Value;

use crate::Gateway;
use crate::call::{Carried, JudgedRequest};
use crate::decide::Course;

/// What a person said to a call.
#[derive(Debug, Default)]
pub(crate) enum Answered {
    /// Nobody was asked.
    #[default]
    NotAsked,
    /// Not used yet.
    Yes(Approved),
    /// This question may go on: a yes that was used, or a timeout that lets through.
    Passed(Passed),
    /// By this rule it may not.
    No {
        rule: String,
        /// The run is to end.
        abort: bool,
    },
}

/// What may go on.
#[derive(Debug)]
pub(crate) struct Passed {
    question: Question,
    /// Why, for the record.
    words: String,
    /// The round of the call that it was asked about. The same words in another round may answer
    /// something else.
    round: usize,
}

impl Passed {
    fn new(question: Question, words: String, round: usize) -> Self {
        Self { question, words, round }
    }

    /// Whether this is the round that was asked about.
    fn is_of(&self, now: &Question, round: usize) -> bool {
        self.round == round && self.question == *now
    }

    /// Whether this is a later round of what was asked: what a client answers to the server's questions
    /// is all that can be new in it.
    fn is_before(&self, now: &Question, round: usize) -> bool {
        let beside = now.other_params.clone();
        self.round < round && Question { other_params: beside, ..self.question.clone() } == *now
    }
}

impl Answered {
    /// Why the run is to end, if it is.
    pub(crate) fn abort(self) -> Option<String> {
        match self {
            Self::No { rule, abort: true } => Some(rule),
            _ => None,
        }
    }
}

impl Gateway {
    /// The step `approval`. Gives the question that must be asked first, if there is one.
    pub(crate) fn approved(
        &self,
        course: &mut Course,
        who: &str,
        server: &ServerId,
        request: &JudgedRequest,
        carried: &mut Carried,
    ) -> Option<Question> {
        if !course.is_open() {
            return None;
        }
        let tool = request.tool().unwrap_or_default();
        let empty = Value::Object(serde_json::Map::new());
        let arguments = request.arguments().unwrap_or(&empty);
        let Some(rule) = self.judge.approval(server, tool, arguments) else {
            course.allow("approval", "no approval rule matches");
            return None;
        };
        let next = "ask the person who runs this, or call something else";
        if self.approver.is_none() {
            let rule =
                format!("{rule}: needs an approval, and there is no way to ask for one here");
            let next = "remove the approval rule, or do it yourself";
            course.refuse("approval", Layer::Declared, &rule, next);
            return None;
        }
        let question = Question {
            server: server.to_string(),
            tool: tool.to_owned(),
            server_digest: self.declaration(server),
            tool_digest: self.definition(server, tool),
            arguments: arguments.to_string(),
            other_params: request.beside(),
            ruleset: self.ruleset.clone(),
            rule,
            call: carried.call,
            caller: who.to_owned(),
        };
        match std::mem::take(&mut carried.answered) {
            Answered::NotAsked => return Some(question),
            Answered::Yes(approved) => match approved.spend(&question) {
                Ok(words) => {
                    course.allow("approval", format!("{}: {words}", question.rule));
                    let passed = Passed::new(question, words, carried.rounds);
                    carried.answered = Answered::Passed(passed);
                }
                Err(rule) => course.refuse("approval", Layer::Builtin, &rule, next),
            },
            // The same call again, or another round of it with nothing in it that nobody has seen.
            Answered::Passed(passed)
                if passed.is_of(&question, carried.rounds)
                    || passed.is_before(&question, carried.rounds) && !request.answers() =>
            {
                course.allow("approval", format!("{}: {}", question.rule, passed.words));
                carried.answered = Answered::Passed(passed);
            }
            // The next round of it, with a client's answers: nobody has said yes to them, whatever was
            // answered before in the same words.
            Answered::Passed(passed) if passed.is_before(&question, carried.rounds) => {
                return Some(question);
            }
            Answered::Passed(..) => {
                let rule = "what was approved is no longer what is called";
                course.refuse("approval", Layer::Builtin, rule, next);
            }
            Answered::No { rule, abort } => {
                let words = format!("{}: {rule}", question.rule);
                course.refuse("approval", Layer::Declared, &words, next);
                carried.answered = Answered::No { rule, abort };
            }
        }
        None
    }

    /// Waits for a person. What was said counts when the decision is taken again.
    pub(crate) async fn ask_a_person(&self, question: Question, carried: &mut Carried) {
        let Some(approver) = &self.approver else { return };
        let no = |rule: String| Answered::No { rule, abort: false };
        carried.answered = match approver.ask(question.clone()).await {
            Said::Approved(approved) => Answered::Yes(approved),
            Said::Denied { by, via, id, reason } => {
                let because = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                no(format!("denied by {by} ({via}, {id}){because}"))
            }
            Said::TimedOut { id, then: OnTimeout::Proceed } if self.judge.may_proceed() => {
                let words = format!("nobody answered in time ({id}), and on_timeout is proceed");
                Answered::Passed(Passed::new(question, words, carried.rounds))
            }
            Said::TimedOut { id, then: OnTimeout::Abort } => Answered::No {
                rule: format!("nobody answered in time ({id}), and on_timeout is abort"),
                abort: true,
            },
            Said::TimedOut { id, .. } => no(format!("nobody answered in time ({id})")),
            Said::Unasked { reason } => no(format!("nobody could be asked: {reason}")),
        };
    }

    /// Digest of a server's declaration.
    fn declaration(&self, server: &ServerId) -> String {
        let declared = self.servers.get(server);
        let value = declared.and_then(|server| serde_json::to_value(server).ok());
        json_digest(&value.unwrap_or_default()).to_string()
    }
}
