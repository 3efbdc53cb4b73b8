//! `ringfence fetch`

use std::process::ExitCode;

use clap::Args as ClapArgs;
use ringfence_bundle::{Origin, Snapshot};
use ringfence_library::{Brought, Git, Library, Remote, Store, bring};
use serde_json::json;

use super::{Done, home};
use crate::args::Args;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out::{self, Colour};

/// Brings the bytes of skills, instructions, extensions and workflows that come from git or from
/// your library, exactly as the lock pins them. Nothing is run, and the lock does not change: bytes
/// that are not the pinned ones are refused. For a project that somebody else locked.
#[derive(Debug, ClapArgs)]
pub(crate) struct Fetch {
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &Args, fetch: &Fetch) -> Done {
    let snapshot = Snapshot::read(args.project())?;
    let Some(lock) = &snapshot.lock else {
        return Err(Failure::user("there is no lock that says what to bring")
            .next("ringfence lock --fetch"));
    };
    let home = home()?;
    let (store, library) = (Store::of(&home), Library::open(&home)?);
    let git = Git::of_machine()?;
    let (brought, here) = bring(&snapshot, lock, &store, &library, (&git, &say))?;
    if fetch.json {
        let rows: Vec<_> = brought.iter().map(row).collect();
        out::json(&json!({ "version": 1, "brought": rows, "here": here }));
        return Ok(ExitCode::SUCCESS);
    }
    for Brought { kind, name, digest, origin } in &brought {
        let word = out::paint(Colour::Green, "brought");
        out::data(&format!("  {word:<8} {kind} {} {digest} {}", escaped(name), of(origin)));
    }
    match brought.len() {
        0 => out::say(&format!(
            "nothing to bring: {here} of the lock's rows come from elsewhere and are here"
        )),
        count => out::say(&format!("brought {count}, exactly as the lock pins them")),
    }
    Ok(ExitCode::SUCCESS)
}

/// Says which host is about to be contacted.
pub(crate) fn say(remote: &Remote) {
    let host = remote.host().map_or_else(|| "this machine".to_owned(), escaped);
    out::say(&format!("asking {host} for {}", escaped(&remote.to_string())));
}

fn of(origin: &Origin) -> String {
    match origin {
        Origin::Git { git, commit, .. } => format!("from {} at {}", escaped(git), &commit[..12]),
        Origin::Library { library } => format!("from the library, {}", escaped(library)),
    }
}

fn row(Brought { kind, name, digest, origin }: &Brought) -> serde_json::Value {
    let origin = match origin {
        Origin::Git { git, rev, subpath, commit } => {
            json!({ "git": git, "rev": rev, "subpath": subpath, "commit": commit })
        }
        Origin::Library { library } => json!({ "library": library }),
    };
    json!({ "kind": kind, "name": name, "digest": digest, "origin": origin })
}
