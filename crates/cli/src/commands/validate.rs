//! `ringfence validate`

use std::process::ExitCode;

use ringfence_bundle::{Error, Severity, Snapshot};
use ringfence_policy::Error as Policy;
use ringfence_run::Plan;
use serde_json::json;

use super::{Done, home, user_home};
use crate::args::{Args, Json};
use crate::out::{self, Colour};

pub(crate) fn run(args: &Args, options: &Json) -> Done {
    let (mut findings, mut snapshot) = match Snapshot::read_without_lock(args.project()) {
        Ok(snapshot) => (snapshot.warnings.clone(), Some(snapshot)),
        Err(Error::Invalid(findings)) => (findings, None),
        Err(error) => return Err(error.into()),
    };
    // What `lock` would refuse is said now, what the machine's rules would refuse at a run, and what
    // is wrong with those.
    if let Some(read) = &snapshot {
        let paths = read.check_paths()?;
        let permitted = Plan::permitted(&read.manifest, &home()?, &user_home()?);
        if paths.iter().any(|finding| finding.severity == Severity::Error) {
            snapshot = None;
        }
        findings.extend(paths);
        match permitted {
            Ok(()) => {}
            Err(ringfence_run::Error::Policy(Policy::Machine(found) | Policy::Exceeds(found))) => {
                findings.extend(found);
                snapshot = None;
            }
            Err(error) => return Err(error.into()),
        }
    }
    for finding in &mut findings {
        // That is what has just been typed.
        finding.next.take_if(|next| next == "ringfence validate");
    }
    let fields: Vec<_> = snapshot.iter().flat_map(|s| s.manifest.declared()).collect();
    // The lock may be missing or broken: then nothing is pinned.
    let locked = snapshot.as_ref().and_then(|_| Snapshot::read(args.project()).ok());
    let servers: Vec<_> = snapshot.iter().flat_map(|s| s.manifest.servers.keys()).collect();
    let pinned = |id| locked.as_ref()?.tool_pins(id).map(|pins| pins.tools.len());
    if options.json {
        let fields: Vec<_> = fields
            .iter()
            .map(|(keys, field)| json!({ "field": keys, "label": field.label.to_string() }))
            .collect();
        let servers: Vec<_> =
            servers.iter().map(|id| json!({ "server": id, "pinned_tools": pinned(id) })).collect();
        out::json(&json!({
            "version": 1, "valid": snapshot.is_some(), "findings": findings, "fields": fields,
            "servers": servers,
        }));
    } else {
        for finding in &findings {
            out::diagnostic(finding);
        }
        for (keys, field) in &fields {
            out::data(&format!("{keys:<40} {}", field.label));
        }
        for id in servers {
            let pins = pinned(id).map(|tools| format!("pinned ({tools} tools)"));
            let pins = pins.as_deref().unwrap_or("unpinned");
            out::data(&format!("{:<40} {pins}", format!("tools of {id}")));
        }
        verdict(&findings, snapshot.is_some());
    }
    Ok(if snapshot.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn verdict(findings: &[ringfence_bundle::Diagnostic], valid: bool) {
    let errors = findings.iter().filter(|f| f.severity == Severity::Error).count();
    let warnings = findings.len() - errors;
    if valid {
        let with = if warnings == 0 { String::new() } else { format!(", {warnings} warning(s)") };
        out::say(&format!("{}{with}", out::paint(Colour::Green, "the manifest is valid")));
    } else {
        out::say(&out::paint(Colour::Red, &format!("{errors} error(s), {warnings} warning(s)")));
    }
}
