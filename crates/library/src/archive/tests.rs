use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use proptest::prelude::{ProptestConfig, any, proptest};
use ringfence_bundle::{Blob, Kind, Lock, Objects, Origin, Resolved, Snapshot, write_lock};
use ringfence_identity::Signer;

use super::member::Names;
use super::{Fault, pack, unpack};
use crate::{Error, Store};

/// A project with every kind of thing, and a machine of its own.
pub(crate) struct Bundle {
    _root: tempfile::TempDir,
    project: PathBuf,
    home: PathBuf,
}

const MANIFEST: &str = r#"version = 1

[agent]
name = "sample"
version = "1.2.0"

[skills.s]
path = "./skills/s"
[skills.far]
git = "https://git.example.com/skills"
rev = "main"
subpath = "far"
[instructions.team]
path = "./instructions/team.md"
[extensions.lint]
path = "./extensions/lint.ts"
target = "pi"
[workflows.triage]
path = "./workflows/triage"
[settings.claude-code]
model = "opus"
[hooks.fmt]
event = "post_tool_use"
command = "cargo fmt"
[servers.local]
type = "stdio"
command = "python3"
args = ["tools/server.py"]
"#;

impl Bundle {
    pub(crate) fn locked() -> Self {
        let root = tempfile::tempdir().expect("a temporary folder");
        let (project, home) = (root.path().join("project"), root.path().join("home"));
        let bundle = Self { _root: root, project, home };
        for (path, text) in [
            (".ringfence/ringfence.toml", MANIFEST),
            (".ringfence/skills/s/SKILL.md", "# s\n"),
            (".ringfence/skills/s/scripts/run.sh", "#!/bin/sh\n"),
            (".ringfence/instructions/team.md", "Be kind.\n"),
            (".ringfence/extensions/lint.ts", "export {}\n"),
            (".ringfence/workflows/triage/a.js", "1\n"),
            (".ringfence/workflows/triage/empty", ""),
            ("tools/server.py", "print()\n"),
            ("src/secret-plans.txt", "not of the bundle\n"),
        ] {
            let path = bundle.project().join(path);
            fs::create_dir_all(path.parent().expect("in a folder")).expect("our own folder");
            fs::write(path, text).expect("our own file");
        }
        let script = bundle.project().join(".ringfence/skills/s/scripts/run.sh");
        fs::set_permissions(script, fs::Permissions::from_mode(0o755)).expect("our own file");
        let far = BTreeMap::from([(
            "SKILL.md".to_owned(),
            Blob { bytes: b"# far\n".to_vec(), executable: false },
        )]);
        let digest =
            Store::of(bundle.home()).deposit_tree(Kind::Skill, &far).expect("our own folder");
        let origin = Origin::Git {
            git: "https://git.example.com/skills".to_owned(),
            rev: "main".to_owned(),
            subpath: Some("far".to_owned()),
            commit: "0".repeat(40),
        };
        let resolved =
            BTreeMap::from([((Kind::Skill, "far".to_owned()), Resolved { digest, origin })]);
        let snapshot = Snapshot::read(bundle.project()).expect("a bundle");
        let lock = Lock::compute(&snapshot, &bundle.objects(), &resolved).expect("all is there");
        write_lock(&snapshot, &lock.render()).expect("our own file");
        bundle
    }

