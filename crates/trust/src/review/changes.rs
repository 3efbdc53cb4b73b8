//! What moved between the bytes that a person said yes to, or that were locked, and those that are
//! there now: by file and line. Pure: takes both sides, reads nothing.

mod hunks;
mod tool;

use std::collections::BTreeMap;

use ringfence_bundle::{Blob, Content, Digest, Form, Kind};
use serde::Serialize;

use super::text::{shown, shown_line};
use hunks::{Room, hunks};

pub use hunks::{Hunk, Row, Sign};

#[cfg(test)]
mod tests;

/// Where the three files lie in a project.
const FILES: [&str; 3] =
    [".ringfence/ringfence.toml", ".ringfence/ringfence.local.toml", ".ringfence/ringfence.lock"];

/// Most characters of one line or path.
const MOST: usize = 400;

/// One side of a comparison.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Side {
    /// Bytes of manifest, overlay and lock, as far as they are known and take part.
    pub files: [Option<Vec<u8>>; 3],
    /// Pinned things, those that are the same on both sides left out.
    pub pieces: BTreeMap<(Kind, String), Piece>,
}

/// One pinned thing.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// Its file or folder in the project, or where it is declared.
    pub file: String,
    /// The line, from 1, where it is declared.
    pub line: usize,
    /// Digest of its bytes.
    pub digest: Option<Digest>,
    /// Its bytes; `None` where they are not on this machine any more.
    pub content: Option<Content>,
}

/// How something moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// Its bytes are others.
    Changed,
    /// Only whether it may be executed.
    Mode,
    /// Its bytes are others, and the ones before were not recorded on this machine.
    Unrecorded,
}

/// One file, or one declared thing, that moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// `manifest`, `overlay`, `lock`, `tool`, or a kind of pin.
    pub kind: &'static str,
    /// Which of that kind.
    pub name: Option<String>,
    /// The file, relative to the project.
    pub file: String,
    /// The first line that moved, from 1.
    pub line: usize,
    /// How.
    pub what: What,
    /// In words, where lines cannot say it: sizes, digests, modes.
    pub note: Option<String>,
    /// The lines, each hunk with a few around.
    pub hunks: Vec<Hunk>,
}

/// Everything that moved: the three files first, then by kind and name.
#[must_use]
pub fn between(old: &Side, new: &Side) -> Vec<Change> {
    let mut all = Vec::new();
    let mut room = Room::default();
    for (nth, kind) in ["manifest", "overlay", "lock"].into_iter().enumerate() {
        let blob = |side: &Side| {
            let bytes = side.files[nth].clone()?;
            Some(Blob { bytes, executable: false })
        };
        let (old, new) = (blob(old), blob(new));
        all.extend(file(kind, None, FILES[nth], old.as_ref(), new.as_ref(), &mut room));
    }
    if let [_, _, Some(before)] = &old.files
        && let [_, _, Some(now)] = &new.files
    {
        all.extend(tool::changes(FILES[2], before, now, &mut room));
    }
    let keys: std::collections::BTreeSet<_> = old.pieces.keys().chain(new.pieces.keys()).collect();
    for key in keys {
        piece(key, old.pieces.get(key), new.pieces.get(key), &mut room, &mut all);
    }
    all
}

fn piece(
    (kind, name): &(Kind, String),
    old: Option<&Piece>,
    new: Option<&Piece>,
    room: &mut Room,
    all: &mut Vec<Change>,
) {
    let Some(at) = new.or(old) else { return };
    let id = (kind.as_str(), Some(name.clone()));
    let (before, now) = match (content(old), content(new)) {
        // There are bytes that are not on this machine: the digests are all there is to say.
        (Some(None), _) | (_, Some(None)) => {
            let digest = |piece: Option<&Piece>| {
                let digest = piece.and_then(|piece| piece.digest);
                digest.map_or_else(|| "nothing".to_owned(), |digest| digest.to_string())
            };
            let known = if content(old) == Some(None) { "those before" } else { "those now" };
            all.push(Change {
                kind: id.0,
                name: id.1,
                file: at.file.clone(),
                line: at.line,
                what: What::Unrecorded,
                note: Some(format!(
                    "{known} were not recorded on this machine: was {}, is {}",
                    digest(old),
                    digest(new)
                )),
                hunks: Vec::new(),
            });
            return;
        }
        (before, now) => (before.flatten(), now.flatten()),
    };
    let definition = kind.form() == Form::Definition;
    let files = |content: Option<&Content>| match content {
        None => BTreeMap::new(),
        Some(Content::File(blob)) if definition => {
            BTreeMap::from([(at.file.clone(), Blob { bytes: pretty(&blob.bytes), ..blob.clone() })])
        }
        Some(Content::File(blob)) => BTreeMap::from([(at.file.clone(), blob.clone())]),
        Some(Content::Tree(blobs)) => {
            let named =
                |(path, blob): (&String, &Blob)| (format!("{}/{path}", at.file), blob.clone());
            blobs.iter().map(named).collect()
        }
    };
    let (before, now) = (files(before), files(now));
    let paths: std::collections::BTreeSet<_> = before.keys().chain(now.keys()).collect();
    for path in paths {
        let change = file(id.0, id.1.clone(), path, before.get(path), now.get(path), room);
        all.extend(change.map(|change| match definition {
            // Lines of a definition are not lines of a file: where it is declared is.
            true => Change { line: at.line, ..change },
            false => change,
        }));
    }
}

