//! The strict decode of a manifest: every field, every rule, all findings in one go.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::decode::{Table, Value};
use crate::literals::manifest as literals;
use crate::source::Source;
use crate::{Diagnostic, Document, Id, Manifest, Places, Severity, cross, effective};

mod agent;
mod approvals;
mod clis;
mod content;
mod hints;
mod policy;
mod sandbox;
mod servers;
mod spending;
mod words;

#[cfg(test)]
pub(crate) mod tests;

pub use clis::CLIS;
pub use policy::{PatternCheck, PolicyList, policy_tables};

/// Decodes one manifest, with an overlay laid over it where there is one. The paths are only shown.
/// Gives the manifest with warnings, or all findings when one of them is an error.
///
/// # Errors
/// Every finding, errors and warnings, in the order of the text.
pub fn parse_manifest(
    file: &Path,
    text: &str,
    overlay: Option<(&Path, &str)>,
) -> Result<(Manifest, Vec<Diagnostic>), Vec<Diagnostic>> {
    let mut sources = vec![Source::new(file, text)];
    sources.extend(overlay.map(|(file, text)| Source::new(file, text)));
    decode_sources(sources)
}

pub(crate) fn decode_sources(
    sources: Vec<Source>,
) -> Result<(Manifest, Vec<Diagnostic>), Vec<Diagnostic>> {
    let blank = |source: &Source| source.text().trim().is_empty();
    if sources.first().is_some_and(blank) {
        return Err(vec![Diagnostic {
            severity: Severity::Error,
            rule: "empty-file",
            message: "the manifest is empty".to_owned(),
            at: sources.first().map(|source| source.place(0..0)),
            help: Some("it needs at least `version = 1`".to_owned()),
            next: Some("ringfence validate".to_owned()),
        }]);
    }
    // What an overlay replaces must be valid all the same: others have the file without it.
    let mut findings = if sources.len() > 1 {
        let alone = Document::from_sources(vec![sources[0].clone()]);
        let _ = decode(&alone);
        alone.into_findings()
    } else {
        Vec::new()
    };
    findings.retain(|finding| finding.rule != "missing-key");
    let conflicts = effective::conflicts(&sources);
    let mut secrets = literals::in_sources(&sources);
    let document = Document::from_sources(sources);
    let mut manifest = decode(&document);
    if !document.is_broken() {
        cross::check(&manifest, &document);
        secrets.extend(literals::in_values(&manifest, &document));
    }
    manifest.places = document.places();
    let conflicting: BTreeSet<_> =
        conflicts.iter().filter_map(|it| Some(it.at.as_ref()?.line)).collect();
    for finding in document.into_findings() {
        // What a conflict says already.
        let again = finding.rule == "wrong-type"
            && finding.at.as_ref().is_some_and(|at| {
                conflicting.contains(&at.line)
                    && conflicts[0].at.as_ref().is_some_and(|it| it.file == at.file)
            });
        if !again && !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    findings.extend(conflicts);
    literals::report(&secrets, &mut findings);
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        return Err(findings);
    }
    Ok((manifest, findings))
}

/// Reads every field; what is wrong is reported to the document and left at its default.
pub(crate) fn decode(document: &Document) -> Manifest {
    let root = document.root();
    root.hint(hints::TOP);
    if let Some(version) = root.require("version")
        && let Some(number) = version.integer(1..=u64::MAX)
        && number != 1
    {
        let message = format!("version {number} is newer than this program, which reads version 1");
        version.error("bad-value", message, None);
    }
    let (agent, own) = agent::agent(&root);
    let top = root.get("capabilities");
    if let (Some(_), Some(top)) = (&own, &top) {
        let message = "capabilities are declared here and under `[agent]`".to_owned();
        top.error("duplicate-key", message, Some("keep one of the two".to_owned()));
    }
    let manifest = Manifest {
        meta: agent::meta(&root),
        agent,
        capabilities: own.or(top).map(|value| agent::capabilities(&value)).unwrap_or_default(),
        sandbox: sandbox::sandbox(&root),
        limits: sandbox::limits(&root),
        servers: servers::servers(&root),
        skills: content::sources(&root, "skills"),
        instructions: content::sources(&root, "instructions"),
        settings: content::settings(&root),
        hooks: content::hooks(&root),
        extensions: content::extensions(&root),
        workflows: content::sources(&root, "workflows"),
        toolsets: content::toolsets(&root),
        delivery: content::delivery(&root),
        approvals: approvals::approvals(&root),
        spending: spending::spending(&root),
        a2a: spending::a2a(&root),
        policy: root
            .table("policy")
            .map(|table| {
                let tables = policy_tables(&table, &policy::plain);
                table.finish();
                tables
            })
            .unwrap_or_default(),
        places: Places::default(),
    };
    root.finish();
    manifest
}

/// The entries of `[<key>.*]`: names parsed, each table read and finished. An entry with a bad name
/// is read all the same, so that one pass finds everything.
fn named<T>(
    root: &Table<'_>,
    key: &str,
    read: impl Fn(&Table<'_>) -> Option<T>,
) -> BTreeMap<Id, T> {
    let mut found = BTreeMap::new();
    let Some(table) = root.table(key) else { return found };
    for (name, value) in table.entries() {
        let id = Id::parse(name);
        if let Err(error) = &id {
            table.name_error_with(name, "bad-name", error.to_string(), hints::name(name));
        }
        let Some(entry) = value.table() else { continue };
        let item = read(&entry);
        entry.finish();
        if let (Ok(id), Some(item)) = (id, item) {
            found.insert(id, item);
        }
    }
    table.finish();
    found
}

fn id(value: &Value<'_>) -> Option<Id> {
    value.parsed_or("bad-name", Id::parse, hints::name)
}
