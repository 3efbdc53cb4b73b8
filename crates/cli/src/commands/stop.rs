//! `ringfence stop`

use std::process::ExitCode;

use super::{Done, find, home};
use crate::args::Stop;
use crate::failure::Failure;
use crate::out;

pub(crate) fn run(stop: &Stop) -> Done {
    let home = home()?;
    let run = find(&home, &stop.run)?;
    let live = ringfence_run::list(&home)?
        .into_iter()
        .find(|live| live.run == run)
        .ok_or_else(|| Failure::user(format!("run {run} is over already")).next("ringfence ps"))?;
    ringfence_run::stop(&home, &live)?;
    out::say(&format!("run {run} has stopped and its evidence is sealed"));
    Ok(ExitCode::SUCCESS)
}
