//! What the machine limits, and what a bundle asks for beyond it.

use std::time::Duration;

use ringfence_bundle::{
    Diagnostic, HostRule, Isolation, Manifest, OnTimeout, Transport, floor, parse_usd,
};
use serde::{Deserialize, Serialize};

use crate::error::finding;
use crate::list::{List, Query, Verdict};
use crate::pattern::{Kind, NamePattern};
use crate::{MachinePolicy, Ruleset};

/// The ceilings of `[policy]` in `machine.toml`. Absent constrains nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ceilings {
    /// No run below this level.
    pub isolation: Option<Isolation>,
    /// Globs over what `credentials` may name.
    pub credentials: Option<Vec<String>>,
    /// Decimal USD.
    pub max_per_run_usd: Option<String>,
    /// Decimal USD.
    pub max_per_day_usd: Option<String>,
    /// Decimal USD.
    pub max_per_month_usd: Option<String>,
    /// Seconds.
    pub max_duration_seconds: Option<u64>,
    /// Whether `on_timeout = "proceed"` is possible at all.
    pub allow_proceed: Option<bool>,
    /// Keys that may approve.
    pub approver_keys: Option<Vec<String>>,
    /// DIDs that may be peers.
    pub peers: Option<Vec<String>>,
    /// Refuse servers whose tools are not pinned.
    pub require_pinned_tools: Option<bool>,
    /// Whether generated code may run.
    pub allow_execute: Option<bool>,
    /// Whether a host may be declared `opaque`.
    pub allow_opaque: Option<bool>,
}

/// The spending caps of a run: for each, the lower of machine and bundle. Decimal USD.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Caps {
    /// One run.
    pub per_run_usd: Option<String>,
    /// One UTC day.
    pub per_day_usd: Option<String>,
    /// One UTC month.
    pub per_month_usd: Option<String>,
}

impl Ruleset {
    /// The weakest isolation that a run may have: the strongest of the capabilities' floor, the
    /// declared level and the machine's minimum.
    #[must_use]
    pub fn required_isolation(&self) -> Isolation {
        let declared = self.wire().declared.isolation;
        self.wire().ceilings.isolation.map_or(declared, |machine| machine.max(declared))
    }

    /// The longest that a run may take: the shorter of machine and bundle, `None` for no limit.
    #[must_use]
    pub fn max_duration(&self) -> Option<Duration> {
        let (machine, bundle) =
            (self.wire().ceilings.max_duration_seconds, self.wire().declared.max_duration_seconds);
        [machine, bundle].into_iter().flatten().min().map(Duration::from_secs)
    }

    /// The spending caps.
    #[must_use]
    pub fn caps(&self) -> Caps {
        let (machine, bundle) = (&self.wire().ceilings, &self.wire().declared);
        Caps {
            per_run_usd: lower(&machine.max_per_run_usd, &bundle.max_per_run_usd),
            per_day_usd: lower(&machine.max_per_day_usd, &bundle.max_per_day_usd),
            per_month_usd: lower(&machine.max_per_month_usd, &bundle.max_per_month_usd),
        }
    }

    /// Whether a call may go through when nobody answered in time.
    #[must_use]
    pub fn may_proceed_on_timeout(&self) -> bool {
        self.wire().declared.proceed_on_timeout && self.wire().ceilings.allow_proceed != Some(false)
    }

    /// Whether a server whose tools are not pinned is refused.
    #[must_use]
    pub fn requires_pinned_tools(&self) -> bool {
        self.wire().ceilings.require_pinned_tools == Some(true)
    }

    /// Whether generated code may run.
    #[must_use]
    pub fn may_execute(&self) -> bool {
        self.wire().ceilings.allow_execute != Some(false)
    }

    /// Whether a host may be declared `opaque`.
    #[must_use]
    pub fn may_be_opaque(&self) -> bool {
        self.wire().ceilings.allow_opaque != Some(false)
    }

    /// Whether a decision signed with this key counts.
    #[must_use]
    pub fn is_approver(&self, key: &str) -> bool {
        within(
            &self.wire().declared.approver_keys,
            self.wire().ceilings.approver_keys.as_ref(),
            key,
        )
    }

    /// Whether this DID may be a peer.
    #[must_use]
    pub fn is_peer(&self, did: &str) -> bool {
        within(&self.wire().declared.peers, self.wire().ceilings.peers.as_ref(), did)
    }
}

fn within(declared: &[String], machine: Option<&Vec<String>>, name: &str) -> bool {
    let has = |list: &[String]| list.iter().any(|entry| entry == name);
    has(declared) && machine.is_none_or(|machine| has(machine))
}

