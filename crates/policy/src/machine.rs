//! `machine.toml`: the machine's own policy tables and ceilings.

use std::path::{Path, PathBuf};

use ringfence_bundle::{
    Diagnostic, Document, Isolation, Places, PolicyList, PolicyTables, SecretName, Table, Value,
    parse_usd, policy_tables,
};
use serde::Serialize;

use crate::pattern::{Kind, NamePattern, PathPattern, Problem, parse_deny};
use crate::ruleset::MACHINE_FILE;
use crate::{Ceilings, Error, file};

/// What a person types after mending the file.
pub(crate) const NEXT: &str = "ringfence policy check";

/// The most seconds that a duration may be written with, about 317 years.
const MAX_SECONDS: u64 = 10_000_000_000;
/// No list of a file of 1 MiB can hold more.
const MAX_ITEMS: usize = 1 << 20;

/// `machine.toml`: the same policy tables and the ceilings.
///
/// ```
/// use ringfence_bundle::{Id, Manifest};
/// use ringfence_policy::{Layer, MachinePolicy, Ruleset};
///
/// let text = "[policy.tools]\n\"*\" = [\"*\", \"!*_delete\"]\n";
/// let machine = MachinePolicy::parse("machine.toml".as_ref(), text)?;
/// let rules = Ruleset::compile(&machine, &Manifest::default())?;
/// let decision = rules.tool(&Id::parse("any")?, "row_delete");
/// assert!(!decision.allowed);
/// assert_eq!(decision.layer, Layer::Machine);
/// assert_eq!(decision.rule, "machine.toml:2 [policy.tools] \"*\" \"!*_delete\"");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MachinePolicy {
    /// Where it was read, `None` when there is no file.
    pub file: Option<PathBuf>,
    /// `[policy.tools]`, `[policy.egress]`, `[policy.secrets]`, `[policy.filesystem]`
    pub tables: PolicyTables,
    /// `[policy]`
    pub ceilings: Ceilings,
    /// `[state] url_ref`: the name of the host variable, or secret of the keychain, that holds the
    /// address of the PostgreSQL database for shared state. `None`: a file in the machine's folder.
    pub state_url_ref: Option<SecretName>,
    /// Where everything in it stands: `policy.isolation`, `policy.tools.*[0]`.
    #[serde(skip)]
    pub places: Places,
}

impl MachinePolicy {
    /// Reads `<home>/machine.toml`; a missing file constrains nothing.
    ///
    /// # Errors
    /// [`Error::Machine`] with every problem: it is not a regular file within `home`, is larger
    /// than 1 MiB, is another user's, may be written by others than its owner, it or its folder, is
    /// not UTF-8, or does not parse.
    pub fn load(home: &Path) -> Result<Self, Error> {
        let path = home.join(MACHINE_FILE);
        match file::read(home, &path)? {
            Some(text) => Self::parse(&path, &text),
            None => Ok(Self::default()),
        }
    }

    /// Parses the text of a `machine.toml`. Pure.
    ///
    /// # Errors
    /// [`Error::Machine`] with every problem.
    pub fn parse(file: &Path, text: &str) -> Result<Self, Error> {
        let document = Document::from_bytes(file, text.as_bytes())
            .map_err(|finding| Error::Machine(vec![*finding]))?
            .with_max_items(MAX_ITEMS)
            .with_next(NEXT);
        let mut policy = decode(&document);
        policy.file = Some(file.to_owned());
        let found: Vec<Diagnostic> = document.into_findings();
        if found.is_empty() { Ok(policy) } else { Err(Error::Machine(found)) }
    }

    /// A ceiling's key and place, as a person reads it.
    pub(crate) fn place_of(&self, key: &str) -> String {
        match self.places.find(&format!("policy.{key}")) {
            Some(place) => format!("[policy] {key} at {MACHINE_FILE}:{}", place.line),
            None => format!("[policy] {key} in {MACHINE_FILE}"),
        }
    }
}

