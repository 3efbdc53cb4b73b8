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
    let entries: Vec<Entry> = ringfence_record::read_run(&home, &run)?.collect::<Result<_, _>>()?;
    if report.json {
        out::json(&serde_json::json!({ "version": 1, "run": run, "events": entries }));
        return Ok(ExitCode::SUCCESS);
    }
    out::data(&format!("run {run}"));
    for entry in &entries {
        if let Some(text) = words(&entry.event) {
            out::data(&format!("  {}  {}", entry.at, escaped(&text)));
        }
    }
    out::data("");
    for row in ringfence_run::rows(entries.iter().map(|entry| &entry.event)) {
        out::data(&line(&row));
    }
    out::say(&format!("not checked here: ringfence audit verify --run {run}"));
    Ok(ExitCode::SUCCESS)
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
