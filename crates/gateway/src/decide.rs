//! One decision: its steps in order, then its event, and a permit when it allowed.

use std::time::Instant;

use ringfence_bundle::{ServerId, json_digest};
use ringfence_policy::{Decision, Layer};
use ringfence_record::{Event, Outcome, Step};

use crate::call::{JudgedRequest, Settling};
use crate::error::{Error, Refusal};
use crate::permit::CallPermit;
use crate::seams::Journal;
use crate::stop::Halt;
use crate::tools::{Pin, Verdict, bad_name, shown};
use crate::{Caller, Gateway};

/// The steps taken so far. Nothing is asked after the first refusal.
#[derive(Debug, Default)]
pub(crate) struct Course {
    steps: Vec<Step>,
    refusal: Option<Refusal>,
}

impl Course {
    pub(crate) fn is_open(&self) -> bool {
        self.refusal.is_none()
    }

    pub(crate) fn allow(&mut self, check: &str, rule: impl Into<String>) {
        let step = Step { check: check.into(), outcome: Outcome::Allowed, rule: rule.into() };
        self.steps.push(step);
    }

    /// Less than was asked for, which refuses nothing else.
    pub(crate) fn withhold(&mut self, check: &str, rule: String) {
        self.steps.push(Step { check: check.into(), outcome: Outcome::Refused, rule });
    }

    pub(crate) fn refuse(&mut self, check: &str, layer: Layer, rule: &str, next: &str) {
        let rule = rule.to_owned();
        let step = Step { check: check.into(), outcome: Outcome::Refused, rule: rule.clone() };
        self.steps.push(step);
        let layer = match layer {
            Layer::Machine => "machine",
            Layer::Bundle => "bundle",
            Layer::Declared => "declared",
            Layer::Builtin => "builtin",
        };
        let (check, next) = (check.into(), next.into());
        self.refusal.get_or_insert(Refusal { check, rule, layer: layer.into(), next });
    }

    pub(crate) fn judged(&mut self, check: &str, decision: Decision) {
        if decision.allowed {
            self.allow(check, decision.rule);
            return;
        }
        let next = match decision.layer {
            Layer::Machine => "change machine.toml if this machine is to allow it",
            Layer::Bundle => {
                "change [policy] in ringfence.toml, then ringfence lock and ringfence trust"
            }
            Layer::Declared => {
                "declare it in ringfence.toml, then ringfence lock and ringfence trust"
            }
            Layer::Builtin => "nothing: no rule relaxes this",
        };
        self.refuse(check, decision.layer, &decision.rule, next);
    }
}

impl Gateway {
    /// The first step of every decision.
    pub(crate) fn trusted(&self) -> Course {
        let mut course = Course::default();
        if !self.trust.holds() {
            let rule = "the bundle is no longer what was trusted";
            course.refuse("trust", Layer::Builtin, rule, "ringfence trust");
            return course;
        }
        course.allow("trust", "the bundle is what was trusted");
        if let Some(Halt { limit, detail }) = self.stop.asked() {
            let rule = format!("the run is being stopped: {detail}");
            course.refuse(limit, Layer::Declared, &rule, "begin a new run");
        }
        course
    }

    /// Trust, and whether there is such a server that is what the lock says.
    pub(crate) fn declared_steps(&self, server: &ServerId) -> Course {
        let mut course = self.trusted();
        if !course.is_open() {
            return course;
        }
        if !self.servers.contains_key(server) {
            let rule = format!("no server {server} is declared");
            course.refuse("server", Layer::Declared, &rule, "declare it in ringfence.toml");
        } else if let Some(rule) = self.upstreams.stranger(server) {
            course.refuse("pin", Layer::Bundle, &rule, "ringfence lock --check --tools");
        }
        course
    }

