//! What the connections of one run's Squid share: who waits for which line of the log, and the record.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringfence_bundle::Host;
use ringfence_policy::{Principal, Ruleset};
use ringfence_record::{Event, Outcome, Step};
use tokio::sync::{Semaphore, oneshot, watch};

use super::log::{self, Line};
use crate::address::check_addresses;
use crate::decide::shown;
use crate::engine::{Journal, Limits};
use crate::local::Locals;
use crate::target::Authority;

/// Who waits for the line of a connection, by the port that it comes from.
enum Waiting {
    For(oneshot::Sender<Line>),
    /// All is recorded already.
    Nobody,
}

pub(crate) struct Desk {
    pub(crate) journal: Box<dyn Journal>,
    pub(crate) ruleset: Arc<Ruleset>,
    pub(crate) limits: Limits,
    /// Room for connections, of all listeners together.
    pub(crate) room: Arc<Semaphore>,
    locals: Locals,
    doors: Vec<(Principal, u16)>,
    numbers: AtomicU64,
    waiting: Mutex<HashMap<u16, Waiting>>,
    failed: watch::Sender<Option<String>>,
}

/// A wait for a line. Dropped, nobody waits any more: the line is then recorded as it is.
pub(crate) struct Ticket {
    desk: Arc<Desk>,
    from: u16,
    line: Option<oneshot::Receiver<Line>>,
}

impl Desk {
    pub(crate) fn new(
        journal: Box<dyn Journal>,
        ruleset: Arc<Ruleset>,
        locals: Locals,
        doors: Vec<(Principal, u16)>,
    ) -> Self {
        let limits = Limits::default();
        Self {
            journal,
            ruleset,
            room: Arc::new(Semaphore::new(limits.all_connections)),
            limits,
            locals,
            doors,
            numbers: AtomicU64::new(1),
            waiting: Mutex::default(),
            failed: watch::Sender::new(None),
        }
    }

    /// The port for this principal.
    pub(crate) fn door(&self, who: &Principal) -> Option<u16> {
        self.doors.iter().find(|(own, _)| own == who).map(|(_, port)| *port)
    }

    /// The next connection number of the run.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// It cannot go on. The first reason stands.
    pub(crate) fn fail(&self, reason: String) {
        self.failed.send_if_modified(|failed| {
            let first = failed.is_none();
            if first {
                *failed = Some(reason);
            }
            first
        });
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.borrow().is_some()
    }

    pub(crate) async fn failed(&self) -> String {
        let mut failed = self.failed.subscribe();
        let reason = failed.wait_for(Option::is_some).await;
        reason.ok().and_then(|reason| reason.clone()).unwrap_or_default()
    }

    /// Waits for the line of the connection that comes from this port. Said before it has a request.
    pub(crate) fn expect(self: &Arc<Self>, from: u16) -> Ticket {
        let (send, line) = oneshot::channel();
        self.lock().insert(from, Waiting::For(send));
        Ticket { desk: Arc::clone(self), from, line: Some(line) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u16, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line has been logged.
    pub(crate) fn take(&self, line: Line) {
        // A connection that ended without another request.
        if line.status == 0 && line.method == "-" {
            return;
        }
        let waiting = self.lock().remove(&line.from);
        let line = match waiting {
            Some(Waiting::Nobody) => return self.watch(&line, None),
            Some(Waiting::For(send)) => match send.send(line) {
                Ok(()) => return,
                Err(line) => line,
            },
            None => line,
        };
        // A connection that was cut off in the middle, or one past our relay: from another process.
        let who =
            self.doors.iter().find(|(_, port)| *port == line.door).map(|(who, _)| who.clone());
        let Some(who) = who else {
            return self.fail(format!("Squid served somebody on port {}", line.door));
        };
        let host = line.host.replace("%5B", "[").replace("%5D", "]");
        let to = Host::parse(&host).ok().map(|host| Authority { host, port: line.port });
        let case = Case { desk: self, who: &who, number: self.number(), method: &line.method };
        case.by_line(to.as_ref(), &line, (0, 0), "cut off");
    }

    /// Whether what Squid did is what it may do. What it may not ends the run.
    pub(crate) fn watch(&self, line: &Line, to: Option<(&Principal, &Authority)>) {
        let Some(address) = line.address else { return };
        if let Err(error) = check_addresses(&[address], &self.locals) {
            self.fail(format!("Squid connected to an address that it must not: {error}"));
        }
        if let Some((who, to)) = to
            && !self.ruleset.egress(who, &to.host, to.port).allowed
        {
            let (host, port) = (&to.host, to.port);
            self.fail(format!("Squid connected to {host}:{port}, which the rules refuse to {who}"));
        }
    }
}

impl Ticket {
    /// The line, when it comes; not any more when Squid has failed.
    pub(crate) async fn line(mut self) -> Option<Line> {
        let line = self.line.take()?;
        let desk = Arc::clone(&self.desk);
        tokio::select! {
            biased;
            line = line => line.ok(),
            _ = desk.failed() => None,
        }
    }

    /// All that there is to record is recorded: nobody need wait.
    pub(crate) fn told(mut self) {
        self.line = None;
        self.desk.lock().insert(self.from, Waiting::Nobody);
    }
}

/// One request in the record.
pub(crate) struct Case<'a> {
    pub(crate) desk: &'a Desk,
    pub(crate) who: &'a Principal,
    pub(crate) number: u64,
    pub(crate) method: &'a str,
}

impl Case<'_> {
    /// Records a decision.
    pub(crate) fn note(
        &self,
        (host, port): (String, u16),
        steps: Vec<Step>,
        address: Option<String>,
    ) -> Result<(), String> {
        let refused = steps.iter().any(|step| step.outcome == Outcome::Refused);
        self.desk.journal.note(Event::EgressDecided {
            principal: self.who.to_string(),
            connection: self.number,
            method: shown(self.method),
            host,
            port,
            outcome: if refused { Outcome::Refused } else { Outcome::Allowed },
            steps,
            address,
        })
    }

