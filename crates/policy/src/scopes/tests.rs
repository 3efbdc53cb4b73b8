use std::path::{Path, PathBuf};

use proptest::prelude::*;
use ringfence_bundle::{Manifest, Pattern};

use crate::{Error, FsScopes, MachinePolicy, Ruleset};

type List<'a> = Option<&'a [&'a str]>;

fn lines(list: List<'_>) -> Option<Vec<Pattern>> {
    list.map(|texts| {
        texts.iter().zip(3..).map(|(t, line)| Pattern { text: (*t).into(), line }).collect()
    })
}

/// (machine, bundle) for `write` and for `read`.
fn scopes(write: (List<'_>, List<'_>), read: (List<'_>, List<'_>)) -> Result<FsScopes, Error> {
    let (mut machine, mut manifest) = (MachinePolicy::default(), Manifest::default());
    machine.tables.filesystem.write = lines(write.0);
    manifest.policy.filesystem.write = lines(write.1);
    machine.tables.filesystem.read = lines(read.0);
    manifest.policy.filesystem.read = lines(read.1);
    Ruleset::compile(&machine, &manifest)
        .unwrap()
        .scopes(Path::new("/home/u"), Path::new("/home/u/.ringfence"))
}

fn paths(texts: &[&str]) -> Vec<PathBuf> {
    texts.iter().map(PathBuf::from).collect()
}

fn messages(result: Result<FsScopes, Error>) -> Vec<String> {
    match result {
        Err(Error::Exceeds(found)) => found
            .into_iter()
            .map(|d| format!("{} / {}", d.message, d.help.unwrap_or_default()))
            .collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_writable_that_nobody_grants() {
    assert_eq!(scopes((None, None), (None, None)).unwrap().write, paths(&[]));
    assert_eq!(scopes((Some(&[]), Some(&["src"])), (None, None)).unwrap().write, paths(&[]));
    let alone = scopes((Some(&["!ci/**"]), None), (None, None)).unwrap();
    assert_eq!(alone.write, paths(&[]), "denials alone grant nothing");
    let bound = scopes((Some(&["!ci/**"]), Some(&["**"])), (None, None)).unwrap();
    assert_eq!(bound.write, paths(&[""]));
    assert_eq!(bound.read_only, paths(&[".ringfence", "ci"]));
}

#[test]
fn layers_intersect_and_the_deeper_wins() {
    let both = scopes(
        (Some(&["src/**", "docs/", "a"]), Some(&["src/gen", "docs/x.md", "b", "!src/gen/keep"])),
        (None, None),
    )
    .unwrap();
    assert_eq!(both.write, paths(&["docs/x.md", "src/gen"]));
    assert_eq!(both.read_only, paths(&["src/gen/keep"]));
    let one = scopes((Some(&["src"]), None), (None, None)).unwrap();
    assert_eq!(one.write, paths(&["src"]));
}

#[test]
fn a_denial_beats_what_lies_below_it() {
    let result = scopes((None, Some(&["src/gen/**", "lib", "!src"])), (None, None)).unwrap();
    assert_eq!(result.write, paths(&["lib"]));
}

#[test]
fn the_bundles_folder_is_never_writable() {
    let whole = scopes((None, Some(&["**"])), (None, None)).unwrap();
    assert_eq!(whole.read_only, paths(&[".ringfence"]));
    assert_eq!(messages(scopes((None, Some(&[".ringfence/skills"])), (None, None))).len(), 1);
}

#[test]
fn what_a_mount_cannot_do_is_refused_with_what_to_write() {
    let found = messages(scopes((None, Some(&["**/*.rs", "src/*.rs", "s?c"])), (None, None)));
    assert_eq!(found.len(), 3);
    assert!(found[0].starts_with("ringfence.toml:3 [policy.filesystem] write \"**/*.rs\""));
    assert!(found[0].contains("write `**`"), "{found:?}");
    assert!(found[1].contains("write `src/**`"), "{found:?}");
    assert_eq!(messages(scopes((None, Some(&["/tmp/x"])), (None, None))).len(), 1);
    assert_eq!(messages(scopes((None, Some(&["~/x"])), (None, None))).len(), 1);
    assert_eq!(messages(scopes((None, None), (None, Some(&["**", "!x"])))).len(), 1);
}

#[test]
fn reads_inside() {
    let read = |machine: List<'_>, bundle: List<'_>| {
        scopes((None, Some(&["src/**"])), (machine, bundle)).unwrap()
    };
    assert_eq!(read(None, None).read_inside, None);
    assert_eq!(read(Some(&["**"]), None).read_inside, None);
    let narrow = read(Some(&["**"]), Some(&["docs/**", "src/a"]));
    assert_eq!(narrow.read_inside, Some(paths(&["docs", "src/a"])));
    assert_eq!(narrow.write, paths(&["src/a"]), "what is not read is not written");
    assert_eq!(read(Some(&["/opt/x"]), None).read_inside, Some(paths(&[])));
}

#[test]
fn a_write_that_cannot_be_read_is_said() {
    let check = |read: &[&str], write: &[&str]| {
        let mut manifest = Manifest::default();
        manifest.policy.filesystem.read = lines(Some(read));
        manifest.policy.filesystem.write = lines(Some(write));
        let rules = Ruleset::compile(&MachinePolicy::default(), &manifest).unwrap();
        rules.check_writes(Path::new("/home/u"))
    };
    check(&["**"], &["out/**"]).unwrap();
    check(&["src/**", "out/**"], &["out/a/**"]).unwrap();
    check(&["src/a"], &["src/**"]).unwrap();
    assert!(matches!(check(&["src/**"], &["out/**"]), Err(Error::Exceeds(f)) if f.len() == 1));
}

#[test]
fn reads_outside() {
    let read = |machine: List<'_>, bundle: List<'_>| scopes((None, None), (machine, bundle));
    assert_eq!(read(None, Some(&["**", "/opt/x/**"])).unwrap().read_outside, paths(&["/opt/x"]));
    let both = read(Some(&["**", "/opt/**"]), Some(&["**", "/opt/x", "/srv"])).unwrap();
    assert_eq!(both.read_outside, paths(&["/opt/x"]));
    let mut manifest = Manifest::default();
    manifest.policy.filesystem.read = lines(Some(&["/opt/a", "/opt/b"]));
    manifest.policy.filesystem.deny = lines(Some(&["/opt/b/**"])).unwrap();
    let rules = Ruleset::compile(&MachinePolicy::default(), &manifest).unwrap();
    let denied = rules.scopes(Path::new("/home/u"), Path::new("/home/u/.ringfence")).unwrap();
    assert_eq!(denied.read_outside, paths(&["/opt/a"]), "a denial wins");
    let home = read(None, Some(&["**", "~/data/**"])).unwrap();
    assert_eq!(home.read_outside, paths(&["/home/u/data"]));
    for never in [
        "/**",
        "/",
        "/proc",
        "/proc/1/environ",
        "/sys/**",
        "/dev/sda",
        "/run/docker.sock",
        "/var",
        "/var/run/x",
        "~/",
        "~",
        "/home",
        "/home/u/**",
        "~/.ssh/id_ed25519",
        "~/.gnupg",
        "~/.ringfence",
        "/home/u/.ringfence/runs",
    ] {
        assert_eq!(messages(read(None, Some(&["**", never]))).len(), 1, "{never}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]
    /// What the scopes say of a path is what each layer's list says of it.
    #[test]
    fn scopes_equal_the_lists(
        machine in prop::option::of(prop::collection::vec("!?[abc](/[ab]){0,2}(/\\*\\*)?", 0..5)),
        bundle in prop::option::of(prop::collection::vec("!?[abc](/[ab]){0,2}(/\\*\\*)?", 0..5)),
        path in "[abc](/[ab]){0,3}",
    ) {
        let texts = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
        let (m, b) = (texts(&machine), texts(&bundle));
        let (m, b): (Vec<&str>, Vec<&str>) =
            (m.iter().map(String::as_str).collect(), b.iter().map(String::as_str).collect());
        let lists = [machine.is_some().then_some(&m[..]), bundle.is_some().then_some(&b[..])];
        let result = scopes((lists[0], lists[1]), (None, None)).unwrap();
        let under = |set: &[PathBuf]| set.iter().any(|dir| Path::new(&path).starts_with(dir));
        let actual = under(&result.write) && !under(&result.read_only);

        let matches = |text: &str| {
            let dir = text.trim_start_matches('!').trim_end_matches("/**");
            path == dir || path.starts_with(&format!("{dir}/"))
        };
        let allows = |list: &[&str]| {
            let (no, yes): (Vec<&str>, Vec<&str>) = list.iter().partition(|t| t.starts_with('!'));
            (yes.iter().any(|t| matches(t)) || yes.is_empty() && !no.is_empty())
                && !no.iter().any(|t| matches(t))
        };
        let grants = lists.iter().flatten().any(|l| l.is_empty() || l.iter().any(|t| !t.starts_with('!')));
        let expected = grants && lists.iter().flatten().all(|list| allows(list));
        prop_assert_eq!(actual, expected);
    }
}
