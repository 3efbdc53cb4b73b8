//! A strict reader over a TOML table: each key is asked for by name and type, and what was not
//! asked for is an error.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use crate::document::Document;
use crate::tree::{Data, Entries, Node, Span};

mod table;
#[cfg(test)]
mod tests;
mod value;

/// An array of a bundle holds at most this many values, and a table at most this many names: what is
/// compared pair by pair stays cheap whatever the file says. [`Document::with_max_items`] sets
/// another bound.
pub(crate) const MAX_ITEMS: usize = 1024;

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
    /// Keys that are unknown here and known elsewhere, and what is said of them.
    hints: Cell<&'static [(&'static str, &'static str)]>,
}

/// A value being read. Its readers report a wrong type or a bad value and then give `None`.
#[derive(Debug, Clone)]
pub struct Value<'d> {
    document: &'d Document,
    path: Path,
    node: &'d Node,
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

/// The word that a misspelt one was most likely meant to be. Names of one letter are all as close to
/// each other: one is suggested only where there is nothing else.
pub(crate) fn closest<'w>(given: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let bound = given.chars().take(64).collect::<String>();
    let words: Vec<&str> = words.collect();
    let letter = |word: &str| word.chars().nth(1).is_none();
    let sure = |word: &str| words.len() == 1 || !(letter(&bound) || letter(word));
    words
        .iter()
        .copied()
        .map(|word| (strsim::damerau_levenshtein(&bound, word), word))
        .filter(|(distance, word)| *distance <= (word.len() / 3).max(1) || prefix_of(&bound, word))
        .filter(|(_, word)| sure(word))
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
