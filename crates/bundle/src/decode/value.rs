//! Reading a value.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::{Table, Value, closest, list_of, to_json};
use crate::tree::{Data, Span};
use crate::{Severity, text};

impl<'d> Value<'d> {
    /// A string.
    #[must_use]
    pub fn text(&self) -> Option<&'d str> {
        match &self.node.data {
            Data::Text(value) => Some(value),
            _ => self.wrong_type("a string"),
        }
    }

    /// A string, without a finding where it is none.
    pub(crate) fn peek(&self) -> Option<&'d str> {
        match &self.node.data {
            Data::Text(value) => Some(value),
            _ => None,
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
        let max = self.document.max_items();
        if items.len() > max {
            self.error("too-many", format!("it holds more than {max} values"), None);
            return None;
        }
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
        self.parsed_or(rule, parse, |_| None)
    }

    /// As [`Value::parsed`], and where it is not accepted what to write instead, as far as `help`
    /// knows.
    pub(crate) fn parsed_or<T, E: Display>(
        &self,
        rule: &'static str,
        parse: impl FnOnce(&'d str) -> Result<T, E>,
        help: impl FnOnce(&'d str) -> Option<String>,
    ) -> Option<T> {
        let given = self.text()?;
        match parse(given) {
            Ok(value) => Some(value),
            Err(error) => {
                self.error(rule, error.to_string(), help(given));
                None
            }
        }
    }

    /// One of a few words.
    #[must_use]
    pub fn choice<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        self.choice_or(words, |_| None)
    }

    /// As [`Value::choice`], and what is said of some other words.
    pub(crate) fn choice_or<T: Copy>(
        &self,
        words: &[(&str, T)],
        foreign: impl FnOnce(&str) -> Option<String>,
    ) -> Option<T> {
        let given = self.text()?;
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == given) {
            return Some(*value);
        }
        let all = list_of(words.iter().map(|(word, _)| *word));
        let near = closest(given, words.iter().map(|(word, _)| *word));
        let help = foreign(given).or_else(|| near.map(|near| format!("did you mean `{near}`?")));
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

    /// Whether it is a table, for a value that takes one form or another.
    #[must_use]
    pub fn is_table(&self) -> bool {
        matches!(self.node.data, Data::Table(_))
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
    pub(super) fn span_or(&self, key_at: Span) -> Span {
        if matches!(self.node.data, Data::Table(_)) { key_at } else { self.node.at }
    }
}
