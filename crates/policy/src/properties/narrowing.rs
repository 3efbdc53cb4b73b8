//! Adding a rule never widens, and no new name escapes what binds everyone.

use proptest::prelude::*;
use ringfence_bundle::{Manifest, Pattern};

use super::{generate, naive};
use crate::{MachinePolicy, Principal, Ruleset};

/// One question in each dimension of names.
#[derive(Debug, Clone)]
struct Question {
    who: Principal,
    tool: String,
    host: ringfence_bundle::Host,
    port: u16,
    secret: ringfence_bundle::SecretName,
    path: String,
}

prop_compose! {
    fn question()(
        who in generate::principal(),
        tool in generate::tool(),
        host in generate::host(),
        port in generate::port(),
        secret in generate::secret(),
        path in generate::path(),
    ) -> Question {
        Question { who, tool, host, port, secret, path }
    }
}

/// What is allowed: tool, egress, secret, and not denied.
fn answers(machine: &MachinePolicy, manifest: &Manifest, q: &Question) -> [bool; 4] {
    let Ok(rules) = Ruleset::compile(machine, manifest) else { return [false; 4] };
    let tool = match &q.who {
        Principal::Server(id) => rules.tool(id, &q.tool).allowed,
        Principal::Agent => false,
    };
    [
        tool,
        rules.egress(&q.who, &q.host, q.port).allowed,
        rules.secret(&q.who, &q.secret).allowed,
        rules.denied(&q.path, &format!("/p/{}", q.path)).is_none(),
    ]
}

fn line(text: String) -> Pattern {
    Pattern { text, line: 99 }
}

