//! One screen about a run, from its record alone.

use ringfence_record::{Event, Outcome, Step};
use serde::Serialize;

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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

/// One distinct thing that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What it is about.
    pub about: About,
    /// The verdict.
    pub outcome: Outcome,
    /// Who asked.
    pub principal: String,
    /// What was asked for.
    pub what: String,
    /// The rule that decided.
    pub rule: String,
    /// How often.
    pub times: u64,
}

/// The rows of a run, in the order in which each was first seen.
#[must_use]
pub fn rows<'a>(events: impl IntoIterator<Item = &'a Event>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for row in events.into_iter().filter_map(row) {
        let same = rows.iter_mut().find(|r| {
            (r.about, r.outcome, &r.principal, &r.what, &r.rule)
                == (row.about, row.outcome, &row.principal, &row.what, &row.rule)
        });
        match same {
            Some(same) => same.times += 1,
            None => rows.push(row),
        }
    }
    rows
}

fn row(event: &Event) -> Option<Row> {
    let row = |about, outcome, principal: &String, what: String, rule: String| {
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
            row(About::Connection, *outcome, principal, format!("{host}:{port}"), deciding(steps))
        }
        Event::SecretAccessed { principal, name, outcome, detail } => {
            row(About::Secret, *outcome, principal, name.clone(), detail.clone())
        }
        Event::SandboxProbed { principal, check, result, ok, detail } if result != "control" => {
            let outcome = if *ok { Outcome::Refused } else { Outcome::Allowed };
            row(About::Probe, outcome, principal, check.clone(), detail.clone())
        }
        _ => None,
    }
}

/// The step that refused, or the last that allowed.
fn deciding(steps: &[Step]) -> String {
    steps
        .iter()
        .find(|s| s.outcome == Outcome::Refused)
        .or(steps.last())
        .map(|s| s.rule.clone())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{About, rows};
    use ringfence_record::{Event, Outcome, Step};

    fn call(tool: &str, outcome: Outcome) -> Event {
        let step = |outcome, rule: &str| Step { check: "tools".into(), outcome, rule: rule.into() };
        Event::CallDecided {
            call: 1,
            principal: "agent".into(),
            server: "s".into(),
            method: "tools/call".into(),
            tool: Some(tool.into()),
            arguments: None,
            outcome,
            steps: vec![
                step(Outcome::Allowed, "first"),
                step(outcome, "second"),
                step(Outcome::Allowed, "third"),
            ],
        }
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
