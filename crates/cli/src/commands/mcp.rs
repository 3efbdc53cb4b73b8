//! `ringfence mcp`

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args as ClapArgs;
use ringfence_run::{Request, Say};

use super::{Done, home, user_home};
use crate::args::Args;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out;

const AFTER: &str = "\
The tools are those of the folder's trusted bundle: of its default toolset, or of all servers where none
is the default. A folder that is not trusted offers none, and says what to type; after that the tools
are there without a restart. The agent itself runs as it did before, outside any sandbox: what goes
through here is held to the rules, and nothing else is. `ringfence run` holds the agent too.

Examples:
  claude mcp add ringfence -- ringfence mcp
  codex mcp add ringfence -- ringfence mcp --compact
  ringfence mcp --folder ~/src/shop --toolset review";

/// Serve this project's tools to an agent CLI, over stdio
#[derive(Debug, ClapArgs)]
#[command(after_help = AFTER)]
pub(crate) struct Mcp {
    /// The servers of this toolset, instead of the default one's
    #[arg(long, value_name = "NAME")]
    toolset: Option<String>,
    /// Three tools that search, describe and call the others, for agents with little room
    #[arg(long)]
    compact: bool,
    /// One server as it is, its own names and all
    #[arg(long, value_name = "ID", conflicts_with_all = ["toolset", "compact"])]
    server: Option<String>,
    /// The project folder, whatever roots the client names; else the first of those with a bundle,
    /// else the nearest bundle from the working folder upwards
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, mcp: &Mcp) -> Done {
    let named = mcp.folder.as_deref().or(args.given.as_deref());
    ringfence_run::mcp(ringfence_run::Mcp {
        request: request(named.unwrap_or_else(|| args.project()))?,
        named: named.is_some(),
        toolset: mcp.toolset.clone(),
        server: mcp.server.clone(),
        compact: mcp.compact,
        words: words(),
        say: say(),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// What is served from this folder.
pub(super) fn request(folder: &Path) -> Result<Request, Failure> {
    let project = std::path::absolute(folder)
        .map_err(|error| Failure::user(format!("{}: {error}", folder.display())))?;
    Ok(Request {
        project: project.canonicalize().unwrap_or(project),
        home: home()?,
        user_home: user_home()?,
        path: std::env::var_os("PATH"),
        command: Vec::new(),
        backend: None,
    })
}

/// As it was typed.
pub(super) fn words() -> Vec<String> {
    let typed = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    std::iter::once("ringfence".to_owned()).chain(typed).collect()
}

/// Stdout is the protocol's.
pub(super) fn say() -> Say {
    Arc::new(|text| out::say(&format!("ringfence: {}", escaped(text))))
}
