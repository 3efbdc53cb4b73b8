//! `ringfence clean`

use std::process::ExitCode;

use super::{Done, home};
use crate::out;

pub(crate) fn run() -> Done {
    let swept = ringfence_run::sweep(&home()?)?;
    out::say(&match swept {
        0 => "nothing was left behind".to_owned(),
        1 => "cleaned up after 1 run that had crashed".to_owned(),
        n => format!("cleaned up after {n} runs that had crashed"),
    });
    Ok(ExitCode::SUCCESS)
}
