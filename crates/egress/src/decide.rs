//! One decision: ruleset, then resolution, then addresses; and its one event.

use std::sync::Arc;

use ringfence_bundle::Host;
use ringfence_policy::{Layer, Principal};
use ringfence_record::{Event, Outcome, Step};

use crate::address::CheckedAddr;
use crate::engine::Engine;
use crate::reply::Reply;
use crate::request::Request;
use crate::target::Authority;
use crate::traffic::Traffic;

/// A request that is being judged, and the steps so far.
pub(crate) struct Case<'a> {
    engine: &'a Arc<Engine>,
    who: &'a Principal,
    number: u64,
    method: String,
    steps: Vec<Step>,
}

impl<'a> Case<'a> {
    /// A request has come. Its connection number is taken now.
    pub(crate) fn open(engine: &'a Arc<Engine>, who: &'a Principal, method: &str) -> Self {
        let number = engine.number();
        Self { engine, who, number, method: shown(method), steps: Vec::new() }
    }

    /// A step that went well.
    pub(crate) fn pass(&mut self, check: &str, rule: impl Into<String>) {
        self.step(check, Outcome::Allowed, rule.into());
    }

    fn step(&mut self, check: &str, outcome: Outcome, rule: String) {
        self.steps.push(Step { check: check.to_owned(), outcome, rule });
    }

    /// Refuses before there is a host: it is recorded as it was given, escaped.
    pub(crate) fn refuse_form(
        mut self,
        check: &str,
        reason: &str,
        given: &str,
        reply: Reply,
    ) -> Reply {
        self.step(check, Outcome::Refused, reason.to_owned());
        // A refusal stands whether or not it can be recorded.
        let _ = self.note(shown(&without_secrets(given)), 0, Outcome::Refused, None);
        reply
    }

    /// Judges a host and a port. Only what the ruleset allows is resolved, only what was resolved is
    /// checked, and the event is with the recorder before a permit is given out.
    pub(crate) async fn decide(mut self, request: &Request) -> Result<Permit, Reply> {
        let to = request.authority();
        if self.engine.strictness.refuse_literals && !matches!(to.host, Host::Name(_)) {
            let rule = "this run reaches nothing by an address";
            let hint = "Name the host. No setting of the bundle relaxes this.";
            let reply = Reply::forbidden(&format!("{} is not allowed: {rule}", to.host), hint);
            return Err(self.refuse("literal", rule.to_owned(), to, reply));
        }
        if self.engine.strictness.tls_only && !matches!(request, Request::Tunnel(_)) {
            let rule = "this run reaches nothing but by TLS";
            let hint = "Use https. No setting of the bundle relaxes this.";
            let reply = Reply::forbidden(
                &format!("plain HTTP to {} is not allowed: {rule}", to.host),
                hint,
            );
            return Err(self.refuse("plain", rule.to_owned(), to, reply));
        }
        let decision = self.engine.judge.egress(self.who, &to.host, to.port);
        if !decision.allowed {
            let reply = Reply::forbidden(
                &format!("{}:{} is not allowed: {}", to.host, to.port, shown(&decision.rule)),
                &hint(decision.layer, self.who, &to.host),
            );
            return Err(self.refuse("ruleset", decision.rule, to, reply));
        }
        self.pass("ruleset", decision.rule);
        let opaque = matches!(request, Request::Tunnel(_))
            && !self.engine.strictness.tls_only
            && self.engine.judge.is_opaque(self.who, &to.host, to.port);
        if opaque {
            self.pass("opaque", "what goes through is not looked at");
        }

        let answers = match &to.host {
            Host::V4(address) => vec![(*address).into()],
            Host::V6(address) => vec![(*address).into()],
            Host::Name(name) => match self.engine.names.lookup(name).await {
                Ok(answers) => {
                    self.pass("resolve", list(&answers));
                    answers
                }
                Err(error) => {
                    let rule = error.to_string();
                    let reply =
                        Reply::bad_gateway(&format!("{} was not resolved: {rule}", to.host));
                    return Err(self.refuse("resolve", rule, to, reply));
                }
            },
        };
        let addresses = match self.engine.addresses.check(&answers).await {
            Ok(addresses) => addresses,
            Err(error) => {
                let rule = error.to_string();
                let reply = Reply::forbidden(
                    &format!("{} is not dialled: {rule}", to.host),
                    "No setting relaxes this: only globally routable addresses are dialled.",
                );
                return Err(self.refuse("address", rule, to, reply));
            }
        };
        self.pass("address", "every address is globally routable and not this machine's");
        let pinned = list(&addresses);
        let (engine, number) = (Arc::clone(self.engine), self.number);
        self.note(to.host.to_string(), to.port, Outcome::Allowed, Some(pinned))
            .map_err(|error| Reply::unrecorded(&error))?;
        // From here on its end is recorded too, also when nobody waits for it any more.
        let permit = Permit {
            engine,
            number,
            to: to.clone(),
            addresses,
            opaque,
            traffic: Arc::new(Traffic::new()),
            closed: false,
        };
        match permit.engine.journal.taken().await {
            Ok(()) => Ok(permit),
            Err(error) => Err(Reply::unrecorded(&error)),
        }
    }

