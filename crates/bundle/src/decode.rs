//! A strict reader over a TOML table: each key is asked for by name and type, and what was not
//! asked for is an error.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::document::Document;
use crate::tree::{Data, Entries, Node, Span};
use crate::{Severity, text};

/// The way to a value: as in the file, and with names as `*` and positions as `[]`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Path {
    pub(crate) path: String,
    pub(crate) pattern: String,
}

impl Path {
    fn key(&self, key: &str, pattern: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        Self {
            path: format!("{}{dot}{key}", self.path),
            pattern: format!("{}{dot}{pattern}", self.pattern),
        }
    }

    fn item(&self, index: usize) -> Self {
        Self { path: format!("{}[{index}]", self.path), pattern: format!("{}[]", self.pattern) }
    }
}

/// A table being read. End with [`Table::finish`], which reports every key that nobody asked for.
#[derive(Debug)]
pub struct Table<'d> {
    document: &'d Document,
    path: Path,
    entries: &'d Entries,
    at: Span,
    known: RefCell<BTreeSet<String>>,
}

/// A value being read. Its readers report a wrong type or a bad value and then give `None`.
#[derive(Debug, Clone)]
pub struct Value<'d> {
    document: &'d Document,
    path: Path,
    node: &'d Node,
}

impl<'d> Table<'d> {
    pub(crate) fn new(document: &'d Document, path: Path, entries: &'d Entries, at: Span) -> Self {
        Self { document, path, entries, at, known: RefCell::default() }
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
        let value = self.get(key);
        if value.is_none() && !self.document.is_broken() {
            let table = match self.path.path.as_str() {
                "" => "the file".to_owned(),
                path => format!("`{path}`"),
            };
            self.error("missing-key", format!("{table} needs `{key}`"), None);
        }
        value
    }

    /// Whether a key is there; it counts as asked for.
    pub fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
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
        let at = self.entries.get(name).map_or(self.at, |entry| entry.key_at);
        self.document.report(Severity::Error, at, rule, message, None);
    }

    /// Reports every key that was not asked for.
    pub fn finish(self) {
        let known = self.known.into_inner();
        for (key, entry) in self.entries.iter().filter(|(key, _)| !known.contains(*key)) {
            let table = match self.path.path.as_str() {
                "" => "the top level".to_owned(),
                path => format!("`{path}`"),
            };
            let help = closest(key, known.iter().map(String::as_str)).map_or_else(
                || format!("known here: {}", list_of(known.iter().map(String::as_str))),
                |near| format!("did you mean `{near}`?"),
            );
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

impl<'d> Value<'d> {
    /// A string.
    #[must_use]
    pub fn text(&self) -> Option<&'d str> {
        match &self.node.data {
            Data::Text(value) => Some(value),
            _ => self.wrong_type("a string"),
        }
    }

    /// A string that is not empty and at most `max` characters long.
    #[must_use]
    pub fn text_within(&self, max: usize) -> Option<&'d str> {
        let value = self.text()?;
        if (1..=max).contains(&value.chars().count()) {
            return Some(value);
        }
        self.error("bad-value", format!("expected 1 to {max} characters"), None);
        None
    }

    /// `true` or `false`.
    #[must_use]
    pub fn boolean(&self) -> Option<bool> {
        match self.node.data {
            Data::Boolean(value) => Some(value),
            _ => self.wrong_type("`true` or `false`"),
        }
    }

    /// An integer in a range.
    #[must_use]
    pub fn integer(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let found = match self.node.data {
            Data::Integer(value) => u64::try_from(value).ok(),
            Data::TooLarge => None,
            _ => return self.wrong_type("an integer"),
        };
        if let Some(value) = found.filter(|value| range.contains(value)) {
            return Some(value);
        }
        self.error(
            "out-of-range",
            format!("expected an integer from {} to {}", range.start(), range.end()),
            None,
        );
        None
    }

    /// A number, integer or float, in a range.
    #[must_use]
    pub fn number(&self, range: RangeInclusive<f64>) -> Option<f64> {
        let found = match self.node.data {
            Data::Float(value) => value,
            // Beyond 2^53 an f64 rounds, which no range here reaches.
            #[expect(clippy::cast_precision_loss, reason = "the ranges lie far below 2^53")]
            Data::Integer(value) => value as f64,
            Data::TooLarge => f64::INFINITY,
            _ => return self.wrong_type("a number"),
        };
        if range.contains(&found) {
            return Some(found);
        }
        self.error(
            "out-of-range",
            format!("expected a number from {} to {}", range.start(), range.end()),
            None,
        );
        None
    }

    /// The items of an array.
    #[must_use]
    pub fn list(&self) -> Option<Vec<Self>> {
        let Data::Array(items) = &self.node.data else { return self.wrong_type("an array") };
        let list: Vec<Self> = items
            .iter()
            .enumerate()
            .map(|(index, node)| Self {
                document: self.document,
                path: self.path.item(index),
                node,
            })
            .collect();
        for item in &list {
            self.document.remember(&item.path, item.node.at);
        }
        Some(list)
    }

    /// An array whose items are parsed one by one; a bad item is reported and left out. `None` only
    /// when it is no array.
    #[must_use]
    pub fn list_of<T>(&self, item: impl Fn(&Self) -> Option<T>) -> Option<Vec<T>> {
        Some(self.list()?.iter().filter_map(item).collect())
    }

    /// As [`Value::list_of`], and a value that is there twice is an error.
    #[must_use]
    pub fn set_of<T: PartialEq>(&self, item: impl Fn(&Self) -> Option<T>) -> Option<Vec<T>> {
        let mut found: Vec<T> = Vec::new();
        for value in self.list()? {
            match item(&value) {
                Some(item) if found.contains(&item) => {
                    value.error("duplicate-value", "it is listed twice".to_owned(), None);
                }
                Some(item) => found.push(item),
                None => {}
            }
        }
        Some(found)
    }

    /// A table.
    #[must_use]
    pub fn table(&self) -> Option<Table<'d>> {
        match &self.node.data {
            Data::Table(entries) => {
                Some(Table::new(self.document, self.path.clone(), entries, self.node.at))
            }
            _ => self.wrong_type("a table"),
        }
    }

    /// A string that `parse` accepts; its error becomes the message.
    #[must_use]
    pub fn parsed<T, E: Display>(
        &self,
        rule: &'static str,
        parse: impl FnOnce(&'d str) -> Result<T, E>,
    ) -> Option<T> {
        match parse(self.text()?) {
            Ok(value) => Some(value),
            Err(error) => {
                self.error(rule, error.to_string(), None);
                None
            }
        }
    }

    /// One of a few words.
    #[must_use]
    pub fn choice<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let given = self.text()?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == given) {
            return Some(*value);
        }
        let all = list_of(words.iter().map(|(word, _)| *word));
        let help = closest(given, words.iter().map(|(word, _)| *word))
            .map(|near| format!("did you mean `{near}`?"));
        self.error("bad-value", format!("`{}` is none of {all}", text::shown(given)), help);
        None
    }

    /// Any value as JSON. A float or a date-time has no exact JSON form and is an error, as is a
    /// float that is not finite.
    #[must_use]
    pub fn json(&self, floats: bool) -> Option<serde_json::Value> {
        match to_json(self.node, floats) {
            Ok(value) => Some(value),
            Err((node, message)) => {
                if !matches!(node.data, Data::Broken) {
                    let help = None;
                    let message = message.to_owned();
                    self.document.report(Severity::Error, node.at, "bad-value", message, help);
                }
                None
            }
        }
    }

    /// Whether it is a boolean, for a key that takes one type or another.
    #[must_use]
    pub fn is_boolean(&self) -> bool {
        matches!(self.node.data, Data::Boolean(_))
    }

    /// Its line in its file, from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.document.line_of(self.node.at)
    }

    /// The keys that lead here, for [`Document::error_at`].
    #[must_use]
    pub fn keys(&self) -> &str {
        &self.path.path
    }

    /// Reports an error at this value.
    pub fn error(&self, rule: &'static str, message: String, help: Option<String>) {
        self.document.report(Severity::Error, self.node.at, rule, message, help);
    }

    /// Reports a warning at this value.
    pub fn warn(&self, rule: &'static str, message: String, help: Option<String>) {
        self.document.report(Severity::Warning, self.node.at, rule, message, help);
    }

    fn wrong_type<T>(&self, expected: &str) -> Option<T> {
        if !matches!(self.node.data, Data::Broken) {
            let found = self.node.data.kind();
            self.error("wrong-type", format!("expected {expected}, found {found}"), None);
        }
        None
    }

    /// Its own span; a table that a dotted header made has none worth showing, its key has.
    fn span_or(&self, key_at: Span) -> Span {
        if matches!(self.node.data, Data::Table(_)) { key_at } else { self.node.at }
    }
}

