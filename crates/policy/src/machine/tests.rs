use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use ringfence_bundle::{Diagnostic, Isolation};

use crate::{Error, MachinePolicy};

fn problems(result: Result<MachinePolicy, Error>) -> Vec<Diagnostic> {
    match result {
        Err(Error::Machine(found)) => found,
        other => panic!("{other:?}"),
    }
}

fn parse(text: &str) -> Result<MachinePolicy, Error> {
    MachinePolicy::parse(Path::new("machine.toml"), text)
}

const WHOLE: &str = r#"
[policy]
isolation = "network"
credentials = ["DEV_*", "!DEV_ROOT"]
max_per_run_usd = "0.50"
max_per_day_usd = "5"
max_per_month_usd = "50.00"
max_duration_seconds = 600
allow_proceed = false
approver_keys = ["z6MkAbc"]
peers = ["did:key:z6MkAbc"]
require_pinned_tools = true
allow_execute = false
allow_opaque = false

[policy.tools]
"*" = ["*",
       "!*_delete"]
[policy.egress]
agent = ["*.example.com:443"]
[policy.secrets]
bank = ["BANK_*"]
[policy.filesystem]
read = ["**", "/opt/x/**"]
write = ["src/**"]
deny = [".env*"]

[state]
url_ref = "LEDGER_URL"

[guard]
anything = { goes = [1, 2] }
"#;

#[test]
fn the_whole_file() {
    let policy = parse(WHOLE).unwrap();
    assert_eq!(policy.ceilings.isolation, Some(Isolation::Network));
    assert_eq!(policy.ceilings.max_duration_seconds, Some(600));
    assert_eq!(policy.ceilings.allow_execute, Some(false));
    assert_eq!(policy.ceilings.allow_opaque, Some(false));
    assert_eq!(policy.state_url_ref.unwrap().as_str(), "LEDGER_URL");
    assert_eq!(policy.tables.tools["*"][1].text, "!*_delete");
    assert_eq!(policy.tables.tools["*"][1].line, 18);
    assert_eq!(policy.tables.filesystem.deny[0].line, 26);
    assert_eq!(policy.places.find("policy.isolation").unwrap().line, 3);
    assert_eq!(parse("").unwrap().ceilings, crate::Ceilings::default());
}

/// The reference page has every key that the decoder asks for, and no other.
#[test]
fn the_reference_page_is_whole() {
    let page = include_str!("../../../../docs/machine.md");
    let document = ringfence_bundle::Document::parse(Path::new("machine.toml"), WHOLE);
    super::decode(&document);
    let asked = document.asked();
    assert_eq!(document.into_findings(), [], "the example of this test is whole");
    assert!(asked.len() > 20, "{asked:?}");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let written: std::collections::BTreeSet<String> =
        rows.map(|row| row.split('`').next().unwrap_or_default().to_owned()).collect();
    assert_eq!(written, asked);
    // What stands there as an example is one, without a dead rule.
    let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let policy = parse(example).unwrap();
    assert_eq!(crate::lint(&policy, None, "/home/u".as_ref(), "/home/u/.r".as_ref()), []);
}

#[test]
fn every_problem_in_one_go_with_its_place() {
    let found = problems(parse(
        "[policy]\nisolatoin = \"kernel\"\nisolation = \"strong\"\nmax_duration_seconds = 0\n\
         max_per_run_usd = 0.5\nallow_proceed = \"no\"\npeers = [\"bob\"]\n\
         [policy.tools]\n\"a__b\" = [\"*\"]\nagent = [\"*\"]\nbank = [\"\", \"!\", 1]\n\
         [policy.egress]\nagent = [\"é*.x\", \"a:b:c\", \"*:99999\"]\n\
         [policy.filesystem]\ndeny = [\"!x\"]\nwrite = [\"../x\"]\nexec = []\n\
         [polcy]\n",
    ));
    let at: Vec<(&str, usize)> =
        found.iter().map(|d| (d.rule, d.at.as_ref().unwrap().line)).collect();
    assert_eq!(
        at,
        [
            ("unknown-key", 2),
            ("bad-value", 3),
            ("out-of-range", 4),
            ("wrong-type", 5),
            ("wrong-type", 6),
            ("bad-pattern", 7),
            ("bad-name", 9),
            ("bad-name", 10),
            ("bad-pattern", 11),
            ("bad-pattern", 11),
            ("wrong-type", 11),
            ("bad-pattern", 13),
            ("bad-pattern", 13),
            ("bad-pattern", 13),
            ("bad-pattern", 15),
            ("bad-pattern", 16),
            ("unknown-key", 17),
            ("unknown-key", 18),
        ]
    );
    assert_eq!(found[0].help.as_deref(), Some("did you mean `isolation`?"));
    let place = found[1].at.as_ref().unwrap();
    assert_eq!((place.column, place.width), (13, 8));
    assert_eq!(place.text, "isolation = \"strong\"");
    assert!(found.iter().all(|d| d.next.is_some()));
}

