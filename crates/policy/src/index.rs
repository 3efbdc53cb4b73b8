//! A ruleset compiled for deciding.

use std::collections::BTreeMap;

use ringfence_bundle::{HostRule, ServerId};

use crate::approvals::Rule;
use crate::ceilings;
use crate::filesystem::Deny;
use crate::list::List;
use crate::pattern::{Kind, NamePattern, Ports, parse_deny};
use crate::wire::{Line, Rules, Wire};

#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) machine: Tables,
    pub(crate) bundle: Tables,
    pub(crate) credentials: Option<List>,
    pub(crate) agent_hosts: List,
    pub(crate) server_hosts: BTreeMap<ServerId, List>,
    pub(crate) approvals: Vec<Rule>,
}

/// One layer's tables.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) tools: BTreeMap<String, List>,
    pub(crate) egress: BTreeMap<String, List>,
    pub(crate) secrets: BTreeMap<String, List>,
    pub(crate) deny: Vec<Deny>,
}

impl Index {
    /// Compiles every pattern.
    ///
    /// # Errors
    /// All that cannot be compiled, each naming its place.
    pub(crate) fn new(wire: &Wire) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let machine = Tables::new(&wire.machine, &mut problems);
        let bundle = Tables::new(&wire.bundle, &mut problems);
        let credentials = wire.ceilings.credentials.as_deref().and_then(|patterns| {
            ceilings::credentials(patterns).map_err(|problem| problems.push(problem)).ok()
        });
        let approvals = wire
            .declared
            .approvals
            .iter()
            .enumerate()
            .filter_map(|(n, rule)| {
                Rule::new(rule)
                    .map_err(|reason| {
                        problems.push(format!(
                            "{}: [[approvals.require]] number {}: {reason}",
                            wire.bundle.file,
                            n + 1
                        ));
                    })
                    .ok()
            })
            .collect();
        let index = Self {
            machine,
            bundle,
            credentials,
            agent_hosts: hosts(&wire.declared.allowed_hosts),
            server_hosts: wire
                .declared
                .servers
                .iter()
                .filter(|(_, server)| !server.allowed_hosts.is_empty())
                .map(|(id, server)| (id.clone(), hosts(&server.allowed_hosts)))
                .collect(),
            approvals,
        };
        if problems.is_empty() { Ok(index) } else { Err(problems) }
    }
}

impl Tables {
    fn new(rules: &Rules, problems: &mut Vec<String>) -> Self {
        let mut table = |name: &str, kind, lists: &BTreeMap<String, Vec<Line>>| {
            lists
                .iter()
                .map(|(key, lines)| {
                    let patterns = lines.iter().filter_map(|line| {
                        NamePattern::parse(kind, &line.text)
                            .map_err(|problem| {
                                problems.push(describe(
                                    rules.file_of(line),
                                    line,
                                    name,
                                    &problem.reason,
                                ));
                            })
                            .ok()
                    });
                    (key.clone(), List::new(patterns.collect()))
                })
                .collect()
        };
        let (tools, egress, secrets) = (
            table("tools", Kind::Tool, &rules.tools),
            table("egress", Kind::Egress, &rules.egress),
            table("secrets", Kind::Secret, &rules.secrets),
        );
        let mut deny = Vec::new();
        for line in &rules.filesystem.deny {
            match parse_deny(&line.text) {
                Ok(pattern) => deny.push(Deny::new(&pattern)),
                Err(problem) => {
                    let file = rules.file_of(line);
                    problems.push(describe(file, line, "filesystem", &problem.reason));
                }
            }
        }
        Self { tools, egress, secrets, deny }
    }
}

fn describe(file: &str, line: &Line, table: &str, reason: &str) -> String {
    let text: String = line.text.chars().take(80).collect();
    format!("{file}:{} [policy.{table}] {text:?}: {reason}", line.line)
}

/// `allowed_hosts` as a list: the index finds an entry, [`HostRule::covers`] has the last word.
fn hosts(rules: &[HostRule]) -> List {
    List::new(rules.iter().map(host_pattern).collect())
}

/// An `allowed_hosts` entry as a pattern.
pub(crate) fn host_pattern(rule: &HostRule) -> NamePattern {
    NamePattern {
        negative: false,
        glob: if rule.suffix { format!("*.{}", rule.host) } else { rule.host.to_string() }.into(),
        ports: rule.port.map_or(Ports::Web, Ports::One),
    }
}
