//! `ringfence policy presets`, `use` and `undo`

use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;

use ringfence_policy::{Preset, Replacement, presets as all};
use serde_json::json;

use super::{Presets, Undo, Use};
use crate::commands::{Done, home};
use crate::escape::escaped;
use crate::failure::Failure;
use crate::out::{self, Colour};

pub(super) fn presets(options: &Presets) -> Done {
    if let Some(name) = &options.show {
        let preset = named(name)?;
        if options.json {
            out::json(&json!({ "version": 1, "name": preset.name, "text": preset.text }));
        } else {
            out::data(preset.text.trim_end());
        }
        return Ok(ExitCode::SUCCESS);
    }
    if options.json {
        let list: Vec<_> = all()
            .iter()
            .map(|preset| json!({ "name": preset.name, "summary": preset.summary() }))
            .collect();
        out::json(&json!({ "version": 1, "presets": list }));
        return Ok(ExitCode::SUCCESS);
    }
    for preset in all() {
        out::data(&format!("{:<12} {}", preset.name, preset.summary()));
    }
    out::say("  next: ringfence policy presets --show developer");
    Ok(ExitCode::SUCCESS)
}

pub(super) fn with(options: &Use) -> Done {
    let change = Replacement::with(&home()?, named(&options.preset)?)?;
    if !change.changes() {
        out::say("machine.toml says that already; nothing was changed");
        return Ok(ExitCode::SUCCESS);
    }
    let again = format!("ringfence policy use {} --yes", options.preset);
    review(&change, options.yes, "Make these the rules of this machine?", &again)?;
    let kept = change.apply()?;
    let file = home()?.join("machine.toml");
    out::say(&format!(
        "{} {}",
        out::paint(Colour::Green, "wrote"),
        escaped(&file.to_string_lossy())
    ));
    if let Some(kept) = kept {
        out::say(&format!("the old one is kept in {}", escaped(&kept.to_string_lossy())));
    }
    out::say("  next: ringfence policy check   (back: ringfence policy undo)");
    Ok(ExitCode::SUCCESS)
}

pub(super) fn undo(options: &Undo) -> Done {
    let change = Replacement::undo(&home()?)?;
    let again = "ringfence policy undo --yes";
    review(&change, options.yes, "Put the old rules of this machine back?", again)?;
    let kept = change.apply()?;
    if change.new.is_none() {
        out::say("there is no machine.toml any more, as before");
    } else {
        out::say("the old machine.toml is back");
    }
    if let Some(kept) = kept {
        out::say(&format!("what was there is kept in {}", escaped(&kept.to_string_lossy())));
    }
    Ok(ExitCode::SUCCESS)
}

fn named(name: &str) -> Result<&'static Preset, Failure> {
    Preset::named(name).ok_or_else(|| {
        let names: Vec<&str> = all().iter().map(|preset| preset.name).collect();
        Failure::user(format!("there is no preset `{name}`; there is: {}", names.join(", ")))
            .next("ringfence policy presets")
    })
}

/// Shows what would change, and asks a person.
fn review(change: &Replacement, yes: bool, question: &str, again: &str) -> Result<(), Failure> {
    for line in change.diff() {
        let colour = match line.as_bytes().first() {
            Some(b'+') => Colour::Green,
            Some(b'-') => Colour::Red,
            _ => Colour::Dim,
        };
        // As it stands in the file: an escape would take the place of every indentation.
        let shown: String = out::literal(&line).chars().take(400).collect();
        out::say(&out::paint(colour, &shown));
    }
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::user("nobody is at a terminal to say yes").next(again));
    }
    out::say(&format!("{question} Type `yes`:"));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(|e| Failure::user(e.to_string()))?;
    if answer.trim() == "yes" { Ok(()) } else { Err(Failure::user("nothing was changed")) }
}
