//! Pinned tool definitions: what a server said of itself when a person asked it.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::quoted;
use crate::{Digest, ServerId, ToolName, text};

/// What one server offered: its instructions and the definition of each tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolPins {
    /// The server.
    pub server: ServerId,
    /// What it tells a model about itself in its handshake, `None` when it tells nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Its tools, sorted by name.
    #[serde(default, rename = "tool")]
    pub tools: Vec<ToolPin>,
}

/// One tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolPin {
    /// Its name.
    pub name: ToolName,
    /// [`tool_digest`] of its definition.
    pub digest: Digest,
    /// The definition, whole: name, title, description, schemas, annotations, and whatever else the
    /// server said.
    #[serde(with = "as_text")]
    pub definition: Value,
}

impl ToolPin {
    /// The row of a definition; `None` when it has no fit name.
    #[must_use]
    pub fn of(definition: Value) -> Option<Self> {
        let name = ToolName::parse(definition.get("name")?.as_str()?).ok()?;
        Some(Self { name, digest: tool_digest(&definition), definition })
    }
}

impl ToolPins {
    /// The row of a tool, if there is one.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&ToolPin> {
        self.tools.iter().find(|pin| pin.name.as_str() == name)
    }

    /// What is wrong with it: a tool that is there twice, or a digest that is not its definition's.
    pub(super) fn flaw(&self) -> Option<String> {
        let mut seen = BTreeSet::new();
        for pin in &self.tools {
            let shown = format!("tool `{}` of `{}`", text::shown(pin.name.as_str()), self.server);
            if !seen.insert(&pin.name) {
                return Some(format!("{shown} has two rows"));
            }
            if pin.definition.get("name").and_then(Value::as_str) != Some(pin.name.as_str()) {
                return Some(format!("{shown} has another's definition"));
            }
            if tool_digest(&pin.definition) != pin.digest {
                return Some(format!("{shown}: its digest is not that of its definition"));
            }
        }
        None
    }

    pub(super) fn render(&self, out: &mut String) {
        // Writing to a string cannot fail.
        let _ = write!(out, "\n[[tools]]\nserver = {}\n", quoted(self.server.as_str()));
        if let Some(instructions) = &self.instructions {
            let _ = writeln!(out, "instructions = {}", quoted(instructions));
        }
        let mut tools: Vec<&ToolPin> = self.tools.iter().collect();
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        for pin in tools {
            let _ = write!(
                out,
                "\n[[tools.tool]]\nname = {}\ndigest = \"{}\"\ndefinition = {}\n",
                quoted(pin.name.as_str()),
                pin.digest,
                literal(&pretty(&pin.definition)),
            );
        }
    }
}

/// The digest of a tool's definition as a server gives it: SHA-256, for the purpose `tool`, over
/// its JSON with keys in the order of RFC 8785 (UTF-16 code units). Numbers stay as they are written,
/// unlike there: two that a double cannot tell apart are told apart.
#[must_use]
pub fn tool_digest(definition: &Value) -> Digest {
    let mut text = String::new();
    write_sorted(definition, &mut text);
    Digest::framed("tool", &[text.as_bytes()])
}

/// As [`tool_digest`], as a plain SHA-256 of the same bytes, for values that are not definitions.
#[must_use]
pub fn json_digest(value: &Value) -> Digest {
    let mut text = String::new();
    write_sorted(value, &mut text);
    Digest(Sha256::digest(text.as_bytes()).into())
}

fn write_sorted(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            text.push('{');
            for (nth, (key, value)) in entries.into_iter().enumerate() {
                if nth > 0 {
                    text.push(',');
                }
                write_sorted(&Value::String(key.clone()), text);
                text.push(':');
                write_sorted(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (nth, item) in items.iter().enumerate() {
                if nth > 0 {
                    text.push(',');
                }
                write_sorted(item, text);
            }
            text.push(']');
        }
        leaf => {
            let _ = write!(text, "{leaf}");
        }
    }
}

/// JSON over several lines, so that a change shows as a line; what does not show is escaped.
fn pretty(value: &Value) -> String {
    let text = format!("{value:#}");
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && text::is_invisible(c) {
            // Only within strings: JSON's own white space is line ends and spaces.
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// A TOML multi-line literal string where the text allows one.
fn literal(text: &str) -> String {
    if text.contains("'''") || text.ends_with('\'') {
        return quoted(text);
    }
    format!("'''\n{text}'''")
}

mod as_text {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
    use serde_json::Value;

    pub(super) fn serialize<S: Serializer>(value: &Value, to: S) -> Result<S::Ok, S::Error> {
        value.serialize(to)
    }

    /// Only what is spelled as [`super::pretty`] spells it: a person who reads a key that stands
    /// twice would read the one that is not meant.
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
        let text = String::deserialize(from)?;
        let value = serde_json::from_str(&text).map_err(D::Error::custom)?;
        // A file that went through Windows has other line ends; JSON has none within its strings.
        if super::pretty(&value) != text.replace("\r\n", "\n") {
            return Err(D::Error::custom(
                "a definition is not spelled as `ringfence lock` spells it",
            ));
        }
        Ok(value)
    }
}
