//! Preferences: keys that say where declared things land. They are written in place, with comments and
//! order kept.

use toml_edit::{DocumentMut, Item, Table, Value};

use crate::{Diagnostic, Severity, Snapshot, parse, source, text};

#[cfg(test)]
mod tests;

/// Every preference, as `table` and `key`.
const PREFERENCES: [(&str, &str); 2] = [("delivery", "render_locally"), ("meta", "gitignore")];

/// One of the two layers of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// `ringfence.toml`
    Manifest,
    /// `ringfence.local.toml`, laid over it.
    Overlay,
}

impl Layer {
    /// The name of its file, in `.ringfence/`.
    #[must_use]
    pub const fn file(self) -> &'static str {
        match self {
            Self::Manifest => crate::snapshot::MANIFEST,
            Self::Overlay => crate::snapshot::OVERLAY,
        }
    }
}

impl Snapshot {
    /// The bytes of a layer, `None` when there is no file.
    #[must_use]
    pub fn layer(&self, layer: Layer) -> Option<&[u8]> {
        match layer {
            Layer::Manifest => Some(&self.manifest_bytes),
            Layer::Overlay => self.local_bytes.as_deref(),
        }
    }
}

/// Every key that [`set_preference`] writes.
#[must_use]
pub fn preferences() -> Vec<String> {
    PREFERENCES.iter().map(|(table, key)| format!("{table}.{key}")).collect()
}

/// The text of a layer with one preference set: `value` is TOML. What was there stays as it was
/// written. The bundle with it is valid.
///
/// # Errors
/// What is wrong, in words: no preference, no value, or not of its type.
pub fn set_preference(
    snapshot: &Snapshot,
    layer: Layer,
    key: &str,
    value: &str,
) -> Result<String, String> {
    let known = PREFERENCES.iter().find(|(table, name)| key == format!("{table}.{name}"));
    let Some((table, name)) = known else {
        return Err(format!("`{}` is not a preference", text::shown(key)));
    };
    let parsed: Value = value
        .trim()
        .parse()
        .map_err(|_| format!("`{}` is not a TOML value", text::shown(value)))?;
    let mut parsed = parsed.decorated(" ", "");
    let old = std::str::from_utf8(snapshot.layer(layer).unwrap_or_default())
        .map_err(|_| "the file is not UTF-8 text".to_owned())?;
    let mut document: DocumentMut =
        old.parse().map_err(|_| "the file does not parse".to_owned())?;
    let entry = document.entry(table).or_insert_with(|| Item::Table(Table::new()));
    let Some(entry) = entry.as_table_like_mut() else {
        return Err(format!("`{table}` is not a table"));
    };
    match entry.get_mut(name).and_then(Item::as_value_mut) {
        Some(before) => {
            // A comment behind the value stays there.
            *parsed.decor_mut() = before.decor().clone();
            *before = parsed;
        }
        None => {
            entry.insert(name, Item::Value(parsed));
        }
    }
    let new = document.to_string();
    check(snapshot, layer, &new)?;
    Ok(new)
}

/// The bundle must be valid with the new text.
fn check(snapshot: &Snapshot, layer: Layer, new: &str) -> Result<(), String> {
    let mut sources = Vec::new();
    for each in [Layer::Manifest, Layer::Overlay] {
        let bytes = if each == layer { Some(new.as_bytes()) } else { snapshot.layer(each) };
        let Some(bytes) = bytes else { continue };
        let file = snapshot.folder().join(each.file());
        sources.push(source::Source::from_bytes(&file, bytes).map_err(|found| said(&[*found]))?);
    }
    parse::decode_sources(sources).map(drop).map_err(|found| said(&found))
}

fn said(findings: &[Diagnostic]) -> String {
    let first = findings.iter().find(|finding| finding.severity == Severity::Error);
    first.map_or_else(|| "the bundle is not valid".to_owned(), |first| first.message.clone())
}
