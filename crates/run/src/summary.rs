//! One screen about a run, from its record alone.

use std::borrow::Borrow;
use std::collections::HashMap;

use ringfence_record::{Attempt, Event, Outcome, Step};
use serde::Serialize;

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// A request to an MCP server.
    Call,
    /// A connection.
    Connection,
    /// A secret's name.
    Secret,
    /// What the probe tried.
    Probe,
}

/// How it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It was let through.
    Allowed,
    /// It was not.
    Refused,
    /// It was let through, and the server gave nothing that can be used.
    Failed,
}

impl From<Outcome> for Verdict {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Allowed => Self::Allowed,
            Outcome::Refused => Self::Refused,
        }
    }
}

/// One distinct thing that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What it is about.
    pub about: About,
    /// The verdict.
    pub outcome: Verdict,
    /// Who asked.
    pub principal: String,
    /// What was asked for.
    pub what: String,
    /// The rule that decided, or why it failed.
    pub rule: String,
    /// How often.
    pub times: u64,
}

/// The rows of a run, in the order in which each was first seen. An agent can ask for very many things: the cost of one does not grow with
/// their number.
#[must_use]
pub fn rows(events: impl IntoIterator<Item: Borrow<Event>>) -> Vec<Row> {
    let mut all = Rows::default();
    // Calls that were let through and whose end is not read yet: who asked, and for what.
    let mut open: HashMap<u64, (String, String)> = HashMap::new();
    for event in events {
        let event = event.borrow();
        if let Event::SandboxProbed { principal, attempts, .. } = event {
            for attempt in attempts.iter().filter(|a| a.result != "control") {
                all.add(probe(principal, attempt));
            }
        }
        match event {
            Event::CallDecided {
                call,
                principal,
                server,
                method,
                tool,
                outcome: Outcome::Allowed,
                ..
            } => {
                let what = format!("{server}: {}", tool.as_ref().unwrap_or(method));
                open.insert(*call, (principal.clone(), what));
            }
            Event::CallSettled { call, result, detail, .. } => {
                let asked = open.remove(call).filter(|_| result == "failed");
                if let Some((principal, what)) = asked {
                    let (about, outcome) = (About::Call, Verdict::Failed);
                    let rule = detail.clone().unwrap_or_default();
                    all.add(Row { about, outcome, principal, what, rule, times: 1 });
                }
            }
            _ => {}
        }
        held_back(event).into_iter().flatten().chain(row(event)).for_each(|row| all.add(row));
    }
    all.rows
}

/// Rows, and where each stands.
#[derive(Default)]
struct Rows {
    rows: Vec<Row>,
    known: HashMap<(About, Verdict, String, String, String), usize>,
}

impl Rows {
    fn add(&mut self, row: Row) {
        let (principal, what, rule) = (row.principal.clone(), row.what.clone(), row.rule.clone());
        let key = (row.about, row.outcome, principal, what, rule);
        let at = *self.known.entry(key).or_insert(self.rows.len());
        match self.rows.get_mut(at) {
            Some(same) => same.times += row.times,
            None => self.rows.push(row),
        }
    }
}

fn probe(principal: &str, attempt: &Attempt) -> Row {
    Row {
        about: About::Probe,
        outcome: if attempt.ok { Verdict::Refused } else { Verdict::Allowed },
        principal: principal.to_owned(),
        what: attempt.check.clone(),
        rule: attempt.detail.clone(),
        times: 1,
    }
}

/// The same on one screen: what the probe tried and did not get is one row a kind.
#[must_use]
pub fn screen(rows: Vec<Row>) -> Vec<Row> {
    let (tight, mut rest): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|r| r.about == About::Probe && r.outcome == Verdict::Refused);
    let mut kinds: Vec<(&str, String, Vec<Row>)> = Vec::new();
    for row in tight {
        let kind = kind(&row.what);
        match kinds.iter_mut().find(|(k, principal, _)| *k == kind && *principal == row.principal) {
            Some((_, _, all)) => all.push(row),
            None => kinds.push((kind, row.principal.clone(), vec![row])),
        }
    }
    let probed = kinds.into_iter().map(|(kind, principal, all)| {
        let some: Vec<_> = all.iter().take(3).map(|r| r.what.as_str()).collect();
        let more = if all.len() > some.len() { ", …" } else { "" };
        Row {
            about: About::Probe,
            outcome: Verdict::Refused,
            principal,
            what: format!("{kind}: {}{more}", some.join(", ")),
            rule: all.first().map(|r| r.rule.clone()).unwrap_or_default(),
            times: all.len() as u64,
        }
    });
    let mut screen: Vec<Row> = probed.collect();
    screen.append(&mut rest);
    screen
}

