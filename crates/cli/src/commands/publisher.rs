//! `ringfence publisher`

use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand};
use ringfence_library::Publishers;
use serde_json::json;

use super::{Done, home};
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out;

/// The list is <RINGFENCE_HOME>/publishers.toml. A key on it gives a name to a signature; it makes
/// nothing trusted. Learn a key from the publisher, not from the archive that it signed.
#[derive(Debug, ClapArgs)]
pub(crate) struct Publisher {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Give a name to a key; nothing that is listed is replaced
    Add {
        /// Your name for them: a-z, 0-9 and `-`
        name: String,
        /// Their key
        #[arg(value_name = "DID:KEY")]
        did: String,
    },
    /// Show the list
    List {
        /// Print JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Take a publisher off the list
    Remove {
        /// Your name for them
        name: String,
    },
}

impl Publisher {
    pub(crate) fn json(&self) -> bool {
        matches!(self.verb, Verb::List { json: true })
    }
}

pub(crate) fn run(publisher: &Publisher) -> Done {
    let home = home()?;
    match &publisher.verb {
        Verb::Add { name, did } => {
            Publishers::add(&home, name, did)?;
            out::say(&format!("{name} is {did}"));
        }
        Verb::List { json } => {
            let list = Publishers::read(&home)?;
            if *json {
                let all: serde_json::Map<_, _> =
                    list.iter().map(|(name, did)| (name.to_owned(), json!(did))).collect();
                out::json(&json!({ "version": 1, "publishers": all }));
                return Ok(ExitCode::SUCCESS);
            }
            list.iter().for_each(|(name, did)| out::data(&format!("{name}  {did}")));
            if list.iter().next().is_none() {
                out::say("no publisher is listed");
                out::say("  next: ringfence publisher add <name> <did:key…>");
            }
        }
        Verb::Remove { name } => {
            if !Publishers::remove(&home, name)? {
                return Err(Failure::user(format!("`{}` is not listed", escaped(name)))
                    .next("ringfence publisher list"));
            }
            out::say(&format!("{name} is no longer listed"));
        }
    }
    Ok(ExitCode::SUCCESS)
}
