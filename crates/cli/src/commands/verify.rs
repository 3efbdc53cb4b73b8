//! `ringfence verify`

use std::process::ExitCode;

use clap::Args as ClapArgs;
use ringfence_bundle::{Objects, Snapshot};
use ringfence_library::{LockSignature, Publishers, Verdict, verify_lock};
use serde_json::json;

use super::{Done, home};
use crate::args::Args;
use crate::out::{self, Colour};

/// Status 0 only when a publisher on your list (`ringfence publisher list`) signed exactly this lock
/// and this manifest, and every pin holds against the bytes that are there. That makes nothing
/// trusted: only `ringfence trust` does.
#[derive(Debug, ClapArgs)]
pub(crate) struct Verify {
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(args: &Args, verify: &Verify) -> Done {
    let home = home()?;
    let snapshot = Snapshot::read(args.project())?;
    let publishers = Publishers::read(&home)?;
    let verdict = verify_lock(&snapshot, &Objects::of(&home), &publishers)?;
    let words = words(&verdict);
    let good = verdict.is_good();
    if verify.json {
        let (state, did) = state(&verdict.signature);
        out::json(&json!({
            "version": 1,
            "good": good,
            "signature": state,
            "did": did,
            "publisher": verdict.publisher,
            "holds": verdict.moved == Some(0),
            "moved": verdict.moved,
            "overlay": verdict.overlay,
            "findings": words,
        }));
    }
    for line in &words {
        out::say(line);
    }
    let (colour, end) =
        if good { (Colour::Green, "verified") } else { (Colour::Red, "not verified") };
    out::say(&out::paint(colour, end));
    out::say("a signature says whose words these are; it never makes anything trusted here");
    if let Some(next) = next(&verdict) {
        out::say(&format!("  next: {next}"));
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn state(signature: &LockSignature) -> (&'static str, Option<String>) {
    match signature {
        LockSignature::Absent => ("absent", None),
        LockSignature::Flawed(_) => ("flawed", None),
        LockSignature::OtherBytes { by, .. } => ("other_bytes", Some(by.to_string())),
        LockSignature::Good { by } => ("good", Some(by.to_string())),
    }
}

fn words(verdict: &Verdict) -> Vec<String> {
    let publisher = |did: &str| match &verdict.publisher {
        Some(name) => format!("{name} ({did})"),
        None => format!("{did}, a key that you have not listed"),
    };
    let signature = match &verdict.signature {
        LockSignature::Absent => "nobody signed this lock".to_owned(),
        LockSignature::Flawed(flaw) => format!("the signature says nothing: {flaw}"),
        LockSignature::OtherBytes { by, files } => format!(
            "signed by {}, but over other bytes of {}",
            publisher(by.as_str()),
            files.join(" and ")
        ),
        LockSignature::Good { by } => format!("signed by {}", publisher(by.as_str())),
    };
    let lock = match verdict.moved {
        None => "there is no lock".to_owned(),
        Some(0) => "the lock holds against the bytes that are here".to_owned(),
        Some(moved) => format!("the lock does not hold: {moved} pin(s) moved"),
    };
    let overlay = verdict.overlay.then(|| {
        "nobody signs ringfence.local.toml, and there is one: what it changes is not verified; \
         `ringfence show` has it in"
            .to_owned()
    });
    let lines = [signature, lock].into_iter().chain(overlay);
    lines.map(|line| crate::escape::escaped(&line)).collect()
}

fn next(verdict: &Verdict) -> Option<String> {
    match (&verdict.signature, &verdict.publisher, verdict.moved) {
        (_, _, None) => Some("ringfence lock".to_owned()),
        (_, _, Some(moved)) if moved > 0 => Some("ringfence lock --check".to_owned()),
        (LockSignature::Good { by }, None, _) => Some(format!(
            "ringfence publisher add <name> {by} # once you know from elsewhere whose key it is"
        )),
        (LockSignature::Absent, ..) => Some("ringfence sign".to_owned()),
        _ => None,
    }
}
