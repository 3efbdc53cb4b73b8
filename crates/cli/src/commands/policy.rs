//! `ringfence policy`

mod check;
mod explain;
mod replace;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

use super::Done;
use crate::args::Args;

/// Ask, check and set the rules; this machine's come first
#[derive(Debug, ClapArgs)]
pub(crate) struct Policy {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Say whether something is allowed, and by which rule, in which file and line
    #[command(after_help = EXPLAIN)]
    Explain(Explain),
    /// Find rules that do nothing, or not what they say, in machine.toml and in the bundle
    #[command(after_help = CHECK)]
    Check(Check),
    /// List the ready rules for a machine, or show one
    Presets(Presets),
    /// Make a preset the machine's rules: shows what changes, asks, and keeps the old file
    #[command(name = "use", after_help = USE)]
    Use(Use),
    /// Put back the machine.toml that the last `policy use` replaced
    Undo(Undo),
}

const EXPLAIN: &str = "\
Examples:
  ringfence policy explain search                      every rule that holds for the server `search`
  ringfence policy explain search tool find_page
  ringfence policy explain search secret SEARCH_KEY
  ringfence policy explain search method resources/list
  ringfence policy explain agent host api.example.com:443    without a port: 443
  ringfence policy explain agent path src/main.rs      read and write

Nothing is run or contacted and no trust is needed. A refusal is an answer: the status is 0. With
--check it is 3 when something asked about is refused.";

const CHECK: &str = "\
An error is a rule that does not do what it says: it allows what another rule always refuses, or
matches no possible name. A warning is a rule that decides nothing and could be left out.

Exit status: 1 when there is an error, 0 when there are warnings alone or nothing.";

const USE: &str = "\
The tables [guard] and [state] stay as they are. The file is replaced whole or not at all, and the old one is kept
beside it: `ringfence policy undo` puts it back, byte for byte. Runs under way keep the rules that they
started with.";

#[derive(Debug, ClapArgs)]
struct Explain {
    /// A server's name, or `agent` for the agent itself
    who: String,
    /// What it is about
    #[arg(value_name = "KIND", requires = "value")]
    kind: Option<Kind>,
    /// A tool, method, host (`name` or `name:port`), variable or path
    value: Option<String>,
    /// Status 3 when it is refused
    #[arg(long, requires = "kind")]
    check: bool,
    /// Print JSON on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A tool that is called
    Tool,
    /// An MCP method
    Method,
    /// A host and port that is connected to
    Host,
    /// A variable whose value is had
    Secret,
    /// A file that is read or written
    Path,
}

#[derive(Debug, ClapArgs)]
struct Check {
    /// Print JSON on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, ClapArgs)]
struct Presets {
    /// Print this preset's file
    #[arg(long, value_name = "NAME")]
    show: Option<String>,
    /// Print JSON on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, ClapArgs)]
struct Use {
    /// compatible, developer, ci or locked-down
    preset: String,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, ClapArgs)]
struct Undo {
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

impl Policy {
    /// Whether errors are to be JSON too.
    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            Verb::Explain(Explain { json, .. })
            | Verb::Check(Check { json })
            | Verb::Presets(Presets { json, .. }) => *json,
            Verb::Use(_) | Verb::Undo(_) => false,
        }
    }
}

pub(crate) fn run(args: &Args, policy: &Policy) -> Done {
    match &policy.verb {
        Verb::Explain(explain) => explain::run(args, explain),
        Verb::Check(check) => check::run(args, check),
        Verb::Presets(presets) => replace::presets(presets),
        Verb::Use(preset) => replace::with(preset),
        Verb::Undo(undo) => replace::undo(undo),
    }
}
