use std::path::Path;

use proptest::prelude::*;
use ringfence_bundle::{Host, Id, Manifest, SecretName, parse_manifest};

use super::{Answer, Explain, Question};
use crate::properties::generate;
use crate::{Layer, MachinePolicy, Principal, Ruleset};

const MACHINE: &str = r#"[policy.tools]
"*" = ["*", "!*_delete"]
[policy.egress]
agent = ["*.x.com:443"]
[policy.filesystem]
deny = [".env*"]
"#;

const BUNDLE: &str = r#"version = 1
[sandbox.network]
allowed_hosts = ["api.x.com", "y.com"]
[servers.search]
type = "stdio"
command = "x"
tools = ["find", "row_delete"]
[policy.filesystem]
read = ["src/**", "/opt/x/**"]
write = ["src/**", "!src/gen"]
"#;

const LOCAL: &str = "[policy.tools]\nsearch = [\"f*\"]\n";

fn who(name: &str) -> Principal {
    if name == "agent" { Principal::Agent } else { Principal::Server(Id::parse(name).unwrap()) }
}

/// Asks of the texts above.
fn ask(name: &str, question: &Question) -> Answer {
    let machine = MachinePolicy::parse(Path::new("/m/machine.toml"), MACHINE).unwrap();
    let local = Path::new(".ringfence/ringfence.local.toml");
    let file = Path::new(".ringfence/ringfence.toml");
    let (manifest, _) = parse_manifest(file, BUNDLE, Some((local, LOCAL))).unwrap();
    explain(&machine, &manifest, &who(name), question)
}

fn explain(
    machine: &MachinePolicy,
    manifest: &Manifest,
    who: &Principal,
    question: &Question,
) -> Answer {
    let rules = Ruleset::compile(machine, manifest).unwrap();
    let explain = Explain {
        rules: &rules,
        machine,
        manifest,
        project: "/p".as_ref(),
        user_home: "/home/u".as_ref(),
        home: "/home/u/.ringfence".as_ref(),
        guarded: &[".mcp.json".to_owned()],
    };
    explain.answer(who, question).unwrap()
}

fn because(answer: &Answer) -> (bool, Layer, String) {
    let step = &answer.because;
    let file = step.file.as_ref().and_then(|f| f.file_name()).unwrap_or_default();
    let file = file.to_string_lossy();
    let line = step.line.map_or_else(String::new, |line| line.to_string());
    (answer.allowed, step.layer, format!("{file}:{line}"))
}

#[test]
fn a_name_is_explained_by_layer_file_and_line() {
    let tool = |name: &str| ask("search", &Question::Tool(name.to_owned()));
    assert_eq!(because(&tool("find")), (true, Layer::Declared, "ringfence.toml:7".into()));
    assert_eq!(because(&tool("row_delete")), (false, Layer::Machine, "machine.toml:2".into()));
    assert_eq!(because(&tool("go")), (false, Layer::Bundle, "ringfence.local.toml:2".into()));
    assert_eq!(because(&tool("fly")), (false, Layer::Declared, "ringfence.toml:7".into()));
    // The text of the rule has the overlay's name too.
    assert_eq!(tool("go").because.rule, "ringfence.local.toml:2 [policy.tools] search: not listed");
    // Every list that was asked, also after a refusal.
    let steps = tool("row_delete").steps;
    let said: Vec<_> = steps.iter().map(|step| (step.layer, step.allows)).collect();
    assert_eq!(said, [(Layer::Machine, false), (Layer::Bundle, false)]);
    assert!(!ask("agent", &Question::Tool("find".into())).allowed);
    assert!(ask("search", &Question::Method("tools/list".into())).allowed);
    assert!(!ask("search", &Question::Method("prompts/get".into())).allowed);
}

#[test]
fn hosts_and_secrets() {
    let host = |name: &str, port| ask("agent", &Question::Host(Host::parse(name).unwrap(), port));
    assert_eq!(
        because(&host("api.x.com", 443)),
        (true, Layer::Declared, "ringfence.toml:3".into())
    );
    assert_eq!(because(&host("api.x.com", 80)), (false, Layer::Machine, "machine.toml:4".into()));
    assert_eq!(because(&host("y.com", 443)), (false, Layer::Machine, "machine.toml:4".into()));
    let secret = Question::Secret(SecretName::parse("KEY").unwrap());
    assert!(!ask("agent", &secret).allowed);
    assert!(ask("search", &secret).allowed);
}

