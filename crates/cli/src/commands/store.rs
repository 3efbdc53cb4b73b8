//! `ringfence store`

use std::cell::Cell;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args as ClapArgs, Subcommand};
use ringfence_library::{Object, State, Store as Objects, needed};
use serde_json::json;

use super::{Done, home};
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out::{self, Colour};

/// The store, in ~/.ringfence/store, holds a copy of every byte that a lock pins, each at the address
/// that its digest gives. A review shows from it which lines moved; what comes from git or a library
/// is used from it.
#[derive(Debug, ClapArgs)]
pub(crate) struct Store {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List what is kept
    List(List),
    /// Read every object and prove it by its address. Status 1 when one is damaged
    Verify(List),
    /// Take away what no trusted project needs
    Gc(Gc),
}

#[derive(Debug, ClapArgs)]
struct List {
    /// Print JSON on stdout
    #[arg(long)]
    json: bool,
}

/// Takes away objects that neither the lock of a trusted project as it was approved, nor its lock as
/// it is now, names, and what killed processes left. Objects of the last day stay: they may be of a
/// lock that nobody has reviewed yet.
#[derive(Debug, ClapArgs)]
struct Gc {
    /// Only say what would go
    #[arg(long)]
    dry_run: bool,
    /// Take away those of the last day too
    #[arg(long)]
    now: bool,
    /// Print JSON on stdout
    #[arg(long)]
    json: bool,
}

impl Store {
    /// Whether errors are to be JSON too.
    pub(crate) fn json(&self) -> bool {
        match &self.verb {
            Verb::List(List { json }) | Verb::Verify(List { json }) | Verb::Gc(Gc { json, .. }) => {
                *json
            }
        }
    }
}

pub(crate) fn run(store: &Store) -> Done {
    let home = home()?;
    let objects = Objects::of(&home);
    match &store.verb {
        Verb::List(args) => list(&objects, args.json),
        Verb::Verify(args) => verify(&objects, args.json),
        Verb::Gc(args) => {
            let grants = ringfence_trust::Store::new(&home).grants()?;
            let trusted = grants.into_iter().map(|(project, grant)| (project, grant.consent));
            gc(&objects, trusted, args)
        }
    }
}

fn list(objects: &Objects, json: bool) -> Done {
    let all = objects.list()?;
    let bytes: u64 = all.iter().map(|it| it.bytes).sum();
    if json {
        let rows: Vec<_> = all.iter().map(row).collect();
        out::json(&json!({ "version": 1, "objects": rows, "bytes": bytes }));
        return Ok(ExitCode::SUCCESS);
    }
    all.iter().for_each(show);
    out::say(&format!("{} object(s), {bytes} bytes", all.len()));
    Ok(ExitCode::SUCCESS)
}

fn verify(objects: &Objects, json: bool) -> Done {
    let all = objects.list()?;
    let progress = progress("proved");
    let mut damaged = Vec::new();
    for (at, object) in all.iter().enumerate() {
        progress(at, all.len());
        if let State::Damaged(why) = objects.prove(object) {
            damaged.push((object, why));
        }
    }
    if json {
        let rows = damaged.iter().map(|(object, why)| {
            let mut row = row(object);
            row["problem"] = json!(why);
            row
        });
        let rows: Vec<_> = rows.collect();
        out::json(&json!({ "version": 1, "objects": all.len(), "damaged": rows }));
        return Ok(if damaged.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    for (object, why) in &damaged {
        let word = out::paint(Colour::Red, "damaged");
        let place = object.place.to_string_lossy();
        let (family, digest) = (object.family(), object.digest);
        out::data(&format!("  {word} {family} {digest} {}: {}", escaped(&place), escaped(why)));
    }
    if damaged.is_empty() {
        out::say(&format!("{} object(s), each is what its address says", all.len()));
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::user(format!("{} of {} object(s) are damaged", damaged.len(), all.len()))
        .next("ringfence lock # in the project that needs it; `ringfence fetch` where it is git's"))
}

fn gc(
    objects: &Objects,
    trusted: impl IntoIterator<Item = (std::path::PathBuf, ringfence_bundle::Digest)>,
    args: &Gc,
) -> Done {
    let needed = needed(objects, trusted)?;
    let gone = objects.gc(&needed, args.now, args.dry_run, &progress("looked at"))?;
    if args.json {
        let rows: Vec<_> = gone.objects.iter().map(row).collect();
        out::json(&json!({
            "version": 1, "dry_run": args.dry_run, "removed": rows, "bytes": gone.bytes,
            "leftovers": gone.leftovers, "kept": gone.kept,
        }));
        return Ok(ExitCode::SUCCESS);
    }
    gone.objects.iter().for_each(show);
    let word = if args.dry_run { "would take away" } else { "took away" };
    let left = match gone.leftovers {
        0 => String::new(),
        count => format!(" and {count} unfinished one(s)"),
    };
    let (count, bytes, kept) = (gone.objects.len(), gone.bytes, gone.kept);
    out::say(&format!("{word} {count} object(s){left}, {bytes} bytes; {kept} stay"));
    Ok(ExitCode::SUCCESS)
}

fn show(object: &Object) {
    out::data(&format!("  {:<12} {} {:>10}", object.family(), object.digest, object.bytes));
}

fn row(object: &Object) -> serde_json::Value {
    json!({
        "kind": object.family(), "digest": object.digest, "bytes": object.bytes,
        "path": object.place.to_string_lossy(),
    })
}

/// Says once a second how far it is, to a person who waits.
fn progress(word: &'static str) -> impl Fn(usize, usize) {
    let last = Cell::new(Instant::now());
    let watched = std::io::stderr().is_terminal();
    move |at, total| {
        if watched && last.get().elapsed() >= Duration::from_secs(1) {
            last.set(Instant::now());
            out::say(&format!("{word} {at} of {total}"));
        }
    }
}
