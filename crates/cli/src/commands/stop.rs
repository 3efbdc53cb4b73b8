//! `ringfence stop`

use std::process::ExitCode;

use ringfence_run::Live;

use super::{Done, find, home};
use crate::args::Stop;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out;

pub(crate) fn run(stop: &Stop) -> Done {
    let home = home()?;
    let given = stop.run.as_str();
    if given.is_empty() {
        return Err(
            Failure::user("which run? an id, or its beginning, is needed").next("ringfence ps")
        );
    }
    // Only what is alive can be stopped: what is over has no part in what is meant.
    let mut live = ringfence_run::list(&home)?;
    let all: Vec<_> = live.iter().map(|live| live.run.clone()).collect();
    live.retain(|live| live.run.as_str().starts_with(given));
    if let [.., newest] = live.as_slice()
        && live.len() > 1
    {
        let next = format!("ringfence stop {}", newest.run.short_among(&all));
        return Err(
            Failure::user(ringfence_record::several(given, live.iter().map(row))).next(next)
        );
    }
    let Some(live) = live.pop() else {
        let run = find(&home, given, "stop")?;
        return match ringfence_run::list(&home)?.into_iter().find(|live| live.run == run) {
            Some(live) => end(&home, &live),
            None => {
                let message = format!("run {run} is over already: there is nothing to stop");
                Err(Failure::user(message).next(format!("ringfence report {run}")))
            }
        };
    };
    end(&home, &live)
}

fn end(home: &std::path::Path, live: &Live) -> Done {
    ringfence_run::stop(home, live)?;
    out::say(&format!("run {} has stopped and its evidence is sealed", live.run));
    Ok(ExitCode::SUCCESS)
}

/// What a person knows a run by.
fn row(live: &Live) -> String {
    let project = live.project.to_string_lossy();
    format!("{} in {}: {}", live.run, escaped(&project), escaped(&live.command.join(" ")))
}