/// The lower of two amounts. One that is no amount (only a ruleset made by hand can hold one)
/// counts as nothing to spend.
fn lower(a: &Option<String>, b: &Option<String>) -> Option<String> {
    let amounts = [a, b].into_iter().flatten();
    let parsed: Option<Vec<_>> =
        amounts.map(|text| parse_usd(text).map(|amount| (amount, text))).collect();
    match parsed {
        Some(amounts) => {
            amounts.into_iter().min_by(|a, b| a.0.cmp(&b.0)).map(|(_, text)| text.clone())
        }
        None => Some("0".to_owned()),
    }
}

/// The stronger of the declared level and the floor.
pub(crate) fn declared_isolation(manifest: &Manifest) -> Isolation {
    manifest.sandbox.isolation.unwrap_or_default().max(floor(&manifest.capabilities))
}

/// A compiled `credentials` ceiling.
///
/// # Errors
/// The first pattern that is none.
pub(crate) fn credentials(patterns: &[String]) -> Result<List, String> {
    let parse = |text: &String| {
        NamePattern::parse(Kind::Secret, text)
            .map_err(|problem| format!("[policy] credentials {text:?}: {}", problem.reason))
    };
    patterns.iter().map(parse).collect::<Result<_, _>>().map(List::new)
}

/// Every host that is declared `opaque`, and the table it stands in.
fn opaque_hosts(manifest: &Manifest) -> Vec<(String, &HostRule)> {
    let agent = manifest.sandbox.network.allowed_hosts.iter();
    let agent = agent.map(|rule| ("[sandbox.network]".to_owned(), rule));
    let servers = manifest.servers.iter().flat_map(|(id, server)| match &server.transport {
        Transport::Stdio { allowed_hosts, .. } => {
            allowed_hosts.iter().map(|rule| (format!("[servers.{id}]"), rule)).collect()
        }
        Transport::Http { .. } => Vec::new(),
    });
    agent.chain(servers).filter(|(_, rule)| rule.opaque).collect()
}

/// Everything that the manifest asks for beyond a ceiling.
pub(crate) fn findings(machine: &MachinePolicy, manifest: &Manifest) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let limits = &machine.ceilings;
    let mut exceed = |key: &str, asked: String, help: &str| {
        let message = format!(
            "{asked} in .ringfence/ringfence.toml is more than {} allows",
            machine.place_of(key)
        );
        let mut finding = finding("exceeds-machine", message, Some(help.to_owned()));
        finding.at = machine.places.find(&format!("policy.{key}"));
        found.push(finding);
    };

    if let Some(patterns) = &limits.credentials {
        // A list that does not compile allows nothing; `compile` reports it by itself.
        let list = credentials(patterns).unwrap_or_default();
        for name in &manifest.sandbox.credentials {
            if !matches!(list.judge(&Query::new(name.as_str(), 0)), Verdict::Allowed(_)) {
                exceed(
                    "credentials",
                    format!("[sandbox] credentials = [\"{name}\"]"),
                    "take it out of the bundle, or have the machine's owner allow it",
                );
            }
        }
    }
    if limits.allow_proceed == Some(false) && manifest.approvals.on_timeout == OnTimeout::Proceed {
        exceed(
            "allow_proceed",
            "[approvals] on_timeout = \"proceed\"".to_owned(),
            "write on_timeout = \"deny\" or \"abort\"",
        );
    }
    if limits.allow_opaque == Some(false) {
        for (owner, rule) in opaque_hosts(manifest) {
            exceed(
                "allow_opaque",
                format!("{owner} allowed_hosts = [{{ host = \"{rule}\", opaque = true }}]"),
                "take `opaque` out, or have the machine's owner allow it",
            );
        }
    }
    if let Some(keys) = &limits.approver_keys {
        let asked = manifest.approvals.notify.iter().flat_map(|notify| &notify.approver_keys);
        for key in asked.filter(|key| !keys.contains(key)) {
            exceed(
                "approver_keys",
                format!("[[approvals.notify]] approver_keys = [{key:?}]"),
                "use a key that the machine lists",
            );
        }
    }
    if let Some(peers) = &limits.peers {
        let asked = manifest.a2a.iter().flat_map(|a2a| &a2a.peers);
        for peer in asked.filter(|peer| !peers.contains(&peer.did)) {
            exceed(
                "peers",
                format!("[[a2a.peers]] {} with did {:?}", peer.name, peer.did),
                "use a peer that the machine lists",
            );
        }
    }
    found
}
