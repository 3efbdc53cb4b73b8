//! `ringfence clean`

use std::process::ExitCode;

use super::{Done, home};
use crate::args::Json;
use crate::out;

pub(crate) fn run(json: &Json) -> Done {
    let cleaned = ringfence_run::sweep(&home()?)?;
    if json.json {
        out::json(&serde_json::json!({ "version": 1, "cleaned": cleaned }));
        return Ok(ExitCode::SUCCESS);
    }
    let removed = cleaned.removed;
    let kinds = [
        (removed.containers, "container", "containers"),
        (removed.networks, "network", "networks"),
        (removed.mounts, "mount", "mounts"),
        (removed.cgroups, "cgroup", "cgroups"),
        (removed.folders, "folder of a run's containers", "folders of runs' containers"),
        (removed.placeholders, "placeholder in a project", "placeholders in projects"),
    ];
    let count = |(number, one, many): (usize, &str, &str)| match number {
        1 => format!("1 {one}"),
        number => format!("{number} {many}"),
    };
    let crashed = |number| count((number, "run that had crashed", "runs that had crashed"));
    if cleaned.runs > 0 {
        out::say(&format!("cleaned up after {}", crashed(cleaned.runs)));
    }
    for kind in kinds.into_iter().filter(|kind| kind.0 > 0) {
        out::say(&format!("  removed {}", count(kind)));
    }
    if cleaned.left > 0 {
        out::say(&format!(
            "not all of {} could be taken away: its engine does not answer, or a live run stands on it; \
             next: ringfence ps, then ringfence clean again",
            crashed(cleaned.left)
        ));
    } else if cleaned.runs == 0 {
        out::say("nothing was left behind");
    }
    Ok(ExitCode::SUCCESS)
}
