//! Rules over more than one field, as far as they need no machine.
//!
//! Whether something is declared is asked of the document, not of the manifest: what was declared
//! badly has its finding already and causes no second one here.

use std::collections::{BTreeMap, BTreeSet};

use crate::manifest::{Server, Transport};
use crate::{Document, Endpoint, Host, HostRule, Id, Manifest, ToolName, floor};

pub(crate) fn check(manifest: &Manifest, document: &Document) {
    isolation(manifest, document);
    gated_hosts(manifest, document);
    colliding_names(manifest, document);
    identity(document);
    peers(manifest, document);
    toolsets(manifest, document);
    policy_names(manifest, document);
    approvals(manifest, document);
    prices(manifest, document);
}

fn isolation(manifest: &Manifest, document: &Document) {
    let floor = floor(&manifest.capabilities);
    let Some(declared) = manifest.sandbox.isolation.filter(|declared| *declared < floor) else {
        return;
    };
    let cause = manifest.capabilities.iter().find(|capability| capability.floor() == floor);
    let cause = cause
        .map_or_else(String::new, |capability| format!(" that `{}` sets", capability.as_str()));
    document.error_at(
        "sandbox.isolation",
        "isolation-below-floor",
        format!("`{declared}` is below the floor `{floor}`{cause}"),
        Some(format!("write `isolation = \"{floor}\"`, or leave it out")),
    );
}

/// Hosts that only the gateway and the agent-to-agent gate may reach, and what they belong to.
fn gate_hosts(manifest: &Manifest) -> Vec<(Host, String)> {
    let servers = manifest.servers.iter().filter_map(|(id, server)| {
        server.endpoint().map(|endpoint| (endpoint.host, format!("server `{id}`")))
    });
    let peers = manifest.a2a.iter().flat_map(|a2a| &a2a.peers).filter_map(|peer| {
        Endpoint::parse(&peer.endpoint).ok().map(|e| (e.host, format!("peer `{}`", peer.name)))
    });
    servers.chain(peers).collect()
}

impl Server {
    /// The parsed address, for a server over HTTP.
    #[must_use]
    pub fn endpoint(&self) -> Option<Endpoint> {
        match &self.transport {
            Transport::Http { url, .. } => Endpoint::parse(url).ok(),
            Transport::Stdio { .. } => None,
        }
    }
}

fn gated_hosts(manifest: &Manifest, document: &Document) {
    let gated = gate_hosts(manifest);
    let refuse = |keys: &str, rules: &[HostRule]| {
        for (index, rule) in rules.iter().enumerate() {
            for (host, owner) in gated.iter().filter(|(host, _)| rule.covers_host(host)) {
                document.error_at(
                    &format!("{keys}[{index}]"),
                    "server-host-allowed",
                    format!("`{rule}` covers `{host}` of {owner}: calls could bypass the gate"),
                    Some("delete it: the gateway reaches the host itself".to_owned()),
                );
            }
        }
    };
    refuse("sandbox.network.allowed_hosts", &manifest.sandbox.network.allowed_hosts);
    for (id, server) in &manifest.servers {
        if let Transport::Stdio { allowed_hosts, .. } = &server.transport {
            refuse(&format!("servers.{id}.allowed_hosts"), allowed_hosts);
        }
    }
}

fn colliding_names(manifest: &Manifest, document: &Document) {
    let mut servers = BTreeMap::new();
    for id in manifest.servers.keys() {
        collide(&mut servers, id, &format!("servers.{id}"), document);
    }
    for (id, server) in &manifest.servers {
        let mut seen: BTreeMap<String, &ToolName> = BTreeMap::new();
        for (index, tool) in server.tools.iter().flatten().enumerate() {
            let Some(other) = seen.insert(tool.as_str().to_ascii_lowercase(), tool) else {
                continue;
            };
            if other != tool {
                document.error_at(
                    &format!("servers.{id}.tools[{index}]"),
                    "name-collision",
                    format!(
                        "`{other}` and `{tool}` differ in case only: one is taken for the other"
                    ),
                    Some("list the one that is meant".to_owned()),
                );
            }
        }
    }
    let mut peers = BTreeMap::new();
    for (index, peer) in manifest.a2a.iter().flat_map(|a2a| &a2a.peers).enumerate() {
        collide(&mut peers, &peer.name, &format!("a2a.peers[{index}].name"), document);
    }
}

fn collide<'m>(seen: &mut BTreeMap<String, &'m Id>, id: &'m Id, keys: &str, document: &Document) {
    if let Some(other) = seen.insert(id.url_variable(), id) {
        document.error_at(
            keys,
            "name-collision",
            format!("`{other}` and `{id}` give one environment variable"),
            Some("rename one of them".to_owned()),
        );
    }
}

fn identity(document: &Document) {
    if document.has("agent.did") {
        return;
    }
    let needs = ["spending.max_per_day_usd", "spending.max_per_month_usd", "a2a"];
    for keys in needs.into_iter().filter(|keys| document.has(keys)) {
        document.error_at(
            keys,
            "needs-did",
            format!("`{keys}` needs `agent.did`: it holds across runs, by who the agent is"),
            Some("add `did = \"did:key:z6Mk…\"` under `[agent]`".to_owned()),
        );
    }
}

