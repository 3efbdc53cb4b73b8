//! `ringfence diff`

use std::process::ExitCode;

use clap::Args as ClapArgs;
use ringfence_bundle::Snapshot;
use ringfence_trust::{State, Store};

use super::{Done, home};
use crate::args::Args;
use crate::changes;
use crate::failure::Failure;
use crate::out;

/// What `diff` takes.
#[derive(Debug, ClapArgs)]
#[command(after_help = AFTER)]
pub(crate) struct Diff {
    /// Against what you said yes to, instead of what is locked: the three files and programs too
    #[arg(long)]
    approved: bool,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

const AFTER: &str = "\
Each change begins with `file:line`. Nothing is contacted and nothing is written.

Exit status: 0 nothing moved; 1 something did.";

pub(crate) fn run(args: &Args, diff: &Diff) -> Done {
    let home = home()?;
    let path = std::env::var_os("PATH");
    let read = Snapshot::read(args.project()).map_err(Failure::from);
    let review = read.and_then(|snapshot| Ok(Store::new(&home).review(snapshot, path.as_deref())?));
    let review = match review {
        Ok(review) => review,
        Err(failure) => {
            // Where it went wrong is often not where it was changed: that is shown all the same.
            let moved = changes::despite_errors(args.project(), &home).filter(|_| diff.approved);
            if let Some(moved) = moved.filter(|_| !diff.json) {
                moved.lines().iter().for_each(|line| out::data(line));
            }
            return Err(failure);
        }
    };
    if diff.approved && review.state() == State::Untrusted {
        let none =
            "nobody said yes to this bundle on this machine: there is nothing to compare with";
        return Err(Failure::user(none).next("ringfence trust"));
    }
    if !diff.approved && review.snapshot().lock.is_none() {
        return Err(Failure::user("there is no lock").next("ringfence lock"));
    }
    let changes = if diff.approved {
        changes::since_yes(&review, &home)?
    } else {
        changes::since_lock(review.snapshot(), review.drift(), &home)?
    };
    let same = changes.none();
    if diff.json {
        let mut value = changes.json();
        value["version"] = 1.into();
        value["same"] = same.into();
        out::json(&value);
    } else {
        changes.lines().iter().for_each(|line| out::data(line));
        if same {
            out::say(if diff.approved {
                "nothing moved since you said yes"
            } else {
                "nothing moved since it was locked"
            });
            if !diff.approved && review.state() == State::Changed {
                out::say("  it is not what you said yes to: ringfence diff --approved");
            }
        } else {
            out::say(if diff.approved {
                "  next: ringfence trust"
            } else {
                "  next: ringfence lock"
            });
        }
    }
    Ok(if same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