#[test]
fn paths() {
    let read = |path: &str| because(&ask("agent", &Question::Read(path.to_owned())));
    let write = |path: &str| because(&ask("agent", &Question::Write(path.to_owned())));
    let bundle = |allowed, line| (allowed, Layer::Bundle, format!("ringfence.toml:{line}"));
    assert_eq!(read("src/a.rs"), bundle(true, 9));
    assert_eq!(read("/p/src/a.rs"), bundle(true, 9));
    assert_eq!(read("docs/a"), bundle(false, 9));
    assert_eq!(read("src/.env.local"), (false, Layer::Machine, "machine.toml:6".into()));
    assert_eq!(read("/opt/x/lib"), bundle(true, 9));
    assert_eq!(read("/opt/y"), bundle(false, 9));
    assert_eq!(write("src/a.rs"), bundle(true, 10));
    assert_eq!(write("src/gen/a"), bundle(false, 10));
    assert_eq!(write("docs/a"), bundle(false, 10));
    assert_eq!(write("src/.env"), (false, Layer::Machine, "machine.toml:6".into()));
    let never = [
        ".ringfence/ringfence.toml",
        ".git/hooks/pre-commit",
        "src/sub/.git/config",
        ".mcp.json",
        "/opt/x/lib",
        "src/../x",
    ];
    for path in never {
        let (allowed, layer, _) = write(path);
        assert_eq!((allowed, layer), (false, Layer::Builtin), "{path}");
    }
    let none = |question| {
        let answer =
            explain(&MachinePolicy::default(), &Manifest::default(), &who("agent"), &question);
        (answer.allowed, answer.because.layer)
    };
    assert_eq!(none(Question::Read("a".into())), (true, Layer::Builtin));
    assert_eq!(none(Question::Write("a".into())), (false, Layer::Builtin));
    assert_eq!(none(Question::Read("/etc/shadow".into())), (false, Layer::Builtin));
}

#[test]
fn a_table_of_what_holds() {
    let machine = MachinePolicy::parse(Path::new("/m/machine.toml"), MACHINE).unwrap();
    let file = Path::new("ringfence.toml");
    let (manifest, _) = parse_manifest(file, BUNDLE, None).unwrap();
    let rules = Ruleset::compile(&machine, &manifest).unwrap();
    let explain = Explain {
        rules: &rules,
        machine: &machine,
        manifest: &manifest,
        project: "/p".as_ref(),
        user_home: "/home/u".as_ref(),
        home: "/home/u/.ringfence".as_ref(),
        guarded: &[],
    };
    let table = explain.table(&who("search"));
    let brief: Vec<_> =
        table.iter().map(|r| (r.about, r.pattern.as_str(), r.refuses, r.line)).collect();
    assert_eq!(
        brief,
        [
            ("tool", "*", false, 2),
            ("tool", "!*_delete", true, 2),
            ("tool", "find", false, 7),
            ("tool", "row_delete", false, 7),
            ("host", "(nothing)", true, 4),
            ("read", "src/**", false, 9),
            ("read", "/opt/x/**", false, 9),
            ("write", "src/**", false, 10),
            ("write", "!src/gen", true, 10),
            ("deny", ".env*", true, 6),
        ]
    );
    let agent = explain.table(&Principal::Agent);
    assert!(agent.iter().any(|r| r.pattern == "*.x.com:443" && !r.everyone));
    assert!(agent.iter().all(|r| r.about != "tool"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    /// An explanation is the enforcer's own answer, and its steps lead to it.
    #[test]
    fn an_explanation_is_the_decision(
        machine in generate::machine(),
        mut manifest in generate::manifest(),
        who in generate::principal(),
        (tool, host, port) in (generate::tool(), generate::host(), generate::port()),
        secret in generate::secret(),
        path in generate::path(),
        asked in any::<bool>(),
    ) {
        if asked {
            manifest.sandbox.credentials = vec![secret.clone()];
        }
        let Ok(rules) = Ruleset::compile(&machine, &manifest) else { return Ok(()) };
        let mut cases = vec![
            (Question::Host(host.clone(), port), rules.egress(&who, &host, port)),
            (Question::Secret(secret.clone()), rules.secret(&who, &secret)),
        ];
        if let Principal::Server(id) = &who {
            cases.push((Question::Tool(tool.clone()), rules.tool(id, &tool)));
        }
        for (question, decision) in cases {
            let answer = explain(&machine, &manifest, &who, &question);
            prop_assert_eq!(answer.allowed, decision.allowed);
            prop_assert_eq!(&answer.because.rule, &decision.rule);
            prop_assert_eq!(answer.because.layer, decision.layer);
            let refusing = answer.steps.iter().find(|step| !step.allows);
            let expected = (!decision.allowed).then_some(&answer.because);
            prop_assert_eq!(refusing, expected);
        }
        let scopes = rules.scopes("/home/u".as_ref(), "/home/u/.ringfence".as_ref()).unwrap();
        let under = |list: &[std::path::PathBuf]| {
            list.iter().any(|folder| Path::new(&path).starts_with(folder))
        };
        let denied = rules.denied(&path, &format!("/p/{path}")).is_some();
        let read = !denied && scopes.read_inside.as_deref().is_none_or(under);
        let write = !denied && under(&scopes.write) && !under(&scopes.read_only);
        for (question, allowed) in
            [(Question::Read(path.clone()), read), (Question::Write(path.clone()), write)]
        {
            let answer = explain(&machine, &manifest, &who, &question);
            prop_assert_eq!(answer.allowed, allowed, "{:?} {:?}", question, answer);
            prop_assert_eq!(answer.because.allows, allowed, "{:?} {:?}", question, answer);
        }
    }
}
