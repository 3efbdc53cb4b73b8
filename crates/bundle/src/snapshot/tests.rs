use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use proptest::prelude::{any, proptest};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use super::Snapshot;
use crate::parse::tests::FULL;
use crate::{Error, Kind, Lock, Objects};

fn project(manifest: impl AsRef<[u8]>) -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir(dir.path().join(".ringfence")).expect("made");
    write(dir.path(), "ringfence.toml", manifest);
    dir
}

fn write(project: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    let path = project.join(".ringfence").join(name);
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(path, bytes).expect("written");
}

fn read(project: &Path) -> Snapshot {
    Snapshot::read(project).unwrap_or_else(|error| panic!("{error:?}"))
}

/// `file:line:rule` of each finding.
fn brief(error: &Error) -> Vec<String> {
    let Error::Invalid(findings) = error else { panic!("{error:?}") };
    let place = |f: &crate::Diagnostic| {
        f.at.as_ref().map_or_else(String::new, |at| format!("{}:{}", at.file.display(), at.line))
    };
    findings.iter().map(|f| format!("{}:{}", place(f), f.rule)).collect()
}

fn refused(project: &Path) -> Vec<String> {
    brief(&Snapshot::read(project).expect_err("refused"))
}

#[test]
fn a_project_without_a_manifest_says_so() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    assert!(
        matches!(Snapshot::read(dir.path()), Err(Error::Missing(path)) if path.ends_with(".ringfence/ringfence.toml"))
    );
    assert!(matches!(Snapshot::read(&dir.path().join("none")), Err(Error::Io { .. })));
}

#[test]
fn unfit_bytes_are_refused_with_their_place() {
    let huge = vec![b'#'; 4 * 1024 * 1024 + 1];
    let most = [b"version = 1\n#", vec![b'x'; 4 * 1024 * 1024 - 13].as_slice()].concat();
    read(project(&most).path());
    for (bytes, found) in [
        (&b""[..], "1:empty-file"),
        (b"version = 1\n\xff\xfe", "2:not-utf8"),
        (b"version = 1\nx = \"\0\"", "2:nul-byte"),
        (b"\x7fELF\x02\x01\x01\0\0\0\xff", "1:nul-byte"),
        (b"\xef\xbb\xbfversion = 1\n", "1:byte-order-mark"),
        (&huge, "1:too-large"),
    ] {
        assert_eq!(refused(project(bytes).path()), [format!(".ringfence/ringfence.toml:{found}")]);
    }
}

#[test]
fn only_regular_files_are_read() {
    for name in ["ringfence.toml", "ringfence.local.toml", "ringfence.lock"] {
        let dir = project("version = 1\n");
        read(dir.path());
        let path = dir.path().join(".ringfence").join(name);
        let _ = fs::remove_file(&path);
        let expected = format!(".ringfence/{name}:1:not-a-regular-file");
        fs::write(dir.path().join("real"), "version = 1\n").expect("written");
        symlink("../real", &path).expect("linked");
        assert_eq!(refused(dir.path()), std::slice::from_ref(&expected));
        fs::remove_file(&path).expect("removed");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).expect("made");
        assert_eq!(refused(dir.path()), std::slice::from_ref(&expected));
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("made");
        assert_eq!(refused(dir.path()), [expected]);
    }
}

#[test]
fn findings_of_all_three_files_come_together() {
    let dir = project("version = 1\nsandbxo = 1\n");
    write(dir.path(), "ringfence.local.toml", "[limits]\nmax_duration_seconds = 0\n");
    write(dir.path(), "ringfence.lock", "<<<<<<< ours\n");
    assert_eq!(
        refused(dir.path()),
        [
            ".ringfence/ringfence.toml:2:unknown-key",
            ".ringfence/ringfence.local.toml:2:out-of-range",
            ".ringfence/ringfence.lock:1:merge-conflict"
        ]
    );
}

