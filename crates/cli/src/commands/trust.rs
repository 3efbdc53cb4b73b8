//! `ringfence trust`

mod received;

pub(crate) use received::FromQuarantine;

use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;

use ringfence_bundle::Snapshot;
use ringfence_identity::Signer;
use ringfence_record::MachineLog;
use ringfence_trust::review::{self, Card};
use ringfence_trust::{State, Store};
use serde_json::json;

use super::{Done, home};
use crate::args::{Args, Trust};
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out::{self, Colour};

pub(crate) fn run(args: &Args, trust: &Trust) -> Done {
    let home = home()?;
    let store = Store::new(&home);
    if let Some(id) = &trust.received.received {
        return received::run(&home, &store, trust, id);
    }
    if trust.list {
        return list(&store, trust.json);
    }
    if trust.revoke {
        // A project that is gone is taken out by the path it had.
        let project = args
            .project
            .canonicalize()
            .or_else(|_| std::path::absolute(&args.project))
            .map_err(|e| Failure::user(format!("{}: {e}", args.project.display())))?;
        let had = store.revoke(&project, &MachineLog::open(&home, Signer::machine(&home)?)?)?;
        if trust.json {
            out::json(&json!({ "version": 1, "trusted": false, "was_trusted": had }));
        }
        out::say(if had { "trust was taken back" } else { "it was not trusted" });
        return Ok(ExitCode::SUCCESS);
    }
    let snapshot = Snapshot::read(&args.project)?;
    let (state, drift) = store.state(&snapshot)?;
    let card = review::card(&snapshot, state, &drift);
    if trust.preview {
        if trust.json {
            out::json(&card);
        } else {
            show(&card);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let consented = match &trust.consented {
        Some(digest) => digest.clone(),
        None => {
            if state == State::Trusted {
                if trust.json {
                    let digest = &card.consent_digest;
                    out::json(&json!({ "version": 1, "trusted": true, "consent_digest": digest }));
                }
                out::say("these bytes are trusted already");
                return Ok(ExitCode::SUCCESS);
            }
            // What could not be granted is not asked about.
            Store::grantable(&snapshot, &drift)?;
            // What is read by a person stands where the question does; stdout is for data.
            card.lines().iter().for_each(|line| out::say(line));
            ask(&card.consent_digest)?
        }
    };
    store.grant(&snapshot, &consented, &MachineLog::open(&home, Signer::machine(&home)?)?)?;
    if trust.json {
        out::json(&json!({ "version": 1, "trusted": true, "consent_digest": consented }));
    }
    out::say(&out::paint(Colour::Green, "trusted on this machine"));
    out::say("  next: ringfence run");
    Ok(ExitCode::SUCCESS)
}

fn show(card: &Card) {
    for line in card.lines() {
        out::data(&line);
    }
}

/// A yes is typed by a person at a terminal, for the digest on the screen.
fn ask(digest: &str) -> Result<String, Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::user("nobody is at a terminal to say yes").next(format!(
            "ringfence trust --yes --consented {digest} # after reading the review"
        )));
    }
    out::say("Do you trust exactly these bytes to do this on this machine? Type `yes`:");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(|e| Failure::user(e.to_string()))?;
    if answer.trim() == "yes" {
        Ok(digest.to_owned())
    } else {
        Err(Failure::user("not trusted; nothing was recorded"))
    }
}

fn list(store: &Store, json: bool) -> Done {
    let grants = store.grants()?;
    if json {
        out::json(&json!({ "version": 1, "trusted": grants }));
        return Ok(ExitCode::SUCCESS);
    }
    for (project, grant) in &grants {
        out::data(&format!(
            "{}  {}  {}",
            grant.at,
            grant.consent,
            escaped(&project.to_string_lossy())
        ));
    }
    if grants.is_empty() {
        out::say("nothing is trusted on this machine");
    }
    Ok(ExitCode::SUCCESS)
}
