//! Which rules do nothing, or not what they say? Both layers, read side by side.
//!
//! An error is a rule that does not do what it says: it allows what nothing lets through, binds a
//! server that is not there, matches no possible name. A warning is a rule that could be left out.
//! One pattern is held within others exactly, see [`crate::language`]; where that would take too
//! long, nothing is said.

mod files;
mod names;

use std::path::Path;

use ringfence_bundle::{Diagnostic, Manifest, Place, Places, PolicyTables, Severity};

use crate::machine::NEXT;
use crate::ruleset::{BUNDLE_FILE, MACHINE_FILE};
use crate::{Error, Layer, MachinePolicy, Ruleset};

/// Longest list in which patterns are compared with one another.
const MOST: usize = 2048;
/// Most findings that are given.
const MAX_FINDINGS: usize = 500;

/// What is wrong with the rules of a machine and of a bundle: everything that [`Ruleset::compile`]
/// and a run's file scopes refuse, and the rules that decide nothing. Without a bundle the machine's
/// alone. Pure; `user_home` and `home` are the person's home and the machine's state.
#[must_use]
pub fn lint(
    machine: &MachinePolicy,
    manifest: Option<&Manifest>,
    user_home: &Path,
    home: &Path,
) -> Vec<Diagnostic> {
    let mut report = Report::default();
    let empty = Manifest::default();
    let bundle = manifest.unwrap_or(&empty);
    let refused = |error| match error {
        Error::Exceeds(found) | Error::Machine(found) => found,
        // `compile` and the scopes give no other.
        other => vec![crate::error::finding("refused", other.to_string(), None)],
    };
    match Ruleset::compile(machine, bundle) {
        Err(error) => report.found.extend(refused(error)),
        Ok(rules) => {
            let scopes = rules.scopes(user_home, home).map(drop);
            for result in [rules.check_writes(user_home), scopes] {
                if let Err(error) = result {
                    report.found.extend(refused(error));
                }
            }
        }
    }
    let sides = [
        Side {
            layer: Layer::Machine,
            file: MACHINE_FILE,
            tables: &machine.tables,
            places: &machine.places,
        },
        Side {
            layer: Layer::Bundle,
            file: BUNDLE_FILE,
            tables: &bundle.policy,
            places: &bundle.places,
        },
    ];
    names::check(&sides, machine, manifest, &mut report);
    files::check(&sides, user_home, &mut report);
    report.found.truncate(MAX_FINDINGS);
    for finding in &mut report.found {
        finding.next = Some(NEXT.to_owned());
    }
    report.found
}

/// One layer, as its file has it.
struct Side<'a> {
    layer: Layer,
    file: &'static str,
    tables: &'a PolicyTables,
    places: &'a Places,
}

/// A pattern's place in a layer, for a message.
struct Spot {
    /// `policy.tools.search[0]`
    keys: String,
    text: String,
    line: usize,
    file: String,
}

impl Spot {
    /// `"!a*" in machine.toml:4`
    fn shown(&self) -> String {
        format!("{:?} in {}:{}", self.text, self.file, self.line)
    }
}

impl Side<'_> {
    fn spot(&self, keys: String, text: &str, line: usize) -> Spot {
        let file = self.places.file(&keys).and_then(Path::file_name);
        let file = file.map_or_else(|| self.file.to_owned(), |f| f.to_string_lossy().into_owned());
        Spot { keys, text: text.to_owned(), line, file }
    }

    fn place(&self, spot: &Spot) -> Option<Place> {
        self.places.find(&spot.keys)
    }
}

#[derive(Default)]
struct Report {
    found: Vec<Diagnostic>,
    /// Patterns of which something was found: layer, keys, and which finding.
    about: Vec<(Layer, String, usize)>,
}

/// Help where nothing but denials would be left.
const DENIALS_LEFT: &str = "do not only take it out: the denials that are left would let all else \
                            through; put \"!*\" in its place, or what you mean to allow";
/// Help where nothing would be left.
const NOTHING_LEFT: &str = "without it leave an empty list, `[]`, which allows nothing: with no list \
                            at all, all is allowed";
/// The same, where denials alone stood.
const NO_DENIAL_LEFT: &str = "take the list out with it: an empty one allows nothing, and this one allows what it does not \
     deny";

impl Report {
    fn say(
        &mut self,
        severity: Severity,
        rule: &'static str,
        (side, spot): (&Side<'_>, &Spot),
        message: String,
        help: &str,
    ) {
        if self.found.len() >= MAX_FINDINGS {
            return;
        }
        // Where the place is not known the message has it.
        let at = side.place(spot);
        let message = match &at {
            Some(_) => message,
            None => format!("{}:{}: {message}", spot.file, spot.line),
        };
        let help = Some(help.to_owned());
        self.about.push((side.layer, spot.keys.clone(), self.found.len()));
        self.found.push(Diagnostic { severity, rule, message, at, help, next: None });
    }

    /// What a list becomes when all that was found is taken out of it must not surprise: one of
    /// denials alone, an empty one and none mean three different things. `signs` says which of its
    /// patterns are denials, by their keys.
    fn advise<'k>(&mut self, layer: Layer, signs: impl Iterator<Item = (&'k str, bool)>) {
        let (mut stay, mut go) = (Vec::new(), Vec::new());
        for (keys, negative) in signs {
            let found: Vec<usize> = self
                .about
                .iter()
                .filter(|(of, about, _)| *of == layer && about == keys)
                .map(|(_, _, at)| *at)
                .collect();
            if found.is_empty() { stay.push(negative) } else { go.push((negative, found)) }
        }
        let allows = |negative: &bool| !negative;
        let help = match (go.iter().any(|(n, _)| !n), stay.iter().any(allows), stay.is_empty()) {
            (true, false, false) => DENIALS_LEFT,
            (true, false, true) if go.iter().any(|(negative, _)| *negative) => DENIALS_LEFT,
            (true, false, true) => NOTHING_LEFT,
            (false, false, true) if !go.is_empty() => NO_DENIAL_LEFT,
            _ => return,
        };
        for (_, found) in go.iter().filter(|(negative, _)| !negative || help == NO_DENIAL_LEFT) {
            for at in found {
                self.found[*at].help = Some(help.to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests;
