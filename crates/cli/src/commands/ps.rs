//! `ringfence ps`

use std::process::ExitCode;

use ringfence_record::{Kind, RunId};

use super::{Done, home};
use crate::args::Ps;
use crate::escape::escaped;
use crate::out;

pub(crate) fn run(ps: &Ps) -> Done {
    let home = home()?;
    let live = ringfence_run::list(&home)?;
    let all = if ps.all { ringfence_record::list_runs(&home)? } else { Vec::new() };
    if ps.json {
        let runs = if ps.all { serde_json::to_value(&all) } else { serde_json::to_value(&live) };
        let runs = runs.unwrap_or_default();
        let leases = ringfence_run::leases(&home)?;
        out::json(&serde_json::json!({ "version": 1, "runs": runs, "leases": leases }));
        return Ok(ExitCode::SUCCESS);
    }
    let leases = ringfence_run::leases(&home)?;
    let any = if ps.all { !all.is_empty() } else { !live.is_empty() };
    if any {
        let state = if ps.all { "STATE" } else { "PID" };
        out::data(&columns(["RUN", "KIND", state, "SANDBOX", "PROJECT", "COMMAND"]));
    }
    for run in &all {
        let state = if run.live { "live" } else { "over" };
        let project = run.project.as_deref().unwrap_or("?");
        let sandbox = sandbox(run.kind, run.backend.as_deref(), run.mode.as_deref());
        out::data(&row(&run.run, run.kind, state, &sandbox, project, &run.command));
    }
    if ps.all {
        if !any {
            out::say("no run yet on this machine; next: ringfence run");
        }
        return Ok(ExitCode::SUCCESS);
    }
    for run in &live {
        let project = run.project.to_string_lossy();
        let clients = run.connections.map(|number| format!("  ({number} connected)"));
        let sandbox = sandbox(run.kind, Some(&run.backend), run.mode.as_deref());
        let pid = run.pid.to_string();
        let row = row(&run.run, run.kind, &pid, &sandbox, &project, &run.command);
        out::data(&format!("{row}{}", clients.unwrap_or_default()));
        for lease in leases.iter().filter(|lease| lease.run == run.run) {
            let (toolset, holder) = (escaped(&lease.toolset), escaped(&lease.holder));
            let task = escaped(&lease.task);
            out::data(&format!("  lease of toolset {toolset} by {holder}: {task}"));
        }
    }
    if !any {
        out::say("no run is alive; `ringfence ps --all` lists the finished ones");
    }
    match ringfence_run::crashed(&home)? {
        0 => {}
        1 => out::say("a run has crashed and left something behind; next: ringfence clean"),
        more => {
            out::say(&format!(
                "{more} runs have crashed and left something behind; next: ringfence clean"
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The mode label where it is known; else what was chosen, in small letters.
fn sandbox(kind: Kind, backend: Option<&str>, mode: Option<&str>) -> String {
    match (kind, mode, backend) {
        // The rest of the label is what the kind of the run says already.
        (Kind::Serve, Some(mode), _) => mode.split(" / ").next().unwrap_or(mode).to_owned(),
        (_, Some(mode), _) => mode.to_owned(),
        (Kind::Run, None, Some(backend)) => format!("{backend}, not released"),
        (_, None, Some(backend)) => format!("{backend}, no agent"),
        (_, None, None) => "?".to_owned(),
    }
}

fn row(
    run: &RunId,
    kind: Kind,
    state: &str,
    sandbox: &str,
    project: &str,
    command: &[String],
) -> String {
    let (project, command) = (escaped(project), escaped(&command.join(" ")));
    columns([run.as_str(), kind.word(), state, &escaped(sandbox), &project, &command])
}

fn columns([run, kind, state, sandbox, project, command]: [&str; 6]) -> String {
    format!("{run:<24}  {kind:<5}  {state:>7}  {sandbox:<20}  {project}  {command}")
}
