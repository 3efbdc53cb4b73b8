//! `ringfence show`

use std::process::ExitCode;

use clap::Args as ClapArgs;
use ringfence_bundle::Snapshot;
use serde_json::json;

use super::Done;
use crate::args::Args;
use crate::out;

/// What can be typed after `show`.
#[derive(Debug, ClapArgs)]
#[command(after_help = "\
The manifest that holds is .ringfence/ringfence.toml with .ringfence/ringfence.local.toml laid over
it: tables merge, any other value replaces the one below, an array of tables as a whole. What is
printed is TOML and parses to the same manifest.")]
pub(crate) struct Show {
    /// Say after each value which file and line it comes from, and list the defaults that hold
    #[arg(long)]
    pub(crate) origin: bool,
    /// Print JSON on stdout: each value with its file and line, and the defaults
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &Args, show: &Show) -> Done {
    let effective = Snapshot::read_without_lock(args.project())?.effective();
    if show.json {
        let default = |(key, holds): &(String, &str)| json!({ "key": key, "holds": holds });
        let defaults: Vec<_> = effective.defaults().iter().map(default).collect();
        out::json(&json!({ "version": 1, "values": effective.rows(), "defaults": defaults }));
    } else {
        out::data(effective.toml(show.origin).trim_end());
    }
    Ok(ExitCode::SUCCESS)
}
