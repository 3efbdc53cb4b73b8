//! `ringfence ps`

use std::process::ExitCode;

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
        out::json(&serde_json::json!({ "version": 1, "runs": runs }));
        return Ok(ExitCode::SUCCESS);
    }
    if ps.all {
        for run in &all {
            let state = if run.live { "live" } else { "over" };
            out::data(&row(&run.run.to_string(), state, run.project.as_deref(), &run.command));
        }
    } else {
        for run in &live {
            let project = run.project.to_string_lossy();
            out::data(&row(
                &run.run.to_string(),
                &run.pid.to_string(),
                Some(&project),
                &run.command,
            ));
        }
        if live.is_empty() {
            out::say("no run is alive; `ringfence ps --all` lists the finished ones");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn row(run: &str, state: &str, project: Option<&str>, command: &[String]) -> String {
    let command = command.join(" ");
    format!("{run}  {state:>7}  {}  {}", escaped(project.unwrap_or("?")), escaped(&command))
}
