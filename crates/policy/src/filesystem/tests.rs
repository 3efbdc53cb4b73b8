use ringfence_bundle::{Manifest, Pattern};

use crate::{Layer, MachinePolicy, Ruleset};

fn rules(machine: &[&str], bundle: &[&str]) -> Ruleset {
    let list = |texts: &[&str]| {
        texts.iter().zip(3..).map(|(t, line)| Pattern { text: (*t).into(), line }).collect()
    };
    let (mut policy, mut manifest) = (MachinePolicy::default(), Manifest::default());
    policy.tables.filesystem.deny = list(machine);
    manifest.policy.filesystem.deny = list(bundle);
    Ruleset::compile(&policy, &manifest).unwrap()
}

fn denied(pattern: &str, relative: &str) -> bool {
    rules(&[], &[pattern]).denied(relative, &format!("/srv/build/p/{relative}")).is_some()
}

#[test]
fn a_denial_is_a_union_that_names_its_layer() {
    let rules = rules(&[".env*"], &["secrets/**"]);
    let decision = rules.denied("a/.env.local", "/p/a/.env.local").unwrap();
    assert_eq!((decision.allowed, decision.layer), (false, Layer::Machine));
    assert_eq!(decision.rule, "machine.toml:3 [policy.filesystem] deny \".env*\"");
    assert_eq!(rules.denied("secrets/x", "/p/secrets/x").unwrap().layer, Layer::Bundle);
    assert_eq!(rules.denied("src/main.rs", "/p/src/main.rs"), None);
}

#[test]
fn each_spelling_of_a_denial_covers_what_is_below() {
    for pattern in ["x", "x/", "x/**", "./x", "**/x", "**/x/**"] {
        for path in ["x", "x/a", "x/a/b"] {
            assert!(denied(pattern, path), "{pattern} {path}");
        }
        assert!(!denied(pattern, "y/a"), "{pattern}");
    }
    assert!(denied("x", "y/x/z"), "a bare name is denied anywhere");
    assert!(denied(".git/hooks/**", ".git/hooks/pre-commit"));
    assert!(!denied(".git/hooks/**", ".git/config"));
    assert!(!denied(".git/hooks/**", "sub/.git/hooks/x"), "a path is not");
    assert!(denied("**/.git/hooks/**", "sub/.git/hooks/x"));
    assert!(denied("*.pem", "a/b/key.pem"));
    assert!(!denied("src/*.pem", "src/a/key.pem"));
    assert!(denied("**", "anything"));
}

#[test]
fn folders_above_the_project_are_not_asked_by_its_own_patterns() {
    assert!(!denied("build", "src/a"), "the project lies in /srv/build");
    assert!(denied("build", "src/build/a"));
    assert!(denied("/srv/build/p/src/**", "src/a"), "an absolute pattern is");
    assert!(!denied("/srv/build/q/**", "src/a"));
}

#[test]
fn outside_the_project() {
    let rules = rules(&["~/.config/**", "/opt/secret", ".env*"], &[]);
    let denied = |path| rules.denied("", path).is_some();
    assert!(denied("/home/u/.config/gh/hosts.yml"));
    assert!(denied("/opt/secret/a"));
    assert!(denied("/opt/tool/.env"));
    assert!(!denied("/opt/tool/main"));
}

#[test]
fn a_path_that_is_not_plain_is_denied() {
    let rules = rules(&[], &[]);
    for (relative, absolute) in
        [("../x", "/p/x"), ("a//b", "/p/a/b"), ("a", "p/a"), ("a", "/p/../a"), ("./a", "/p/a")]
    {
        let decision = rules.denied(relative, absolute).unwrap();
        assert_eq!(decision.layer, Layer::Builtin, "{relative} {absolute}");
    }
    assert_eq!(rules.denied("a/b", "/p/a/b"), None);
}

#[test]
fn literals_are_listed() {
    let paths = rules(&[".env*", ".git/hooks/**"], &["/opt/x", "secrets", ".git/hooks"]);
    let literals = paths.denied_literals();
    assert_eq!(literals, [std::path::Path::new(".git/hooks"), "secrets".as_ref()]);
}