#[test]
fn a_broken_lock_does_not_stop_a_new_one() {
    let dir = project("version = 1\n");
    write(dir.path(), "ringfence.lock", "garbage");
    assert_eq!(refused(dir.path()), [".ringfence/ringfence.lock:1:bad-lock"]);
    let snapshot = Snapshot::read_without_lock(dir.path()).expect("the manifest is fine");
    assert!(snapshot.lock.is_none());
    write(dir.path(), "ringfence.lock", compute(&snapshot).expect("locked").render());
    assert_eq!(read(dir.path()).drift(&store()).expect("read"), []);
}

#[test]
fn consent_changes_with_every_byte_of_the_three() {
    let dir = project("version = 1\n");
    let mut seen = vec![read(dir.path()).consent_digest()];
    assert_eq!(read(dir.path()).consent_digest(), seen[0]);
    for (name, bytes) in [
        ("ringfence.local.toml", ""),
        ("ringfence.local.toml", "\n"),
        ("ringfence.lock", "version = 1\n"),
        ("ringfence.lock", "version = 1 \n"),
        ("ringfence.toml", "version = 1 \n"),
    ] {
        write(dir.path(), name, bytes);
        let digest = read(dir.path()).consent_digest();
        assert!(!seen.contains(&digest), "{name} {bytes:?}");
        seen.push(digest);
    }
}

fn full() -> TempDir {
    let local = FULL
        .replace("[skills.remote]\ngit = \"https://git.example.com/skills\"\nrev = \"v1.0\"\nsubpath = \"tools/remote\"\n", "")
        .replace("[skills.shared]\nlibrary = \"team:shared\"\n", "");
    let dir = project(local);
    write(dir.path(), "skills/summarize/SKILL.md", "sum up");
    write(dir.path(), "instructions/team.md", "be kind");
    write(dir.path(), "extensions/lint.ts", "x");
    write(dir.path(), "workflows/triage.js", "y");
    let lock = compute(&read(dir.path())).unwrap_or_else(|error| panic!("{error:?}"));
    write(dir.path(), "ringfence.lock", lock.render());
    dir
}

#[test]
fn everything_declared_is_pinned() {
    let dir = full();
    let snapshot = read(dir.path());
    let rows: Vec<String> = snapshot
        .lock
        .as_ref()
        .expect("a lock")
        .pins
        .iter()
        .map(|pin| format!("{} {}", pin.kind, pin.name))
        .collect();
    assert_eq!(
        rows,
        [
            "extension lint",
            "hook fmt",
            "instruction team",
            "server accounting",
            "server search",
            "setting claude-code.model",
            "setting claude-code.nested",
            "setting claude-code.temperature",
            "skill summarize",
            "workflow triage"
        ]
    );
    assert_eq!(snapshot.drift(&store()).expect("read"), []);
}

#[test]
fn drift_names_what_changed() {
    let drift = |dir: &TempDir| -> Vec<String> {
        read(dir.path())
            .drift(&store())
            .expect("read")
            .iter()
            .map(|d| format!("{} {} {} {}", d.kind, d.name, d.pinned.is_some(), d.found.is_some()))
            .collect()
    };
    let dir = full();
    write(dir.path(), "skills/summarize/SKILL.md", "sum up!");
    assert_eq!(drift(&dir), ["skill summarize true true"]);

    let dir = full();
    fs::remove_file(dir.path().join(".ringfence/instructions/team.md")).expect("removed");
    assert_eq!(drift(&dir), ["instruction team true false"]);

    let dir = full();
    let manifest = fs::read_to_string(dir.path().join(".ringfence/ringfence.toml")).expect("read");
    write(
        dir.path(),
        "ringfence.toml",
        manifest.replace("search-mcp", "search-mpc").replace("hooks.fmt", "hooks.form"),
    );
    assert_eq!(
        drift(&dir),
        ["hook form false true", "server search true true", "hook fmt true false"]
    );

    let dir = full();
    fs::remove_file(dir.path().join(".ringfence/ringfence.lock")).expect("removed");
    assert_eq!(drift(&dir).len(), 10);
}

