//! Tool definitions held to what the run first saw. Pure.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use ringfence_bundle::ToolName;
use ringfence_mcp::strict::fold;
use serde_json::Value;

use crate::digest;

/// More than any server has; what comes after is left out and said so.
pub(crate) const MOST: usize = 10_000;

/// Names that are spelled out where many are alike: the text stands once for each of them.
const NAMED: usize = 3;

/// Why a tool of a list is not offered.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Dropped {
    pub(crate) name: String,
    pub(crate) why: String,
}

/// As much as is kept of a tool of a list: pages may be large, and there may be many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// Its name, or why it has none that can be used.
    name: Result<String, Dropped>,
    digest: String,
}

impl Listed {
    pub(crate) fn of(tool: &Value) -> Self {
        let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
        match bad_name(name) {
            Some(why) => {
                let dropped = Dropped { name: shown(name), why: why.into() };
                Self { name: Err(dropped), digest: String::new() }
            }
            None => Self { name: Ok(name.to_owned()), digest: digest::of(tool) },
        }
    }
}

/// The definitions of a server's first whole list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Frozen {
    first: BTreeMap<String, String>,
    /// The names that the last whole list bore out; others are refused.
    now: BTreeMap<String, String>,
}

/// What the pin says of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pin {
    /// As in the first list.
    Same,
    /// Defined otherwise now.
    Changed,
    /// Was in the first list and no longer is.
    Gone,
    /// Was not in the first list, or was not fit to be.
    Unknown,
}

impl Frozen {
    /// Takes a whole list: the first is kept, later ones are compared with it.
    pub(crate) fn take(frozen: Option<Self>, tools: &[Listed]) -> (Self, Vec<Dropped>) {
        let (now, dropped) = fit(tools);
        let first = frozen.map_or_else(|| now.clone(), |frozen| frozen.first);
        (Self { first, now }, dropped)
    }

    pub(crate) fn pin(&self, tool: &str) -> Pin {
        match (self.first.get(tool), self.now.get(tool)) {
            (None, _) => Pin::Unknown,
            (Some(_), None) => Pin::Gone,
            (Some(first), Some(now)) if first == now => Pin::Same,
            (Some(_), Some(_)) => Pin::Changed,
        }
    }

    /// Whether this very definition is the first one. Calls follow what was seen last of the process
    /// that they go to: `current` says whether this was.
    pub(crate) fn see(&mut self, tool: &str, definition: &Value, current: bool) -> bool {
        let digest = digest::of(definition);
        let Some(first) = self.first.get(tool) else { return false };
        let same = *first == digest;
        if current {
            self.now.insert(tool.to_owned(), digest);
        }
        same
    }
}

/// The tools with a fit name that no other tool's name can be taken for, with their digests.
fn fit(tools: &[Listed]) -> (BTreeMap<String, String>, Vec<Dropped>) {
    let mut dropped = Vec::new();
    let mut by_fold: HashMap<String, Vec<(&str, &str)>> = HashMap::new();
    let mut order = Vec::new();
    for tool in tools.iter().take(MOST) {
        match &tool.name {
            Err(flaw) => dropped.push(flaw.clone()),
            Ok(name) => {
                let same = by_fold.entry(alike(name)).or_default();
                if same.is_empty() {
                    order.push(alike(name));
                }
                same.push((name, &tool.digest));
            }
        }
    }
    if tools.len() > MOST {
        let why = format!("the list is longer than {MOST} tools");
        dropped.push(Dropped { name: format!("{} more", tools.len() - MOST), why });
    }
    let mut fit = BTreeMap::new();
    for key in order {
        match by_fold.remove(&key).unwrap_or_default()[..] {
            [(name, digest)] => {
                fit.insert(name.to_owned(), digest.to_owned());
            }
            ref several => {
                let some: Vec<_> = several.iter().take(NAMED).map(|(name, _)| *name).collect();
                let mut why = format!("its name can be taken for another's: {}", some.join(", "));
                if several.len() > NAMED {
                    let _ = write!(why, " and {} more", several.len() - NAMED);
                }
                dropped.extend(
                    several.iter().map(|(name, _)| Dropped { name: shown(name), why: why.clone() }),
                );
            }
        }
    }
    (fit, dropped)
}

/// Why a name cannot be a tool's.
pub(crate) fn bad_name(name: &str) -> Option<&'static str> {
    if name.contains("__") {
        return Some("its name holds `__`, which parts server and tool");
    }
    ToolName::parse(name).err().map(|error| error.reason)
}

