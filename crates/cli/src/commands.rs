//! One file a command.

pub(crate) mod approvals;
mod audit;
mod clean;
pub(crate) mod diff;
mod example;
pub(crate) mod fetch;
pub(crate) mod gateway;
mod init;
pub(crate) mod library;
mod lock;
pub(crate) mod login;
pub(crate) mod logout;
mod logs;
pub(crate) mod mcp;
pub(crate) mod policy;
mod ps;
mod publisher;
mod receive;
mod registry;
mod report;
mod run;
mod schema;
pub(crate) mod secret;
pub(crate) mod set;
mod share;
pub(crate) mod show;
mod sign;
pub(crate) mod spend;
mod stop;
pub(crate) mod store;
pub(crate) mod trust;
mod validate;
mod verify;
pub(crate) mod webhook;

pub(crate) use publisher::Publisher;
pub(crate) use receive::Receive;
pub(crate) use registry::Registry;
pub(crate) use share::Share;
pub(crate) use sign::Sign;
pub(crate) use verify::Verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ringfence_record::{RunId, RunInfo};

use crate::args::{Args, Command};
use crate::failure::Failure;

/// A command's end: a status, or an error that becomes one.
pub(crate) type Done = Result<ExitCode, Failure>;

pub(crate) fn run(args: &Args) -> Done {
    match &args.command {
        Command::Init(init) => init::run(args, init),
        Command::Validate(json) => validate::run(args, json),
        Command::Show(show) => show::run(args, show),
        Command::Lock(lock) => lock::run(args, lock),
        Command::Fetch(fetch) => fetch::run(args, fetch),
        Command::Schema => schema::run(),
        Command::Trust(trust) => trust::run(args, trust),
        Command::Secret(secret) => secret::run(args, secret),
        Command::Login(login) => login::run(args, login),
        Command::Logout(logout) => logout::run(args, logout),
        Command::Diff(diff) => diff::run(args, diff),
        Command::Set(set) => set::run(args, set),
        Command::Run(run) => run::run(args, run),
        Command::Mcp(mcp) => mcp::run(args, mcp),
        Command::Gateway(gateway) => gateway::run(args, gateway),
        Command::Policy(policy) => policy::run(args, policy),
        Command::Approvals(approvals) => approvals::run(approvals),
        Command::Spend(spend) => spend::run(spend),
        Command::Webhook(webhook) => webhook::run(webhook),
        Command::Ps(ps) => ps::run(ps),
        Command::Stop(stop) => stop::run(stop),
        Command::Logs(logs) => logs::run(logs),
        Command::Report(report) => report::run(args, report),
        Command::Audit(audit) => audit::run(audit),
        Command::Store(store) => store::run(store),
        Command::Library(library) => library::run(args, library),
        Command::Clean(json) => clean::run(json),
        Command::Sign(sign) => sign::run(args, sign),
        Command::Verify(verify) => verify::run(args, verify),
        Command::Publisher(publisher) => publisher::run(publisher),
        Command::Share(share) => share::run(args, share),
        Command::Receive(receive) => receive::run(receive),
        Command::Registry(registry) => registry::run(args, registry),
        Command::Example(example) => example::run(example),
    }
}

/// The person's home folder.
fn user_home() -> Result<PathBuf, Failure> {
    std::env::home_dir().filter(|home| home.is_absolute()).ok_or_else(|| {
        Failure::user("HOME is not set to a folder").next("HOME=/path/to/home ringfence …")
    })
}

/// The machine's state.
fn home() -> Result<PathBuf, Failure> {
    match std::env::var_os("RINGFENCE_HOME").filter(|v| !v.is_empty()) {
        Some(home) => std::path::absolute(home)
            .map_err(|e| Failure::user(format!("RINGFENCE_HOME is not a folder: {e}"))),
        None => Ok(user_home()?.join(".ringfence")),
    }
}

/// The run that a person means: an id, its beginning, or `last`. `command` is what they typed before it.
fn find(home: &Path, run: &str, command: &str) -> Result<RunId, Failure> {
    if run == "last" {
        return last(ringfence_record::list_runs(home)?).map(|info| info.run);
    }
    ringfence_record::find_run(home, run).map_err(|error| match &error {
        ringfence_record::Error::Ambiguous { runs, .. } => {
            let next =
                runs.last().map(|run| format!("ringfence {command} {}", run.short_among(runs)));
            let failure = Failure::from(error);
            next.into_iter().fold(failure, Failure::next)
        }
        _ => error.into(),
    })
}

/// The run that began last.
fn last(runs: Vec<RunInfo>) -> Result<RunInfo, Failure> {
    // Ids of runs that began in the same second sort by chance.
    runs.into_iter()
        .max_by(|a, b| a.started.cmp(&b.started))
        .ok_or_else(|| Failure::user("no run yet on this machine").next("ringfence run"))
}
