//! The rules on connections spelled out, for an engine that is told them instead of asking.

use ringfence_bundle::{Egress, Host, HostRule};

use crate::decide::EGRESS;
use crate::decision::EVERYONE;
use crate::index::host_pattern;
use crate::list::List;
use crate::pattern::Ports;
use crate::ruleset::BUNDLE_FILE;
use crate::{Layer, Principal, Ruleset};

/// What decides on the connections of one principal. A host and a port are allowed when the host is not
/// in `never` and every list allows them; it is what [`Ruleset::egress`] decides by, in another form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressRules {
    /// Hosts that are reached through the gateway only, on no port.
    pub never: Vec<Host>,
    /// All must allow.
    pub lists: Vec<EgressList>,
}

/// One list: it allows what one of its patterns names and none of its denials does. Of denials alone, it
/// allows what none of them names; an empty one allows nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressList {
    /// Which list, as a person reads it: `machine.toml [policy.egress] agent`.
    pub place: String,
    /// Its patterns, in their order.
    pub patterns: Vec<EgressPattern>,
}

/// One pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressPattern {
    /// Whether it denies.
    pub denies: bool,
    /// A glob over a host as [`Host`] is written: `*` is any run of characters, `?` one, everything else
    /// itself. An IPv6 address stands in brackets.
    pub glob: String,
    /// On which ports.
    pub ports: EgressPorts,
    /// The pattern with its place, as a person reads it.
    pub rule: String,
}

/// The ports of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EgressPorts {
    /// Every one.
    Any,
    /// 443 and 80.
    Web,
    /// This one.
    One(u16),
}

impl From<Ports> for EgressPorts {
    fn from(ports: Ports) -> Self {
        match ports {
            Ports::Any => Self::Any,
            Ports::Web => Self::Web,
            Ports::One(port) => Self::One(port),
        }
    }
}

impl Ruleset {
    /// The rules on this principal's connections.
    #[must_use]
    pub fn egress_rules(&self, who: &Principal) -> EgressRules {
        let declared = &self.wire().declared;
        let mut lists = Vec::new();
        for (layer, rules) in
            [(Layer::Machine, &self.wire().machine), (Layer::Bundle, &self.wire().bundle)]
        {
            for key in [EVERYONE, who.key()] {
                let Some(list) = self.list(layer, EGRESS, key) else { continue };
                let rule = |at| self.rule_at(layer, EGRESS, key, Some(at));
                lists.push(spelled(format!("{} [policy.egress] {key}", rules.file), list, &rule));
            }
        }
        lists.push(match who {
            Principal::Agent => {
                let place = format!("{BUNDLE_FILE} [sandbox.network]");
                match declared.egress {
                    Egress::None => EgressList { place, patterns: Vec::new() },
                    Egress::Open => {
                        let rule = format!("{place} egress = \"open\"");
                        let ports = EgressPorts::Web;
                        let all = EgressPattern { denies: false, glob: "*".into(), ports, rule };
                        EgressList { place, patterns: vec![all] }
                    }
                    Egress::Restricted => hosts(place, &declared.allowed_hosts),
                }
            }
            Principal::Server(id) => {
                let server = declared.servers.get(id);
                let rules = server.map_or(&[][..], |server| &server.allowed_hosts);
                hosts(format!("{BUNDLE_FILE} [servers.{id}]"), rules)
            }
        });
        EgressRules { never: declared.gateway_only.keys().cloned().collect(), lists }
    }
}

fn spelled(place: String, list: &List, rule: &dyn Fn(usize) -> String) -> EgressList {
    let patterns = list.patterns().iter().enumerate().map(|(at, pattern)| EgressPattern {
        denies: pattern.negative,
        glob: pattern.glob.to_string(),
        ports: pattern.ports.into(),
        rule: rule(at),
    });
    EgressList { place, patterns: patterns.collect() }
}

fn hosts(place: String, rules: &[HostRule]) -> EgressList {
    // A suffix is one of names; of an address it covers nothing.
    let real = rules.iter().filter(|rule| !rule.suffix || matches!(rule.host, Host::Name(_)));
    let patterns = real.map(|rule| {
        let pattern = host_pattern(rule);
        EgressPattern {
            denies: false,
            glob: pattern.glob.into(),
            ports: pattern.ports.into(),
            rule: format!("{place} allowed_hosts \"{rule}\""),
        }
    });
    EgressList { patterns: patterns.collect(), place: format!("{place} allowed_hosts") }
}
