//! `ringfence receive`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as ClapArgs;
use ringfence_library::{Publishers, Quarantine, Received, Store as Content};
use ringfence_trust::{Review, Store};
use serde_json::json;

use super::{Done, home};
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out;

/// Reads an archive that `ringfence share` made, strictly: signature, every digest, and that its
/// lock holds. What is not exactly in the one form is refused whole, and nothing of it is kept.
/// What is taken in waits in <RINGFENCE_HOME>/quarantine: nothing of it runs, nothing is contacted.
/// Only `ringfence trust --received <ID> --into <FOLDER>` moves it out.
#[derive(Debug, ClapArgs)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(false))]
pub(crate) struct Receive {
    /// The archive
    #[arg(value_name = "FILE", group = "what")]
    pub(crate) file: Option<PathBuf>,
    /// List what is in quarantine
    #[arg(long, group = "what")]
    pub(crate) list: bool,
    /// Remove one from quarantine, by its id or the first digits of it
    #[arg(long, value_name = "ID", group = "what")]
    pub(crate) discard: Option<String>,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(receive: &Receive) -> Done {
    let home = home()?;
    let quarantine = Quarantine::of(&home);
    if receive.list {
        return list(&quarantine, &Publishers::read(&home)?, receive.json);
    }
    if let Some(id) = &receive.discard {
        let id = quarantine.discard(id)?;
        if receive.json {
            out::json(&json!({ "version": 1, "discarded": id }));
        }
        out::say(&format!("removed {id}"));
        return Ok(ExitCode::SUCCESS);
    }
    let Some(file) = &receive.file else { return Err(Failure::user("which archive?")) };
    let publishers = Publishers::read(&home)?;
    let received = quarantine.receive(file)?;
    show(&received, &publishers, receive.json)
}

/// The card of what waits in quarantine, and what to type next.
pub(super) fn show(received: &Received, publishers: &Publishers, json: bool) -> Done {
    let card = review(received, &home()?)?.card();
    if json {
        out::json(&json!({
            "version": 1,
            "id": received.id(),
            "name": received.name(),
            "agent_version": received.version(),
            "did": received.by(),
            "publisher": publishers.name_of(received.by()),
            "files": received.members(),
            "card": card,
        }));
    } else {
        out::data(&who(received, publishers));
        card.lines().iter().for_each(|line| out::data(line));
    }
    out::say("it waits in quarantine, inert; nothing of it was run or contacted");
    let id = &received.id()[..16];
    out::say(&format!("  next: ringfence trust --received {id} --into {}", received.name()));
    out::say(&format!("  or:   ringfence receive --discard {id}"));
    Ok(ExitCode::SUCCESS)
}

/// What could be said yes to. Its bytes are kept first, so that every pin can be looked at.
pub(super) fn review(received: &Received, home: &std::path::Path) -> Result<Review, Failure> {
    received.deposit(&Content::of(home))?;
    let path = std::env::var_os("PATH");
    Ok(Store::new(home).review(received.snapshot().clone(), path.as_deref())?)
}

/// Whose it is, the first line of the card.
pub(super) fn who(received: &Received, publishers: &Publishers) -> String {
    let (name, version, did) = (received.name(), received.version(), received.by());
    match publishers.name_of(did) {
        Some(publisher) => format!("{name} {version}, signed by {publisher} ({did})"),
        None => format!("UNKNOWN PUBLISHER: {name} {version}, signed by {did}, not on your list"),
    }
}

fn list(quarantine: &Quarantine, publishers: &Publishers, json: bool) -> Done {
    let all = quarantine.list()?;
    if json {
        let row = |kept: &ringfence_library::Kept| match &kept.about {
            Ok((did, name, version)) => json!({
                "id": kept.id, "name": name, "agent_version": version, "did": did,
                "publisher": publishers.name_of(did), "damaged": null,
            }),
            Err(reason) => json!({
                "id": kept.id, "name": null, "agent_version": null, "did": null,
                "publisher": null, "damaged": reason,
            }),
        };
        let rows: Vec<_> = all.iter().map(row).collect();
        out::json(&json!({ "version": 1, "quarantine": rows }));
        return Ok(ExitCode::SUCCESS);
    }
    for kept in &all {
        let id = &kept.id[..16];
        out::data(&match &kept.about {
            Ok((did, name, version)) => match publishers.name_of(did) {
                Some(publisher) => format!("{id}  {name} {version}  {publisher}"),
                None => format!("{id}  {name} {version}  UNKNOWN PUBLISHER {did}"),
            },
            Err(reason) => format!("{id}  damaged: {}", escaped(reason)),
        });
    }
    if all.is_empty() {
        out::say("nothing is in quarantine");
    }
    Ok(ExitCode::SUCCESS)
}
