//! `ringfence registry`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand};
use ringfence_bundle::{Objects, Snapshot};
use ringfence_library::{
    Git, Listed, Publishers, Refreshed, Registries, Wanted, pack, read_archive,
};
use serde_json::json;

use super::{Done, home, receive, share, sign};
use crate::args::Args;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out;

/// A registry is a plain git repository: `archives/` and `index/`. There is nothing to host. What it
/// says proves nothing: an archive counts by its own signature, whose key you listed (`ringfence
/// publisher add`), and a version whose bytes change after this machine has seen it is refused.
#[derive(Debug, ClapArgs)]
pub(crate) struct Registry {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Clone a registry and list it
    Add {
        /// Your name for it: a-z, 0-9 and `-`
        name: String,
        /// https://…, ssh://…, user@host:path, or a folder's absolute path
        #[arg(value_name = "GIT ADDRESS")]
        address: String,
    },
    /// Show the list
    List {
        /// Print JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Take a registry off the list, and its clone away
    Remove {
        /// Your name for it
        name: String,
    },
    /// Bring one registry, or all, up to date
    Sync {
        /// Your name for it
        name: Option<String>,
        /// Print JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Add an archive to a registry: commit and push. A version is never replaced
    Publish {
        /// Your name for it
        name: String,
        /// The archive; when absent, the project's bundle is packed as `ringfence share` does
        file: Option<PathBuf>,
    },
    /// Look through what the registries listed when they were last synced. Contacts nobody
    Search {
        /// Words that must all stand in its name, version, registry or contents
        words: Vec<String>,
        /// Print JSON on stdout
        #[arg(long)]
        json: bool,
    },
    /// Take a version into quarantine and show what it could do
    Install {
        /// The version
        #[arg(value_name = "NAME@VERSION")]
        version: String,
        /// From this registry alone
        #[arg(long, value_name = "NAME")]
        registry: Option<String>,
        /// Take it though its publisher is not on your list
        #[arg(long)]
        unlisted: bool,
        /// Print JSON on stdout
        #[arg(long)]
        json: bool,
    },
}

impl Registry {
    pub(crate) fn json(&self) -> bool {
        matches!(
            self.verb,
            Verb::List { json: true }
                | Verb::Sync { json: true, .. }
                | Verb::Search { json: true, .. }
                | Verb::Install { json: true, .. }
        )
    }
}

pub(crate) fn run(args: &Args, registry: &Registry) -> Done {
    let home = home()?;
    let registries = Registries::of(&home);
    match &registry.verb {
        Verb::Add { name, address } => {
            let synced = registries.add(&Git::of_machine()?, name, address)?;
            return said(&[synced], false);
        }
        Verb::List { json } => list(&registries, *json)?,
        Verb::Remove { name } => {
            if !registries.remove(name)? {
                return Err(Failure::user(format!("there is no registry `{}`", escaped(name)))
                    .next("ringfence registry list"));
            }
            out::say(&format!("{name} is no longer listed; what was seen of it is remembered"));
        }
        Verb::Sync { name, json } => {
            return said(&registries.sync(&Git::of_machine()?, name.as_deref())?, *json);
        }
        Verb::Publish { name, file } => {
            let archive = match file {
                Some(file) => read_archive(file)?,
                None => {
                    let snapshot = Snapshot::read(args.project())?;
                    let signer = sign::signer(&home, None)?;
                    pack(&snapshot, &Objects::of(&home), &signer, &share::scan)?.bytes
                }
            };
            let entry = registries.publish(&Git::of_machine()?, name, &archive)?;
            out::say(&format!("{} is in {name}, signed by {}", entry.label(), entry.did));
        }
        Verb::Search { words, json } => {
            show(&registries.search(words)?, &Publishers::read(&home)?, *json);
        }
        Verb::Install { version, registry, unlisted, json } => {
            let wanted =
                Wanted { label: version, registry: registry.as_deref(), unlisted: *unlisted };
            let publishers = Publishers::read(&home)?;
            let received = registries.install(&Git::of_machine()?, wanted, &publishers)?;
            return receive::show(&received, &publishers, *json);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(registries: &Registries, json: bool) -> Result<(), Failure> {
    let list = registries.list()?;
    if json {
        out::json(&json!({ "version": 1, "registries": list }));
        return Ok(());
    }
    list.iter().for_each(|(name, address)| out::data(&format!("{name}  {}", escaped(address))));
    if list.is_empty() {
        out::say("no registry is listed");
        out::say("  next: ringfence registry add <name> <git address>");
    }
    Ok(())
}

/// What registries have; a version that changed is a refusal.
fn said(all: &[Refreshed], json: bool) -> Done {
    let changed: Vec<String> = all
        .iter()
        .flat_map(|synced| {
            synced.changed.iter().map(|label| format!("{}: {label}", synced.registry))
        })
        .collect();
    if json && changed.is_empty() {
        let row = |synced: &Refreshed| {
            json!({
                "registry": synced.registry, "versions": synced.versions, "damaged": synced.damaged,
            })
        };
        let rows: Vec<_> = all.iter().map(row).collect();
        out::json(&json!({ "version": 1, "registries": rows }));
    }
    for synced in all {
        out::say(&format!("{}: {} version(s)", synced.registry, synced.versions));
        for reason in &synced.damaged {
            out::say(&format!("  passed over {}", escaped(reason)));
        }
    }
    if changed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::refused(format!(
        "other bytes than this machine saw before, and so never installed:\n{}",
        changed.join("\n")
    )))
}

fn show(found: &[Listed], publishers: &Publishers, json: bool) {
    if json {
        let row = |Listed { registry, entry }: &Listed| {
            json!({
                "registry": registry,
                "name": entry.name,
                "agent_version": entry.agent_version,
                "did": entry.did,
                "publisher": publishers.name_of(&entry.did),
                "contents": entry.contents,
            })
        };
        let rows: Vec<_> = found.iter().map(row).collect();
        out::json(&json!({ "version": 1, "found": rows }));
        return;
    }
    for Listed { registry, entry } in found {
        let publisher = publishers.name_of(&entry.did).unwrap_or("unknown publisher");
        let contents = escaped(&entry.contents.join(", "));
        out::data(&format!("{}  {registry}  {publisher}  {contents}", entry.label()));
    }
    if found.is_empty() {
        out::say("nothing was found");
        out::say("  next: ringfence registry sync");
    } else {
        out::say("a registry's own words; what counts is the archive's signature and your review");
        out::say("  next: ringfence registry install <name>@<version>");
    }
}
