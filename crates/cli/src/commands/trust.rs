//! `ringfence trust`

mod received;

pub(crate) use received::FromQuarantine;

use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args as ClapArgs;
use ringfence_bundle::Snapshot;
use ringfence_identity::Signer;
use ringfence_record::MachineLog;
use ringfence_trust::review::Card;
use ringfence_trust::{Review, Standing, State, Store};
use serde_json::json;

use super::{Done, home};
use crate::args::Args;
use crate::changes;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out::{self, Colour};

/// What `trust` takes.
#[derive(Debug, ClapArgs)]
#[command(group = clap::ArgGroup::new("verb").multiple(false), after_help = AFTER)]
pub(crate) struct Trust {
    /// Show the review and its digests, record nothing
    #[arg(long, group = "verb")]
    preview: bool,
    /// Take consent back
    #[arg(long, group = "verb")]
    revoke: bool,
    /// List what this machine trusts, and how each project stands now
    #[arg(long, group = "verb")]
    list: bool,
    /// Say yes without being asked; needs --consented
    #[arg(long, group = "verb", requires = "consented")]
    yes: bool,
    /// The review digest that --preview printed
    #[arg(long, value_name = "DIGEST", requires = "yes")]
    consented: Option<String>,
    #[command(flatten)]
    received: FromQuarantine,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

const AFTER: &str = "\
A yes is for the bytes of manifest, overlay and lock, and for the programs that the commands run on
this machine (their paths and digests). When any of them is another, nothing starts: `ringfence trust`
shows first what moved since you said yes, then the whole, and asks again.

Without a terminal: `ringfence trust --preview --json` prints `review_digest`; read the review, then
`ringfence trust --yes --consented <review_digest>`.";

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
        return revoke(args, &store, &home, trust.json);
    }
    let review = store.review(Snapshot::read(args.project())?, path().as_deref())?;
    let changes = changes::since_yes(&review, &home)?;
    let card = review.card();
    if trust.preview {
        if trust.json {
            let mut value = serde_json::to_value(&card).unwrap_or_default();
            value["version"] = 1.into();
            value["changes"] = changes.json();
            out::json(&value);
        } else {
            told(&changes, &card).iter().for_each(|line| out::data(line));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let consented = match &trust.consented {
        Some(digest) => digest.clone(),
        None if review.state() == State::Trusted => {
            if trust.json {
                out::json(&yes(&review));
            }
            out::say("these bytes are trusted already");
            return Ok(ExitCode::SUCCESS);
        }
        None => {
            // What could not be granted is not asked about.
            if let Err(error) = Store::grantable(&review) {
                changes.lines().iter().for_each(|line| out::say(line));
                return Err(error.into());
            }
            // What is read by a person stands where the question does; stdout is for data.
            told(&changes, &card).iter().for_each(|line| out::say(line));
            ask(&card.review_digest)?
        }
    };
    store.grant(&review, &consented, &MachineLog::open(&home, Signer::machine(&home)?)?)?;
    if let Err(error) = keep(&review, &home) {
        out::say(&format!(
            "{}: {}",
            out::paint(Colour::Yellow, "warning"),
            escaped(&error.to_string())
        ));
        out::say("  the next review cannot show what moved since this yes");
    }
    if trust.json {
        out::json(&yes(&review));
    }
    out::say(&out::paint(Colour::Green, "trusted on this machine"));
    let named = review.snapshot().manifest.sandbox.command.is_empty();
    out::say(if named { "  next: ringfence run -- <command>" } else { "  next: ringfence run" });
    Ok(ExitCode::SUCCESS)
}

/// Keeps what was said yes to, so that the next review can show what moved since.
fn keep(review: &Review, home: &Path) -> Result<(), ringfence_library::Error> {
    let snapshot = review.snapshot();
    let store = ringfence_library::Store::of(home);
    match (&snapshot.lock, &snapshot.lock_bytes) {
        (Some(lock), Some(bytes)) if review.drift().is_empty() => {
            store.keep(snapshot, lock, bytes)?;
        }
        _ => {
            let (manifest, local) = (snapshot.manifest_bytes.clone(), snapshot.local_bytes.clone());
            store.deposit_three(&(manifest, local, snapshot.lock_bytes.clone()))?;
        }
    }
    Ok(())
}

/// Where programs are looked up.
fn path() -> Option<std::ffi::OsString> {
    std::env::var_os("PATH")
}

fn yes(review: &Review) -> serde_json::Value {
    json!({
        "version": 1,
        "trusted": true,
        "consent_digest": review.snapshot().consent_digest(),
        "review_digest": review.digest(),
    })
}

/// What moved, then the whole.
fn told(changes: &changes::Changes, card: &Card) -> Vec<String> {
    let mut lines = changes.lines();
    lines.extend(card.lines());
    lines
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

fn revoke(args: &Args, store: &Store, home: &Path, json: bool) -> Done {
    // A project that is gone is taken out by the path it had.
    let project: PathBuf = args
        .project()
        .canonicalize()
        .or_else(|_| std::path::absolute(args.project()))
        .map_err(|e| Failure::user(format!("{}: {e}", args.project().display())))?;
    let had = store.revoke(&project, &MachineLog::open(home, Signer::machine(home)?)?)?;
    if json {
        out::json(&json!({ "version": 1, "trusted": false, "was_trusted": had }));
    }
    out::say(if had { "trust was taken back" } else { "it was not trusted" });
    Ok(ExitCode::SUCCESS)
}

fn list(store: &Store, json: bool) -> Done {
    let projects = store.list(path().as_deref())?;
    if json {
        out::json(&json!({ "version": 1, "projects": projects }));
        return Ok(ExitCode::SUCCESS);
    }
    for row in &projects {
        let state = match row.state {
            Standing::Trusted => "trusted",
            Standing::Changed => "changed",
            Standing::Gone => "gone",
        };
        let project = escaped(&row.project.to_string_lossy());
        out::data(&format!("{state:<7}  {}  {}  {project}", row.at, row.consent_digest));
    }
    if projects.is_empty() {
        out::say("nothing is trusted on this machine");
    }
    Ok(ExitCode::SUCCESS)
}
