//! The manifest that holds: the overlay laid over, and where each value comes from.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value as Json;
use toml::de::DeTable;

use crate::fields::fields;
use crate::lock::quoted;
use crate::source::Source;
use crate::tree::{self, Data, Entries, Node};
use crate::{Diagnostic, Label, Severity, text};

#[cfg(test)]
mod tests;

/// The manifest that holds.
#[derive(Debug)]
pub struct Effective {
    sources: Vec<Source>,
    entries: Entries,
}

/// One value and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The keys that lead to it, as TOML spells them: `servers.search.args`,
    /// `approvals.require[0].tool`.
    pub key: String,
    /// The value.
    pub value: Json,
    /// The file, as it is named in messages.
    pub file: PathBuf,
    /// Its line there, from 1.
    pub line: usize,
}

impl Effective {
    /// Lays each text over those before it. They were parsed before and have no errors.
    pub(crate) fn of(sources: Vec<Source>) -> Self {
        let mut entries = Entries::new();
        for (index, source) in sources.iter().enumerate() {
            tree::lay_over(&mut entries, &parsed(index, source));
        }
        Self { sources, entries }
    }

    /// As TOML, which parses to the same manifest. With `origin`, each value is followed by a comment
    /// that names its file and line, and what holds where nothing is declared is listed at the end.
    #[must_use]
    pub fn toml(&self, origin: bool) -> String {
        let mut out = String::new();
        self.table(&mut out, "", &self.entries, origin);
        if origin {
            out.push_str("\n# Where nothing is declared:\n");
            for (key, holds) in self.defaults() {
                let _ = writeln!(out, "# {key}: {holds}  # default");
            }
        }
        out
    }

    /// Every value that is declared, in the order of its keys.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        self.collect("", &self.entries, &mut rows);
        rows
    }

    /// What holds where nothing is declared, of fields that are enforced or validated: keys, and the
    /// default in words.
    #[must_use]
    pub fn defaults(&self) -> Vec<(String, &'static str)> {
        let mut found = Vec::new();
        for field in fields() {
            let weighs = matches!(field.label, Label::Enforced(_) | Label::Validated);
            let Some(holds) = field.default.filter(|_| weighs && !field.path.contains("[]")) else {
                continue;
            };
            let keys: Vec<&str> = field.path.split('.').collect();
            for (key, around) in absent("", Some(&self.entries), &keys) {
                // Some fields belong to one form of their table only.
                let has = |name: &str| around.is_some_and(|table| table.contains_key(name));
                let other = match field.path {
                    "servers.*.args" | "servers.*.allowed_hosts" => !has("command"),
                    "agent.capabilities" => !self.entries.contains_key("agent"),
                    "capabilities" => self.entries.contains_key("agent"),
                    _ => false,
                };
                if !other {
                    found.push((key, holds));
                }
            }
        }
        found
    }

    fn table(&self, out: &mut String, path: &str, entries: &Entries, origin: bool) {
        for (key, entry) in entries.iter().filter(|(_, entry)| !is_section(&entry.value)) {
            let _ = write!(out, "{} = ", bare(key));
            self.value(out, &entry.value);
            if origin {
                let (file, line) = self.origin(&entry.value);
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                let _ = write!(out, "  # {name}:{line}");
            }
            out.push('\n');
        }
        for (key, entry) in entries {
            let path = joined(path, key);
            match &entry.value.data {
                Data::Table(inner) => {
                    // Headers of tables that only hold tables say nothing.
                    if inner.is_empty() || inner.values().any(|it| !is_section(&it.value)) {
                        let _ = writeln!(out, "{}[{path}]", gap(out));
                    }
                    self.table(out, &path, inner, origin);
                }
                Data::Array(items) if is_section(&entry.value) => {
                    for item in items {
                        let Data::Table(inner) = &item.data else { continue };
                        let _ = writeln!(out, "{}[[{path}]]", gap(out));
                        self.table(out, &path, inner, origin);
                    }
                }
                _ => {}
            }
        }
    }

    fn value(&self, out: &mut String, node: &Node) {
        match &node.data {
            Data::Text(text) => out.push_str(&quoted(text)),
            Data::Integer(number) => drop(write!(out, "{number}")),
            Data::Float(number) if number.is_nan() => out.push_str("nan"),
            Data::Float(number) => drop(write!(out, "{number:?}")),
            Data::Boolean(value) => drop(write!(out, "{value}")),
            Data::Array(items) => {
                out.push('[');
                for (nth, item) in items.iter().enumerate() {
                    out.push_str(if nth > 0 { ", " } else { "" });
                    self.value(out, item);
                }
                out.push(']');
            }
            Data::Table(entries) if entries.is_empty() => out.push_str("{}"),
            Data::Table(entries) => {
                out.push_str("{ ");
                for (nth, (key, entry)) in entries.iter().enumerate() {
                    let _ = write!(out, "{}{} = ", if nth > 0 { ", " } else { "" }, bare(key));
                    self.value(out, &entry.value);
                }
                out.push_str(" }");
            }
            // No valid manifest holds these.
            Data::Datetime | Data::TooLarge | Data::Broken => out.push_str("\"\""),
        }
    }

    fn collect(&self, path: &str, entries: &Entries, rows: &mut Vec<Row>) {
        for (key, entry) in entries {
            let path = joined(path, key);
            match &entry.value.data {
                Data::Table(inner) if !inner.is_empty() => self.collect(&path, inner, rows),
                Data::Array(items) if is_section(&entry.value) => {
                    for (nth, item) in items.iter().enumerate() {
                        if let Data::Table(inner) = &item.data {
                            self.collect(&format!("{path}[{nth}]"), inner, rows);
                        }
                    }
                }
                _ => {
                    let (file, line) = self.origin(&entry.value);
                    rows.push(Row { key: path, value: json(&entry.value), file, line });
                }
            }
        }
    }

    fn origin(&self, node: &Node) -> (PathBuf, usize) {
        let place = self.sources[node.at.source].place(node.at.start..node.at.end);
        (place.file, place.line)
    }
}

