//! Tool definitions of two locks.

use std::collections::BTreeMap;
use std::path::Path;

use ringfence_bundle::Lock;
use serde_json::Value;

use super::{Blob, Change, Room, What, file};

/// What moved in the definitions that two locks pin, each at its row in the lock as it is now.
pub(super) fn changes(path: &'static str, old: &[u8], new: &[u8], room: &mut Room) -> Vec<Change> {
    let lock = |bytes: &[u8]| Lock::parse(Path::new(path), bytes).ok();
    let (Some(before), Some(now)) = (lock(old), lock(new)) else { return Vec::new() };
    let (before, now) = (definitions(&before), definitions(&now));
    let rows = rows(new);
    let mut all = Vec::new();
    let names: std::collections::BTreeSet<_> = before.keys().chain(now.keys()).collect();
    for name in names {
        let blob = |side: &BTreeMap<(String, Option<String>), Value>| {
            let bytes = format!("{:#}\n", side.get(name)?).into_bytes();
            Some(Blob { bytes, executable: false })
        };
        let (server, tool) = name;
        let shown = match tool {
            Some(tool) => format!("{server}/{tool}"),
            None => format!("{server}, its instructions"),
        };
        let (before, now) = (blob(&before), blob(&now));
        if let Some(change) = file("tool", Some(shown), path, before.as_ref(), now.as_ref(), room) {
            let line = rows.get(name).copied().unwrap_or(1);
            let note = match change.what {
                What::Added | What::Removed => None,
                _ => change.note,
            };
            all.push(Change { line, note, ..change });
        }
    }
    all
}

type Name = (String, Option<String>);

fn definitions(lock: &Lock) -> BTreeMap<Name, Value> {
    let mut all = BTreeMap::new();
    for pins in &lock.tools {
        let server = pins.server.to_string();
        if let Some(text) = &pins.instructions {
            all.insert((server.clone(), None), Value::String(text.clone()));
        }
        for tool in &pins.tools {
            all.insert((server.clone(), Some(tool.name.to_string())), tool.definition.clone());
        }
    }
    all
}

/// The line at which each row of a lock begins, as `ringfence lock` writes it.
fn rows(lock: &[u8]) -> BTreeMap<Name, usize> {
    let mut all = BTreeMap::new();
    let (mut server, mut in_tool) = (String::new(), false);
    for (nth, line) in String::from_utf8_lossy(lock).lines().enumerate() {
        let value = |key: &str| {
            let value = line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"')?;
            Some(value.to_owned())
        };
        if line == "[[tools]]" {
            in_tool = false;
        } else if line == "[[tools.tool]]" {
            in_tool = true;
        } else if let Some(name) = value("server") {
            server = name;
        } else if let (true, Some(name)) = (in_tool, value("name")) {
            all.entry((server.clone(), Some(name))).or_insert(nth + 1);
        } else if !in_tool && line.starts_with("instructions = ") {
            all.entry((server.clone(), None)).or_insert(nth + 1);
        }
    }
    all
}
