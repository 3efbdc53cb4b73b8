//! Random machines and bundles over an alphabet so small that patterns and names meet.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ringfence_bundle::{
    Egress, Filesystem, Host, HostRule, Id, Manifest, Pattern, PolicyTables, SecretName, Server,
    ToolName, Transport,
};

use crate::{MachinePolicy, Principal};

/// Declared servers are `s`, `t` and `w` (http); `u` never is.
pub(crate) const SERVERS: [&str; 4] = ["s", "t", "w", "u"];

pub(crate) fn id(text: &str) -> Id {
    Id::parse(text).unwrap()
}

pub(crate) fn key() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["*", "s", "t", "w", "u"]).prop_map(str::to_owned)
}

fn principal_key() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["*", "agent", "s", "t", "w", "u"]).prop_map(str::to_owned)
}

pub(crate) fn principal() -> impl Strategy<Value = Principal> {
    prop_oneof![
        Just(Principal::Agent),
        prop::sample::select(SERVERS.to_vec()).prop_map(|s| Principal::Server(id(s))),
    ]
}

pub(crate) fn lines(pattern: &'static str) -> impl Strategy<Value = Vec<Pattern>> {
    prop::collection::vec(pattern, 0..4).prop_map(|texts| {
        texts.into_iter().zip(1..).map(|(text, line)| Pattern { text, line }).collect()
    })
}

pub(crate) const NAME: &str = "!?[AB*?]{1,3}";
pub(crate) const HOST: &str = "!?[ab*?](\\.[ab*])?(:80|:443)?";
pub(crate) const PATH: &str = "(\\*\\*/)?[ab*?]{1,2}(/[ab*])?(/\\*\\*)?";
const WRITE: &str = "!?[ab](/[ab])?(/\\*\\*)?";

prop_compose! {
    pub(crate) fn tables()(
        tools in prop::collection::btree_map(key(), lines(NAME), 0..4),
        egress in prop::collection::btree_map(principal_key(), lines(HOST), 0..4),
        secrets in prop::collection::btree_map(principal_key(), lines(NAME), 0..4),
        read in prop::option::of(lines("/?[ab](/[ab])?(/\\*\\*)?")),
        write in prop::option::of(lines(WRITE)),
        deny in lines(PATH),
    ) -> PolicyTables {
        PolicyTables { tools, egress, secrets, filesystem: Filesystem { read, write, deny } }
    }
}

prop_compose! {
    pub(crate) fn machine()(
        tables in tables(),
        credentials in prop::option::of(prop::collection::vec("!?[AB*?]{1,3}", 0..3)),
    ) -> MachinePolicy {
        let mut machine = MachinePolicy { tables, ..MachinePolicy::default() };
        machine.ceilings.credentials = credentials;
        machine
    }
}

fn hosts() -> impl Strategy<Value = Vec<HostRule>> {
    prop::collection::vec("\\.?[ab](\\.[ab])?(:8443)?", 0..3).prop_map(|texts| {
        // What can be opaque is: it says more and allows no more.
        let rule = |t: &String| HostRule::opaque(t).or_else(|_| HostRule::parse(t)).unwrap();
        texts.iter().map(rule).collect()
    })
}

fn tools() -> impl Strategy<Value = Option<Vec<ToolName>>> {
    prop::option::of(prop::collection::vec("[AB]{1,3}", 0..4)).prop_map(|tools| {
        tools.map(|names| names.iter().map(|n| ToolName::parse(n).unwrap()).collect())
    })
}

fn server(transport: Transport, tools: Option<Vec<ToolName>>) -> Server {
    Server { transport, tools, methods: Vec::new(), pricing: None }
}

prop_compose! {
    pub(crate) fn manifest()(
        policy in tables(),
        s in (hosts(), tools()),
        t in (hosts(), tools()),
        w in tools(),
        url in "https://[ab]\\.[ab]/mcp",
        allowed_hosts in hosts(),
        egress in prop::sample::select(vec![Egress::None, Egress::Restricted, Egress::Open]),
    ) -> Manifest {
        let mut manifest = Manifest { policy, ..Manifest::default() };
        for (name, (allowed_hosts, tools)) in [("s", s), ("t", t)] {
            let transport = Transport::Stdio {
                command: "x".into(),
                args: Vec::new(),
                env: BTreeMap::new(),
                allowed_hosts,
            };
            manifest.servers.insert(id(name), server(transport, tools));
        }
        let transport = Transport::Http { url, headers: BTreeMap::new() };
        manifest.servers.insert(id("w"), server(transport, w));
        manifest.sandbox.network.allowed_hosts = allowed_hosts;
        manifest.sandbox.network.egress = egress;
        manifest
    }
}

pub(crate) fn tool() -> impl Strategy<Value = String> {
    "[AB]{1,3}"
}

pub(crate) fn host() -> impl Strategy<Value = Host> {
    "[ab](\\.[ab]){0,2}".prop_map(Host::Name)
}

pub(crate) fn port() -> impl Strategy<Value = u16> {
    prop::sample::select(vec![80, 443, 8443])
}

pub(crate) fn secret() -> impl Strategy<Value = SecretName> {
    "[AB]{1,3}".prop_map(|name| SecretName::parse(&name).unwrap())
}

pub(crate) fn path() -> impl Strategy<Value = String> {
    "[ab]{1,2}(/[ab]{1,2}){0,2}"
}
