//! Reading a table.

use std::cell::{Cell, RefCell};

use super::{Path, Table, Value, closest, list_of};
use crate::document::Document;
use crate::tree::{Entries, Span};
use crate::{Severity, text};

impl<'d> Table<'d> {
    pub(crate) fn new(document: &'d Document, path: Path, entries: &'d Entries, at: Span) -> Self {
        Self { document, path, entries, at, known: RefCell::default(), hints: Cell::new(&[]) }
    }

    /// The value of a key, if it is there.
    pub fn get(&self, key: &str) -> Option<Value<'d>> {
        let path = self.path.key(key, key);
        self.document.ask(path.pattern.clone());
        self.known.borrow_mut().insert(key.to_owned());
        let entry = self.entries.get(key)?;
        let value = Value { document: self.document, path, node: &entry.value };
        self.document.remember(&value.path, value.span_or(entry.key_at));
        Some(value)
    }

    /// The value of a key that must be there.
    pub fn require(&self, key: &str) -> Option<Value<'d>> {
        self.require_or(key, None)
    }

    /// As [`Table::require`], and what to write where it is absent.
    pub(crate) fn require_or(&self, key: &str, help: Option<String>) -> Option<Value<'d>> {
        let value = self.get(key);
        if value.is_none() && !self.document.is_broken() {
            let table = match self.path.path.as_str() {
                "" => "the file".to_owned(),
                path => format!("`{path}`"),
            };
            self.error("missing-key", format!("{table} needs `{key}`"), help);
        }
        value
    }

    /// Whether a key is there; it counts as asked for.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Whether a key is there; it does not count as asked for.
    pub(crate) fn holds(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// A table by name, if it is there.
    pub fn table(&self, key: &str) -> Option<Self> {
        self.get(key)?.table()
    }

    /// An array of tables by name; empty when it is absent.
    pub fn tables(&self, key: &str) -> Vec<Self> {
        self.get(key)
            .and_then(|value| value.list())
            .unwrap_or_default()
            .iter()
            .filter_map(Value::table)
            .collect()
    }

    /// Every entry of a table whose keys are names that the author chose.
    pub fn entries(&self) -> Vec<(&'d str, Value<'d>)> {
        self.document.ask(self.path.key("*", "*").pattern);
        self.entries
            .iter()
            .take(self.document.max_items())
            .map(|(name, entry)| {
                let path = self.path.key(name, "*");
                self.known.borrow_mut().insert(name.clone());
                let value = Value { document: self.document, path, node: &entry.value };
                self.document.remember(&value.path, value.span_or(entry.key_at));
                (name.as_str(), value)
            })
            .collect()
    }

    /// The keys that lead here, for [`Document::error_at`].
    #[must_use]
    pub fn keys(&self) -> &str {
        &self.path.path
    }

    /// Reports an error about the table as a whole.
    pub fn error(&self, rule: &'static str, message: String, help: Option<String>) {
        self.document.report(Severity::Error, self.at, rule, message, help);
    }

    /// Reports an error about the name of one of its entries.
    pub fn name_error(&self, name: &str, rule: &'static str, message: String) {
        self.name_error_with(name, rule, message, None);
    }

    /// As [`Table::name_error`], and what to write instead.
    pub(crate) fn name_error_with(
        &self,
        name: &str,
        rule: &'static str,
        message: String,
        help: Option<String>,
    ) {
        self.document.report(Severity::Error, self.name_at(name), rule, message, help);
    }

    /// Reports a warning about the name of one of its entries.
    pub(crate) fn name_warning(
        &self,
        name: &str,
        rule: &'static str,
        message: String,
        help: Option<String>,
    ) {
        self.document.report(Severity::Warning, self.name_at(name), rule, message, help);
    }

    fn name_at(&self, name: &str) -> Span {
        self.entries.get(name).map_or(self.at, |entry| entry.key_at)
    }

    /// What is said of keys that stand here in other programs' files and mean nothing here.
    pub(crate) fn hint(&self, hints: &'static [(&'static str, &'static str)]) {
        self.hints.set(hints);
    }

    /// Reports every key that was not asked for.
    pub fn finish(self) {
        let known = self.known.into_inner();
        let max = self.document.max_items();
        if self.entries.len() > max {
            self.document.report(
                Severity::Error,
                self.at,
                "too-many",
                format!("it holds more than {max} entries"),
                None,
            );
            return;
        }
        for (key, entry) in self.entries.iter().filter(|(key, _)| !known.contains(*key)) {
            if self.document.is_full() {
                break;
            }
            let table = match self.path.path.as_str() {
                "" => "the top level".to_owned(),
                path => format!("`{path}`"),
            };
            let foreign = self.hints.get().iter().find(|(foreign, _)| foreign == key);
            let help = match (foreign, closest(key, known.iter().map(String::as_str))) {
                (Some((_, help)), _) => (*help).to_owned(),
                (None, Some(near)) => format!("did you mean `{near}`?"),
                (None, None) => {
                    format!("known here: {}", list_of(known.iter().map(String::as_str)))
                }
            };
            self.document.report(
                Severity::Error,
                entry.key_at,
                "unknown-key",
                format!("`{}` is not a key of {table}", text::shown(key)),
                Some(help),
            );
        }
    }
}