    /// Records an end.
    pub(crate) fn end(&self, (sent, received): (u64, u64), reason: &str) {
        // Nothing can be refused any more; that the record is closed shows in the record itself.
        let _ = self.desk.journal.note(Event::EgressClosed {
            connection: self.number,
            sent,
            received,
            reason: shown(reason),
        });
    }

    /// Records what a line says: the decision, and the end where it was allowed.
    pub(crate) fn by_line(
        &self,
        to: Option<&Authority>,
        line: &Line,
        bytes: (u64, u64),
        reason: &str,
    ) {
        let named = match to {
            Some(to) => (to.host.to_string(), to.port),
            None => (shown(&line.host), line.port),
        };
        let steps = self.steps(to, line);
        let refused = steps.iter().any(|step| step.outcome == Outcome::Refused);
        let address = line.address.filter(|_| !refused).map(|address| address.to_string());
        // It has happened: that the record is closed shows in the record itself.
        let _ = self.note(named, steps, address);
        if !refused {
            self.desk.watch(line, to.map(|to| (self.who, to)));
            self.end(bytes, &closing(line, reason));
        }
    }

    fn steps(&self, to: Option<&Authority>, line: &Line) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut step = |check: &str, good: bool, rule: String| {
            let outcome = if good { Outcome::Allowed } else { Outcome::Refused };
            steps.push(Step { check: check.to_owned(), outcome, rule });
        };
        if line.status == 407 {
            step("token", false, "the request does not show the run's token".to_owned());
            return steps;
        }
        step("token", true, "the request shows the run's token".to_owned());
        let Some(to) = to else {
            step("name", false, "Squid was asked for no host".to_owned());
            return steps;
        };
        step("name", true, "one host and one port".to_owned());
        if line.refused == Some(log::Step::Form) {
            step("request", false, "neither CONNECT nor a plain http:// URI".to_owned());
            return steps;
        }
        let decision = self.desk.ruleset.egress(self.who, &to.host, to.port);
        match (line.refused, decision.allowed) {
            (Some(log::Step::Rules), false) => step("ruleset", false, decision.rule),
            (Some(log::Step::Rules), true) => {
                step("ruleset", false, "Squid refused what the rules allow".to_owned());
            }
            // Caught by whoever looks at the address; nothing was reached where there is none.
            (_, false) => step("ruleset", false, decision.rule),
            (Some(log::Step::Address), true) => {
                step("ruleset", true, decision.rule);
                let rule =
                    "Squid found an address that is not globally routable, this machine's, or none";
                step("address", false, rule.to_owned());
            }
            (_, true) => {
                step("ruleset", true, decision.rule);
                match line.error.as_deref() {
                    Some("ERR_DNS_FAIL") => step("resolve", false, "Squid found no address".into()),
                    Some(error) if line.address.is_none() && line.way == "HIER_NONE" => {
                        step("squid", false, format!("answered {}: {error}", line.status));
                    }
                    _ => step("address", true, "Squid found none that is refused".to_owned()),
                }
            }
        }
        steps
    }
}

/// Why a connection ended, from both of its sides.
pub(crate) fn closing(line: &Line, reason: &str) -> String {
    match (line.error.as_deref(), line.detail.as_deref()) {
        (Some("ERR_CONNECT_FAIL"), detail) => {
            format!("connect-failed: {}", detail.unwrap_or("no answer"))
        }
        (Some(error), _) if line.status >= 400 => format!("{reason} ({error})"),
        _ => reason.to_owned(),
    }
}
