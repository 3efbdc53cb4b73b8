//! Literal secrets in a manifest: an error with its place, and shown nowhere.

use std::path::Path;

use super::{Context, Literal, find};
use crate::manifest::{Template, Transport};
use crate::source::Source;
use crate::{Diagnostic, Document, Manifest, Place, Severity, text};

const RULE: &str = "literal-secret";
/// So much of a secret in a message gives it away.
const TELLING: usize = 8;

/// One literal in a source, with the text that must not be shown.
pub(crate) struct Found {
    place: Place,
    secret: String,
    literal: Literal,
    /// Only the decoded value shows it: in the text it is spelt otherwise.
    decoded: bool,
}

/// Literals in the text of manifest and overlay as they stand, comments too.
pub(crate) fn in_sources(sources: &[Source]) -> Vec<Found> {
    let mut found = Vec::new();
    for source in sources {
        let bytes = source.text().as_bytes();
        for literal in find(bytes, Context::File(Path::new("ringfence.toml"))) {
            let range = literal.range.clone();
            let secret = String::from_utf8_lossy(&bytes[range.clone()]).into_owned();
            found.push(Found { place: source.place(range), secret, literal, decoded: false });
        }
    }
    found
}

/// Literals that only the decoded values show: behind escapes, or where their key is not beside
/// them. Those that stand in the text are left to [`in_sources`].
pub(crate) fn in_values(manifest: &Manifest, document: &Document) -> Vec<Found> {
    let mut found = Vec::new();
    let mut look = |keys: String, key: &str, value: &str| {
        for literal in find(value.as_bytes(), Context::Value(key)) {
            let secret = value[literal.range.clone()].to_owned();
            // What has no place of its own stands in the nearest table that has one.
            let place = document.places().find(&keys).unwrap_or_else(|| Place {
                file: "ringfence.toml".into(),
                line: 1,
                column: 1,
                text: String::new(),
                width: 1,
            });
            found.push(Found { place, secret, literal, decoded: true });
        }
    };
    for (id, server) in &manifest.servers {
        match &server.transport {
            Transport::Http { url, headers } => {
                look(format!("servers.{id}.url"), "url", url);
                for (name, value) in headers {
                    look(format!("servers.{id}.headers.{name}"), name, literal_of(value));
                }
            }
            Transport::Stdio { command, args, env, .. } => {
                look(format!("servers.{id}.command"), "command", command);
                for (name, value) in env {
                    look(format!("servers.{id}.env.{name}"), name, literal_of(value));
                }
                let args = args.iter().map(literal_of);
                words(&format!("servers.{id}.args"), args, &mut look);
            }
        }
    }
    words("sandbox.command", manifest.sandbox.command.iter().map(String::as_str), &mut look);
    for (id, hook) in &manifest.hooks {
        look(format!("hooks.{id}.command"), "command", &hook.command);
    }
    for (target, settings) in &manifest.settings {
        for (key, value) in settings {
            json(&format!("settings.{target}.{key}"), key, value, &mut look);
        }
    }
    found
}

/// A template's text; a reference in it is no value.
fn literal_of(template: &Template) -> &str {
    template.as_str()
}

/// Words of a command: `--token VALUE` and `--token=VALUE` have a key each.
fn words<'a>(
    keys: &str,
    words: impl Iterator<Item = &'a str>,
    look: &mut impl FnMut(String, &str, &str),
) {
    let mut before = "";
    for (index, word) in words.enumerate() {
        match word.split_once('=').filter(|(name, _)| name.starts_with('-')) {
            Some((name, value)) => look(format!("{keys}[{index}]"), name, value),
            None => look(format!("{keys}[{index}]"), before, word),
        }
        before = if word.starts_with('-') { word } else { "" };
    }
}

fn json(
    keys: &str,
    key: &str,
    value: &serde_json::Value,
    look: &mut impl FnMut(String, &str, &str),
) {
    match value {
        serde_json::Value::String(text) => look(keys.to_owned(), key, text),
        serde_json::Value::Array(items) => {
            items.iter().for_each(|item| json(keys, key, item, look));
        }
        serde_json::Value::Object(map) => {
            map.iter().for_each(|(key, item)| json(keys, key, item, look));
        }
        _ => {}
    }
}

/// Adds the finding of each literal, and takes the literals out of every finding: of the lines that
/// they show, and of their words.
pub(crate) fn report(found: &[Found], findings: &mut Vec<Diagnostic>) {
    let mut own: Vec<Diagnostic> = Vec::new();
    let stands = |secret: &str| found.iter().any(|other| !other.decoded && other.secret == secret);
    for Found { place, literal, .. } in found.iter().filter(|f| !(f.decoded && stands(&f.secret))) {
        let same = |other: &Diagnostic| {
            other.at.as_ref().is_some_and(|at| {
                at.file == place.file
                    && at.line == place.line
                    && at.column < place.column + place.width
                    && place.column < at.column + at.width
            })
        };
        if own.iter().any(same) {
            continue;
        }
        // The warning about a header with a literal says less.
        findings.retain(|other| !(other.rule == RULE && same(other)));
        own.push(Diagnostic {
            severity: Severity::Error,
            rule: RULE,
            message: format!(
                "a literal secret ({}: {}): everyone who has the file has it",
                literal.rule,
                text::shown(&literal.preview)
            ),
            at: Some(place.clone()),
            help: Some(
                "put it into the keychain with `ringfence secret set NAME` and write `${NAME}`; \
                 if others have seen the file, have it revoked"
                    .to_owned(),
            ),
            next: Some("ringfence secret set NAME".to_owned()),
        });
    }
    findings.extend(own);
    for finding in findings.iter_mut() {
        if let Some(at) = &mut finding.at {
            for Found { place, secret, decoded, .. } in found {
                if *decoded && !stands(secret) {
                    // Nobody knows how it is spelt, and so not in which of the lines.
                    at.text = "(not shown: the file holds a literal secret)".to_owned();
                    break;
                }
                if at.file == place.file && at.line == place.line {
                    at.text = masked(&at.text, place.column, place.width);
                }
                // A key runs over lines, each of which may be shown by a finding of its own.
                for line in secret.lines().map(str::trim).filter(|line| line.len() >= TELLING) {
                    at.text = at.text.replace(line, "***");
                }
            }
        }
        let tells = |words: &str| {
            found.iter().any(|found| {
                let telling: String = found.secret.chars().take(TELLING + prefix(found)).collect();
                words.contains(&telling)
            })
        };
        if tells(&finding.message) {
            finding.message = "what stands here is not shown: it holds a literal secret".to_owned();
        }
        finding.help.take_if(|help| tells(help));
    }
}

/// How long the part is that everybody knows.
fn prefix(found: &Found) -> usize {
    found.literal.preview.find('…').unwrap_or(0)
}

fn masked(line: &str, column: usize, width: usize) -> String {
    let hidden = column..column + width;
    line.chars()
        .enumerate()
        .map(|(at, c)| if hidden.contains(&(at + 1)) { '*' } else { c })
        .collect()
}