/// What an attempt of the probe was about.
fn kind(check: &str) -> &'static str {
    let starts = |words: &[&str]| words.iter().any(|w| check.starts_with(w));
    if starts(&["connect /", "connect an abstract"]) {
        "host sockets"
    } else if starts(&["connect", "send", "default route"]) {
        "raw addresses"
    } else if starts(&["create", "write"]) {
        "writes"
    } else {
        "other ways out"
    }
}

/// What the gateway itself kept from an agent: one event may say it of many tools.
fn held_back(event: &Event) -> Option<impl Iterator<Item = Row> + '_> {
    let Event::CallDecided { principal, server, method, outcome: Outcome::Refused, steps, .. } =
        event
    else {
        return None;
    };
    // The first is told as the event's own.
    let others = steps.iter().filter(|step| step.outcome == Outcome::Refused).skip(1);
    Some(others.map(move |step| Row {
        about: About::Call,
        outcome: Verdict::Refused,
        principal: principal.clone(),
        what: format!("{server}: {method}"),
        rule: step.rule.clone(),
        times: 1,
    }))
}

fn row(event: &Event) -> Option<Row> {
    let row = |about, outcome: Outcome, principal: &String, what: String, rule: String| {
        let outcome = outcome.into();
        Some(Row { about, outcome, principal: principal.clone(), what, rule, times: 1 })
    };
    match event {
        Event::CallDecided { principal, server, method, tool, outcome, steps, .. } => {
            // The handshake says nothing about what an agent did.
            if tool.is_none() && *outcome == Outcome::Allowed {
                return None;
            }
            let what = tool.as_ref().map_or_else(|| method.clone(), Clone::clone);
            row(About::Call, *outcome, principal, format!("{server}: {what}"), deciding(steps))
        }
        Event::EgressDecided { principal, host, port, outcome, steps, .. } => {
            // A request that did not parse has no port of its own.
            let what = if *port == 0 { host.clone() } else { format!("{host}:{port}") };
            row(About::Connection, *outcome, principal, what, deciding(steps))
        }
        Event::SecretAccessed { principal, name, outcome, detail } => {
            row(About::Secret, *outcome, principal, name.clone(), detail.clone())
        }
        Event::SignedIn { server, url, outcome, issuer, detail, .. } => {
            let what = match issuer {
                Some(issuer) => format!("sign-in: {url}, by {issuer}"),
                None => format!("sign-in: {url}"),
            };
            row(About::Secret, *outcome, server, what, detail.clone())
        }
        _ => None,
    }
}

/// The step that refused, or the one that applied the rules, or the last; and whether a tool that was
/// called was held to no more than the run's first list.
fn deciding(steps: &[Step]) -> String {
    let ruled = |s: &&Step| matches!(s.check.as_str(), "ruleset" | "methods");
    let refused = steps.iter().find(|s| s.outcome == Outcome::Refused);
    // A yes says more than that a tool may be called at all.
    let said = |s: &&Step| s.check == "approval" && !s.rule.starts_with("no approval rule");
    let step = refused
        .or_else(|| steps.iter().find(said))
        .or_else(|| steps.iter().rfind(ruled))
        .or(steps.last());
    let rule = step.map(|s| s.rule.clone()).unwrap_or_default();
    let unpinned = |s: &Step| s.check == "pin" && s.rule.starts_with("unpinned");
    if refused.is_none() && steps.iter().any(unpinned) { format!("{rule}; unpinned") } else { rule }
}

#[cfg(test)]
mod tests {
    use super::{About, Verdict, rows, screen};
    use ringfence_record::{Attempt, Event, Outcome, Step};

    #[test]
    fn every_tool_that_was_held_back_is_a_row() {
        let step =
            |rule: &str| Step { check: "pin".into(), outcome: Outcome::Refused, rule: rule.into() };
        let event = Event::CallDecided {
            call: 1,
            principal: "gateway".into(),
            server: "s".into(),
            method: "tools/list".into(),
            tool: None,
            arguments: None,
            other_params: None,
            outcome: Outcome::Refused,
            steps: vec![step("lock: tool s/a"), step("lock: tool s/b")],
        };
        let mut rules: Vec<_> = rows([event]).into_iter().map(|row| row.rule).collect();
        rules.sort();
        assert_eq!(rules, ["lock: tool s/a", "lock: tool s/b"]);
        let unpinned = "unpinned; defined as in the run's first tools/list";
        let mut allowed = call("t", Outcome::Allowed);
        if let Event::CallDecided { steps, .. } = &mut allowed {
            let pin =
                Step { check: "pin".into(), outcome: Outcome::Allowed, rule: unpinned.into() };
            steps.push(pin);
        }
        assert!(rows([allowed])[0].rule.ends_with("; unpinned"));
    }