#[test]
fn what_cannot_be_pinned_is_named_at_its_place() {
    let dir = full();
    symlink("/etc/passwd", dir.path().join(".ringfence/skills/summarize/link")).expect("linked");
    let line = |text: &str| {
        let manifest =
            fs::read_to_string(dir.path().join(".ringfence/ringfence.toml")).expect("read");
        manifest.lines().position(|l| l.contains(text)).expect("a line") + 1
    };
    let error = read(dir.path()).drift(&store()).expect_err("a symlink");
    let place = format!(".ringfence/ringfence.toml:{}", line("[skills.summarize]"));
    assert_eq!(brief(&error), [format!("{place}:unpinnable")]);
    assert!(compute(&read(dir.path())).is_err());

    let dir = project(
        "version = 1\n[skills.a]\npath = \"./none\"\n[instructions.b]\npath = \"./none\"\n",
    );
    let error = compute(&read(dir.path())).expect_err("missing");
    assert_eq!(
        brief(&error),
        [".ringfence/ringfence.toml:5:missing-file", ".ringfence/ringfence.toml:3:missing-file"]
    );

    let dir = project("version = 1\n[skills.a]\nlibrary = \"a:b\"\n");
    let error = compute(&read(dir.path())).expect_err("not fetched");
    assert_eq!(brief(&error), [".ringfence/ringfence.toml:2:not-fetched"]);
}

#[test]
fn references_stay_names_in_pins() {
    let dir = project(
        "version = 1\n[servers.s]\ntype = \"stdio\"\ncommand = \"x\"\nenv = { K = \"${PATH}\" }\n",
    );
    let lock = compute(&read(dir.path())).expect("locked");
    let definition = br#"{"methods":[],"pricing":null,"tools":null,"transport":{"allowed_hosts":[],"args":[],"command":"x","env":{"K":"${PATH}"},"type":"stdio"}}"#;
    assert_eq!(
        lock.digest(Kind::Server, "s"),
        Some(crate::Digest::framed("server", &[definition]))
    );
}

/// A store that holds nothing.
fn store() -> Objects {
    Objects::of(Path::new("/nonexistent"))
}

fn compute(snapshot: &Snapshot) -> Result<Lock, Error> {
    Lock::compute(snapshot, &store(), &BTreeMap::new())
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in any::<Vec<u8>>()) {
        let dir = project(&bytes);
        let _ = Snapshot::read(dir.path());
    }
}

/// What the settings of `claude-code` are pinned to.
fn settings(lines: &str) -> Vec<(String, crate::Digest)> {
    let dir = project(format!("version = 1\n[settings.claude-code]\n{lines}\n"));
    let lock = compute(&read(dir.path())).expect("locked");
    lock.pins.into_iter().map(|pin| (pin.name, pin.digest)).collect()
}

#[test]
fn settings_have_one_row_a_key_over_canonical_json() {
    let rows = settings("a = 1\nb = { x = 1, y = [true] }\n\"odd key.é\" = \"v\"");
    let names: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["claude-code.a", "claude-code.b", "claude-code.odd key.é"]);
    let same = |one: &str, other: &str| assert_eq!(settings(one), settings(other), "{one} {other}");
    same("b = { x = 1, y = 2 }", "b = { y = 2, x = 1 }");
    same("b = { x = 1 }", "[settings.claude-code.b]\nx = 1");
    same("a = 1\nb = 2", "b = 2\na = 1");
    same("a = 10", "a = 1_0");
    same("a = 10", "a = 0xA");
    same("a = 1.50", "a = 1.5");
    same("a = 1e3", "a = 1000.0");
    // RFC 8785 has one number type, as JSON has.
    same("a = 1.0", "a = 1");
    same("a = \"\\u00e9\"", "a = \"é\"");
    let differ =
        |one: &str, other: &str| assert_ne!(settings(one), settings(other), "{one} {other}");
    differ("a = 1", "a = \"1\"");
    differ("a = 1", "a = true");
    differ("a = 1", "a = [1]");
    differ("a = [1, 2]", "a = [2, 1]");
    differ("a = [1, 2]", "a = [12]");
    differ("a = 1", "b = 1");
    // No normalisation: other bytes are another value.
    differ("a = \"\\u00e9\"", "a = \"e\\u0301\"");
    differ("a = \"${A}\"", "a = \"${B}\"");
}

