//! `machine.toml`: the machine's own policy tables and ceilings.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use ringfence_bundle::{Isolation, Pattern, Place, PolicyTables, ServerId, parse_usd};
use serde::Serialize;
use toml::Spanned;
use toml::de::DeValue;

use crate::decision::{AGENT, EVERYONE};
use crate::decode::{Decoder, entries};
use crate::pattern::{Kind, NamePattern, PathPattern, Problem, parse_deny};
use crate::ruleset::MACHINE_FILE;
use crate::{Ceilings, Error, file};

/// The most seconds that a duration may be written with, about 317 years.
const MAX_SECONDS: u64 = 10_000_000_000;

const KEYS: [&str; 15] = [
    "isolation",
    "credentials",
    "max_per_run_usd",
    "max_per_day_usd",
    "max_per_month_usd",
    "max_duration_seconds",
    "allow_proceed",
    "approver_keys",
    "peers",
    "require_pinned_tools",
    "allow_execute",
    "tools",
    "egress",
    "secrets",
    "filesystem",
];

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
    /// Where each ceiling stands, by key.
    pub places: BTreeMap<String, Place>,
}

impl MachinePolicy {
    /// Reads `<home>/machine.toml`; a missing file constrains nothing.
    ///
    /// # Errors
    /// [`Error::Machine`] with every problem: it is not a regular file within `home`, is larger
    /// than 1 MiB, may be written by others than its owner, is not UTF-8, or does not parse.
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
        let mut reader = Reader { decoder: Decoder::new(file, text), policy: Self::default() };
        reader.policy.file = Some(file.to_owned());
        let root = reader.decoder.parse();
        for (key, span, value) in entries(root.get_ref()) {
            match key {
                "policy" => reader.policy(value),
                // The guard's own table: its room reads it.
                "guard" => drop(reader.decoder.table("guard", value)),
                _ => reader.decoder.unknown("machine.toml", key, span, &["policy", "guard"]),
            }
        }
        let Reader { mut decoder, policy } = reader;
        if decoder.found.is_empty() {
            return Ok(policy);
        }
        decoder.found.sort_by_key(|d| d.at.as_ref().map_or((0, 0), |at| (at.line, at.column)));
        Err(Error::Machine(decoder.found))
    }

    /// A ceiling's key and place, as a person reads it.
    pub(crate) fn place_of(&self, key: &str) -> String {
        match self.places.get(key) {
            Some(place) => format!("[policy] {key} at {MACHINE_FILE}:{}", place.line),
            None => format!("[policy] {key} in {MACHINE_FILE}"),
        }
    }
}

struct Reader<'a> {
    decoder: Decoder<'a>,
    policy: MachinePolicy,
}