/// What an overlay declares as a table and the manifest does not, or the other way round.
pub(crate) fn conflicts(sources: &[Source]) -> Vec<Diagnostic> {
    let [base, over] = sources else { return Vec::new() };
    let found = tree::conflicts(&parsed(0, base), &parsed(1, over));
    let finding = |(keys, at, above): (String, tree::Span, tree::Entry)| {
        let below = base.place(at.start..at.end);
        let is = |table: bool| if table { "a table" } else { "no table" };
        let table = matches!(above.value.data, Data::Table(_));
        Diagnostic {
            severity: Severity::Error,
            rule: "overlay-conflict",
            message: format!(
                "`{}` is {} here and {} at {}:{}: neither can be laid over the other",
                text::shown(&keys),
                is(table),
                is(!table),
                below.file.display(),
                below.line
            ),
            at: Some(over.place(above.key_at.start..above.key_at.end)),
            help: Some("write it in both files in the same form".to_owned()),
            next: Some("ringfence validate".to_owned()),
        }
    };
    found.into_iter().take(100).map(finding).collect()
}

/// What of a text parses; the strict parse has reported the rest.
fn parsed(index: usize, source: &Source) -> Entries {
    let Ok(table) = DeTable::parse(source.text()) else { return Entries::new() };
    tree::from_table(index, table.get_ref())
}

/// Whether it is written under a header of its own: a table, or an array of nothing but tables.
fn is_section(node: &Node) -> bool {
    match &node.data {
        Data::Table(_) => true,
        Data::Array(items) => {
            !items.is_empty() && items.iter().all(|item| matches!(item.data, Data::Table(_)))
        }
        _ => false,
    }
}

/// An empty line between what stands there and the next header.
fn gap(out: &str) -> &'static str {
    if out.is_empty() { "" } else { "\n" }
}

fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { bare(key) } else { format!("{path}.{}", bare(key)) }
}

/// A key as TOML spells it.
fn bare(key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if !key.is_empty() && key.bytes().all(plain) { key.to_owned() } else { quoted(key) }
}

/// Where the keys of a pattern lead and nothing is, with the table around it. Names that the author
/// chose must be there; other tables need not.
fn absent<'e>(
    path: &str,
    around: Option<&'e Entries>,
    keys: &[&str],
) -> Vec<(String, Option<&'e Entries>)> {
    let inner = |key: &str| match around?.get(key).map(|entry| &entry.value.data) {
        Some(Data::Table(table)) => Some(table),
        _ => None,
    };
    match keys {
        [] => Vec::new(),
        [last] => {
            let there = around.is_some_and(|table| table.contains_key(*last));
            if there { Vec::new() } else { vec![(joined(path, last), around)] }
        }
        ["*", rest @ ..] => around
            .into_iter()
            .flat_map(|table| table.keys())
            .filter_map(|name| Some((name, inner(name)?)))
            .flat_map(|(name, table)| absent(&joined(path, name), Some(table), rest))
            .collect(),
        [key, rest @ ..] => absent(&joined(path, key), inner(key), rest),
    }
}

fn json(node: &Node) -> Json {
    match &node.data {
        Data::Text(text) => Json::from(text.as_str()),
        Data::Integer(number) => Json::from(*number),
        Data::Float(number) => Json::from(*number),
        Data::Boolean(value) => Json::from(*value),
        Data::Array(items) => Json::Array(items.iter().map(json).collect()),
        Data::Table(entries) => Json::Object(
            entries.iter().map(|(key, entry)| (key.clone(), json(&entry.value))).collect(),
        ),
        // No valid manifest holds these.
        Data::Datetime | Data::TooLarge | Data::Broken => Json::Null,
    }
}