fn content(piece: Option<&Piece>) -> Option<Option<&Content>> {
    piece.map(|piece| piece.content.as_ref())
}

/// How one file moved; `None` when it did not.
fn file(
    kind: &'static str,
    name: Option<String>,
    path: &str,
    old: Option<&Blob>,
    new: Option<&Blob>,
    room: &mut Room,
) -> Option<Change> {
    let change = |what, line, note, hunks| {
        Some(Change { kind, name: name.clone(), file: path.to_owned(), line, what, note, hunks })
    };
    let about = |blob: &Blob| {
        let digest = Digest::framed("file", &[&blob.bytes]);
        let run = if blob.executable { ", executable" } else { "" };
        format!("{} bytes{run}, {digest}", blob.bytes.len())
    };
    let empty: &[u8] = &[];
    match (old, new) {
        (None, None) => None,
        (None, Some(new)) => change(
            What::Added,
            1,
            Some(about(new)),
            hunks(empty, &new.bytes, room).unwrap_or_default(),
        ),
        (Some(old), None) => change(
            What::Removed,
            1,
            Some(about(old)),
            hunks(&old.bytes, empty, room).unwrap_or_default(),
        ),
        (Some(old), Some(new)) if old == new => None,
        (Some(old), Some(new)) if old.bytes == new.bytes => {
            let note = if new.executable { "may be executed now" } else { "no longer executable" };
            change(What::Mode, 1, Some(note.to_owned()), Vec::new())
        }
        (Some(old), Some(new)) => {
            let mode = match (old.executable, new.executable) {
                (false, true) => Some("may be executed now".to_owned()),
                (true, false) => Some("no longer executable".to_owned()),
                _ => None,
            };
            if let Some(found) = hunks(&old.bytes, &new.bytes, room) {
                let line = found.first().map_or(1, |hunk| hunk.line);
                return change(What::Changed, line, mode, found);
            }
            let note = format!("not text: was {}; is {}", about(old), about(new));
            change(What::Changed, first_line(&old.bytes, &new.bytes), Some(note), Vec::new())
        }
    }
}

/// The line, as far as there are lines, of the first byte that differs.
fn first_line(old: &[u8], new: &[u8]) -> usize {
    let same = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    1 + new[..same].iter().filter(|byte| **byte == b'\n').count()
}

/// A definition's canonical JSON over several lines.
fn pretty(bytes: &[u8]) -> Vec<u8> {
    match serde_json::from_slice::<serde_json::Value>(bytes) {
        Ok(value) => format!("{value:#}\n").into_bytes(),
        Err(_) => bytes.to_vec(),
    }
}

impl Change {
    /// Escaped lines for a terminal: `path:line`, what happened, and the lines that moved.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let word = match self.what {
            What::Added => "added",
            What::Removed => "removed",
            What::Changed => "changed",
            What::Mode => "mode changed",
            What::Unrecorded => "changed",
        };
        let name = self.name.as_ref().map(|name| format!(" {}", shown(name, MOST)));
        let about = format!("{word} ({}{})", self.kind, name.unwrap_or_default());
        let note = self.note.as_ref().map(|note| format!(": {}", shown(note, 2 * MOST)));
        let note = note.unwrap_or_default();
        let file = shown(&self.file, MOST);
        let mut lines = Vec::new();
        let single = self.hunks.is_empty() || self.kind_is_definition();
        if single {
            lines.push(format!("{file}:{}: {about}{note}", self.line));
        }
        for (nth, hunk) in self.hunks.iter().enumerate() {
            if !single {
                let note = if nth == 0 { note.as_str() } else { "" };
                lines.push(format!("{file}:{}: {about}{note}", hunk.line));
            }
            for row in &hunk.rows {
                lines.push(format!("  {} {}", row.sign.mark(), row.text));
            }
            if hunk.left > 0 {
                lines.push(format!("  … and {} more lines, not shown here", hunk.left));
            }
        }
        lines
    }

    fn kind_is_definition(&self) -> bool {
        let mut kinds = Kind::ALL.iter().filter(|kind| kind.form() == Form::Definition);
        kinds.any(|kind| kind.as_str() == self.kind) || self.kind == "tool"
    }
}