fn to_json(node: &Node, floats: bool) -> Result<serde_json::Value, (&Node, &'static str)> {
    use serde_json::Value as Json;
    Ok(match &node.data {
        Data::Text(value) => Json::from(value.as_str()),
        Data::Integer(value) => Json::from(*value),
        Data::Boolean(value) => Json::from(*value),
        Data::Float(value) if floats => serde_json::Number::from_f64(*value)
            .map(Json::Number)
            .ok_or((node, "JSON has no such number"))?,
        Data::Float(_) => return Err((node, "a float is not exact: write an integer or a string")),
        Data::TooLarge => return Err((node, "the number does not fit 64 bits")),
        Data::Datetime => return Err((node, "a date-time has no JSON form: write a string")),
        Data::Broken => return Err((node, "")),
        Data::Array(items) => {
            Json::Array(items.iter().map(|item| to_json(item, floats)).collect::<Result<_, _>>()?)
        }
        Data::Table(entries) => Json::Object(
            entries
                .iter()
                .map(|(key, entry)| Ok((key.clone(), to_json(&entry.value, floats)?)))
                .collect::<Result<_, _>>()?,
        ),
    })
}

/// The word that a misspelt one was most likely meant to be.
pub(crate) fn closest<'w>(given: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let bound = given.chars().take(64).collect::<String>();
    words
        .map(|word| (strsim::damerau_levenshtein(&bound, word), word))
        .filter(|(distance, word)| *distance <= (word.len() / 3).max(1) || prefix_of(&bound, word))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

fn prefix_of(given: &str, word: &str) -> bool {
    given.len() >= 3 && (word.starts_with(given) || given.starts_with(word))
}

pub(crate) fn list_of<'w>(words: impl Iterator<Item = &'w str>) -> String {
    let words: Vec<String> = words.map(|word| format!("`{word}`")).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}
