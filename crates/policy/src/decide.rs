//! The decisions over names: tools, hosts, secrets, methods.
//!
//! Each asks Ringfence's own rules first, then the machine, then the bundle, then what is declared
//! of the thing itself. All must allow; the first that refuses is named.

use std::collections::BTreeMap;

use ringfence_bundle::{Egress, Host, HostRule, SecretName, ServerId, ToolName};

use crate::decision::EVERYONE;
use crate::index::Tables;
use crate::list::{List, Query, Verdict};
use crate::ruleset::BUNDLE_FILE;
use crate::wire::{Line, Rules};
use crate::{Decision, Layer, Principal, Ruleset};

/// One of the three tables over names.
#[derive(Clone, Copy)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    lists: fn(&Tables) -> &BTreeMap<String, List>,
    lines: fn(&Rules) -> &BTreeMap<String, Vec<Line>>,
}

pub(crate) const TOOLS: Table = Table { name: "tools", lists: |t| &t.tools, lines: |r| &r.tools };
pub(crate) const EGRESS: Table =
    Table { name: "egress", lists: |t| &t.egress, lines: |r| &r.egress };
pub(crate) const SECRETS: Table =
    Table { name: "secrets", lists: |t| &t.secrets, lines: |r| &r.secrets };

/// Where an allowing rule stands, written out only when it is the last one.
#[derive(Clone, Copy)]
struct Hit<'a> {
    layer: Layer,
    table: Table,
    key: &'a str,
    at: Option<usize>,
}

impl Ruleset {
    /// May this tool of this server be called? Asks the machine, the bundle, the server's `tools`.
    #[must_use]
    pub fn tool(&self, server: &ServerId, tool: &str) -> Decision {
        if ToolName::parse(tool).is_err() {
            return Decision::refuse(
                Layer::Builtin,
                "not a tool name (MCP tools, 1 to 128 of A-Z a-z 0-9 _ - . /)",
            );
        }
        let hit = match self.layers(TOOLS, server.as_str(), &Query::new(tool, 0)) {
            Ok(hit) => hit,
            Err(refusal) => return refusal,
        };
        let Some(declared) = self.wire().declared.servers.get(server) else {
            return undeclared(server);
        };
        match &declared.tools {
            Some(tools) if tools.iter().any(|name| name.as_str() == tool) => {
                Decision::allow(Layer::Declared, format!("{BUNDLE_FILE} [servers.{server}] tools"))
            }
            Some(_) => Decision::refuse(
                Layer::Declared,
                format!("{BUNDLE_FILE} [servers.{server}] tools: not listed"),
            ),
            None => hit.map_or_else(
                || {
                    let rule = format!("{BUNDLE_FILE} [servers.{server}] tools: all");
                    Decision::allow(Layer::Declared, rule)
                },
                |hit| self.allowed_by(hit),
            ),
        }
    }

    /// May this principal connect there? Asks gateway-only hosts, the machine, the bundle, the
    /// declared hosts.
    #[must_use]
    pub fn egress(&self, who: &Principal, host: &Host, port: u16) -> Decision {
        if let Some(owner) = self.wire().declared.gateway_only.get(host) {
            return Decision::refuse(
                Layer::Builtin,
                format!("reached through the gateway only: {BUNDLE_FILE} {owner}"),
            );
        }
        if port == 0 {
            return Decision::refuse(Layer::Builtin, "no port");
        }
        let name = host.to_string();
        let query = Query::new(&name, port);
        if let Err(refusal) = self.layers(EGRESS, who.key(), &query) {
            return refusal;
        }
        let declared = &self.wire().declared;
        match who {
            Principal::Agent => {
                let rule = |what| format!("{BUNDLE_FILE} [sandbox.network] {what}");
                match declared.egress {
                    Egress::None => Decision::refuse(Layer::Declared, rule("egress = \"none\"")),
                    Egress::Open if matches!(port, 443 | 80) => {
                        Decision::allow(Layer::Declared, rule("egress = \"open\""))
                    }
                    Egress::Open => Decision::refuse(
                        Layer::Declared,
                        rule("egress = \"open\": ports 443 and 80 only"),
                    ),
                    Egress::Restricted => covered(
                        &declared.allowed_hosts,
                        &self.index().agent_hosts,
                        (host, port, &query),
                        &rule("allowed_hosts"),
                    ),
                }
            }
            Principal::Server(id) => {
                let Some(server) = declared.servers.get(id) else { return undeclared(id) };
                let rule = format!("{BUNDLE_FILE} [servers.{id}] allowed_hosts");
                match self.index().server_hosts.get(id) {
                    Some(list) => covered(&server.allowed_hosts, list, (host, port, &query), &rule),
                    None => Decision::refuse(Layer::Declared, format!("{rule}: not listed")),
                }
            }
        }
    }