/// Reads the whole document; what is wrong with it is kept there.
fn decode(document: &Document) -> MachinePolicy {
    let mut policy = MachinePolicy::default();
    let root = document.root();
    if let Some(table) = root.table("policy") {
        policy.tables = policy_tables(&table, &check);
        policy.ceilings = ceilings(&table);
        table.finish();
    }
    if let Some(table) = root.table("state") {
        policy.state_url_ref =
            table.get("url_ref").and_then(|value| value.parsed("bad-name", SecretName::parse));
        table.finish();
    }
    // The guard's own table: its room reads what is in it.
    let _ = root.table("guard");
    root.finish();
    policy.places = document.places();
    policy
}

/// What a pattern must be, by its list.
fn check(list: PolicyList, text: &str) -> Result<(), (String, Option<String>)> {
    let checked = match list {
        PolicyList::Tools => NamePattern::parse(Kind::Tool, text).map(drop),
        PolicyList::Egress => NamePattern::parse(Kind::Egress, text).map(drop),
        PolicyList::Secrets => NamePattern::parse(Kind::Secret, text).map(drop),
        PolicyList::Scope => PathPattern::parse(text).map(drop),
        PolicyList::Deny => parse_deny(text).map(drop),
    };
    checked.map_err(|problem| (problem.reason, problem.help))
}

fn ceilings(table: &Table<'_>) -> Ceilings {
    let levels = Isolation::ALL.map(|level| (level.as_str(), level));
    let boolean = |key| table.get(key).and_then(|value| value.boolean());
    let amount = |key| table.get(key).and_then(|value| usd(&value));
    Ceilings {
        isolation: table.get("isolation").and_then(|value| value.choice(&levels)),
        credentials: table.get("credentials").and_then(|value| {
            texts(&value, |text| NamePattern::parse(Kind::Secret, text).map(drop))
        }),
        max_per_run_usd: amount("max_per_run_usd"),
        max_per_day_usd: amount("max_per_day_usd"),
        max_per_month_usd: amount("max_per_month_usd"),
        max_duration_seconds: table
            .get("max_duration_seconds")
            .and_then(|value| value.integer(1..=MAX_SECONDS)),
        allow_proceed: boolean("allow_proceed"),
        approver_keys: table
            .get("approver_keys")
            .and_then(|value| texts(&value, |text| plain(text, "z6Mk", "an Ed25519 key"))),
        peers: table
            .get("peers")
            .and_then(|value| texts(&value, |text| plain(text, "did:key:", "a did:key"))),
        require_pinned_tools: boolean("require_pinned_tools"),
        allow_execute: boolean("allow_execute"),
        allow_opaque: boolean("allow_opaque"),
    }
}

fn texts(value: &Value<'_>, check: impl Fn(&str) -> Result<(), Problem>) -> Option<Vec<String>> {
    value.list_of(|item| {
        let text = item.text()?;
        if let Err(problem) = check(text) {
            let shown: String = text.escape_debug().take(80).collect();
            item.error("bad-pattern", format!("`{shown}`: {}", problem.reason), problem.help);
            return None;
        }
        Some(text.to_owned())
    })
}

fn plain(text: &str, prefix: &str, what: &str) -> Result<(), Problem> {
    let good = text.len() <= 256
        && text.strip_prefix(prefix).is_some_and(|rest| {
            !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric())
        });
    let reason = format!("expected {what}, which begins with `{prefix}`");
    if good { Ok(()) } else { Err(Problem { reason, help: None }) }
}

fn usd(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    if parse_usd(text).is_none() {
        let help = Some("a decimal in quotes: \"0.50\"".to_owned());
        let message = "not an amount of at most eight places".to_owned();
        value.error("bad-amount", message, help);
        return None;
    }
    Some(text.to_owned())
}

#[cfg(test)]
mod tests;
