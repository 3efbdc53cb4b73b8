//! `ringfence run`

use std::process::ExitCode;

use ringfence_record::RunId;
use ringfence_run::{About, Ask, EndedBy, Finished, Plan, Progress, Request, Row, Verdict, View};

use super::{Done, home, user_home};
use crate::args::{Args, Run};
use crate::escape::escaped;
use crate::out::{self, Colour};

/// Rows of a summary.
const SHOWN: usize = 100;

pub(crate) fn run(args: &Args, run: &Run) -> Done {
    let home = home()?;
    let plan = Plan::build(&Request {
        project: args.project().to_owned(),
        home: home.clone(),
        user_home: user_home()?,
        path: std::env::var_os("PATH"),
        command: run.command.clone(),
        backend: run.sandbox.clone(),
    })?;
    if run.plan {
        show(&plan.view(), run.json);
        return Ok(ExitCode::SUCCESS);
    }
    let ask = if run.no_prompt { Ask::Elsewhere } else { Ask::Here };
    let finished = ringfence_run::execute(&plan, ask, &Words)?;
    // A record may be large: it is not held whole.
    let mut fault = None;
    let entries = ringfence_record::read_run(&home, &finished.run)?;
    let events = entries.map_while(|entry| match entry {
        Ok(entry) => Some(entry.event),
        Err(error) => {
            fault = Some(error);
            None
        }
    });
    let rows = ringfence_run::rows(events);
    if let Some(error) = fault {
        return Err(error.into());
    }
    if run.json {
        out::json(&serde_json::json!({ "version": 1, "finished": finished, "rows": rows }));
    }
    summary(&finished, &ringfence_run::screen(rows));
    Ok(ExitCode::from(u8::try_from(finished.status).unwrap_or(255)))
}

struct Words;

impl Progress for Words {
    fn begun(&self, run: &RunId, plan: &Plan) {
        for text in plan.warnings() {
            let warning = out::paint(Colour::Yellow, "warning");
            out::say(&format!("{warning}: {}; next: ringfence lock", escaped(&text)));
        }
        if let Some(advice) = plan.advice() {
            let warning = out::paint(Colour::Yellow, "warning");
            out::say(&format!("{warning}: {advice}; next: leave `--sandbox host` out"));
        }
        out::say(&out::paint(Colour::Dim, &format!("ringfence: run {run}")));
    }

    fn released(&self, mode: &str) {
        out::say(&out::paint(Colour::Dim, &format!("ringfence: {mode}")));
    }

    fn warned(&self, words: &str) {
        let warning = out::paint(Colour::Yellow, "warning");
        out::say(&format!("{warning}: {}; next: ringfence spend", escaped(words)));
    }
}

fn show(view: &View, json: bool) {
    if json {
        out::json(view);
        return;
    }
    let head = [
        ("project", view.project.as_str()),
        ("trust", view.trust),
        ("consent", &view.consent),
        ("ruleset", &view.ruleset),
        ("backend", view.backend),
        ("isolation", view.isolation),
        ("mode", &view.mode),
        ("program", &view.program),
    ];
    for (name, value) in head {
        out::data(&format!("{name:<11} {}", escaped(value)));
    }
    let command: Vec<_> = view.command.iter().map(|word| escaped(word)).collect();
    out::data(&format!("{:<11} {}", "command", command.join(" ")));
    for line in &view.lines {
        out::data(&format!("{:<11} {}", line.about, escaped(&line.text)));
    }
    for (keys, label) in &view.fields {
        out::data(&format!("{:<11} {}: {label}", "field", escaped(keys)));
    }
}

fn summary(finished: &Finished, rows: &[Row]) {
    out::say("");
    for row in rows.iter().take(SHOWN) {
        out::say(&line(row));
    }
    if rows.len() > SHOWN {
        out::say(&format!("  and {} more, all in the report", rows.len() - SHOWN));
    }
    let how = match finished.ended_by {
        EndedBy::Exit => format!("exited with {}", finished.status),
        EndedBy::Signal => format!("was killed by signal {}", finished.status - 128),
        EndedBy::Limit => "was ended by a limit".into(),
        EndedBy::Approval => "was ended: nobody answered in time".into(),
        EndedBy::Stopped => "was stopped".into(),
        EndedBy::Error => "could not go on".into(),
    };
    let detail = finished.detail.as_ref().map(|d| format!(": {}", escaped(d))).unwrap_or_default();
    out::say(&format!("run {} {how}{detail}", finished.run));
    out::say(&out::paint(
        Colour::Dim,
        &format!("evidence: ringfence report {0}; ringfence audit verify --run {0}", finished.run),
    ));
}

/// One row, as every command shows it.
pub(crate) fn line(row: &Row) -> String {
    let mark = match row.outcome {
        Verdict::Allowed => out::paint(Colour::Green, "allowed"),
        Verdict::Refused => out::paint(Colour::Red, "refused"),
        Verdict::Failed => out::paint(Colour::Yellow, "failed "),
    };
    let about = match row.about {
        About::Call => "call",
        About::Connection => "connect",
        About::Secret => "secret",
        About::Probe => "probe",
    };
    let who =
        if row.principal == "agent" { String::new() } else { format!(" (by {})", row.principal) };
    let times = if row.times > 1 { format!(" ×{}", row.times) } else { String::new() };
    format!(
        "  {mark}  {about:<8} {}{who}{times}  {}",
        escaped(&row.what),
        out::paint(Colour::Dim, &escaped(&row.rule))
    )
}