    /// Whether what goes through a tunnel there is not looked at: the principal's own list says so of
    /// this very host and port, and the machine lets it. It allows nothing by itself:
    /// [`Ruleset::egress`] is asked first.
    #[must_use]
    pub fn is_opaque(&self, who: &Principal, host: &Host, port: u16) -> bool {
        let declared = &self.wire().declared;
        let rules = match who {
            Principal::Agent if declared.egress == Egress::Restricted => &declared.allowed_hosts,
            Principal::Agent => return false,
            Principal::Server(id) => match declared.servers.get(id) {
                Some(server) => &server.allowed_hosts,
                None => return false,
            },
        };
        self.may_be_opaque() && rules.iter().any(|rule| rule.opaque && rule.covers(host, port))
    }

    /// May this principal have this secret? Asks the machine (and its `credentials` ceiling, for
    /// the agent), the bundle, and, for the agent, what `credentials` names.
    #[must_use]
    pub fn secret(&self, who: &Principal, name: &SecretName) -> Decision {
        let query = Query::new(name.as_str(), 0);
        if let (Principal::Agent, Some(list)) = (who, &self.index().credentials)
            && !matches!(list.judge(&query), Verdict::Allowed(_))
        {
            let rule = format!("{} [policy] credentials", self.wire().machine.file);
            return Decision::refuse(Layer::Machine, rule);
        }
        let hit = match self.layers(SECRETS, who.key(), &query) {
            Ok(hit) => hit,
            Err(refusal) => return refusal,
        };
        let declared = &self.wire().declared;
        match who {
            Principal::Agent => {
                let rule = format!("{BUNDLE_FILE} [sandbox] credentials");
                if declared.credentials.contains(name) {
                    Decision::allow(Layer::Declared, rule)
                } else {
                    Decision::refuse(Layer::Declared, format!("{rule}: not listed"))
                }
            }
            Principal::Server(id) if !declared.servers.contains_key(id) => undeclared(id),
            Principal::Server(id) => hit.map_or_else(
                || {
                    let rule = format!("{BUNDLE_FILE} [servers.{id}]: no rule on its secrets");
                    Decision::allow(Layer::Declared, rule)
                },
                |hit| self.allowed_by(hit),
            ),
        }
    }

    /// May this MCP method of this server pass? The handshake, ping, tools and notifications do;
    /// resources, prompts, completion and logging need a listing in the server's `methods`; no
    /// other method passes. Which tool may be called is [`Ruleset::tool`]'s question.
    #[must_use]
    pub fn method(&self, server: &ServerId, method: &str) -> Decision {
        let Some(declared) = self.wire().declared.servers.get(server) else {
            return undeclared(server);
        };
        let plain = matches!(
            method,
            "initialize" | "ping" | "server/discover" | "tools/list" | "tools/call"
        );
        if plain || method.strip_prefix("notifications/").is_some_and(|rest| !rest.is_empty()) {
            return Decision::allow(Layer::Builtin, "tools, ping and the handshake pass");
        }
        let listable = ["resources/", "prompts/", "completion/", "logging/"]
            .iter()
            .any(|group| method.starts_with(group));
        if !listable {
            return Decision::refuse(Layer::Builtin, "not a method that a gateway passes on");
        }
        let rule = format!("{BUNDLE_FILE} [servers.{server}] methods");
        if declared.methods.iter().any(|name| name == method) {
            Decision::allow(Layer::Declared, rule)
        } else {
            Decision::refuse(Layer::Declared, format!("{rule}: not listed"))
        }
    }