#[test]
fn syntax_and_duplicates() {
    let found = problems(parse("[policy]\nallow_execute = true\nallow_execute = false\n"));
    assert_eq!((found[0].rule, found[0].at.as_ref().unwrap().line), ("duplicate-key", 3));
    for text in ["[policy", "x = ", "\u{0}", "[policy]\npeers = 'é\n", "policy = 1", "guard = 1"] {
        assert!(!problems(parse(text)).is_empty(), "{text:?}");
    }
}

#[test]
fn loading() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("machine.toml");
    let load = || MachinePolicy::load(home.path());
    assert_eq!(load().unwrap(), MachinePolicy::default(), "no file constrains nothing");

    fs::write(&file, WHOLE).unwrap();
    let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    assert_eq!(load().unwrap().file.as_deref(), Some(&*file));
    for open in [0o666, 0o664, 0o646] {
        mode(open);
        let found = problems(load());
        assert!(found[0].next.as_ref().unwrap().starts_with("chmod go-w "), "{open:o}");
    }
    mode(0o600);
    assert!(load().is_ok());

    fs::write(&file, b"[policy]\n# \xff").unwrap();
    assert_eq!(problems(load())[0].rule, "machine-file");
    fs::write(&file, "#".repeat((1 << 20) + 1)).unwrap();
    assert_eq!(problems(load())[0].rule, "machine-file");
}

#[test]
fn links_and_other_kinds() {
    let home = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let file = home.path().join("machine.toml");
    let load = || MachinePolicy::load(home.path());

    fs::write(home.path().join("real.toml"), "[policy]\n").unwrap();
    symlink("real.toml", &file).unwrap();
    assert!(load().is_ok(), "a link within the home");

    fs::remove_file(&file).unwrap();
    fs::write(elsewhere.path().join("real.toml"), "[policy]\n").unwrap();
    symlink(elsewhere.path().join("real.toml"), &file).unwrap();
    assert!(problems(load())[0].message.contains("symlink"));

    fs::remove_file(&file).unwrap();
    symlink("nowhere", &file).unwrap();
    assert_eq!(problems(load()).len(), 1, "a link to nothing is not a missing file");

    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_eq!(problems(load()).len(), 1);

    fs::remove_dir(&file).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    assert!(problems(load())[0].message.contains("regular"), "and it does not wait for a writer");
}

#[test]
fn a_hostile_text_is_bounded() {
    let deep = format!("guard = {}", "[".repeat(100_000));
    assert!(!problems(parse(&deep)).is_empty());
    let deep = "guard = { a = ".repeat(20_000);
    assert!(!problems(parse(&deep)).is_empty());
    let many = format!("[policy]\npeers = [{}]\n", "1,".repeat(100_000));
    let found = problems(parse(&many));
    assert_eq!(found.len(), 100);
    assert!(found.iter().all(|d| d.at.as_ref().unwrap().text.len() <= 500));
    let wide = format!("[policy.tools]\nbank = [{}]\n", "\"a*\",".repeat(50_000));
    assert_eq!(parse(&wide).unwrap().tables.tools["bank"].len(), 50_000);
}

#[test]
fn the_database_is_named_and_its_address_never_written() {
    for (text, rule) in [
        ("[state]\nurl_ref = \"postgres://u:p@h/db\"", "bad-name"),
        ("[state]\nurl_ref = 1", "wrong-type"),
        ("[state]\nurl = \"postgres://u:p@h/db\"", "unknown-key"),
    ] {
        let found = problems(parse(text));
        assert_eq!(found[0].rule, rule, "{text}: {found:?}");
    }
}
