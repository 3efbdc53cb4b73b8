//! Every field of the manifest, once: its type, its label, its meaning. `validate`, `run --plan`,
//! the schema and the docs all print from here.

use serde::Serialize;

use crate::Manifest;

mod table;
#[cfg(test)]
mod tests;

/// How much a field does. A declared protection never looks real when it is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "label", content = "by", rename_all = "snake_case")]
pub enum Label {
    /// Something outside the agent holds it; this is what.
    Enforced(&'static str),
    /// It is checked when the manifest is read or the run is planned, and has its effect there.
    Validated,
    /// It is read, checked for form and pinned; nothing acts on it yet.
    Declared,
    /// It is shown and recorded.
    Informational,
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Enforced(by) => write!(f, "enforced ({by})"),
            Self::Validated => f.write_str("validated"),
            Self::Declared => f.write_str("declared"),
            Self::Informational => f.write_str("informational"),
        }
    }
}

/// The type of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum FieldType {
    /// A table with known keys.
    Table,
    /// A table whose keys are names that the author chooses.
    Names,
    /// An array of tables.
    Tables,
    /// A string.
    Text,
    /// An array of strings.
    Texts,
    /// An array of strings, or of tables where there is more to say.
    TextsOrTables,
    /// `true` or `false`.
    Boolean,
    /// `true` or `false`, or an array of strings.
    BooleanOrTexts,
    /// An integer from, to.
    Integer(u64, u64),
    /// A number from, to.
    Number(f64, f64),
    /// USD as a decimal string, at most 8 places.
    Amount,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// An array of these words.
    ManyOf(&'static [&'static str]),
    /// An array of any values.
    Values,
    /// Any value.
    Any,
}

/// One field.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Field {
    /// The way to it, with `*` for a name that the author chooses and `[]` for a position:
    /// `servers.*.pricing.meters[].usage_path`.
    pub path: &'static str,
    /// Its type.
    pub kind: FieldType,
    /// How much it does.
    pub label: Label,
    /// What it is for, in one line, with its unit.
    pub doc: &'static str,
    /// What holds when it is absent.
    pub default: Option<&'static str>,
    /// Whether its table is invalid without it.
    pub required: bool,
}

impl Field {
    /// Whether it only holds other fields.
    #[must_use]
    pub const fn is_container(&self) -> bool {
        matches!(self.kind, FieldType::Table | FieldType::Names | FieldType::Tables)
    }
}

/// Every field, containers too, each after the one that holds it.
#[must_use]
pub fn fields() -> &'static [Field] {
    table::FIELDS
}

/// The field of a path as written in a manifest: `servers.search.env.KEY`, `policy.tools.a[0]`. A
/// path that leads into a free-form value gives the field that holds it.
///
/// ```
/// use ringfence_bundle::field;
/// let url = field("servers.search.url").unwrap();
/// assert_eq!(url.path, "servers.*.url");
/// assert_eq!(url.label.to_string(), "enforced (MCP gate)");
/// ```
#[must_use]
pub fn field(keys: &str) -> Option<&'static Field> {
    let given = segments(keys);
    (1..=given.len()).rev().find_map(|length| {
        fields().iter().find(|field| matches(&segments(field.path), &given[..length]))
    })
}

impl Manifest {
    /// The fields that this manifest sets, without containers, each with the path it stands at.
    #[must_use]
    pub fn declared(&self) -> Vec<(&str, &'static Field)> {
        self.places.paths().filter_map(|keys| Some((keys, exact(keys)?))).collect()
    }
}

fn exact(keys: &str) -> Option<&'static Field> {
    if keys.ends_with(']') {
        return None;
    }
    let given = segments(keys);
    let field = fields().iter().find(|field| matches(&segments(field.path), &given))?;
    (!field.is_container()).then_some(field)
}

/// `a.b[3].c` as `a`, `b`, `[]`, `c`.
fn segments(path: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for part in path.split('.') {
        match part.split_once('[') {
            Some((name, _)) => parts.extend([name, "[]"]),
            None => parts.push(part),
        }
    }
    parts
}

fn matches(pattern: &[&str], given: &[&str]) -> bool {
    pattern.len() == given.len()
        && pattern.iter().zip(given).all(|(pattern, given)| *pattern == "*" || pattern == given)
}