impl Reader<'_> {
    fn policy(&mut self, value: &Spanned<DeValue<'_>>) {
        for (key, span, value) in self.decoder.table("policy", value) {
            match key {
                "tools" => self.policy.tables.tools = self.names(key, Kind::Tool, value),
                "egress" => self.policy.tables.egress = self.names(key, Kind::Egress, value),
                "secrets" => self.policy.tables.secrets = self.names(key, Kind::Secret, value),
                "filesystem" => self.filesystem(value),
                _ if KEYS.contains(&key) => {
                    let place = self.decoder.place(span);
                    self.policy.places.insert(key.to_owned(), place);
                    self.ceiling(key, value);
                }
                _ => self.decoder.unknown("[policy]", key, span, &KEYS),
            }
        }
    }

    fn ceiling(&mut self, key: &str, value: &Spanned<DeValue<'_>>) {
        let decoder = &mut self.decoder;
        let ceilings = &mut self.policy.ceilings;
        match key {
            "isolation" => ceilings.isolation = isolation(decoder, value),
            "credentials" => {
                ceilings.credentials = texts(decoder, key, value, |text| {
                    NamePattern::parse(Kind::Secret, text).map(drop)
                });
            }
            "max_per_run_usd" => ceilings.max_per_run_usd = usd(decoder, key, value),
            "max_per_day_usd" => ceilings.max_per_day_usd = usd(decoder, key, value),
            "max_per_month_usd" => ceilings.max_per_month_usd = usd(decoder, key, value),
            "max_duration_seconds" => {
                ceilings.max_duration_seconds = decoder.whole(key, value, 1..=MAX_SECONDS);
            }
            "allow_proceed" => ceilings.allow_proceed = decoder.boolean(key, value),
            "require_pinned_tools" => ceilings.require_pinned_tools = decoder.boolean(key, value),
            "allow_execute" => ceilings.allow_execute = decoder.boolean(key, value),
            "approver_keys" => {
                ceilings.approver_keys =
                    texts(decoder, key, value, |text| plain(text, "z6Mk", "an Ed25519 key"));
            }
            _ => {
                ceilings.peers =
                    texts(decoder, key, value, |text| plain(text, "did:key:", "a did:key"));
            }
        }
    }

    /// One of the tables over names.
    fn names(
        &mut self,
        table: &str,
        kind: Kind,
        value: &Spanned<DeValue<'_>>,
    ) -> BTreeMap<String, Vec<Pattern>> {
        let mut lists = BTreeMap::new();
        for (key, span, value) in self.decoder.table(&format!("policy.{table}"), value) {
            let reserved = key == AGENT && kind == Kind::Tool;
            if key != EVERYONE && (reserved || ServerId::parse(key).is_err()) {
                let expected = match kind {
                    Kind::Tool => "a server's name or \"*\"",
                    Kind::Secret | Kind::Egress => "a server's name, `agent` or \"*\"",
                };
                let key: String = key.escape_debug().take(80).collect();
                let message = format!("`{key}` in [policy.{table}] is not {expected}");
                self.decoder.error("unknown-key", span, message, None);
                continue;
            }
            let check = |text: &str| NamePattern::parse(kind, text).map(drop);
            lists.insert(key.to_owned(), patterns(&mut self.decoder, key, value, check));
        }
        lists
    }

    fn filesystem(&mut self, value: &Spanned<DeValue<'_>>) {
        for (key, span, value) in self.decoder.table("policy.filesystem", value) {
            let decoder = &mut self.decoder;
            let files = &mut self.policy.tables.filesystem;
            let path = |text: &str| PathPattern::parse(text).map(drop);
            match key {
                "read" => files.read = Some(patterns(decoder, key, value, path)),
                "write" => files.write = Some(patterns(decoder, key, value, path)),
                "deny" => {
                    files.deny = patterns(decoder, key, value, |text| parse_deny(text).map(drop));
                }
                _ => {
                    let known = ["read", "write", "deny"];
                    decoder.unknown("[policy.filesystem]", key, span, &known);
                }
            }
        }
    }
}

/// A list of patterns, each with its line; the bad ones are reported.
fn patterns(
    decoder: &mut Decoder<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
    check: impl Fn(&str) -> Result<(), Problem>,
) -> Vec<Pattern> {
    let checked = checked(decoder, key, value, check).unwrap_or_default();
    checked.into_iter().map(|(text, span)| Pattern { text, line: decoder.line(&span) }).collect()
}

fn texts(
    decoder: &mut Decoder<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
    check: impl Fn(&str) -> Result<(), Problem>,
) -> Option<Vec<String>> {
    checked(decoder, key, value, check)
        .map(|texts| texts.into_iter().map(|(text, _)| text).collect())
}

fn checked(
    decoder: &mut Decoder<'_>,
    key: &str,
    value: &Spanned<DeValue<'_>>,
    check: impl Fn(&str) -> Result<(), Problem>,
) -> Option<Vec<(String, Range<usize>)>> {
    let texts = decoder.strings(key, value)?;
    for (text, span) in &texts {
        if let Err(problem) = check(text) {
            let shown: String = text.escape_debug().take(80).collect();
            let message = format!("`{shown}` in `{key}`: {}", problem.reason);
            decoder.error("bad-pattern", span.clone(), message, problem.help);
        }
    }
    Some(texts)
}

fn plain(text: &str, prefix: &str, what: &str) -> Result<(), Problem> {
    let good = text.len() <= 256
        && text.strip_prefix(prefix).is_some_and(|rest| {
            !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric())
        });
    let reason = format!("expected {what}, which begins with `{prefix}`");
    if good { Ok(()) } else { Err(Problem { reason, help: None }) }
}

fn isolation(decoder: &mut Decoder<'_>, value: &Spanned<DeValue<'_>>) -> Option<Isolation> {
    let text = decoder.string("isolation", value)?;
    let level = match text.as_str() {
        "none" => Some(Isolation::None),
        "process" => Some(Isolation::Process),
        "network" => Some(Isolation::Network),
        "kernel" => Some(Isolation::Kernel),
        _ => None,
    };
    if level.is_none() {
        let message = "`isolation` is none, process, network or kernel".to_owned();
        decoder.error("unknown-value", value.span(), message, None);
    }
    level
}

fn usd(decoder: &mut Decoder<'_>, key: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
    let text = decoder.string(key, value)?;
    if parse_usd(&text).is_none() {
        let message = format!("`{key}` is not an amount of at most eight places");
        let help = Some("a decimal in quotes: \"0.50\"".to_owned());
        decoder.error("bad-amount", value.span(), message, help);
        return None;
    }
    Some(text)
}

#[cfg(test)]
mod tests;