    pub(crate) fn project(&self) -> &Path {
        &self.project
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    pub(crate) fn objects(&self) -> Objects {
        Objects::of(self.home())
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::read(self.project()).expect("a bundle")
    }

    pub(crate) fn signer(&self) -> Signer {
        Signer::named(self.home(), "publisher").expect("a key")
    }

    pub(crate) fn packed(&self) -> Vec<u8> {
        let packed = pack(&self.snapshot(), &self.objects(), &self.signer(), &|_, _| Vec::new());
        packed.expect("a whole bundle").bytes
    }
}

#[test]
fn the_same_bundle_gives_the_same_archive() {
    let bundle = Bundle::locked();
    let first = bundle.packed();
    assert_eq!(first, bundle.packed());
    // Times, and the bits of other users, are no part of it.
    let skill = bundle.project().join(".ringfence/skills/s/SKILL.md");
    fs::set_permissions(&skill, fs::Permissions::from_mode(0o600)).expect("our own file");
    fs::write(&skill, "# s\n").expect("our own file");
    assert_eq!(first, bundle.packed());
    fs::set_permissions(&skill, fs::Permissions::from_mode(0o755)).expect("our own file");
    let drifted = pack(&bundle.snapshot(), &bundle.objects(), &bundle.signer(), &|_, _| Vec::new());
    assert!(matches!(drifted, Err(Error::Drifted(_))), "control: the executable bit is a part");
}

#[test]
fn what_was_packed_is_unpacked_and_nothing_else_is_in_it() {
    let bundle = Bundle::locked();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let unpacked = unpack(&bundle.packed()[..], folder.path()).expect("a good archive");
    let paths: Vec<_> = unpacked.about.members.iter().map(|row| row.path.as_str()).collect();
    let beside: Vec<_> = paths.iter().filter_map(|path| path.strip_prefix("bundle/")).collect();
    assert_eq!(
        beside,
        [
            ".ringfence/extensions/lint.ts",
            ".ringfence/instructions/team.md",
            ".ringfence/ringfence.lock",
            ".ringfence/ringfence.toml",
            ".ringfence/skills/s/SKILL.md",
            ".ringfence/skills/s/scripts/run.sh",
            ".ringfence/workflows/triage/a.js",
            ".ringfence/workflows/triage/empty",
            "tools/server.py",
        ]
    );
    assert_eq!(paths.len(), beside.len() + 1, "and one object of the store");
    for row in &unpacked.about.members {
        let path = folder.path().join(&row.path);
        let mode = fs::metadata(&path).expect("it was written").permissions().mode();
        assert_eq!(mode & 0o777, if row.executable { 0o700 } else { 0o600 }, "{}", row.path);
    }
}

#[test]
fn what_a_scan_finds_is_not_packed() {
    let bundle = Bundle::locked();
    let scan = |path: &str, bytes: &[u8]| match bytes.starts_with(b"Be kind") {
        true => vec![format!("{path}:1: a token")],
        false => Vec::new(),
    };
    let refused = pack(&bundle.snapshot(), &bundle.objects(), &bundle.signer(), &scan);
    let Err(Error::Literals(found)) = refused else { panic!("{refused:?}") };
    assert_eq!(found, ["bundle/.ringfence/instructions/team.md:1: a token"]);
}

#[test]
fn an_overlay_that_moves_a_pin_is_said_and_one_that_does_not_stays_at_home() {
    let bundle = Bundle::locked();
    let before = bundle.packed();
    let overlay = bundle.project().join(".ringfence/ringfence.local.toml");
    fs::write(&overlay, "[limits]\nmax_duration_seconds = 5\n").expect("our own file");
    assert_eq!(bundle.packed(), before, "it is no part of what is shared");
    fs::write(&overlay, "[settings.claude-code]\nmodel = \"haiku\"\n").expect("our own file");
    let snapshot = bundle.snapshot();
    let resolved = snapshot.lock.iter().flat_map(|lock| &lock.pins).filter_map(|pin| {
        let (digest, origin) = (pin.digest, pin.origin.clone()?);
        Some(((pin.kind, pin.name.clone()), Resolved { digest, origin }))
    });
    let lock = Lock::compute(&snapshot, &bundle.objects(), &resolved.collect()).expect("whole");
    write_lock(&snapshot, &lock.render()).expect("our own file");
    let refused = pack(&bundle.snapshot(), &bundle.objects(), &bundle.signer(), &|_, _| Vec::new());
    let Err(Error::Overlay(drift)) = refused else { panic!("{refused:?}") };
    assert_eq!(drift[0].name, "claude-code.model");
}

#[test]
fn names_that_could_be_taken_for_others_are_refused() {
    let all = |paths: &[&str]| -> Result<(), Fault> {
        let mut names = Names::default();
        paths.iter().try_for_each(|path| names.add(path))
    };
    all(&["bundle/a", "bundle/b/c", "bundle/b/d", "store/é", "bundle/gitignore/.gitignore"])
        .expect("control");
    for bad in [
        "bundle/../a",
        "/bundle/a",
        "bundle//a",
        "bundle/./a",
        "bundle/",
        "",
        "bundle",
        "other/a",
        "bundle/a\\b",
        "bundle/a\nb",
        "bundle/a\u{202e}b",
        "bundle/a\u{200b}",
        "bundle/\u{7f}",
        "bundle/c:a",
        "bundle/.git/hooks/x",
        "bundle/a/.GIT/config",
        "bundle/.git./x",
        "bundle/git~1/x",
        "bundle/.ringfence/ringfence.local.toml",
        "store/../x",
    ] {
        assert!(all(&[bad]).is_err(), "{bad:?}");
    }
    assert!(all(&[&format!("bundle/{}", "a/".repeat(60))]).is_err());
    assert!(all(&[&format!("bundle/{}", "a".repeat(260))]).is_err());
    for (one, other) in [
        ("bundle/a", "bundle/a"),
        ("bundle/a", "bundle/A"),
        ("bundle/a/x", "bundle/A/y"),
        ("bundle/é", "bundle/e\u{301}"),
        ("bundle/ﬁ", "bundle/fi"),
        ("bundle/K", "bundle/\u{212a}"),
        ("bundle/ß", "bundle/SS"),
        ("bundle/a", "bundle/a/b"),
        ("bundle/a/b", "bundle/a"),
        ("bundle/ς", "bundle/σ"),
    ] {
        assert!(all(&[one]).is_ok() && all(&[other]).is_ok(), "control: {one} {other}");
        assert!(all(&[one, other]).is_err(), "{one} {other}");
        assert!(all(&[other, one]).is_err(), "{other} {one}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(unpack(&bytes[..], folder.path()).is_err());
        let frame = zstd::encode_all(&bytes[..], 1).expect("in memory");
        assert!(unpack(&frame[..], folder.path()).is_err());
    }
}

/// What a changed byte leaves is refused, or it has the same members (a bit of the frame's header
/// that means nothing).
#[test]
fn a_changed_or_cut_archive_is_refused() {
    let bundle = Bundle::locked();
    let good = bundle.packed();
    let whole = tempfile::tempdir().expect("a temporary folder");
    let about = unpack(&good[..], whole.path()).expect("control").about;
    for at in (0..good.len()).step_by(7) {
        for bit in [0, 3, 7] {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            let folder = tempfile::tempdir().expect("a temporary folder");
            if let Ok(unpacked) = unpack(&bad[..], folder.path()) {
                assert_eq!(unpacked.about, about, "byte {at}, bit {bit}");
            }
        }
    }
    for cut in [0, 1, 4, 100, good.len() / 2, good.len() - 5, good.len() - 1] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(unpack(&good[..cut], folder.path()).is_err(), "cut after {cut}");
    }
}