#[test]
fn the_same_bytes_have_another_digest_for_each_kind() {
    let dir = project(
        "version = 1\n[skills.a]\npath = \"./it\"\n[workflows.a]\npath = \"./it\"\n\
         [extensions.a]\npath = \"./it\"\ntarget = \"pi\"\n\
         [instructions.b]\npath = \"./one\"\n[workflows.b]\npath = \"./one\"\n",
    );
    write(dir.path(), "it/SKILL.md", "text");
    write(dir.path(), "one", "text");
    let lock = compute(&read(dir.path())).expect("locked");
    let digests: std::collections::BTreeSet<_> = lock.pins.iter().map(|pin| pin.digest).collect();
    assert_eq!((lock.pins.len(), digests.len()), (5, 5));
}

#[test]
fn executable_bits_are_pinned() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir =
        project("version = 1\n[skills.a]\npath = \"./it\"\n[instructions.b]\npath = \"./one\"\n");
    write(dir.path(), "it/run.sh", "text");
    write(dir.path(), "one", "text");
    write(dir.path(), "ringfence.lock", compute(&read(dir.path())).expect("locked").render());
    let moved = || -> Vec<String> {
        let drift = read(dir.path()).drift(&store()).expect("read");
        drift.iter().map(|drift| drift.name.clone()).collect()
    };
    let mode = |path: &str, mode| {
        let path = dir.path().join(".ringfence").join(path);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
    };
    assert!(moved().is_empty());
    mode("it/run.sh", 0o755);
    assert_eq!(moved(), ["a"]);
    mode("it/run.sh", 0o600);
    assert!(moved().is_empty(), "who else may read it is not a matter of the bundle");
    mode("one", 0o700);
    assert_eq!(moved(), ["b"]);
}

#[test]
fn hidden_text_cannot_be_locked() {
    let dir = project(
        "version = 1\n[skills.a]\npath = \"./it\"\n[instructions.b]\npath = \"./one.md\"\n",
    );
    write(dir.path(), "it/SKILL.md", "fine ✔️");
    write(dir.path(), "one.md", "می‌خواهم");
    write(dir.path(), "ringfence.lock", compute(&read(dir.path())).expect("control").render());
    write(dir.path(), "it/sub/more.md", "a\nb\u{202e}c");
    write(dir.path(), "one.md", "x\u{200b}y");
    for error in [
        compute(&read(dir.path())).expect_err("hidden"),
        read(dir.path()).drift(&store()).expect_err("hidden"),
    ] {
        assert_eq!(
            brief(&error),
            [".ringfence/it/sub/more.md:2:hidden-text", ".ringfence/one.md:1:hidden-text"]
        );
        let Error::Invalid(findings) = error else { panic!() };
        assert!(findings[0].message.contains("U+202E"), "{}", findings[0].message);
        assert!(findings[0].message.contains("b<U+202E>c"), "{}", findings[0].message);
    }
}