fn peers(manifest: &Manifest, document: &Document) {
    let Some(a2a) = &manifest.a2a else { return };
    if document.has("a2a.listen") && !document.has("a2a.peers[0]") {
        let message = "`a2a.listen` without peers: nobody could be answered".to_owned();
        document.error_at("a2a.listen", "listen-without-peers", message, None);
    }
    let own = manifest.agent.as_ref().and_then(|agent| agent.did.as_ref());
    for (index, peer) in a2a.peers.iter().enumerate() {
        let keys = format!("a2a.peers[{index}].did");
        if own == Some(&peer.did) {
            let message = format!("peer `{}` has the agent's own DID", peer.name);
            document.error_at(&keys, "peer-did", message, None);
        }
        if let Some(other) = a2a.peers[..index].iter().find(|other| other.did == peer.did) {
            let message = format!("peers `{}` and `{}` have one DID", other.name, peer.name);
            document.error_at(&keys, "peer-did", message, None);
        }
    }
}

fn toolsets(manifest: &Manifest, document: &Document) {
    let mut default: Option<&Id> = None;
    for (id, toolset) in &manifest.toolsets {
        let unknown = |kind: &str, known: &mut dyn Iterator<Item = &Id>, names: &[Id]| {
            let known: Vec<&str> = known.map(Id::as_str).collect();
            for (index, name) in names.iter().enumerate() {
                if !document.has(&format!("{kind}.{name}")) {
                    undeclared(
                        document,
                        &format!("toolsets.{id}.{kind}[{index}]"),
                        kind,
                        name.as_str(),
                        &known,
                    );
                }
            }
        };
        unknown("servers", &mut manifest.servers.keys(), &toolset.servers);
        unknown("skills", &mut manifest.skills.keys(), &toolset.skills);
        if toolset.default
            && let Some(first) = default.replace(id)
        {
            document.error_at(
                &format!("toolsets.{id}.default"),
                "two-defaults",
                format!("toolsets `{first}` and `{id}` are both the default"),
                None,
            );
        }
    }
}

fn undeclared(document: &Document, keys: &str, kind: &str, name: &str, known: &[&str]) {
    if document.is_full() {
        return;
    }
    let help = crate::decode::closest(name, known.iter().copied())
        .map(|near| format!("did you mean `{near}`?"));
    let message = format!("`{name}` is not declared under `[{kind}]`");
    document.error_at(keys, "undeclared-name", message, help);
}

/// A denial under a misspelt name would protect nothing.
fn policy_names(manifest: &Manifest, document: &Document) {
    let known: Vec<&str> = manifest.servers.keys().map(Id::as_str).collect();
    for (table, names) in [
        ("tools", &manifest.policy.tools),
        ("egress", &manifest.policy.egress),
        ("secrets", &manifest.policy.secrets),
    ] {
        for name in names.keys() {
            let reserved = name == "*" || name == "agent";
            let declared = document.has(&format!("servers.{name}"));
            if !reserved && !declared && Id::parse(name).is_ok() {
                undeclared(document, &format!("policy.{table}.{name}"), "servers", name, &known);
            }
        }
    }
}

fn approvals(manifest: &Manifest, document: &Document) {
    let any_tool = manifest.servers.values().any(|server| server.tools.is_none());
    let tools: BTreeSet<&ToolName> =
        manifest.servers.values().filter_map(|server| server.tools.as_ref()).flatten().collect();
    let known: Vec<&str> = manifest.servers.keys().map(Id::as_str).collect();
    for (index, rule) in manifest.approvals.require.iter().enumerate() {
        // A rule under a misspelt name would gate nothing.
        if let Some(id) = &rule.server
            && !document.has(&format!("servers.{id}"))
        {
            let keys = format!("approvals.require[{index}].server");
            undeclared(document, &keys, "servers", id.as_str(), &known);
            continue;
        }
        let unread = rule.server.as_ref().is_some_and(|id| !manifest.servers.contains_key(id));
        let offered = match &rule.server {
            Some(id) => manifest.servers.get(id).is_some_and(|server| offers(server, &rule.tool)),
            None => any_tool || tools.contains(&rule.tool),
        };
        if !unread && !offered {
            document.warn_at(
                &format!("approvals.require[{index}].tool"),
                "approval-matches-nothing",
                format!("no declared server offers `{}` under this rule", rule.tool),
                Some("compare the names with `servers.<name>.tools`".to_owned()),
            );
        }
    }
    let wanting = manifest.capabilities.iter().filter(|capability| capability.wants_approval());
    if !document.has("approvals.require[0]") {
        for capability in wanting {
            let keys = if document.has("agent.capabilities") {
                "agent.capabilities"
            } else {
                "capabilities"
            };
            document.warn_at(
                keys,
                "wants-approval",
                format!(
                    "`{}` cannot be taken back and no approval rule is declared",
                    capability.as_str()
                ),
                Some("this is advice: only `[[approvals.require]]` gates a call".to_owned()),
            );
        }
    }
}

fn offers(server: &Server, tool: &ToolName) -> bool {
    server.tools.as_ref().is_none_or(|tools| tools.contains(tool))
}

fn prices(manifest: &Manifest, document: &Document) {
    let capped = ["max_per_run_usd", "max_per_day_usd", "max_per_month_usd"]
        .iter()
        .any(|key| document.has(&format!("spending.{key}")));
    let mut priced =
        manifest.servers.iter().filter(|(_, server)| server.pricing.is_some()).peekable();
    if capped && priced.peek().is_none() {
        let message = "caps are set but no server has a price".to_owned();
        document.warn_at("spending", "caps-without-prices", message, None);
    }
    if !capped {
        for (id, _) in priced {
            let message = format!("server `{id}` has a price but `[spending]` sets no cap");
            document.warn_at(&format!("servers.{id}.pricing"), "price-without-cap", message, None);
        }
    }
}