    fn call(tool: &str, outcome: Outcome) -> Event {
        let step = |outcome, rule: &str| Step { check: "tools".into(), outcome, rule: rule.into() };
        Event::CallDecided {
            call: 1,
            principal: "agent".into(),
            server: "s".into(),
            method: "tools/call".into(),
            tool: Some(tool.into()),
            arguments: None,
            other_params: None,
            outcome,
            steps: vec![
                step(Outcome::Allowed, "first"),
                step(outcome, "second"),
                step(Outcome::Allowed, "third"),
            ],
        }
    }

    fn probe(check: &str) -> Event {
        Event::SandboxProbed {
            principal: "agent".into(),
            tight: true,
            attempts: vec![Attempt {
                check: check.into(),
                result: "blocked".into(),
                ok: true,
                detail: "no".into(),
            }],
        }
    }

    fn connect(principal: &str) -> Event {
        Event::EgressDecided {
            principal: principal.into(),
            connection: 1,
            method: "CONNECT".into(),
            host: "h.example".into(),
            port: 443,
            outcome: Outcome::Refused,
            steps: Vec::new(),
            address: None,
        }
    }

    #[test]
    fn the_probe_is_one_row_a_kind() {
        let start = |p: &str| Event::SandboxStarted { principal: p.into(), mode: None };
        let events = [
            probe("connect 1.1.1.1:443"),
            probe("create a file in /usr"),
            probe("create a file in /"),
            start("agent"),
            connect("agent"),
        ];
        let rows = rows(&events);
        assert_eq!(rows.iter().filter(|r| r.about == About::Connection).count(), 1);
        let screen = screen(rows);
        let what: Vec<_> = screen.iter().map(|r| (r.what.as_str(), r.times)).collect();
        assert_eq!(
            what,
            [
                ("raw addresses: connect 1.1.1.1:443", 1),
                ("writes: create a file in /usr, create a file in /", 2),
                ("h.example:443", 1)
            ]
        );
    }

    #[test]
    fn a_call_that_failed_is_a_row_with_the_reason_also_a_handshake() {
        let settled = |call, result: &str| Event::CallSettled {
            call,
            result: result.into(),
            detail: Some("it exited with status 3".into()),
            elapsed_ms: 1,
            cost_usd: None,
        };
        let mut hello = call("x", Outcome::Allowed);
        if let Event::CallDecided { call, tool, method, .. } = &mut hello {
            (*call, *tool, *method) = (2, None, "initialize".into());
        }
        let went_well = call("a", Outcome::Allowed);
        let events = [hello, went_well, settled(1, "answered"), settled(2, "failed")];
        let rows = rows(&events);
        let told: Vec<_> = rows.iter().map(|r| (r.outcome, r.what.as_str())).collect();
        assert_eq!(told, [(Verdict::Allowed, "s: a"), (Verdict::Failed, "s: initialize")]);
        assert_eq!(rows[1].rule, "it exited with status 3");
        let cancelled = [events[0].clone(), settled(2, "cancelled"), settled(9, "failed")];
        assert_eq!(super::rows(&cancelled), []);
    }

    #[test]
    fn many_distinct_requests_are_told_in_little_time() {
        let calls = (0..200_000).map(|n| call(&format!("t{}", n % 100_000), Outcome::Refused));
        let started = std::time::Instant::now();
        let rows = rows(calls);
        assert_eq!((rows.len(), rows[99_999].times), (100_000, 2));
        // Looking through all rows for each took minutes.
        assert!(started.elapsed() < std::time::Duration::from_secs(20));
    }

    #[test]
    fn equal_calls_are_one_row_that_names_the_deciding_rule() {
        let events =
            [call("a", Outcome::Allowed), call("b", Outcome::Refused), call("a", Outcome::Allowed)];
        let rows = rows(&events);
        assert_eq!(rows.len(), 2);
        assert_eq!(
            (rows[0].times, rows[0].rule.as_str(), rows[0].about),
            (2, "third", About::Call)
        );
        assert_eq!((rows[1].what.as_str(), rows[1].rule.as_str()), ("s: b", "second"));
    }
}