/// Which layer a rule is added to.
fn tables<'a>(
    to_machine: bool,
    machine: &'a mut MachinePolicy,
    manifest: &'a mut Manifest,
) -> &'a mut ringfence_bundle::PolicyTables {
    if to_machine { &mut machine.tables } else { &mut manifest.policy }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// A denial added to a list, or as the first of a key that was absent. The one exception is an
    /// empty list, which allows nothing: see `an_empty_list_is_not_a_list_of_denials`.
    #[test]
    fn adding_a_denial_never_widens(
        (machine, manifest) in (generate::machine(), generate::manifest()),
        q in question(),
        to_machine in any::<bool>(),
        key in prop_oneof![generate::key(), Just("agent".to_owned())],
        (name, host, path) in ("[AB*?]{1,3}", "[ab*?](\\.[ab*])?(:80|:443)?", generate::PATH),
    ) {
        let before = answers(&machine, &manifest, &q);
        let (mut machine, mut manifest) = (machine, manifest);
        let tables = tables(to_machine, &mut machine, &mut manifest);
        let deny = |list: &mut Vec<Pattern>, new: bool, text: String| {
            if new || !list.is_empty() {
                list.push(line(format!("!{text}")));
            }
        };
        let new = !tables.tools.contains_key(&key);
        deny(tables.tools.entry(key.clone()).or_default(), new, name.clone());
        let new = !tables.egress.contains_key(&key);
        deny(tables.egress.entry(key.clone()).or_default(), new, host);
        let new = !tables.secrets.contains_key(&key);
        deny(tables.secrets.entry(key).or_default(), new, name);
        tables.filesystem.deny.push(line(path));
        let after = answers(&machine, &manifest, &q);
        for (before, after) in before.into_iter().zip(after) {
            prop_assert!(before || !after);
        }
    }

    /// A whole layer: what both allow, each allows alone. Writing is the exception that is written
    /// down: a layer that grants folders grants them where the other is silent.
    #[test]
    fn adding_a_layer_never_widens(
        (machine, manifest) in (generate::machine(), generate::manifest()),
        q in question(),
    ) {
        let both = answers(&machine, &manifest, &q);
        let mut silent = manifest.clone();
        silent.policy = ringfence_bundle::PolicyTables::default();
        let none = MachinePolicy::default();
        let sides = [(&machine, &silent), (&none, &manifest)];
        for (machine, manifest) in sides {
            let one = answers(machine, manifest, &q);
            for (one, both) in one.into_iter().zip(both) {
                prop_assert!(one || !both);
            }
        }
        let Ok(rules) = Ruleset::compile(&machine, &manifest) else { return Ok(()) };
        let (read, write) = naive::effective(&rules, &q.path);
        for (machine, manifest) in sides {
            let Ok(rules) = Ruleset::compile(machine, manifest) else { continue };
            let alone = naive::effective(&rules, &q.path);
            prop_assert!(alone.0 || !read);
            let files = [&machine.tables.filesystem, &manifest.policy.filesystem];
            let granting = files.into_iter().any(naive::grants);
            prop_assert!(alone.1 || !write || !granting);
        }
    }

    /// A `!` in a list of folders, or as the first of one that was absent; a `read` list.
    #[test]
    fn taking_folders_away_never_widens(
        (machine, manifest) in (generate::machine(), generate::manifest()),
        path in generate::path(),
        gone in "[ab](/[ab])?",
        read in generate::lines("[ab](/[ab])?(/\\*\\*)?"),
        to_machine in any::<bool>(),
    ) {
        let before = Ruleset::compile(&machine, &manifest).map(|r| naive::effective(&r, &path));
        let (mut machine, mut manifest) = (machine, manifest);
        let files = &mut tables(to_machine, &mut machine, &mut manifest).filesystem;
        match &mut files.write {
            // An empty list allows nothing, and is no list of denials.
            Some(list) if list.is_empty() => {}
            Some(list) => list.push(line(format!("!{gone}"))),
            None => files.write = Some(vec![line(format!("!{gone}"))]),
        }
        files.read.get_or_insert(read);
        let after = Ruleset::compile(&machine, &manifest).map(|r| naive::effective(&r, &path));
        if let (Ok(before), Ok(after)) = (before, after) {
            prop_assert!(before.0 || !after.0);
            prop_assert!(before.1 || !after.1);
            if to_machine {
                let under = path == gone || path.starts_with(&format!("{gone}/"));
                let empty = machine.tables.filesystem.write.as_ref().is_some_and(Vec::is_empty);
                prop_assert!(!under || empty || !after.1, "what was taken away is not written");
            }
        }
    }

    /// Any list under a key that was absent.
    #[test]
    fn adding_a_key_never_widens(
        (machine, manifest) in (generate::machine(), generate::manifest()),
        q in question(),
        to_machine in any::<bool>(),
        key in prop_oneof![generate::key(), Just("agent".to_owned())],
        names in generate::lines(generate::NAME),
        hosts in generate::lines(generate::HOST),
    ) {
        let before = answers(&machine, &manifest, &q);
        let (mut machine, mut manifest) = (machine, manifest);
        let tables = tables(to_machine, &mut machine, &mut manifest);
        tables.tools.entry(key.clone()).or_insert_with(|| names.clone());
        tables.egress.entry(key.clone()).or_insert(hosts);
        tables.secrets.entry(key).or_insert(names);
        let after = answers(&machine, &manifest, &q);
        for (before, after) in before.into_iter().zip(after) {
            prop_assert!(before || !after);
        }
    }

    /// A bundle that calls a server by a name that the machine has no key for gets what `"*"`
    /// leaves to unknown names, no more.
    #[test]
    fn renaming_a_server_never_escapes_what_binds_everyone(
        machine in generate::machine(),
        mut manifest in generate::manifest(),
        q in question(),
        old in prop::sample::select(vec!["s", "t", "w"]),
    ) {
        let new = generate::id("renamed");
        let server = manifest.servers.remove(&generate::id(old)).unwrap();
        manifest.servers.insert(new.clone(), server);
        let policy = &mut manifest.policy;
        for table in [&mut policy.tools, &mut policy.egress, &mut policy.secrets] {
            if let Some(list) = table.remove(old) {
                table.insert(new.to_string(), list);
            }
        }
        let Ok(rules) = Ruleset::compile(&machine, &manifest) else { return Ok(()) };
        let everyone = "name-without-a-key";
        let who = Principal::Server(new.clone());
        prop_assert!(
            !rules.tool(&new, &q.tool).allowed
                || naive::layer_tool(&machine.tables, everyone, &q.tool)
        );
        prop_assert!(
            !rules.egress(&who, &q.host, q.port).allowed
                || naive::layer_egress(&machine.tables, everyone, &q.host, q.port)
        );
        prop_assert!(
            !rules.secret(&who, &q.secret).allowed
                || naive::layer_secret(&machine.tables, everyone, &q.secret)
        );
    }
}

#[test]
fn an_empty_list_is_not_a_list_of_denials() {
    let mut manifest = Manifest::default();
    let url = "https://s.example/mcp".to_owned();
    let transport =
        ringfence_bundle::Transport::Http { url, headers: std::collections::BTreeMap::new() };
    let server =
        ringfence_bundle::Server { transport, tools: None, methods: Vec::new(), pricing: None };
    manifest.servers.insert(generate::id("s"), server);
    let ask = |list: Vec<Pattern>| {
        let mut manifest = manifest.clone();
        manifest.policy.tools.insert("s".into(), list);
        let rules = Ruleset::compile(&MachinePolicy::default(), &manifest).unwrap();
        rules.tool(&generate::id("s"), "a").allowed
    };
    assert!(!ask(Vec::new()));
    assert!(ask(vec![line("!b".into())]));
    assert!(!ask(vec![line("!*".into())]));
}
