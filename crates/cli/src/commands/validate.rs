//! `ringfence validate`

use std::process::ExitCode;

use ringfence_bundle::{Error, Severity, Snapshot};
use serde_json::json;

use super::Done;
use crate::args::{Args, Json};
use crate::out::{self, Colour};

pub(crate) fn run(args: &Args, options: &Json) -> Done {
    let (findings, snapshot) = match Snapshot::read_without_lock(&args.project) {
        Ok(snapshot) => (snapshot.warnings.clone(), Some(snapshot)),
        Err(Error::Invalid(findings)) => (findings, None),
        Err(error) => return Err(error.into()),
    };
    let fields: Vec<_> = snapshot.iter().flat_map(|s| s.manifest.declared()).collect();
    if options.json {
        let fields: Vec<_> = fields
            .iter()
            .map(|(keys, field)| json!({ "field": keys, "label": field.label.to_string() }))
            .collect();
        out::json(&json!({
            "version": 1, "valid": snapshot.is_some(), "findings": findings, "fields": fields,
        }));
    } else {
        for finding in &findings {
            out::diagnostic(finding);
        }
        for (keys, field) in &fields {
            out::data(&format!("{keys:<40} {}", field.label));
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
