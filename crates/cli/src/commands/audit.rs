//! `ringfence audit`

use std::process::ExitCode;

use ringfence_identity::Did;
use ringfence_record::{Finding, Report, RunState, Severity, VerifyOptions};

use super::{Done, find, home};
use crate::args::{Audit, AuditVerb, Verify};
use crate::escape::escaped;
use crate::out::{self, Colour};

pub(crate) fn run(audit: &Audit) -> Done {
    match &audit.verb {
        AuditVerb::Verify(options) => verify(options),
    }
}

fn verify(options: &Verify) -> Done {
    let home = home()?;
    let run =
        options.run.as_deref().map(|run| find(&home, run, "audit verify --run")).transpose()?;
    let did = options.did.as_deref().map(Did::parse).transpose()?;
    let report = ringfence_record::verify(&home, &VerifyOptions { run, did })?;
    if options.json {
        out::json(
            &serde_json::json!({ "version": 1, "intact": report.intact(), "report": report }),
        );
    } else {
        words(&report);
    }
    Ok(if report.intact() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn words(report: &Report) {
    for finding in &report.findings {
        out::data(&describe(finding));
    }
    let count = |state| report.runs.iter().filter(|run| run.state == state).count();
    let lines: u64 = report.runs.iter().map(|run| run.lines).sum();
    out::data(&format!(
        "{} run(s) checked ({} sealed, {} live, {} unsealed), {lines} lines, and {} lines of the machine log",
        report.runs.len(),
        count(RunState::Sealed),
        count(RunState::Live),
        count(RunState::Unsealed),
        report.machine_lines,
    ));
    out::say(&if report.intact() {
        out::paint(Colour::Green, "the evidence is intact")
    } else {
        out::paint(Colour::Red, "the evidence is not what was written")
    });
}

fn describe(finding: &Finding) -> String {
    let word = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let class = serde_json::to_value(finding.class).unwrap_or_default();
    let line = finding.line.map(|line| format!(":{line}")).unwrap_or_default();
    format!(
        "{}{line}: {word}[{}]: {}",
        escaped(&finding.file.to_string_lossy()),
        class.as_str().unwrap_or_default(),
        escaped(&finding.message)
    )
}