    /// Trust, then what the server's declaration and the rules say. Contacts nobody. `rounds` is how
    /// often a question of the server was answered.
    pub(crate) fn first_steps(
        &self,
        server: &ServerId,
        request: &JudgedRequest,
        rounds: usize,
    ) -> Course {
        let mut course = self.declared_steps(server);
        let Some(declared) = self.servers.get(server).filter(|_| course.is_open()) else {
            return course;
        };
        if let Some(key) = request.rides().filter(|_| rounds == 0) {
            let rule = format!("{}: the server has asked nothing that it answers", shown(key));
            course.refuse("arguments", Layer::Builtin, &rule, "send the request without it");
            return course;
        }
        match request.method.as_str() {
            "initialize" | "server/discover" => course.allow("methods", "the handshake passes"),
            "tools/list" => course.allow("methods", "tools/list passes, filtered"),
            "subscriptions/listen" => {
                let rule = "a subscription is a stream, not a request";
                course.refuse("methods", Layer::Builtin, rule, "open it at the door");
            }
            method if method.starts_with("notifications/") => {
                let rule = "a notification is no request: it has no id";
                course.refuse("methods", Layer::Builtin, rule, "send it without an id");
            }
            "tools/call" => {
                if let Some(key) = request.misspelt() {
                    let rule = format!("{} differs only in case from a known key", shown(key));
                    course.refuse("arguments", Layer::Builtin, &rule, "spell it as MCP does");
                    return course;
                }
                let name = request.tool().unwrap_or_default();
                if let Some(why) = bad_name(name) {
                    let rule = format!("{} is not a tool name: {why}", shown(name));
                    course.refuse("name", Layer::Builtin, &rule, "call a tool of tools/list");
                    return course;
                }
                if request.arguments().is_some_and(|arguments| !arguments.is_object()) {
                    let rule = format!("{name}: its arguments are not an object");
                    course.refuse("arguments", Layer::Builtin, &rule, "send an object");
                    return course;
                }
                let listed = declared.tools.as_ref();
                if listed.is_some_and(|tools| !tools.iter().any(|tool| tool.as_str() == name)) {
                    let rule = format!("[servers.{server}] tools does not list {name}");
                    let next = "add it to tools, then ringfence lock and ringfence trust";
                    course.refuse("tools", Layer::Declared, &rule, next);
                    return course;
                }
                let words = if listed.is_some() { "lists it" } else { "is absent: all tools" };
                course.allow("tools", format!("[servers.{server}] tools {words}"));
                course.judged("ruleset", self.judge.tool(server, name));
            }
            method => course.judged("methods", self.judge.method(server, method)),
        }
        course
    }

    /// What the pin says of a tool call.
    pub(crate) fn pinned(&self, course: &mut Course, server: &ServerId, request: &JudgedRequest) {
        let Verdict { pin, layer, rule } = self.pin(server, request.tool().unwrap_or_default());
        if pin == Pin::Same {
            course.allow("pin", rule);
        } else {
            course.refuse("pin", layer, &rule, "ringfence lock --check --tools");
        }
    }

    /// Makes the decision durable. What comes back is the right to forward, once.
    pub(crate) async fn decide(
        &self,
        who: &str,
        call: u64,
        course: Course,
        server: &ServerId,
        request: &JudgedRequest,
    ) -> Result<CallPermit, Error> {
        let outcome = if course.is_open() { Outcome::Allowed } else { Outcome::Refused };
        let event = Event::CallDecided {
            call,
            principal: who.to_owned(),
            server: server.to_string(),
            method: request.method.clone(),
            tool: request.tool().map(shown),
            arguments: request.arguments().map(|arguments| json_digest(arguments).to_string()),
            other_params: request.other_params(|_, _| true).map(|it| json_digest(&it).to_string()),
            outcome,
            steps: course.steps,
        };
        let written = Journal::commit(self.journal.as_ref(), event).await;
        let evidence = written.map_err(|detail| Error::Record { detail })?;
        match course.refusal {
            Some(refusal) => Err(refusal.into()),
            None => {
                let (method, params) = (request.method.clone(), request.params.clone());
                Ok(CallPermit::new(server.clone(), method, params, evidence))
            }
        }
    }

    /// Decides on a request that the gateway answers itself, and records it. It may by a rule, or may
    /// not by check, layer, rule and what to do.
    pub(crate) async fn own(
        &self,
        caller: &Caller,
        request: &JudgedRequest,
        ruled: Result<&str, (&str, Layer, &str, &str)>,
    ) -> Result<(), Error> {
        let mut course = self.trusted();
        if course.is_open() {
            match ruled {
                Ok(rule) => course.allow("methods", rule),
                Err((check, layer, rule, next)) => course.refuse(check, layer, rule, next),
            }
        }
        let call = self.next_call();
        let who = caller.to_string();
        let _permit = self.decide(&who, call, course, &self.ourselves, request).await?;
        let journal = self.journal.as_ref();
        let since = Instant::now();
        Settling { journal, call, since, open: false, cost: None }.end("answered", None)
    }
}
