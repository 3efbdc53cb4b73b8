use std::collections::BTreeMap;

use ringfence_bundle::{
    Egress, Host, HostRule, Id, Manifest, Pattern, SecretName, Server, ToolName, Transport,
};

use crate::{Decision, Layer, MachinePolicy, Principal, Ruleset};

fn id(text: &str) -> Id {
    Id::parse(text).unwrap()
}

fn host(text: &str) -> Host {
    Host::parse(text).unwrap()
}

fn list(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().zip(7..).map(|(t, line)| Pattern { text: (*t).into(), line }).collect()
}

fn table(entries: &[(&str, &[&str])]) -> BTreeMap<String, Vec<Pattern>> {
    entries.iter().map(|(key, texts)| ((*key).into(), list(texts))).collect()
}

fn http(url: &str) -> Server {
    let transport = Transport::Http { url: url.into(), headers: BTreeMap::new() };
    Server { transport, tools: None, methods: Vec::new(), pricing: None }
}

fn stdio(hosts: &[&str]) -> Server {
    let transport = Transport::Stdio {
        command: "server".into(),
        args: Vec::new(),
        env: BTreeMap::new(),
        allowed_hosts: hosts.iter().map(|h| HostRule::parse(h).unwrap()).collect(),
    };
    Server { transport, tools: None, methods: Vec::new(), pricing: None }
}

fn manifest() -> Manifest {
    let mut manifest = Manifest::default();
    manifest.servers.insert(id("bank"), http("https://MCP.bank.example./mcp"));
    manifest.servers.insert(id("search"), stdio(&["api.search.example"]));
    manifest
}

fn compile(machine: &MachinePolicy, manifest: &Manifest) -> Ruleset {
    Ruleset::compile(machine, manifest).unwrap()
}

fn said(decision: &Decision) -> (bool, Layer, &str) {
    (decision.allowed, decision.layer, &decision.rule)
}

#[test]
fn the_first_layer_that_refuses_is_named() {
    let mut machine = MachinePolicy::default();
    machine.tables.tools = table(&[("*", &["*", "!*_delete"]), ("bank", &["!wire"])]);
    let mut manifest = manifest();
    manifest.policy.tools = table(&[("bank", &["pay", "list", "row_delete", "wire"])]);
    manifest.servers.get_mut(&id("bank")).unwrap().tools =
        Some(vec![ToolName::parse("pay").unwrap(), ToolName::parse("wire").unwrap()]);
    let rules = compile(&machine, &manifest);
    let tool = |name| rules.tool(&id("bank"), name);
    assert_eq!(
        said(&tool("row_delete")),
        (false, Layer::Machine, "machine.toml:8 [policy.tools] \"*\" \"!*_delete\"")
    );
    assert_eq!(
        said(&tool("wire")),
        (false, Layer::Machine, "machine.toml:7 [policy.tools] bank \"!wire\"")
    );
    assert_eq!(
        said(&tool("else")),
        (false, Layer::Bundle, "ringfence.toml:7 [policy.tools] bank: not listed")
    );
    assert_eq!(
        said(&tool("list")),
        (false, Layer::Declared, "ringfence.toml [servers.bank] tools: not listed")
    );
    assert_eq!(said(&tool("pay")), (true, Layer::Declared, "ringfence.toml [servers.bank] tools"));
    assert_eq!(
        said(&rules.tool(&id("search"), "x")),
        (true, Layer::Machine, "machine.toml:7 [policy.tools] \"*\" \"*\"")
    );
    assert!(!rules.tool(&id("unknown"), "x").allowed);
    assert_eq!(tool("ра\u{443}").layer, Layer::Builtin, "look-alikes are no tool names");
}

#[test]
fn tools_absent_is_all_and_empty_is_none() {
    let mut manifest = manifest();
    let bank = id("bank");
    assert!(compile(&MachinePolicy::default(), &manifest).tool(&bank, "pay").allowed);
    manifest.servers.get_mut(&bank).unwrap().tools = Some(Vec::new());
    assert!(!compile(&MachinePolicy::default(), &manifest).tool(&bank, "pay").allowed);
}

#[test]
fn egress_of_the_agent_is_what_the_network_declares() {
    let mut manifest = manifest();
    let ask = |manifest: &Manifest, name: &str, port| {
        compile(&MachinePolicy::default(), manifest).egress(&Principal::Agent, &host(name), port)
    };
    assert!(!ask(&manifest, "api.example", 443).allowed, "absent is restricted to nothing");
    manifest.sandbox.network.allowed_hosts =
        vec![HostRule::parse("api.example").unwrap(), HostRule::parse(".arxiv.org:8443").unwrap()];
    for (name, port, allowed) in [
        ("api.example", 443, true),
        ("api.example", 80, true),
        ("api.example", 22, false),
        ("x.api.example", 443, false),
        ("a.b.arxiv.org", 8443, true),
        ("a.arxiv.org", 443, false),
        ("arxiv.org", 8443, false),
        ("evilarxiv.org", 8443, false),
    ] {
        assert_eq!(ask(&manifest, name, port).allowed, allowed, "{name}:{port}");
    }
    assert_eq!(
        said(&ask(&manifest, "a.arxiv.org", 8443)),
        (
            true,
            Layer::Declared,
            "ringfence.toml [sandbox.network] allowed_hosts \".arxiv.org:8443\""
        )
    );
    manifest.sandbox.network.egress = Egress::Open;
    assert!(ask(&manifest, "any.example", 443).allowed);
    assert!(!ask(&manifest, "any.example", 25).allowed);
    manifest.sandbox.network.egress = Egress::None;
    assert!(!ask(&manifest, "api.example", 443).allowed);
}

