use std::path::Path;

use proptest::prelude::*;
use ringfence_bundle::{Diagnostic, Severity, parse_manifest};

use super::lint;
use crate::{MachinePolicy, Ruleset};

const HEAD: &str = "version = 1\n[servers.search]\ntype = \"stdio\"\ncommand = \"x\"\n\
                    [servers.bank]\ntype = \"http\"\nurl = \"https://bank.example/mcp\"\n";

fn check(machine: &str, bundle: &str) -> Vec<Diagnostic> {
    let machine = MachinePolicy::parse(Path::new("/m/machine.toml"), machine).unwrap();
    let text = format!("{HEAD}{bundle}");
    let (manifest, _) = parse_manifest(Path::new("ringfence.toml"), &text, None).unwrap();
    lint(&machine, Some(&manifest), "/home/u".as_ref(), "/home/u/.ringfence".as_ref())
}

/// Rule, severity, file and line within the part that varies.
fn brief(found: &[Diagnostic]) -> Vec<(&'static str, Severity, String, usize)> {
    let head = HEAD.lines().count();
    found
        .iter()
        .map(|d| {
            let at = d.at.as_ref().expect("every finding has its place");
            let name = at.file.file_name().unwrap().to_string_lossy().into_owned();
            let line = if name == "machine.toml" { at.line } else { at.line - head };
            (d.rule, d.severity, name, line)
        })
        .collect()
}

const E: Severity = Severity::Error;
const W: Severity = Severity::Warning;

