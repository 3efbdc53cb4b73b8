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
    if ps.all {
        for run in &all {
            let state = if run.live { "live" } else { "over" };
            let project = run.project.as_deref();
            out::data(&row(&run.run, run.kind, state, project, &run.command, ""));
        }
    } else {
        for run in &live {
            let project = run.project.to_string_lossy();
            let clients = run.connections.map(|number| format!("  ({number} connected)"));
            let clients = clients.unwrap_or_default();
            let pid = run.pid.to_string();
            out::data(&row(&run.run, run.kind, &pid, Some(&project), &run.command, &clients));
            for lease in leases.iter().filter(|lease| lease.run == run.run) {
                let (toolset, holder) = (escaped(&lease.toolset), escaped(&lease.holder));
                let task = escaped(&lease.task);
                out::data(&format!("  lease of toolset {toolset} by {holder}: {task}"));
            }
        }
        if live.is_empty() {
            out::say("no run is alive; `ringfence ps --all` lists the finished ones");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(
    run: &RunId,
    kind: Kind,
    state: &str,
    project: Option<&str>,
    command: &[String],
    more: &str,
) -> String {
    let (kind, command) = (kind.word(), command.join(" "));
    let project = escaped(project.unwrap_or("?"));
    format!("{run}  {kind:<5}  {state:>7}  {project}  {}{more}", escaped(&command))
}