#[test]
fn a_host_is_opaque_for_whom_and_where_it_is_declared() {
    let mut manifest = manifest();
    let rules = [HostRule::opaque("db.example:5432"), HostRule::parse(".db.example:5432")];
    manifest.sandbox.network.allowed_hosts = rules.map(Result::unwrap).to_vec();
    let mut rules = compile(&MachinePolicy::default(), &manifest);
    let ask =
        |rules: &Ruleset, who: &Principal, name, port| rules.is_opaque(who, &host(name), port);
    assert!(ask(&rules, &Principal::Agent, "db.example", 5432));
    for (who, name, port) in [
        (Principal::Agent, "db.example", 443),
        (Principal::Agent, "a.db.example", 5432),
        (Principal::Server(id("bank")), "db.example", 5432),
        (Principal::Server(id("nobody")), "db.example", 5432),
    ] {
        assert!(!ask(&rules, &who, name, port), "{who} {name}:{port}");
    }
    manifest.sandbox.network.egress = Egress::None;
    rules = compile(&MachinePolicy::default(), &manifest);
    assert!(!ask(&rules, &Principal::Agent, "db.example", 5432));
}

#[test]
fn everyone_binds_the_agent_and_unknown_names() {
    let mut machine = MachinePolicy::default();
    machine.tables.egress = table(&[("*", &["*", "!*.evil.example"]), ("agent", &["*:443"])]);
    machine.tables.secrets = table(&[("*", &["!PROD_*"])]);
    let mut manifest = manifest();
    manifest.sandbox.network.egress = Egress::Open;
    manifest.sandbox.credentials =
        vec![SecretName::parse("PROD_KEY").unwrap(), SecretName::parse("DEV_KEY").unwrap()];
    let rules = compile(&machine, &manifest);
    let egress = |name, port| rules.egress(&Principal::Agent, &host(name), port).allowed;
    assert!(egress("good.example", 443));
    assert!(!egress("good.example", 80), "the own key binds too");
    assert!(!egress("a.evil.example", 443));
    let secret = |who: &Principal, name| rules.secret(who, &SecretName::parse(name).unwrap());
    for who in [Principal::Agent, Principal::Server(id("bank")), Principal::Server(id("new"))] {
        assert_eq!(secret(&who, "PROD_KEY").layer, Layer::Machine, "{who}");
        assert!(!secret(&who, "PROD_KEY").allowed);
    }
    assert!(secret(&Principal::Agent, "DEV_KEY").allowed);
    assert!(!secret(&Principal::Agent, "OTHER_KEY").allowed, "`credentials` does not name it");
    assert!(secret(&Principal::Server(id("bank")), "DEV_KEY").allowed);
}

#[test]
fn egress_of_a_server_is_its_own() {
    let rules = compile(&MachinePolicy::default(), &manifest());
    let ask = |who: &str, name, port| {
        rules.egress(&Principal::Server(id(who)), &host(name), port).allowed
    };
    assert!(ask("search", "api.search.example", 443));
    assert!(!ask("search", "api.example", 443));
    assert!(!ask("bank", "api.search.example", 443));
    assert!(!ask("unknown", "api.search.example", 443));
}

#[test]
fn a_declared_servers_host_is_fenced_on_every_port() {
    let mut manifest = manifest();
    manifest.sandbox.network.egress = Egress::Open;
    manifest.policy.egress = table(&[("*", &["*"])]);
    let rules = compile(&MachinePolicy::default(), &manifest);
    for who in [Principal::Agent, Principal::Server(id("search")), Principal::Server(id("bank"))] {
        for port in [443, 80, 8443] {
            let decision = rules.egress(&who, &host("mcp.bank.example"), port);
            assert!(!decision.allowed);
            assert_eq!(decision.layer, Layer::Builtin);
        }
    }
    assert!(rules.egress(&Principal::Agent, &host("other.bank.example"), 443).allowed);
}

#[test]
fn methods_beyond_tools_need_a_listing() {
    let mut manifest = manifest();
    manifest.servers.get_mut(&id("bank")).unwrap().methods =
        vec!["resources/list".into(), "sampling/createMessage".into()];
    let rules = compile(&MachinePolicy::default(), &manifest);
    let ask = |server, method| rules.method(&id(server), method).allowed;
    for method in [
        "initialize",
        "ping",
        "server/discover",
        "tools/list",
        "tools/call",
        "notifications/initialized",
        "resources/list",
    ] {
        assert!(ask("bank", method), "{method}");
    }
    for method in [
        "resources/read",
        "prompts/list",
        "completion/complete",
        "logging/setLevel",
        "sampling/createMessage",
        "notifications/",
        "tools/delete",
        "TOOLS/CALL",
        "",
    ] {
        assert!(!ask("bank", method), "{method}");
    }
    assert!(!ask("search", "resources/list"));
    assert!(!ask("unknown", "ping"));
}
