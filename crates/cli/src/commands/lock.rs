//! `ringfence lock`

mod tools;

use std::collections::BTreeMap;
use std::process::ExitCode;

use ringfence_bundle::{Drift, Error, Lock as File, Objects, Reason, Snapshot};
use serde_json::json;

use super::{Done, home};
use crate::args::{Args, Lock};
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out::{self, Colour};

pub(crate) fn run(args: &Args, lock: &Lock) -> Done {
    if let Some(servers) = &lock.tools {
        return tools::run(args, lock, servers);
    }
    if lock.check {
        return check(&Snapshot::read(&args.project)?, lock.json);
    }
    // An old lock that does not parse is made anew; what it said cannot be compared then.
    let (snapshot, readable) = match Snapshot::read(&args.project) {
        Ok(snapshot) => (snapshot, true),
        Err(Error::Invalid(_)) => (Snapshot::read_without_lock(&args.project)?, false),
        Err(error) => return Err(error.into()),
    };
    let moved = if readable { snapshot.drift(&Objects::of(&home()?))? } else { Vec::new() };
    let file = File::compute(&snapshot, &Objects::of(&home()?), &BTreeMap::new())?;
    let text = file.render();
    let same = readable && snapshot.lock_bytes.as_deref() == Some(text.as_bytes());
    if !same {
        ringfence_bundle::write_lock(&snapshot, &text)?;
    }
    if lock.json {
        out::json(&json!({ "version": 1, "written": !same, "moved": moved, "pins": file.pins }));
        return Ok(ExitCode::SUCCESS);
    }
    show(&moved);
    let pins = file.pins.len();
    if same {
        out::say(&format!("the lock holds: {pins} pin(s)"));
    } else {
        out::say(&format!(
            "wrote {}: {pins} pin(s)",
            escaped(&snapshot.folder().join("ringfence.lock").to_string_lossy())
        ));
        out::say("  next: ringfence trust");
    }
    tools::lost(snapshot.lock.as_ref(), &file);
    Ok(ExitCode::SUCCESS)
}

fn check(snapshot: &Snapshot, json: bool) -> Done {
    let moved = snapshot.drift(&Objects::of(&home()?))?;
    let missing = snapshot.lock.is_none();
    if json {
        let holds = moved.is_empty() && !missing;
        out::json(&json!({ "version": 1, "holds": holds, "missing": missing, "moved": moved }));
        return Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    if missing {
        return Err(Failure::user("there is no lock").next("ringfence lock"));
    }
    show(&moved);
    if moved.is_empty() {
        out::say("the lock holds");
        Ok(ExitCode::SUCCESS)
    } else {
        Err(Failure::user(format!("{} pin(s) no longer hold", moved.len())).next("ringfence lock"))
    }
}

fn show(moved: &[Drift]) {
    for row in moved {
        let (colour, word) = match row.reason {
            Reason::Unpinned => (Colour::Green, "new"),
            Reason::Missing | Reason::Undeclared => (Colour::Red, "gone"),
            Reason::NotFetched => (Colour::Red, "absent"),
            Reason::Changed | Reason::Redeclared => (Colour::Yellow, "changed"),
        };
        out::data(&format!(
            "  {:<8} {} {}",
            out::paint(colour, word),
            row.kind,
            escaped(&row.name)
        ));
    }
}
