//! `[policy.tools|egress|secrets|filesystem]`, the same in a bundle and in `machine.toml`.

use std::collections::BTreeMap;

use crate::decode::{Table, Value};
use crate::manifest::{Filesystem, Pattern, PolicyTables};
use crate::{Id, text};

/// Reads the four policy tables out of `[policy]`. Other keys of the table are left to the caller,
/// who also ends with [`Table::finish`]. Each pattern keeps its line. Whether a pattern is a valid
/// glob is for whoever compiles it.
///
/// ```
/// use ringfence_bundle::{Document, policy_tables};
/// let document = Document::parse("machine.toml".as_ref(), "[policy.tools]\nmail = [\"!send\"]\n");
/// let tables = policy_tables(&document.root().table("policy").unwrap());
/// assert_eq!(tables.tools["mail"][0].line, 2);
/// ```
#[must_use]
pub fn policy_tables(policy: &Table<'_>) -> PolicyTables {
    PolicyTables {
        tools: scoped(policy, "tools", false),
        egress: scoped(policy, "egress", true),
        secrets: scoped(policy, "secrets", true),
        filesystem: filesystem(policy),
    }
}

fn scoped(policy: &Table<'_>, key: &str, agent: bool) -> BTreeMap<String, Vec<Pattern>> {
    let mut found = BTreeMap::new();
    let Some(table) = policy.table(key) else { return found };
    for (name, value) in table.entries() {
        if name == "agent" && !agent {
            let message =
                "the agent has no tools of its own here: name a server, or `\"*\"`".to_owned();
            table.name_error(name, "bad-name", message);
        } else if name != "*" && Id::parse(name).is_err() {
            let message = format!("`{}` is not a server's name or `\"*\"`", text::shown(name));
            table.name_error(name, "bad-name", message);
        }
        if let Some(patterns) = patterns(&value) {
            found.insert(name.to_owned(), patterns);
        }
    }
    table.finish();
    found
}

fn filesystem(policy: &Table<'_>) -> Filesystem {
    let Some(table) = policy.table("filesystem") else { return Filesystem::default() };
    let list = |key| table.get(key).and_then(|value| patterns(&value));
    let filesystem = Filesystem {
        read: list("read"),
        write: list("write"),
        deny: list("deny").unwrap_or_default(),
    };
    table.finish();
    filesystem
}

/// An array of patterns; each keeps its line.
fn patterns(value: &Value<'_>) -> Option<Vec<Pattern>> {
    value.list_of(|item| {
        let text = item.text_within(1024)?;
        if text.trim_start_matches('!').is_empty() || text.starts_with("!!") {
            item.error("bad-pattern", "expected a pattern, or `!` and a pattern".to_owned(), None);
            return None;
        }
        Some(Pattern { text: text.to_owned(), line: item.line() })
    })
}