#[test]
fn a_damaged_object_is_named_and_never_pinned() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let objects = Objects::of(home.path());
    let dir = project("version = 1\n[skills.a]\nlibrary = \"team:a\"\n");
    let files = |text: &str| {
        let blob = crate::Blob { bytes: text.as_bytes().to_vec(), executable: false };
        crate::Content::Tree(BTreeMap::from([("SKILL.md".to_owned(), blob)]))
    };
    let digest = files("good").digest(Kind::Skill);
    let other = files("evil").digest(Kind::Skill);
    let origin = crate::Origin::Library { library: "team:a".to_owned() };
    let resolved = crate::Resolved { digest, origin };
    let resolved = BTreeMap::from([((Kind::Skill, "a".to_owned()), resolved)]);
    let lock = || Lock::compute(&read(dir.path()), &objects, &resolved);
    assert_eq!(brief(&lock().expect_err("not there")), [".ringfence/ringfence.toml:2:not-fetched"]);
    let lay = |text: &str| {
        let content = objects.place(Kind::Skill, &digest).join("content");
        fs::create_dir_all(&content).expect("made");
        fs::write(content.join("SKILL.md"), text).expect("written");
    };
    lay("good");
    write(dir.path(), "ringfence.lock", lock().expect("control").render());
    assert_eq!(read(dir.path()).drift(&objects).expect("read"), []);
    let again = || Lock::compute(&read(dir.path()), &objects, &BTreeMap::new());
    assert_eq!(again().expect("control").digest(Kind::Skill, "a"), Some(digest));
    lay("evil");
    let drift = read(dir.path()).drift(&objects).expect("read");
    assert_eq!((drift.len(), drift[0].name.as_str()), (1, "a"));
    assert_eq!((drift[0].pinned, drift[0].found), (Some(digest), Some(other)));
    assert!(matches!(again(), Err(Error::Object { .. })), "it is not pinned as it is");
    assert_eq!(brief(&lock().expect_err("damaged")), [".ringfence/ringfence.toml:2:not-fetched"]);
}

#[test]
fn windows_line_ends_are_read_and_places_hold() {
    let dir = project("version = 1\r\n\r\n[limits]\r\nmax_duration_seconds = 5\r\n");
    let snapshot = read(dir.path());
    let place = snapshot.manifest.places.find("limits.max_duration_seconds").expect("a place");
    assert_eq!((place.line, place.column, place.width), (4, 24, 1));
    assert_eq!(place.text, "max_duration_seconds = 5");
    assert_eq!(
        refused(project("version = 1\r\n\r\nlimts = 1\r\n").path()),
        [".ringfence/ringfence.toml:3:unknown-key"]
    );
}

#[test]
fn a_row_of_a_lock_that_was_written_by_hand_holds_for_nothing_else() {
    let dir = project("version = 1\n[skills.s]\npath = \"./s\"\n");
    write(dir.path(), "s/SKILL.md", "text");
    let objects = Objects::of(Path::new("/nonexistent"));
    let made =
        Lock::compute(&read(dir.path()), &objects, &BTreeMap::new()).expect("a lock").render();
    let drift = |more: &str| {
        write(dir.path(), "ringfence.lock", format!("{made}{more}"));
        let drift = read(dir.path()).drift(&objects).expect("read").into_iter();
        drift.map(|row| (row.kind, row.name, row.reason)).collect::<Vec<_>>()
    };
    assert_eq!(drift(""), [], "control");
    let commit = "0".repeat(40);
    let lie = format!("git = \"https://example.com/good\"\nrev = \"v1\"\ncommit = \"{commit}\"\n");
    assert_eq!(drift(&lie), [(Kind::Skill, "s".to_owned(), super::Reason::Redeclared)]);
    assert_eq!(drift("library = \"mine:s\"\n").len(), 1);
    fs::write(dir.path().join("beside"), "x").expect("written");
    for name in ["../beside", "/etc/passwd", "../../etc/passwd", "a/../beside"] {
        let digest = "0".repeat(64);
        let row = format!(
            "\n[[pin]]\nkind = \"program\"\nname = \"{name}\"\ndigest = \"sha256:{digest}\"\n"
        );
        assert_eq!(drift(&row), [(Kind::Program, name.to_owned(), super::Reason::Undeclared)]);
        let content = read(dir.path()).content(Kind::Program, name, &objects).expect("no error");
        assert_eq!(content, None, "{name}");
    }
    let content = read(dir.path()).content(Kind::Program, "beside", &objects).expect("read");
    assert!(content.is_some(), "control");
}