    /// Asks both policy layers. `Ok` holds the last rule that allowed, if any was asked.
    fn layers<'a>(
        &self,
        table: Table,
        key: &'a str,
        query: &Query<'_>,
    ) -> Result<Option<Hit<'a>>, Decision> {
        let mut last = None;
        for (layer, tables) in
            [(Layer::Machine, &self.index().machine), (Layer::Bundle, &self.index().bundle)]
        {
            let lists = (table.lists)(tables);
            if lists.is_empty() {
                continue;
            }
            // `"*"` binds everyone, so that a new name escapes nothing.
            for key in [EVERYONE, key] {
                let Some(list) = lists.get(key) else { continue };
                match list.judge(query) {
                    Verdict::Allowed(at) => last = Some(Hit { layer, table, key, at }),
                    Verdict::Denied(at) => {
                        let rule = self.rule(Hit { layer, table, key, at: Some(at) });
                        return Err(Decision::refuse(layer, rule));
                    }
                    Verdict::Unlisted => {
                        let rule = self.rule(Hit { layer, table, key, at: None });
                        return Err(Decision::refuse(layer, format!("{rule}: not listed")));
                    }
                }
            }
        }
        Ok(last)
    }

    /// The list of a layer under a key.
    pub(crate) fn list(&self, layer: Layer, table: Table, key: &str) -> Option<&List> {
        let tables = match layer {
            Layer::Machine => &self.index().machine,
            _ => &self.index().bundle,
        };
        (table.lists)(tables).get(key)
    }

    /// The rule at a position of a list, as a person reads it.
    pub(crate) fn rule_at(
        &self,
        layer: Layer,
        table: Table,
        key: &str,
        at: Option<usize>,
    ) -> String {
        self.rule(Hit { layer, table, key, at })
    }

    fn allowed_by(&self, hit: Hit<'_>) -> Decision {
        let mut rule = self.rule(hit);
        if hit.at.is_none() {
            rule.push_str(": not denied");
        }
        Decision::allow(hit.layer, rule)
    }

    /// `machine.toml:12 [policy.tools] "*" "!*_delete"`; the list's first line when no pattern is
    /// meant.
    fn rule(&self, hit: Hit<'_>) -> String {
        let rules = match hit.layer {
            Layer::Machine => &self.wire().machine,
            _ => &self.wire().bundle,
        };
        let lines = (hit.table.lines)(rules).get(hit.key).map_or(&[][..], Vec::as_slice);
        let key = if hit.key == EVERYONE { "\"*\"" } else { hit.key };
        let table = hit.table.name;
        let file = |line| rules.file_of(line);
        match (hit.at.and_then(|at| lines.get(at)), lines.first()) {
            (Some(line), _) => {
                format!("{}:{} [policy.{table}] {key} {:?}", file(line), line.line, line.text)
            }
            (None, Some(first)) => {
                format!("{}:{} [policy.{table}] {key}", file(first), first.line)
            }
            (None, None) => format!("{} [policy.{table}] {key} = []", rules.file),
        }
    }
}

fn undeclared(server: &ServerId) -> Decision {
    Decision::refuse(Layer::Declared, format!("{BUNDLE_FILE} declares no [servers.{server}]"))
}

/// Asks `allowed_hosts`.
fn covered(
    rules: &[HostRule],
    list: &List,
    (host, port, query): (&Host, u16, &Query<'_>),
    place: &str,
) -> Decision {
    if let Verdict::Allowed(Some(at)) = list.judge(query)
        && let Some(rule) = rules.get(at)
        && rule.covers(host, port)
    {
        return Decision::allow(Layer::Declared, format!("{place} \"{rule}\""));
    }
    Decision::refuse(Layer::Declared, format!("{place}: not listed"))
}

#[cfg(test)]
mod tests;
