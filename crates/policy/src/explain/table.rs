//! Everything that holds for one principal, as a table.

use std::path::PathBuf;

use ringfence_bundle::{HostRule, Pattern, PolicyTables, Transport};
use serde::Serialize;

use super::{Explain, file_of};
use crate::decision::EVERYONE;
use crate::{Layer, Principal};

/// One rule that holds for somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// `tool`, `method`, `host`, `secret`, `read`, `write` or `deny`.
    pub about: &'static str,
    /// Whose rule it is.
    pub layer: Layer,
    /// Whether it refuses what it matches.
    pub refuses: bool,
    /// As it is written; `(nothing)` for an empty list.
    pub pattern: String,
    /// Whether it binds everyone (`"*"`), not this one alone.
    pub everyone: bool,
    /// The file that it stands in.
    pub file: PathBuf,
    /// Line in it, from 1; 0 where it is not known.
    pub line: usize,
}

impl Explain<'_> {
    /// The rules that hold for one principal, in the order in which they are asked.
    #[must_use]
    pub fn table(&self, who: &Principal) -> Vec<Rule> {
        let mut rules = Vec::new();
        for layer in [Layer::Machine, Layer::Bundle] {
            let tables = match layer {
                Layer::Machine => &self.machine.tables,
                _ => &self.manifest.policy,
            };
            self.names(layer, tables, who, &mut rules);
            if layer == Layer::Machine && *who == Principal::Agent {
                for (n, text) in self.machine.ceilings.credentials.iter().flatten().enumerate() {
                    let keys = format!("policy.credentials[{n}]");
                    rules.push(self.rule(layer, "secret", false, text, &keys));
                }
            }
            let files = &tables.filesystem;
            let lists = [
                ("read", files.read.as_deref()),
                ("write", files.write.as_deref()),
                ("deny", Some(&*files.deny).filter(|list| !list.is_empty())),
            ];
            for (about, list) in lists {
                if let Some(list) = list {
                    self.list(
                        layer,
                        about,
                        true,
                        list,
                        &format!("policy.filesystem.{about}"),
                        &mut rules,
                    );
                }
            }
        }
        self.declared(who, &mut rules);
        let order = ["tool", "method", "host", "secret", "read", "write", "deny"];
        rules.sort_by_key(|rule| order.iter().position(|about| *about == rule.about));
        rules
    }

    fn names(&self, layer: Layer, tables: &PolicyTables, who: &Principal, rules: &mut Vec<Rule>) {
        let all = [
            ("tool", "tools", &tables.tools),
            ("host", "egress", &tables.egress),
            ("secret", "secrets", &tables.secrets),
        ];
        for (about, table, lists) in all {
            if about == "tool" && *who == Principal::Agent {
                continue;
            }
            for key in [EVERYONE, who.key()] {
                if let Some(list) = lists.get(key) {
                    let keys = format!("policy.{table}.{key}");
                    self.list(layer, about, key == EVERYONE, list, &keys, rules);
                }
            }
        }
    }

    fn declared(&self, who: &Principal, rules: &mut Vec<Rule>) {
        let mut add = |about, texts: Vec<String>, keys: &str| {
            for (n, text) in texts.iter().enumerate() {
                let keys = format!("{keys}[{n}]");
                rules.push(self.rule(Layer::Declared, about, false, text, &keys));
            }
            if texts.is_empty() {
                rules.push(self.rule(Layer::Declared, about, false, "(nothing)", keys));
            }
        };
        match who {
            Principal::Agent => {
                let sandbox = &self.manifest.sandbox;
                let hosts = &sandbox.network.allowed_hosts;
                match sandbox.network.egress {
                    ringfence_bundle::Egress::Restricted => {
                        let hosts = hosts.iter().map(HostRule::described).collect();
                        add("host", hosts, "sandbox.network.allowed_hosts");
                    }
                    ringfence_bundle::Egress::Open => {
                        let open = vec!["* (ports 443 and 80)".to_owned()];
                        add("host", open, "sandbox.network.egress");
                    }
                    ringfence_bundle::Egress::None => {
                        add("host", Vec::new(), "sandbox.network.egress");
                    }
                }
                let names = sandbox.credentials.iter().map(ToString::to_string).collect();
                add("secret", names, "sandbox.credentials");
            }
            Principal::Server(id) => {
                let Some(server) = self.manifest.servers.get(id) else { return };
                if let Some(tools) = &server.tools {
                    let tools = tools.iter().map(ToString::to_string).collect();
                    add("tool", tools, &format!("servers.{id}.tools"));
                }
                if !server.methods.is_empty() {
                    add("method", server.methods.clone(), &format!("servers.{id}.methods"));
                }
                if let Transport::Stdio { allowed_hosts, .. } = &server.transport {
                    let hosts = allowed_hosts.iter().map(HostRule::described).collect();
                    add("host", hosts, &format!("servers.{id}.allowed_hosts"));
                }
            }
        }
    }

    fn list(
        &self,
        layer: Layer,
        about: &'static str,
        everyone: bool,
        list: &[Pattern],
        keys: &str,
        rules: &mut Vec<Rule>,
    ) {
        for (n, pattern) in list.iter().enumerate() {
            let text = &pattern.text;
            let mut rule = self.rule(layer, about, everyone, text, &format!("{keys}[{n}]"));
            rule.line = pattern.line;
            rules.push(rule);
        }
        if list.is_empty() {
            rules.push(self.rule(layer, about, everyone, "(nothing)", keys));
        }
    }

    fn rule(
        &self,
        layer: Layer,
        about: &'static str,
        everyone: bool,
        text: &str,
        keys: &str,
    ) -> Rule {
        let place = self.places(layer).find(keys);
        let (file, line) =
            place.map_or_else(|| (file_of(layer).into(), 0), |place| (place.file, place.line));
        let refuses = text.starts_with('!') || about == "deny" || text == "(nothing)";
        Rule { about, layer, refuses, pattern: text.to_owned(), everyone, file, line }
    }
}
