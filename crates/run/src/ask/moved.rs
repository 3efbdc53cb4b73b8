//! What a server says otherwise than it is pinned, down to the words. Pure.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ringfence_bundle::{Digest, ServerId, ToolName, ToolPins, json_digest};
use serde::Serialize;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};

/// Fields of one tool that are spelled out.
const FIELDS: usize = 50;
/// Characters of the words of one field, before or after.
const WORDS: usize = 4000;
/// Characters of what stayed that stand around what moved.
const AROUND: usize = 30;
/// For finding the words that moved in one field. What is not found in time is told as a whole.
const PATIENCE: Duration = Duration::from_millis(200);
/// For all fields together.
const OVERALL: Duration = Duration::from_secs(10);

/// What moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The server as a whole: it had no pins.
    Server,
    /// What it tells a model about itself.
    Instructions,
    /// A tool.
    Tool,
}

/// How it moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// It is not pinned.
    New,
    /// It is pinned, and is otherwise now.
    Changed,
    /// It is pinned, and is no longer there.
    Gone,
    /// Of words: they stayed.
    Same,
}

/// One thing that moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// Whose it is.
    pub server: ServerId,
    /// What it is.
    pub what: What,
    /// The tool, where it is one.
    pub tool: Option<ToolName>,
    /// How it moved.
    pub how: How,
    /// Its digest as it is pinned.
    pub pinned: Option<Digest>,
    /// Its digest as it is now.
    pub found: Option<Digest>,
    /// Its fields that moved, at most 50.
    pub fields: Vec<Field>,
    /// Further fields.
    pub more: usize,
}

/// A field that moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Field {
    /// Where it is, such as `inputSchema.properties.path.description`; fit to print.
    pub path: String,
    /// Its words in order: those that stayed shortened, those that came or went at most 4,000
    /// characters each.
    pub words: Vec<Piece>,
}

/// Words that moved alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Piece {
    /// How they moved.
    pub how: How,
    /// The words as the server spells them: hostile text.
    pub text: String,
}

/// Compares what a server offers with what is pinned, if anything is.
#[must_use]
pub fn moved(before: Option<&ToolPins>, after: &ToolPins) -> Vec<Moved> {
    let until = Instant::now() + OVERALL;
    let server = &after.server;
    let row = |what, tool: Option<&ToolName>, how| Moved {
        server: server.clone(),
        what,
        tool: tool.cloned(),
        how,
        pinned: None,
        found: None,
        fields: Vec::new(),
        more: 0,
    };
    let mut all = Vec::new();
    if before.is_none() {
        all.push(row(What::Server, None, How::New));
    }
    all.extend(instructions(before, after, until, row(What::Instructions, None, How::Changed)));
    let none = Vec::new();
    let pinned = before.map_or(&none, |pins| &pins.tools);
    for tool in &after.tools {
        let old = pinned.iter().find(|pin| pin.name == tool.name);
        let (pinned, found) = (old.map(|pin| pin.digest), Some(tool.digest));
        match old {
            Some(_) if pinned == found => {}
            Some(old) => {
                let (fields, more) = fields(&old.definition, &tool.definition, until);
                let row = row(What::Tool, Some(&tool.name), How::Changed);
                all.push(Moved { pinned, found, fields, more, ..row });
            }
            None => {
                let row = row(What::Tool, Some(&tool.name), How::New);
                all.push(Moved { found, fields: told(&tool.definition), ..row });
            }
        }
    }
    for gone in pinned.iter().filter(|pin| after.tool(pin.name.as_str()).is_none()) {
        let row = row(What::Tool, Some(&gone.name), How::Gone);
        all.push(Moved { pinned: Some(gone.digest), ..row });
    }
    all
}

fn instructions(
    before: Option<&ToolPins>,
    after: &ToolPins,
    until: Instant,
    row: Moved,
) -> Option<Moved> {
    let old = before.and_then(|pins| pins.instructions.as_deref());
    let new = after.instructions.as_deref();
    if old == new {
        return None;
    }
    let how = match (old, new) {
        (None, _) => How::New,
        (_, None) => How::Gone,
        _ => How::Changed,
    };
    let digest = |text: Option<&str>| text.map(|text| json_digest(&Value::from(text)));
    let path = "instructions".to_owned();
    let words = between(old.unwrap_or_default(), new.unwrap_or_default(), until);
    let fields = vec![Field { path, words }];
    Some(Moved { how, pinned: digest(old), found: digest(new), fields, ..row })
}

