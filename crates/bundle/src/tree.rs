//! TOML as a tree of values that know where they stand.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where a value stands: which file, and which bytes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) source: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) at: Span,
    pub(crate) data: Data,
}

/// A key with its value.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key_at: Span,
    pub(crate) value: Node,
}

pub(crate) type Entries = BTreeMap<String, Entry>;

#[derive(Debug, Clone)]
pub(crate) enum Data {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Datetime,
    Array(Vec<Node>),
    Table(Entries),
    /// A number that no 64-bit type holds.
    TooLarge,
    /// What stands where the parser gave up; it has reported that already.
    Broken,
}

impl Data {
    /// What it is, with its article, for a message.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) | Self::TooLarge => "an integer",
            Self::Float(_) => "a float",
            Self::Boolean(_) => "a boolean",
            Self::Datetime => "a date-time",
            Self::Array(_) => "an array",
            Self::Table(_) => "a table",
            Self::Broken => "nothing",
        }
    }
}

pub(crate) fn from_table(source: usize, table: &DeTable<'_>) -> Entries {
    table
        .iter()
        .map(|(key, value)| {
            let range = key.span();
            let key_at = Span { source, start: range.start, end: range.end };
            (key.get_ref().clone().into_owned(), Entry { key_at, value: from_value(source, value) })
        })
        .collect()
}

fn from_value(source: usize, value: &Spanned<DeValue<'_>>) -> Node {
    let range = value.span();
    let data = match value.get_ref() {
        DeValue::String(text) => Data::Text(text.clone().into_owned()),
        DeValue::Integer(number) if number.as_str().is_empty() => Data::Broken,
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or(Data::TooLarge, Data::Integer),
        DeValue::Float(number) if number.as_str().is_empty() => Data::Broken,
        DeValue::Float(number) => number.as_str().parse().map_or(Data::Broken, Data::Float),
        DeValue::Boolean(value) => Data::Boolean(*value),
        DeValue::Datetime(_) => Data::Datetime,
        DeValue::Array(items) => {
            Data::Array(items.iter().map(|item| from_value(source, item)).collect())
        }
        DeValue::Table(table) => Data::Table(from_table(source, table)),
    };
    Node { at: Span { source, start: range.start, end: range.end }, data }
}

/// Lays one tree over another: tables merge, anything else replaces what was there.
pub(crate) fn lay_over(base: &mut Entries, over: &Entries) {
    for (key, entry) in over {
        if let (
            Some(Entry { value: Node { data: Data::Table(below), .. }, .. }),
            Data::Table(above),
        ) = (base.get_mut(key), &entry.value.data)
        {
            lay_over(below, above);
        } else {
            base.insert(key.clone(), entry.clone());
        }
    }
}

/// Where one tree has a table and the other has none: the keys that lead there, and both places.
pub(crate) fn conflicts(base: &Entries, over: &Entries) -> Vec<(String, Span, Entry)> {
    let mut found = Vec::new();
    for (key, above) in over {
        let Some(below) = base.get(key) else { continue };
        match (&below.value.data, &above.value.data) {
            (Data::Table(base), Data::Table(over)) => {
                let inner = conflicts(base, over).into_iter();
                found.extend(inner.map(|(keys, at, entry)| (format!("{key}.{keys}"), at, entry)));
            }
            (Data::Table(_), _) | (_, Data::Table(_)) => {
                found.push((key.clone(), below.key_at, above.clone()));
            }
            _ => {}
        }
    }
    found
}
