//! `ringfence schema`

use std::process::ExitCode;

use super::Done;
use crate::out;

pub(crate) fn run() -> Done {
    out::data(&format!("{:#}", ringfence_bundle::schema()));
    Ok(ExitCode::SUCCESS)
}
