//! `ringfence trust --received`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args as ClapArgs;
use ringfence_bundle::Snapshot;
use ringfence_identity::Signer;
use ringfence_library::{Publishers, Quarantine, Received, Store as Content};
use ringfence_record::MachineLog;
use ringfence_trust::Store;
use serde_json::json;

use super::{Trust, ask, keep, path};
use crate::commands::{Done, receive};
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out::{self, Colour};

#[derive(Debug, ClapArgs)]
pub(crate) struct FromQuarantine {
    /// Move a received bundle out of quarantine into a new folder and trust it there
    #[arg(long, value_name = "ID", requires = "into", conflicts_with_all = ["preview", "revoke", "list"])]
    pub(crate) received: Option<String>,
    /// The new folder; nothing may be there yet
    #[arg(long, value_name = "FOLDER", requires = "received")]
    pub(crate) into: Option<PathBuf>,
}

pub(super) fn run(home: &Path, store: &Store, trust: &Trust, id: &str) -> Done {
    let quarantine = Quarantine::of(home);
    let received = quarantine.open(id)?;
    let into = trust.received.into.clone().unwrap_or_default();
    let target = Received::target(home, &into)?;
    // What is shown, said yes to and moved is this one reading.
    let mut card = receive::review(&received, home)?.card();
    card.project = target.to_string_lossy().into_owned();
    let consented = match &trust.consented {
        Some(digest) => digest.clone(),
        None => {
            out::say(&receive::who(&received, &Publishers::read(home)?));
            card.lines().iter().for_each(|line| out::say(line));
            ask(&card.review_digest).map_err(|failure| {
                let (id, digest) = (&received.id()[..16], &card.review_digest);
                let into = into.display();
                failure.next(format!(
                    "ringfence trust --received {id} --into {into} --yes --consented {digest} \
                     # after reading the review"
                ))
            })?
        }
    };
    if consented != card.review_digest {
        let found = &card.review_digest;
        return Err(Failure::refused(format!(
            "consent was given to {}, but the review is {found}",
            escaped(&consented)
        )));
    }
    let log = MachineLog::open(home, Signer::machine(home)?)?;
    let target = received.release(&into, &Content::of(home))?;
    // From here on a crash leaves a folder that nobody trusts.
    let review = store.review(Snapshot::read(&target)?, path().as_deref())?;
    store.grant(&review, &consented, &log)?;
    keep(&review, home)?;
    quarantine.discard(received.id())?;
    if trust.json {
        let project = target.to_string_lossy();
        out::json(&json!({
            "version": 1, "trusted": true, "project": project, "review_digest": consented,
            "consent_digest": review.snapshot().consent_digest(),
        }));
    }
    out::say(&out::paint(Colour::Green, "trusted on this machine"));
    out::say(&format!("  next: ringfence -C {} run", escaped(&target.to_string_lossy())));
    Ok(ExitCode::SUCCESS)
}