    fn refuse(mut self, check: &str, rule: String, to: &Authority, reply: Reply) -> Reply {
        self.step(check, Outcome::Refused, rule);
        // A refusal stands whether or not it can be recorded.
        let _ = self.note(to.host.to_string(), to.port, Outcome::Refused, None);
        reply
    }

    fn note(
        self,
        host: String,
        port: u16,
        outcome: Outcome,
        address: Option<String>,
    ) -> Result<(), String> {
        self.engine.journal.note(Event::EgressDecided {
            principal: self.who.to_string(),
            connection: self.number,
            method: self.method,
            host,
            port,
            outcome,
            steps: self.steps,
            address,
        })
    }
}

fn list(addresses: &[impl ToString]) -> String {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

/// What a person can do about a refusal by the ruleset.
fn hint(layer: Layer, who: &Principal, host: &Host) -> String {
    let table = match who {
        Principal::Agent => "[sandbox.network]".to_owned(),
        Principal::Server(id) => format!("[servers.{id}]"),
    };
    match layer {
        Layer::Machine => {
            "This machine's policy refuses it: see [policy.egress] in ~/.ringfence/machine.toml."
                .to_owned()
        }
        Layer::Bundle => format!(
            "To allow it: add \"{host}\" to [policy.egress] in .ringfence/ringfence.toml, then: \
             ringfence lock && ringfence trust"
        ),
        Layer::Declared => format!(
            "To allow it: add \"{host}\" to allowed_hosts of {table} in .ringfence/ringfence.toml, \
             then: ringfence lock && ringfence trust"
        ),
        Layer::Builtin => "No setting relaxes this rule.".to_owned(),
    }
}

/// A target without its query and its user information, where secrets stand.
pub(crate) fn without_secrets(given: &str) -> String {
    let path = given.split('?').next().unwrap_or_default();
    match path.rsplit_once('@') {
        Some((_, host)) => format!("...@{host}"),
        None => path.to_owned(),
    }
}

/// Hostile text as it may be recorded and shown: escaped, and cut to 256 bytes.
pub(crate) fn shown(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        if out.len() > 256 {
            out.push_str("...");
            break;
        }
        match character {
            '\\' => out.push_str("\\\\"),
            ' '..='~' => out.push(character),
            _ => out.extend(character.escape_default()),
        }
    }
    out
}

/// Leave to connect to one host, given out by [`Case::decide`] alone. When it ends, by
/// [`Permit::close`] or by being dropped, the connection's second event is written.
pub(crate) struct Permit {
    engine: Arc<Engine>,
    number: u64,
    to: Authority,
    addresses: Vec<CheckedAddr>,
    opaque: bool,
    traffic: Arc<Traffic>,
    closed: bool,
}

impl Permit {
    pub(crate) fn to(&self) -> &Authority {
        &self.to
    }

    pub(crate) fn addresses(&self) -> &[CheckedAddr] {
        &self.addresses
    }

    /// Whether what goes through is not looked at.
    pub(crate) fn is_opaque(&self) -> bool {
        self.opaque
    }

    pub(crate) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// The connection is over, for this reason.
    pub(crate) fn close(mut self, reason: &str) {
        self.end(reason);
    }

    fn end(&mut self, reason: &str) {
        self.closed = true;
        let (sent, received) = self.traffic.totals();
        // Nothing can be refused any more; that the record is closed shows in the record itself.
        let _ = self.engine.journal.note(Event::EgressClosed {
            connection: self.number,
            sent,
            received,
            reason: shown(reason),
        });
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.closed {
            self.end("stopped");
        }
    }
}