#[track_caller]
fn machine(machine: &str, expected: &[(&'static str, Severity, usize)]) {
    let found = check(machine, "");
    let expected: Vec<_> =
        expected.iter().map(|(r, s, l)| (*r, *s, "machine.toml".to_owned(), *l)).collect();
    assert_eq!(brief(&found), expected, "{found:#?}");
}

#[track_caller]
fn bundle(machine: &str, bundle: &str, expected: &[(&'static str, Severity, usize)]) {
    let found = check(machine, bundle);
    let expected: Vec<_> =
        expected.iter().map(|(r, s, l)| (*r, *s, "ringfence.toml".to_owned(), *l)).collect();
    assert_eq!(brief(&found), expected, "{found:#?}");
}

#[test]
fn rules_that_do_what_they_say_are_not_mentioned() {
    machine("", &[]);
    machine(
        "[policy.tools]\n\"*\" = [\"*\", \"!*_delete\"]\nsearch = [\"find\", \"list*\"]\n",
        &[],
    );
    machine("[policy.egress]\nagent = [\"*.x.com:443\", \"*.x.com:80\", \"!a.x.com\"]\n", &[]);
    machine(
        "[policy.filesystem]\nread = [\"**\"]\nwrite = [\"src/**\"]\ndeny = [\".env*\"]\n",
        &[],
    );
    bundle("", "[policy.tools]\nsearch = [\"!a*\"]\nbank = [\"pay\"]\n\"*\" = [\"!x\"]\n", &[]);
}

#[test]
fn duplicates_and_what_another_pattern_covers() {
    machine("[policy.tools]\nsearch = [\"a\",\n\"a\"]\n", &[("duplicate-pattern", W, 3)]);
    machine("[policy.tools]\nsearch = [\"ab*\",\n\"a*\"]\n", &[("shadowed-pattern", W, 2)]);
    machine("[policy.tools]\nsearch = [\"a*\",\n\"a**\"]\n", &[("shadowed-pattern", W, 3)]);
    machine("[policy.tools]\nsearch = [\"!ab*\",\n\"!a*\"]\n", &[("shadowed-pattern", W, 2)]);
    machine("[policy.egress]\nsearch = [\"a.x:443\",\n\"*.x\"]\n", &[("shadowed-pattern", W, 2)]);
    machine("[policy.egress]\nsearch = [\"*.x:443\",\n\"a.x\"]\n", &[]);
    machine("[policy]\ncredentials = [\"A*\",\n\"AB\"]\n", &[("shadowed-pattern", W, 3)]);
}

#[test]
fn an_allowance_that_denials_always_beat() {
    machine("[policy.tools]\nsearch = [\"find\",\n\"!f*\"]\n", &[("never-allows", E, 2)]);
    // By several together.
    machine(
        "[policy.tools]\nsearch = [\"f*\",\n\"b\",\n\"!f\", \"!f?*\"]\n",
        &[("never-allows", E, 2)],
    );
    machine("[policy.tools]\nsearch = [\"f*\", \"!f?*\"]\n", &[]);
    // Under the key that binds everyone.
    machine("[policy.tools]\n\"*\" = [\"!f*\"]\nsearch = [\"find\"]\n", &[("never-allows", E, 3)]);
    machine("[policy.tools]\n\"*\" = [\"a*\"]\nsearch = [\"find\"]\n", &[("never-allows", E, 3)]);
    machine("[policy.tools]\n\"*\" = []\nsearch = [\"find\"]\n", &[("never-allows", E, 3)]);
    machine("[policy.tools]\n\"*\" = [\"*d\"]\nsearch = [\"find\"]\n", &[]);
}

#[test]
fn a_pattern_that_no_name_can_match() {
    let long = "?".repeat(129);
    for pattern in ["é*", "a b", "a:b", &long] {
        machine(&format!("[policy.tools]\nsearch = [\"{pattern}\"]\n"), &[("never-matches", E, 2)]);
    }
    for pattern in ["1*", "A-B"] {
        machine(
            &format!("[policy.secrets]\nsearch = [\"{pattern}\"]\n"),
            &[("never-matches", E, 2)],
        );
    }
    machine(&format!("[policy.tools]\nsearch = [\"{}\"]\n", &long[1..]), &[]);
}

#[test]
fn a_key_that_names_no_server() {
    // In a bundle the manifest's own parse refuses it.
    let slip = format!("{HEAD}[policy.tools]\nserach = [\"a\"]\n");
    let found = parse_manifest(Path::new("ringfence.toml"), &slip, None).unwrap_err();
    assert_eq!(found[0].rule, "undeclared-name");
    bundle("", "[policy.secrets]\nagent = [\"!A\"]\n", &[]);
    machine("[policy.tools]\nserach = [\"a\"]\n", &[("unknown-server", W, 2)]);
    machine("[policy.tools]\nquite-another = [\"a\"]\n", &[]);
    let found = check("[policy.tools]\nserach = [\"a\"]\n", "");
    assert!(found[0].help.as_ref().unwrap().contains("`search`"), "{found:?}");
}

#[test]
fn a_rule_of_the_bundle_that_the_machine_makes_moot() {
    let rules = "[policy.tools]\n\"*\" = [\"*\", \"!*_delete\"]\nbank = [\"pay*\"]\n";
    bundle(rules, "[policy.tools]\nsearch = [\"row_delete\"]\n", &[("moot-rule", W, 2)]);
    bundle(rules, "[policy.tools]\nsearch = [\"!row_delete\"]\n", &[("moot-rule", W, 2)]);
    bundle(rules, "[policy.tools]\nbank = [\"list\"]\n", &[("moot-rule", W, 2)]);
    bundle(rules, "[policy.tools]\nbank = [\"pay_one\", \"!pay_all\"]\n", &[]);
    let files = "[policy.filesystem]\nwrite = [\"src/**\"]\ndeny = [\".env*\"]\n";
    bundle(files, "[policy.filesystem]\nwrite = [\"out/**\"]\n", &[("moot-rule", W, 2)]);
    bundle(files, "[policy.filesystem]\nwrite = [\"src/a/**\"]\n", &[]);
    bundle(files, "[policy.filesystem]\ndeny = [\".env.local\"]\n", &[("moot-rule", W, 2)]);
    bundle(files, "[policy.filesystem]\nwrite = [\"src/.env\"]\n", &[("moot-rule", W, 2)]);
}

#[test]
fn what_is_allowed_and_not_declared() {
    let declared = "[sandbox]\ncredentials = [\"KEY\"]\n[sandbox.network]\nallowed_hosts = \
                    [\".x.com\"]\n";
    bundle(
        "",
        &format!("{declared}[policy.egress]\nagent = [\"a.x.com\",\n\"x.com\", \"b.x.com:22\"]\n"),
        &[("not-declared", W, 7), ("not-declared", W, 7)],
    );
    bundle(
        "",
        &format!("{declared}[policy.secrets]\nagent = [\"K*\",\n\"OTHER\"]\n"),
        &[("not-declared", W, 7)],
    );
}

#[test]
fn files() {
    let fs = |rest: &str| format!("[policy.filesystem]\n{rest}\n");
    // Both are the name, anywhere.
    machine(&fs("deny = [\"a/**\",\n\"a\"]"), &[("shadowed-pattern", W, 3)]);
    machine(&fs("deny = [\"x/a\",\n\"x/a/**\"]"), &[("shadowed-pattern", W, 3)]);
    machine(&fs("deny = [\".env.local\",\n\".env*\"]"), &[("shadowed-pattern", W, 2)]);
    machine(&fs("deny = [\"x/.env\",\n\".env\"]"), &[("shadowed-pattern", W, 2)]);
    machine(&fs("deny = [\"/x/.env\",\n\".env\"]"), &[]);
    machine(&fs("write = [\"src/a\",\n\"src/**\"]"), &[("shadowed-pattern", W, 2)]);
    machine(&fs("read = [\"src\",\n\"src/**\"]"), &[("duplicate-pattern", W, 3)]);
    machine(&fs("write = [\"src/**\",\n\"!out\"]"), &[("shadowed-pattern", W, 3)]);
    machine(&fs("write = [\"src/**\",\n\"!src/a\"]"), &[]);
    machine(&fs("write = [\"src/a\",\n\"out\", \"!src\"]"), &[("never-allows", E, 2)]);
    machine(&fs("write = [\"src/**\"]\ndeny = [\"src\"]"), &[("never-allows", E, 2)]);
    machine(&fs("write = [\"src/**\"]\ndeny = [\"src/*\"]"), &[]);
}

#[test]
fn what_a_run_would_refuse_is_said_too() {
    let found = check("[policy.filesystem]\nwrite = [\"*.rs\"]\n", "");
    assert_eq!((found[0].rule, found[0].severity), ("not-mountable", E));
    let found =
        check("[policy]\nallow_proceed = false\n", "[approvals]\non_timeout = \"proceed\"\n");
    assert!(found.iter().any(|d| d.rule == "exceeds-machine"), "{found:?}");
}

#[test]
fn a_long_list_is_bounded() {
    let list = |count: usize| {
        let all: Vec<String> = (0..count).map(|n| format!("\"t{n}_*\", \"!*_x{n}\"")).collect();
        format!(
            "[policy.tools]\n\"*\" = [\"*\", {}]\nsearch = [{}]\n",
            all.join(","),
            all.join(",")
        )
    };
    let began = std::time::Instant::now();
    let found = check(&list(1000), "");
    assert!(found.iter().all(|d| d.rule == "shadowed-pattern"), "{:?}", found.first());
    let found = check(&list(3000), "");
    assert_eq!(brief(&found).iter().filter(|f| f.0 == "long-list").count(), 2);
    assert!(began.elapsed().as_secs() < 120, "{:?}", began.elapsed());
}

/// A list of denials alone, an empty one and none mean three different things.
#[test]
fn advice_never_widens() {
    let helps = |machine: &str, bundle: &str| -> Vec<String> {
        let found = check(machine, bundle);
        found.into_iter().map(|d| d.help.unwrap_or_default()).collect()
    };
    let list = |text: &str| helps(&format!("[policy.tools]\nsearch = [{text}]\n"), "");
    assert_eq!(list("\"find\", \"!f*\", \"list\"")[0].find("!*"), None, "control");
    for text in ["\"find\", \"!f*\"", "\"find\", \"list\", \"!f*\", \"!l*\"", "\"$\", \"!a\""] {
        let help = list(text);
        assert!(help.iter().all(|help| help.contains("\"!*\"")), "{text}: {help:?}");
    }
    let empty = list("\"$\"");
    assert!(empty[0].contains("`[]`"), "{empty:?}");
    let emptied = helps("[policy.tools]\n\"*\" = [\"!a*\"]\nsearch = [\"!ab\"]\n", "");
    assert!(emptied[0].contains("take the list out"), "{emptied:?}");
    let moot =
        helps("[policy.tools]\n\"*\" = [\"a\"]\n", "[policy.tools]\nsearch = [\"b\", \"!c\"]\n");
    assert!(moot.iter().all(|help| help.contains("\"!*\"")), "{moot:?}");
    let write = helps("[policy.filesystem]\nwrite = [\"src/a\", \"!src\"]\n", "");
    assert!(write[0].contains("\"!*\""), "{write:?}");
}

#[test]
fn a_folder_of_the_home_is_the_same_by_both_its_names() {
    let scope = |text: &str| format!("[policy.filesystem]\nread = [\"**\", \"{text}\"]\n");
    for (above, below) in [("~/data/**", "/home/u/data/x"), ("/home/u/data/**", "~/data/x")] {
        bundle(&scope(above), &scope(below), &[]);
        bundle(&scope(above), &scope("~/other"), &[("moot-rule", W, 2)]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    /// Taking out what is called superfluous changes no answer; what is said never to allow allows
    /// nothing that the list without it does not.
    #[test]
    fn what_is_called_superfluous_is(
        lists in prop::collection::vec("!?[AB*?]{1,3}", 1..5),
        everyone in prop::option::of(prop::collection::vec("!?[AB*?]{1,3}", 0..3)),
        names in prop::collection::vec("[ABC]{1,4}", 8),
    ) {
        let quoted = |list: &[String]| {
            list.iter().map(|text| format!("{text:?},\n")).collect::<String>()
        };
        let text = |list: &[String]| {
            let rest = everyone.as_ref().map_or_else(String::new, |list| {
                format!("\"*\" = [\n{}]\n", quoted(list))
            });
            format!("[policy.tools]\nsearch = [\n{}]\n{rest}", quoted(list))
        };
        let rules = |list: &[String]| {
            let policy = MachinePolicy::parse(Path::new("machine.toml"), &text(list)).unwrap();
            let (manifest, _) = parse_manifest(Path::new("ringfence.toml"), HEAD, None).unwrap();
            Ruleset::compile(&policy, &manifest).unwrap()
        };
        let whole = rules(&lists);
        for finding in check(&text(&lists), "") {
            let line = finding.at.as_ref().unwrap().line;
            let Some(at) = line.checked_sub(3).filter(|at| *at < lists.len()) else { continue };
            let mut rest = lists.clone();
            let gone = rest.remove(at);
            // A list that lost its last pattern of a sign would mean another thing.
            let sign = |list: &[String]| {
                (list.iter().any(|t| t.starts_with('!')), list.iter().any(|t| !t.starts_with('!')))
            };
            if sign(&rest) != sign(&lists) {
                continue;
            }
            let less = rules(&rest);
            let id = crate::properties::generate::id("search");
            for name in &names {
                let (with, without) =
                    (whole.tool(&id, name).allowed, less.tool(&id, name).allowed);
                prop_assert_eq!(with, without, "{} {} {}", gone, name, finding.rule);
            }
        }
    }
}

type Lists = Vec<(&'static str, Vec<String>)>;

/// `[policy.egress]` or `[policy.secrets]` of one layer, a pattern on each line.
fn written(table: &str, lists: &Lists) -> String {
    let list = |(key, patterns): &(&str, Vec<String>)| {
        let lines: String = patterns.iter().map(|text| format!("{text:?},\n")).collect();
        format!("\"{key}\" = [\n{lines}]\n")
    };
    format!("[policy.{table}]\n{}", lists.iter().map(list).collect::<String>())
}

/// Which pattern stands on a line of that.
fn on_line(lists: &Lists, line: usize) -> Option<(usize, usize)> {
    let mut first = 3;
    for (nth, (_, patterns)) in lists.iter().enumerate() {
        if (first..first + patterns.len()).contains(&line) {
            return Some((nth, line - first));
        }
        first += patterns.len() + 2;
    }
    None
}

fn lists(pattern: &'static str) -> impl Strategy<Value = Lists> {
    let list = || prop::option::of(prop::collection::vec(pattern, 0..4));
    (list(), list(), list()).prop_map(|(everyone, agent, search)| {
        let all = [("*", everyone), ("agent", agent), ("search", search)];
        all.into_iter().filter_map(|(key, list)| Some((key, list?))).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// The same over both layers, hosts with ports, and secrets, with what is declared.
    #[test]
    fn what_is_called_superfluous_in_either_layer_is(
        hosts in (lists("!?[ab*?](\\.[ab*])?(:80|:443)?"), lists("!?[ab*?](\\.[ab*])?(:80|:443)?")),
        secrets in (lists("!?[AB*?]{1,3}"), lists("!?[AB*?]{1,3}")),
        declared in prop::collection::vec("\\.?[ab]\\.[ab](:8443)?", 0..3),
        names in prop::collection::vec("[ab](\\.[ab]){0,2}", 6),
        variables in prop::collection::vec("[ABC]{1,3}", 6),
    ) {
        use crate::Principal;
        use ringfence_bundle::{Host, SecretName};
        let own = format!(
            "version = 1\n[sandbox]\ncredentials = [\"A\", \"BA\"]\n[sandbox.network]\negress = \"restricted\"\n\
             allowed_hosts = {declared:?}\n[servers.search]\ntype = \"stdio\"\ncommand = \"x\"\n\
             allowed_hosts = {declared:?}\n"
        );
        let compiled = |table: &str, (machine, bundle): &(Lists, Lists)| {
            let machine = MachinePolicy::parse(Path::new("machine.toml"), &written(table, machine)).unwrap();
            let text = format!("{own}{}", written(table, bundle));
            let (manifest, _) = parse_manifest(Path::new("ringfence.toml"), &text, None).ok()?;
            let found = lint(&machine, Some(&manifest), "/home/u".as_ref(), "/home/u/.ringfence".as_ref());
            let rules = Ruleset::compile(&machine, &manifest).ok()?;
            let mut answers = Vec::new();
            for who in [Principal::Agent, Principal::Server(crate::properties::generate::id("search"))] {
                for name in &names {
                    for port in [80, 443, 8443] {
                        answers.push(rules.egress(&who, &Host::Name(name.clone()), port).allowed);
                    }
                }
                for name in &variables {
                    answers.push(rules.secret(&who, &SecretName::parse(name).unwrap()).allowed);
                }
            }
            Some((found, answers))
        };
        for (table, both) in [("egress", &hosts), ("secrets", &secrets)] {
            let Some((found, whole)) = compiled(table, both) else { continue };
            for finding in found {
                let Some(at) = finding.at.as_ref() else { continue };
                let mut less = both.clone();
                let machine = at.file.ends_with("machine.toml");
                let side = if machine { &mut less.0 } else { &mut less.1 };
                let head = if machine { 0 } else { own.lines().count() };
                let Some((list, nth)) = at.line.checked_sub(head).and_then(|line| on_line(side, line)) else { continue };
                let kept = side[list].1.clone();
                let gone = side[list].1.remove(nth);
                // What is left would mean another thing: then the help says so.
                let allows = |list: &[String]| list.iter().any(|t| !t.starts_with('!'));
                let left = &side[list].1;
                if left.is_empty() || allows(&kept) && !allows(left) {
                    let words = ["\"!*\"", "`[]`", "take the list out"];
                    let help = finding.help.unwrap_or_default();
                    prop_assert!(words.iter().any(|word| help.contains(word)), "{} {}: {}", gone, finding.rule, help);
                    continue;
                }
                let Some((_, answers)) = compiled(table, &less) else { continue };
                prop_assert_eq!(&answers, &whole, "{} of {:?} {} {}", gone, kept, finding.rule, finding.message);
            }
        }
    }
}
