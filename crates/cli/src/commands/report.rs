//! `ringfence report`

use std::process::ExitCode;

use ringfence_record::{Entry, Event};

use super::run::line;
use super::{Done, find, home};
use crate::args::Report;
use crate::escape::escaped;
use crate::out;

pub(crate) fn run(report: &Report) -> Done {
    let home = home()?;
    let run = find(&home, &report.run)?;
    // Asked first: a run that ends meanwhile has its end in what is read then.
    let live = ringfence_run::list(&home)?.iter().any(|live| live.run == run);
    let entries: Vec<Entry> = ringfence_record::read_run(&home, &run)?.collect::<Result<_, _>>()?;
    let ended = entries.iter().any(|entry| matches!(entry.event, Event::RunFinished { .. }));
    if report.json {
        out::json(&serde_json::json!({
            "version": 1, "run": run, "ended": ended, "live": live && !ended, "events": entries,
        }));
        return Ok(ExitCode::SUCCESS);
    }
    out::data(&format!("run {run}"));
    for entry in &entries {
        if let Some(text) = words(&entry.event) {
            out::data(&format!("  {}  {}", entry.at, escaped(&text)));
        }
    }
    if !ended {
        out::data(&format!("  {}", no_end(live)));
    }
    out::data("");
    for row in ringfence_run::rows(entries.iter().map(|entry| &entry.event)) {
        out::data(&line(&row));
    }
    out::say(&format!("not checked here: ringfence audit verify --run {run}"));
    Ok(ExitCode::SUCCESS)
}

/// What is said where the record does not say how the run ended.
fn no_end(live: bool) -> &'static str {
    if live {
        "no end yet: the run is alive"
    } else {
        "no end: Ringfence was killed or the machine went down, and what came after this is not known"
    }
}

/// The events that frame a run; what happened within it are the rows.
fn words(event: &Event) -> Option<String> {
    Some(match event {
        Event::RunStarted { project, mode, command, .. } => {
            format!("started {} in {project}, {mode}", command.join(" "))
        }
        Event::SandboxStarted { principal } => format!("sandbox of {principal} started"),
        Event::LimitReached { limit, detail } => format!("limit {limit}: {detail}"),
        Event::RunFinished { status, ended_by, detail } => {
            let detail = detail.as_ref().map(|d| format!(": {d}")).unwrap_or_default();
            format!("finished with {status} ({ended_by}{detail})")
        }
        _ => return None,
    })
}