/// What a name looks like to somebody who does not look closely.
fn alike(name: &str) -> String {
    fold(name).replace(['-', '.', '/'], "_")
}

/// Escaped for people, at most 80 characters.
pub(crate) fn shown(name: &str) -> String {
    name.chars().take(80).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Frozen, Listed, MOST, Pin};

    fn listed<'v>(tools: impl IntoIterator<Item = &'v Value>) -> Vec<Listed> {
        tools.into_iter().map(Listed::of).collect()
    }

    fn tools(names: &[&str]) -> Vec<Listed> {
        let tool = |name| Listed::of(&json!({"name": name, "description": "d"}));
        names.iter().map(tool).collect()
    }

    #[test]
    fn what_changes_or_comes_later_is_not_the_first() {
        let (frozen, dropped) = Frozen::take(None, &tools(&["read", "write"]));
        assert!(dropped.is_empty());
        assert_eq!((frozen.pin("read"), frozen.pin("other")), (Pin::Same, Pin::Unknown));
        for change in [
            json!({"name": "read", "description": "other"}),
            json!({"name": "read", "description": "d", "inputSchema": {"enum": [1]}}),
            json!({"name": "read", "description": "d", "annotations": {"readOnlyHint": true}}),
            json!({"name": "read", "description": "d", "_meta": {"x": 1}}),
        ] {
            let mut seen = frozen.clone();
            assert!(!seen.see("read", &change, true));
            assert_eq!((seen.pin("read"), seen.pin("write")), (Pin::Changed, Pin::Same));
            let (later, _) =
                Frozen::take(Some(frozen.clone()), &listed(&[change, json!({"name": "new"})]));
            assert_eq!(later.pin("read"), Pin::Changed);
            assert_eq!(later.pin("write"), Pin::Gone);
            assert_eq!(later.pin("new"), Pin::Unknown);
            // Back to what it was.
            let (again, _) = Frozen::take(Some(later), &tools(&["read", "write"]));
            assert_eq!((again.pin("read"), again.pin("write")), (Pin::Same, Pin::Same));
        }
        let mut frozen = frozen;
        assert!(frozen.see("read", &json!({"description": "d", "name": "read"}), true));
        assert!(!frozen.see("other", &json!({"name": "other"}), true));
        assert_eq!((frozen.pin("read"), frozen.pin("other")), (Pin::Same, Pin::Unknown));
    }

    #[test]
    fn names_that_can_be_taken_for_others_are_dropped_both_named() {
        for (pair, good) in [
            (["read", "Read"], false),
            (["read_file", "read-file"], false),
            (["read.file", "read/file"], false),
            (["read", "read"], false),
            (["read", "write"], true),
        ] {
            let (frozen, dropped) = Frozen::take(None, &tools(&pair));
            assert_eq!(frozen.pin(pair[0]) == Pin::Same, good, "{pair:?}");
            assert_eq!(dropped.is_empty(), good, "{pair:?}");
            assert!(good || dropped.iter().all(|d| pair.iter().all(|n| d.why.contains(n))));
        }
        let bad = [
            "reаd",
            "ｒead",
            "re\u{200b}ad",
            "\u{202e}read",
            "a__b",
            "",
            "a b",
            "rea\u{301}d",
            &"x".repeat(129),
        ];
        let (frozen, dropped) = Frozen::take(None, &tools(&[&bad[..], &["fine"]].concat()));
        assert_eq!(dropped.len(), bad.len());
        assert!(dropped.iter().all(|d| !d.name.contains(['\u{200b}', '\u{202e}'])));
        assert_eq!(frozen.pin("fine"), Pin::Same);
        let odd = [json!(1), json!({"name": 1}), json!({"name": null})];
        assert_eq!(Frozen::take(None, &listed(&odd)).1.len(), 3);
    }

    #[test]
    fn a_list_of_names_that_are_all_alike_costs_little() {
        let long = "a".repeat(100);
        let all: Vec<_> = (0..MOST).map(|n| if n % 2 == 0 { &*long } else { "b" }).collect();
        let (frozen, dropped) = Frozen::take(None, &tools(&all));
        assert_eq!(dropped.len(), MOST);
        assert_eq!((frozen.pin(&long), frozen.pin("b")), (Pin::Unknown, Pin::Unknown));
        let bytes: usize = dropped.iter().map(|d| d.name.len() + d.why.len()).sum();
        assert!(bytes < 1000 * MOST, "{bytes}");
        assert!(dropped[0].why.contains("and 4997 more"), "{}", dropped[0].why);
    }
}
