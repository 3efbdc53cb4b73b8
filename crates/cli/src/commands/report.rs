//! `ringfence report`

use std::path::Path;
use std::process::ExitCode;

use ringfence_record::{Entry, Event, Kind, RunId};

use super::run::line;
use super::{Done, find, home, last};
use crate::args::{Args, Report};
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out;

pub(crate) fn run(args: &Args, report: &Report) -> Done {
    let home = home()?;
    let run = match report.run.as_str() {
        "last" => last_here(&home, args.project())?,
        run => find(&home, run, "report")?,
    };
    // Asked first: a run that ends meanwhile has its end in what is read then.
    let live = ringfence_run::list(&home)?.iter().any(|live| live.run == run);
    let entries: Vec<Entry> = ringfence_record::read_run(&home, &run)?.collect::<Result<_, _>>()?;
    let ended = entries.iter().any(|entry| matches!(entry.event, Event::RunFinished { .. }));
    let project = entries.iter().find_map(|entry| match &entry.event {
        Event::RunStarted { project, .. } => Some(project.as_str()),
        _ => None,
    });
    if report.json {
        out::json(&serde_json::json!({
            "version": 1, "run": run, "project": project, "ended": ended,
            "live": live && !ended, "events": entries,
        }));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(project) = project {
        out::data(&format!("project {}", escaped(project)));
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
    let rows = ringfence_run::rows(entries.iter().map(|entry| &entry.event));
    for row in ringfence_run::screen(rows) {
        out::data(&line(&row));
    }
    out::say(&format!("not checked here: ringfence audit verify --run {run}"));
    Ok(ExitCode::SUCCESS)
}

/// The last run of the project; of the machine where the project has none.
fn last_here(home: &Path, project: &Path) -> Result<RunId, Failure> {
    let all = ringfence_record::list_runs(home)?;
    let project = project.canonicalize().ok().map(|folder| folder.display().to_string());
    let (own, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|info| project.is_some() && info.project == project);
    if !own.is_empty() {
        return last(own).map(|info| info.run);
    }
    let info = last(others)?;
    out::say("no run of a project here: this is the machine's last");
    Ok(info.run)
}

/// What is said where the record does not say how the run ended.
pub(super) fn no_end(live: bool) -> &'static str {
    if live {
        "no end yet: the run is alive"
    } else {
        "no end: Ringfence was killed or the machine went down, and what came after this is not known"
    }
}

/// The events that frame a run; what happened within it are the rows.
pub(super) fn words(event: &Event) -> Option<String> {
    Some(match event {
        Event::RunStarted { kind, project, mode, backend, command, .. } => {
            let kind = if *kind == Kind::Run { "" } else { kind.word() };
            let kind = if kind.is_empty() { String::new() } else { format!(" ({kind})") };
            let sandbox = || format!("sandbox {backend}");
            let mode = mode.clone().unwrap_or_else(sandbox);
            format!("started{kind} {} in {project}, {mode}", command.join(" "))
        }
        Event::SandboxImage { principal, image, digest, runtime, engine, .. } => {
            format!(
                "sandbox of {principal}: image {image} ({digest}), {runtime}, Docker Engine {engine}"
            )
        }
        Event::SandboxStarted { principal, mode } => {
            let mode = mode.as_ref().map(|mode| format!(", {mode}")).unwrap_or_default();
            format!("sandbox of {principal} started{mode}")
        }
        Event::ApprovalAsked { question, server, tool, rule, .. } => {
            format!("question {question}: {server}: {tool}, by {rule}")
        }
        Event::ApprovalAnswered { question, answer, channel, by, reason, .. } => {
            let answer = answer.replace('_', " ");
            let by = by.as_ref().map(|by| format!(" by {by}, {channel}")).unwrap_or_default();
            let reason = reason.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
            format!("question {question} {answer}{by}{reason}")
        }
        Event::ApprovalUnheard { question, channel, reason } => {
            format!("question {question}: {channel} not heard: {reason}")
        }
        Event::LimitReached { limit, detail } => format!("limit {limit}: {detail}"),
        Event::StopRequested { by } => format!("stop asked for by {by}"),
        Event::RunFinished { status, ended_by, detail } => {
            let detail = detail.as_ref().map(|d| format!(": {d}")).unwrap_or_default();
            format!("finished with {status} ({ended_by}{detail})")
        }
        _ => return None,
    })
}