/// Of a new tool: what it tells a model in words.
fn told(definition: &Value) -> Vec<Field> {
    let field = |key: &&str| {
        let text = definition.get(key)?.as_str()?;
        Some(Field { path: (*key).to_owned(), words: vec![piece(How::New, text)] })
    };
    ["title", "description"].iter().filter_map(field).collect()
}

/// The fields that differ, and how many there are besides.
fn fields(before: &Value, after: &Value, until: Instant) -> (Vec<Field>, usize) {
    let mut all = Fields { list: Vec::new(), more: 0, until };
    all.compare("", Some(before), Some(after));
    (all.list, all.more)
}

struct Fields {
    list: Vec<Field>,
    more: usize,
    until: Instant,
}

impl Fields {
    fn compare(&mut self, path: &str, before: Option<&Value>, after: Option<&Value>) {
        match (before, after) {
            (Some(before), Some(after)) if before == after => {}
            (Some(Value::Object(before)), Some(Value::Object(after))) => {
                let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
                for key in keys {
                    self.compare(&child(path, key), before.get(key), after.get(key));
                }
            }
            (Some(Value::Array(before)), Some(Value::Array(after))) => {
                for nth in 0..before.len().max(after.len()) {
                    self.compare(&item(path, nth), before.get(nth), after.get(nth));
                }
            }
            _ if self.list.len() == FIELDS => self.more += 1,
            (before, after) => {
                let words = match (before, after) {
                    (Some(Value::String(before)), Some(Value::String(after))) => {
                        between(before, after, self.until)
                    }
                    _ => {
                        let gone = before.map(|value| piece(How::Gone, &value.to_string()));
                        let new = after.map(|value| piece(How::New, &value.to_string()));
                        gone.into_iter().chain(new).collect()
                    }
                };
                self.list.push(Field { path: path.to_owned(), words });
            }
        }
    }
}

/// The words that went and came, with a little of what stayed around them.
fn between(before: &str, after: &str, until: Instant) -> Vec<Piece> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return vec![piece(How::Gone, before), piece(How::New, after)];
    }
    let diff = TextDiff::configure().timeout(PATIENCE.min(left)).diff_words(before, after);
    let mut pieces: Vec<(How, String)> = Vec::new();
    for change in diff.iter_all_changes() {
        let how = match change.tag() {
            ChangeTag::Equal => How::Same,
            ChangeTag::Delete => How::Gone,
            ChangeTag::Insert => How::New,
        };
        match pieces.last_mut() {
            Some((last, text)) if *last == how => text.push_str(change.value()),
            _ => pieces.push((how, change.value().to_owned())),
        }
    }
    let last = pieces.len().saturating_sub(1);
    // Words that came and went by turns are one change after so many.
    if pieces.len() > 200 {
        return vec![piece(How::Gone, before), piece(How::New, after)];
    }
    pieces
        .into_iter()
        .enumerate()
        .map(|(nth, (how, text))| match how {
            How::Same => Piece { how, text: around(&text, nth == 0, nth == last) },
            how => piece(how, &text),
        })
        .collect()
}

/// The ends of what stayed.
fn around(text: &str, first: bool, last: bool) -> String {
    let length = text.chars().count();
    let head: String = text.chars().take(if first { 0 } else { AROUND }).collect();
    let keep = if last { 0 } else { AROUND };
    let tail: String = text.chars().skip(length.saturating_sub(keep)).collect();
    if head.chars().count() + tail.chars().count() >= length {
        return text.to_owned();
    }
    format!("{head}…{tail}")
}

/// Words, at most so many; what is cut says so.
fn piece(how: How, text: &str) -> Piece {
    let length = text.chars().count();
    let mut kept: String = text.chars().take(WORDS).collect();
    if length > WORDS {
        let digest = json_digest(&Value::from(text));
        kept.push_str(&format!("… ({} more characters, {digest} in all)", length - WORDS));
    }
    Piece { how, text: kept }
}

/// The path of a key within an object.
pub(super) fn child(path: &str, key: &str) -> String {
    let plain = !key.is_empty()
        && key.len() <= 80
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'$'));
    match (plain, path.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{path}.{key}"),
        (false, _) => {
            let shown: String = key.chars().take(80).flat_map(char::escape_default).collect();
            let more = if key.chars().count() > 80 { "…" } else { "" };
            format!("{path}[\"{shown}{more}\"]")
        }
    }
}

/// The path of an item within an array.
pub(super) fn item(path: &str, nth: usize) -> String {
    format!("{path}[{nth}]")
}

#[cfg(test)]
mod tests;
