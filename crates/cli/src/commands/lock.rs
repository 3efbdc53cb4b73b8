//! `ringfence lock`

mod tools;

use std::process::ExitCode;

use ringfence_bundle::{Drift, Error, Lock as File, Objects, Reason, Snapshot};
use ringfence_library::{CommitMoved, Git, Library, Reach, Store, commits_moved};
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
        return check(&Snapshot::read(args.project())?, lock.json);
    }
    // An old lock that does not parse is made anew; what it said cannot be compared then.
    let (snapshot, readable) = match Snapshot::read(args.project()) {
        Ok(snapshot) => (snapshot, true),
        Err(Error::Invalid(_)) => (Snapshot::read_without_lock(args.project())?, false),
        Err(error) => return Err(error.into()),
    };
    let home = home()?;
    let (store, library) = (Store::of(&home), Library::open(&home)?);
    let git = if lock.fetch { Some(Git::of_machine()?) } else { None };
    let reach: Option<Reach<'_>> = git.as_ref().map(|git| (git, &super::fetch::say as _));
    let resolved = ringfence_library::resolve(&snapshot, &store, &library, reach)?;
    let drift = if readable { snapshot.drift(store.objects())? } else { Vec::new() };
    let moved = ringfence_library::moved(drift, snapshot.lock.as_ref(), &resolved);
    let file = File::compute(&snapshot, store.objects(), &resolved)?;
    let commits = commits_moved(snapshot.lock.as_ref(), &file);
    let text = file.render();
    let same = readable && snapshot.lock_bytes.as_deref() == Some(text.as_bytes());
    if !same {
        ringfence_bundle::write_lock(&snapshot, &text)?;
    }
    // The lock holds without its copies; a later review then shows digests where it would lines.
    if let Err(error) = store.keep(&snapshot, &file, text.as_bytes()) {
        let warning = out::paint(Colour::Yellow, "warning");
        out::say(&format!("{warning}: not everything was kept: {}", escaped(&error.to_string())));
    }
    if lock.json {
        out::json(&json!({
            "version": 1, "written": !same, "moved": moved, "commits": commits, "pins": file.pins,
        }));
        return Ok(ExitCode::SUCCESS);
    }
    show(&moved);
    show_commits(&commits);
    let pins = match file.pins.len() {
        0 => "nothing is declared that has bytes to pin".to_owned(),
        1 => "1 pin".to_owned(),
        some => format!("{some} pins"),
    };
    if same {
        out::say(&format!("the lock holds: {pins}"));
    } else {
        out::say(&format!(
            "wrote {}: {pins}",
            escaped(&snapshot.folder().join("ringfence.lock").to_string_lossy())
        ));
        out::say("  next: ringfence trust");
    }
    tools::lost(snapshot.lock.as_ref(), &file);
    Ok(ExitCode::SUCCESS)
}

fn show_commits(commits: &[CommitMoved]) {
    for CommitMoved { kind, name, from, to } in commits {
        let (word, name) = (out::paint(Colour::Yellow, "commit"), escaped(name));
        out::data(&format!("  {word:<8} {kind} {name} {} -> {}", &from[..12], &to[..12]));
    }
}

fn check(snapshot: &Snapshot, json: bool) -> Done {
    let moved = snapshot.drift(&Objects::of(&home()?))?;
    let missing = snapshot.lock.is_none();
    let changes = crate::changes::since_lock(snapshot, &moved, &home()?)?;
    if json {
        let holds = moved.is_empty() && !missing;
        let changes = changes.json();
        out::json(
            &json!({ "version": 1, "holds": holds, "missing": missing, "moved": moved, "changes": changes }),
        );
        return Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    if missing {
        return Err(Failure::user("there is no lock").next("ringfence lock"));
    }
    show(&moved);
    changes.lines().iter().for_each(|line| out::data(line));
    if moved.is_empty() {
        out::say("the lock holds");
        Ok(ExitCode::SUCCESS)
    } else {
        let moved = match moved.len() {
            1 => "1 pin no longer holds".to_owned(),
            some => format!("{some} pins no longer hold"),
        };
        Err(Failure::user(moved).next("ringfence lock"))
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
