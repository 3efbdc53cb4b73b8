//! `[policy.tools|egress|secrets|filesystem]`, the same in a bundle and in `machine.toml`.

use std::collections::BTreeMap;

use crate::decode::{Table, Value};
use crate::manifest::{Filesystem, Pattern, PolicyTables};
use crate::{Id, text};

/// Which list of `[policy.*]` a pattern stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyList {
    /// `[policy.tools]`
    Tools,
    /// `[policy.egress]`
    Egress,
    /// `[policy.secrets]`
    Secrets,
    /// `read` or `write` of `[policy.filesystem]`
    Scope,
    /// `deny` of `[policy.filesystem]`
    Deny,
}

/// Says what is wrong with a pattern of a list, and perhaps what to write instead.
pub type PatternCheck<'c> = &'c dyn Fn(PolicyList, &str) -> Result<(), (String, Option<String>)>;

/// Reads the four policy tables out of `[policy]`. Other keys of the table are left to the caller,
/// who also ends with [`Table::finish`]. Each pattern keeps its line, and `check` says whether it is
/// one; what is wrong with it is reported where it stands.
///
/// ```
/// use ringfence_bundle::{Document, policy_tables};
/// let document = Document::parse("machine.toml".as_ref(), "[policy.tools]\nmail = [\"!send\"]\n");
/// let tables = policy_tables(&document.root().table("policy").unwrap(), &|_, _| Ok(()));
/// assert_eq!(tables.tools["mail"][0].line, 2);
/// ```
#[must_use]
pub fn policy_tables(policy: &Table<'_>, check: PatternCheck<'_>) -> PolicyTables {
    PolicyTables {
        tools: scoped(policy, "tools", PolicyList::Tools, check),
        egress: scoped(policy, "egress", PolicyList::Egress, check),
        secrets: scoped(policy, "secrets", PolicyList::Secrets, check),
        filesystem: filesystem(policy, check),
    }
}

/// What is asked of a bundle's patterns before they are compiled: there is one, and it is not
/// endless. Whether it is a valid glob is for whoever compiles it.
pub(super) fn plain(_: PolicyList, given: &str) -> Result<(), (String, Option<String>)> {
    if given.chars().count() > 1024 {
        return Err(("expected 1 to 1024 characters".to_owned(), None));
    }
    if given.trim_start_matches('!').is_empty() || given.starts_with("!!") {
        return Err(("expected a pattern, or `!` and a pattern".to_owned(), None));
    }
    Ok(())
}

fn scoped(
    policy: &Table<'_>,
    key: &str,
    list: PolicyList,
    check: PatternCheck<'_>,
) -> BTreeMap<String, Vec<Pattern>> {
    let mut found = BTreeMap::new();
    let Some(table) = policy.table(key) else { return found };
    for (name, value) in table.entries() {
        if name == "agent" && list == PolicyList::Tools {
            let message =
                "the agent has no tools of its own here: name a server, or `\"*\"`".to_owned();
            table.name_error(name, "bad-name", message);
        } else if name != "*" && Id::parse(name).is_err() {
            let also = if list == PolicyList::Tools { "" } else { ", `agent`" };
            let message =
                format!("`{}` is not a server's name{also} or `\"*\"`", text::shown(name));
            table.name_error(name, "bad-name", message);
        }
        if let Some(patterns) = patterns(&value, list, check) {
            found.insert(name.to_owned(), patterns);
        }
    }
    table.finish();
    found
}

fn filesystem(policy: &Table<'_>, check: PatternCheck<'_>) -> Filesystem {
    let Some(table) = policy.table("filesystem") else { return Filesystem::default() };
    let read = |key, list| table.get(key).and_then(|value| patterns(&value, list, check));
    let filesystem = Filesystem {
        read: read("read", PolicyList::Scope),
        write: read("write", PolicyList::Scope),
        deny: read("deny", PolicyList::Deny).unwrap_or_default(),
    };
    table.finish();
    filesystem
}

/// An array of patterns; each keeps its line.
fn patterns(value: &Value<'_>, list: PolicyList, check: PatternCheck<'_>) -> Option<Vec<Pattern>> {
    value.list_of(|item| {
        let given = item.text()?;
        if let Err((reason, help)) = check(list, given) {
            item.error("bad-pattern", format!("`{}`: {reason}", text::shown(given)), help);
            return None;
        }
        Some(Pattern { text: given.to_owned(), line: item.line() })
    })
}
