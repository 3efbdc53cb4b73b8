//! Both layers and the declared bounds, folded into the one artifact that every enforcer reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringfence_bundle::{
    ApprovalRule, Endpoint, Host, Isolation, Manifest, PredicateTest, ServerId, Transport,
};
use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::error::finding;
use crate::index::Index;
use crate::wire::{self, Approval, Declared, Rules, Test, VERSION, When, Wire};
use crate::{Error, MachinePolicy, ceilings};

/// What a person calls the two files in a rule.
pub(crate) const MACHINE_FILE: &str = "machine.toml";
pub(crate) const BUNDLE_FILE: &str = "ringfence.toml";

/// Machine policy, bundle policy and declared bounds, each kept as it was written, with what is
/// needed to decide quickly. Immutable; a clone shares it.
///
/// Serialises without loss; [`Ruleset::from_json`] is the only way back.
#[derive(Debug, Clone)]
pub struct Ruleset {
    wire: Arc<Wire>,
    index: Arc<Index>,
}

impl PartialEq for Ruleset {
    fn eq(&self, other: &Self) -> bool {
        self.wire == other.wire
    }
}

impl Serialize for Ruleset {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.wire.serialize(serializer)
    }
}

impl Ruleset {
    /// Folds machine policy and manifest. Pure; the same input gives the same digest.
    ///
    /// # Errors
    /// [`Error::Exceeds`] when a ceiling refuses what the manifest declares, or when a pattern or a
    /// server's address is not one that can be judged by; every finding at once.
    pub fn compile(machine: &MachinePolicy, manifest: &Manifest) -> Result<Self, Error> {
        let mut findings = ceilings::findings(machine, manifest);
        let mut gateway_only = BTreeMap::new();
        let mut keep = |what: String, url: &str| match Endpoint::parse(url) {
            Ok(endpoint) => {
                gateway_only.entry(endpoint.host).or_insert(what);
            }
            Err(reason) => findings.push(finding(
                "bad-address",
                format!("{what} in .ringfence/{BUNDLE_FILE}: {reason}"),
                Some("expected https://host[:port]/path".to_owned()),
            )),
        };
        for (id, server) in &manifest.servers {
            if let Transport::Http { url, .. } = &server.transport {
                keep(format!("[servers.{id}] url"), url);
            }
        }
        for peer in manifest.a2a.iter().flat_map(|a2a| &a2a.peers) {
            keep(format!("[[a2a.peers]] {} endpoint", peer.name), &peer.endpoint);
        }
        if manifest.servers.keys().any(|id| id.as_str() == crate::decision::AGENT) {
            findings.push(finding(
                "reserved-name",
                format!(
                    "[servers.agent] in .ringfence/{BUNDLE_FILE}: `agent` means the agent itself"
                ),
                Some("give the server another name".to_owned()),
            ));
        }
        let wire = Wire {
            version: VERSION,
            machine: Rules::new(MACHINE_FILE, &machine.tables, &machine.places),
            ceilings: machine.ceilings.clone(),
            bundle: Rules::new(BUNDLE_FILE, &manifest.policy, &manifest.places),
            declared: declared(manifest, gateway_only),
        };
        match Index::new(&wire) {
            Ok(index) if findings.is_empty() => {
                Ok(Self { wire: Arc::new(wire), index: Arc::new(index) })
            }
            Ok(_) => Err(Error::Exceeds(findings)),
            Err(problems) => {
                findings.extend(problems.into_iter().map(|p| finding("bad-pattern", p, None)));
                Err(Error::Exceeds(findings))
            }
        }
    }

    /// Reads a serialised ruleset, as a sidecar does.
    ///
    /// # Errors
    /// [`Error::Newer`] for a version above the one this program writes, [`Error::Ruleset`] for
    /// anything that is not exactly a ruleset.
    pub fn from_json(json: &[u8]) -> Result<Self, Error> {
        /// Only the version, so that a newer form is told apart from a broken one.
        #[derive(serde::Deserialize)]
        struct Version {
            version: u32,
        }
        let bad = |error: serde_json::Error| Error::Ruleset(error.to_string());
        let Version { version } = serde_json::from_slice(json).map_err(bad)?;
        if version > VERSION {
            return Err(Error::Newer { found: version, known: VERSION });
        }
        if version != VERSION {
            return Err(Error::Ruleset(format!("there is no version {version}")));
        }
        let wire: Wire = serde_json::from_slice(json).map_err(bad)?;
        let index = Index::new(&wire).map_err(|problems| Error::Ruleset(problems.join("; ")))?;
        Ok(Self { wire: Arc::new(wire), index: Arc::new(index) })
    }

    /// The serialised form: canonical JSON (RFC 8785), the bytes that [`Ruleset::digest`] is over.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json_canonicalizer::to_vec(&*self.wire)
            .expect("the form holds text, booleans, small integers and string keys only")
    }

    /// Digest of [`Ruleset::to_json`], `sha256:…`.
    #[must_use]
    pub fn digest(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::from("sha256:");
        for byte in Sha256::digest(self.to_json()) {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    /// Format version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.wire.version
    }

    pub(crate) fn wire(&self) -> &Wire {
        &self.wire
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }
}

fn declared(manifest: &Manifest, gateway_only: BTreeMap<Host, String>) -> Declared {
    let servers: BTreeMap<ServerId, wire::Server> = manifest
        .servers
        .iter()
        .map(|(id, server)| {
            let allowed_hosts = match &server.transport {
                Transport::Stdio { allowed_hosts, .. } => allowed_hosts.clone(),
                Transport::Http { .. } => Vec::new(),
            };
            let (tools, methods) = (server.tools.clone(), server.methods.clone());
            (id.clone(), wire::Server { tools, methods, allowed_hosts })
        })
        .collect();
    Declared {
        isolation: ceilings::declared_isolation(manifest).max(Isolation::None),
        max_duration_seconds: manifest.limits.max_duration_seconds,
        max_per_run_usd: manifest.spending.max_per_run_usd.clone(),
        max_per_day_usd: manifest.spending.max_per_day_usd.clone(),
        max_per_month_usd: manifest.spending.max_per_month_usd.clone(),
        credentials: manifest.sandbox.credentials.clone(),
        egress: manifest.sandbox.network.egress,
        allowed_hosts: manifest.sandbox.network.allowed_hosts.clone(),
        servers,
        gateway_only,
        proceed_on_timeout: manifest.approvals.on_timeout == ringfence_bundle::OnTimeout::Proceed,
        approver_keys: manifest
            .approvals
            .notify
            .iter()
            .flat_map(|notify| notify.approver_keys.iter().cloned())
            .collect(),
        peers: manifest
            .a2a
            .iter()
            .flat_map(|a2a| a2a.peers.iter().map(|peer| peer.did.clone()))
            .collect(),
        approvals: manifest.approvals.require.iter().map(approval).collect(),
    }
}

fn approval(rule: &ApprovalRule) -> Approval {
    let when = rule.when.as_ref().map(|predicate| When {
        pointer: predicate.pointer.clone(),
        test: match &predicate.test {
            PredicateTest::Equals(value) => Test::Equals(value.to_string()),
            PredicateTest::Prefix(text) => Test::Prefix(text.clone()),
            PredicateTest::Matches(text) => Test::Matches(text.clone()),
            PredicateTest::GreaterThan(text) => Test::GreaterThan(text.clone()),
            PredicateTest::OneOf(values) => {
                Test::OneOf(values.iter().map(ToString::to_string).collect())
            }
        },
    });
    Approval { server: rule.server.clone(), tool: rule.tool.clone(), when }
}

#[cfg(test)]
mod tests;
