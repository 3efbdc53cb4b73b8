//! `ringfence policy check`

use std::process::ExitCode;

use ringfence_bundle::{Diagnostic, Error, Severity, Snapshot};
use ringfence_policy::{Error as Policy, MachinePolicy, lint};
use serde_json::json;

use super::Check;
use crate::args::Args;
use crate::commands::{Done, home, user_home};
use crate::out::{self, Colour};

pub(super) fn run(args: &Args, options: &Check) -> Done {
    let (home, user_home) = (home()?, user_home()?);
    let mut findings = Vec::new();
    let machine = match MachinePolicy::load(&home) {
        Ok(machine) => Some(machine),
        Err(Policy::Machine(found)) => {
            findings.extend(found);
            None
        }
        Err(error) => return Err(error.into()),
    };
    // Where there is no bundle the machine's rules are checked alone.
    let snapshot = match Snapshot::read_without_lock(args.project()) {
        Ok(snapshot) => Some(snapshot),
        Err(Error::Missing(_)) => None,
        Err(Error::Invalid(found)) => {
            findings.extend(found);
            None
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(machine) = &machine {
        let manifest = snapshot.as_ref().map(|read| &read.manifest);
        findings.extend(lint(machine, manifest, &user_home, &home));
    }
    for finding in &mut findings {
        // That is what has just been typed.
        finding.next.take_if(|next| next == "ringfence policy check");
    }
    let errors = findings.iter().filter(|f| f.severity == Severity::Error).count();
    if options.json {
        out::json(&json!({
            "version": 1,
            "machine": machine.as_ref().and_then(|machine| machine.file.as_ref()),
            "bundle": snapshot.is_some(),
            "findings": findings,
        }));
    } else {
        findings.iter().for_each(out::diagnostic);
        verdict(&findings, errors, snapshot.is_some());
    }
    Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn verdict(findings: &[Diagnostic], errors: usize, bundle: bool) {
    let what = if bundle { "machine.toml and the bundle's rules" } else { "machine.toml" };
    if findings.is_empty() {
        let text = format!("{what}: every rule does something");
        out::say(&out::paint(Colour::Green, &text));
        return;
    }
    let colour = if errors == 0 { Colour::Yellow } else { Colour::Red };
    let warnings = findings.len() - errors;
    out::say(&out::paint(colour, &format!("{errors} error(s), {warnings} warning(s)")));
}
