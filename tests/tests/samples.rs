//! Bundles in the shapes that people really use (`tests/samples`): each is valid, locks, is shown,
//! trusted and verified, and no byte of it moves without being noticed and shown.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use ringfence_tests::{Output, Project, Who, each_user, repository};
use toml::Table;

/// One test each, so that they run side by side.
const GROUPS: [&[&str]; 6] = [
    &["document-skills", "issue-tracker-http", "many-clis", "bun-and-deno"],
    &["process-skills", "rule-book", "payments-toolkit", "containers", "docs-lookup"],
    &["odd-files"],
    &["many-scripts", "prompt-library", "reference-servers", "own-overlay"],
    &["monorepo", "cloud-vendor", "browser-testing", "code-navigation", "wrapper-script"],
    &[
        "node-in-repository",
        "python-in-repository",
        "editor-rules",
        "workflows",
        "batch-agent",
        "database",
        "error-monitoring",
    ],
];

const MANIFEST: &str = ".ringfence/ringfence.toml";
const OVERLAY: &str = ".ringfence/ringfence.local.toml";
const LOCK: &str = ".ringfence/ringfence.lock";

/// What a preview says first when nothing moved.
const UNCHANGED: &str = "trusted, and unchanged since";

fn corpus() -> PathBuf {
    repository().join("tests/samples")
}

/// Every file below a folder: its path from there, its bytes, whether it may be executed.
fn files_of(folder: &Path) -> BTreeMap<String, (Vec<u8>, bool)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("a folder of our own") {
            let path = entry.expect("a folder of our own").path();
            let meta = fs::symlink_metadata(&path).expect("our own file");
            if meta.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).expect("it is below").to_str().expect("UTF-8");
            let bytes = fs::read(&path).expect("our own file");
            found.insert(name.to_owned(), (bytes, meta.permissions().mode() & 0o100 != 0));
        }
    }
    found
}

/// A sample, copied for this user. Programs that it names and this machine may lack stand in a
/// folder at the front of PATH: nothing here starts them.
fn copied(who: Who, name: &str) -> Project {
    let mut project = Project::new(who);
    for (path, (bytes, executable)) in files_of(&corpus().join(name)) {
        project.file(&path, bytes);
        mark(&project, &path, executable);
    }
    let programs = project.root().join("programs");
    fs::create_dir(&programs).expect("our own folder");
    for program in commands(&manifest(&project)) {
        let path = programs.join(program);
        fs::write(&path, "#!/bin/sh\nexit 1\n").expect("our own file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("our own file");
    }
    let search = format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", programs.display());
    project.env("PATH", &search);
    project
}

fn manifest(project: &Project) -> Table {
    let text = fs::read_to_string(project.path().join(MANIFEST)).expect("a sample has a manifest");
    text.parse().expect("a sample's manifest is TOML")
}

/// Programs that are looked up on PATH.
fn commands(manifest: &Table) -> Vec<String> {
    let servers = names(manifest, "servers");
    let servers = servers.iter().filter_map(|name| manifest["servers"][name].get("command"));
    let agent = manifest.get("sandbox").and_then(|it| it.get("command")?.get(0));
    let all = servers.chain(agent).map(|word| word.as_str().expect("a program").to_owned());
    all.filter(|word| !word.contains('/')).collect()
}

fn names(manifest: &Table, table: &str) -> Vec<String> {
    let table = manifest.get(table).and_then(|table| table.as_table());
    table.iter().flat_map(|table| table.keys().cloned()).collect()
}

/// Lets a file be executed, or not.
fn mark(project: &Project, path: &str, executable: bool) {
    let mode = if executable { 0o755 } else { 0o644 };
    let path = project.path().join(path);
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("our own file");
}

fn said(output: &Output) -> String {
    format!("{}{}", output.stdout, output.stderr)
}

/// Valid without a warning, locked, all of it in the review, trusted, the evidence good.
fn reviewed(project: &Project) {
    let valid = project.ringfence(&["validate"]).ok();
    assert!(!valid.stderr.contains("warning"), "{}", valid.stderr);
    project.lock();
    project.ringfence(&["lock", "--check"]).ok().done();

    let manifest = manifest(project);
    let card = project.ringfence(&["trust", "--preview", "--json"]).ok().json();
    let text = project.ringfence(&["trust", "--preview"]).ok().stdout;
    let in_card = |list: &str, kind: Option<&str>, name: &str| {
        let rows = card[list].as_array().expect("a list of the card");
        rows.iter().any(|row| row["name"] == name && kind.is_none_or(|kind| row["kind"] == kind))
    };
    for (table, list, kind) in [
        ("servers", "servers", None),
        ("hooks", "hooks", None),
        ("skills", "content", Some("skill")),
        ("instructions", "content", Some("instruction")),
        ("extensions", "content", Some("extension")),
        ("workflows", "content", Some("workflow")),
    ] {
        for name in names(&manifest, table) {
            assert!(in_card(list, kind, &name), "{table}.{name} is not on the card: {card}");
            assert!(text.contains(&name), "{table}.{name} is not shown:\n{text}");
        }
    }
    for (target, settings) in
        manifest.get("settings").and_then(|it| it.as_table()).iter().copied().flatten()
    {
        for key in settings.as_table().expect("settings are a table").keys() {
            let name = format!("{target}.{key}");
            assert!(in_card("content", Some("setting"), &name), "{name} is not on the card");
        }
    }

    project.trust();
    let trusted = project.ringfence(&["trust", "--preview"]).ok().stdout;
    assert!(trusted.contains(UNCHANGED), "{trusted}");
    project.ringfence(&["audit", "verify"]).ok().done();
}

/// What is pinned of a sample: files that stand alone, and folders.
struct Held {
    alone: Vec<String>,
    trees: Vec<String>,
}

fn held(project: &Project) -> Held {
    let manifest = manifest(project);
    let mut held = Held { alone: vec![MANIFEST.to_owned(), LOCK.to_owned()], trees: Vec::new() };
    if project.path().join(OVERLAY).exists() {
        held.alone.push(OVERLAY.to_owned());
    }
    for table in ["skills", "instructions", "extensions", "workflows"] {
        for name in names(&manifest, table) {
            let path = manifest[table][&name]["path"].as_str().expect("samples have paths");
            let path = format!(".ringfence/{}", path.trim_start_matches("./"));
            if project.path().join(&path).is_dir() { &mut held.trees } else { &mut held.alone }
                .push(path);
        }
    }
    let lock = fs::read_to_string(project.path().join(LOCK)).expect("it is locked");
    let lock: Table = lock.parse().expect("a lock is TOML");
    for pin in lock["pin"].as_array().expect("a lock has pins") {
        if pin["kind"].as_str() == Some("program") {
            held.alone.push(pin["name"].as_str().expect("a pin has a name").to_owned());
        }
    }
    held
}

/// One way to change a file, and the line where that must be shown; none where there are no lines.
struct Edit {
    what: String,
    bytes: Vec<u8>,
    line: Option<usize>,
}

/// The line of a byte, from 1.
fn line_at(bytes: &[u8], at: usize) -> usize {
    bytes[..at].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Changes of one byte: one in the middle, one more, one less; with `all_lines` of the first and the last too,
/// and of the first of each line.
fn edits(bytes: &[u8], all_lines: bool) -> Vec<Edit> {
    let is_text = !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok();
    let line = |at| is_text.then(|| line_at(bytes, at));
    let mut places = Vec::new();
    if let Some(last) = bytes.len().checked_sub(1) {
        places.push(last / 2);
        if all_lines {
            places.extend([0, last]);
        }
        if all_lines && is_text {
            let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
            places.extend(starts.map(|(at, _)| at + 1).filter(|at| *at <= last));
        }
    }
    places.sort_unstable();
    places.dedup();
    let mut all = Vec::new();
    for at in places {
        let mut other = bytes.to_owned();
        other[at] ^= 1;
        all.push(Edit { what: format!("byte {at} flipped"), bytes: other, line: line(at) });
    }
    let longer = [bytes, b"x"].concat();
    all.push(Edit { what: "one byte more".to_owned(), bytes: longer, line: line(bytes.len()) });
    // Which of two equal lines is gone nobody can say: not a line end, where there is anything else.
    let middle = bytes.len() / 2;
    let visible = |at: &usize| !bytes[*at].is_ascii_whitespace();
    let at = (middle..bytes.len()).chain(0..middle).find(visible);
    if let Some(gone) = at.or_else(|| bytes.len().checked_sub(1)) {
        let mut other = bytes.to_owned();
        other.remove(gone);
        let line = at.and_then(line);
        all.push(Edit { what: format!("byte {gone} deleted"), bytes: other, line });
    }
    all
}

/// Whether the text names the file, and the line of it where there is one: `<file>:<line>`.
fn places(text: &str, path: &str, line: Option<usize>) -> bool {
    let needle = line.map_or_else(|| path.to_owned(), |line| format!("{path}:{line}"));
    text.match_indices(&needle).any(|(at, _)| {
        line.is_none() || !text[at + needle.len()..].starts_with(|c: char| c.is_ascii_digit())
    })
}

/// Every change that was made to a sample, and what was not noticed or not shown of it.
struct Watch<'a> {
    project: &'a Project,
    changes: usize,
    faults: Vec<String>,
}

impl Watch<'_> {
    /// The state is no longer trusted, and the place is in what `trust --preview`, `diff` and
    /// `lock --check` say, taken together.
    fn notices(&mut self, what: &str, shown: &[(&str, Option<usize>)]) {
        self.changes += 1;
        let preview = self.project.ringfence(&["trust", "--preview"]);
        if preview.status == 0 && preview.stdout.contains(UNCHANGED) {
            self.faults.push(format!("{what}: NOT NOTICED"));
            return;
        }
        let mut text = said(&preview);
        for more in [&["diff", "--approved"][..], &["diff"], &["lock", "--check"]] {
            if shown.iter().all(|(path, line)| places(&text, path, *line)) {
                return;
            }
            text.push_str(&said(&self.project.ringfence(more)));
        }
        for (path, line) in shown.iter().filter(|(path, line)| !places(&text, path, *line)) {
            let place = line.map_or_else(|| (*path).to_owned(), |line| format!("{path}:{line}"));
            let mut fault = format!("{what}: `{place}` is not shown");
            if self.faults.is_empty() {
                let _ = write!(fault, " in\n{text}");
            }
            self.faults.push(fault);
        }
    }

    /// As it was before: nothing else has moved.
    fn is_as_before(&mut self, what: &str) {
        let preview = self.project.ringfence(&["trust", "--preview"]);
        if !preview.stdout.contains(UNCHANGED) {
            self.faults.push(format!("{what}: put back and not trusted:\n{}", said(&preview)));
        }
    }

    fn put(&self, path: &str, (bytes, executable): &(Vec<u8>, bool)) {
        self.project.file(path, bytes);
        mark(self.project, path, *executable);
    }

    /// Its bytes, its mode, its name, that it is there.
    fn file(&mut self, path: &str, before: &(Vec<u8>, bool), in_tree: bool, all_lines: bool) {
        for edit in edits(&before.0, all_lines) {
            self.project.file(path, &edit.bytes);
            self.notices(&format!("{path}: {}", edit.what), &[(path, edit.line)]);
        }
        self.put(path, before);
        // Nobody executes the three files that say what holds.
        if ![MANIFEST, OVERLAY, LOCK].contains(&path) {
            mark(self.project, path, !before.1);
            self.notices(&format!("{path}: executable bit turned"), &[(path, None)]);
            mark(self.project, path, before.1);
        }
        let full = self.project.path().join(path);
        let other = format!("{path}.moved");
        let moved = self.project.path().join(&other);
        fs::rename(&full, &moved).expect("our own file");
        let both = [(path, None), (other.as_str(), None)];
        let shown = if in_tree { &both[..] } else { &both[..1] };
        self.notices(&format!("{path}: renamed"), shown);
        // What stands there is no file any more: the whole is refused, with its name.
        let elsewhere = self.project.root().join("the same bytes");
        fs::rename(&moved, &elsewhere).expect("our own file");
        std::os::unix::fs::symlink(&elsewhere, &full).expect("our own folder");
        let name = path.rsplit('/').next().expect("a path ends in a name");
        self.notices(&format!("{path}: a link to the same bytes"), &[(name, None)]);
        fs::remove_file(&full).expect("our own link");
        fs::remove_file(&elsewhere).expect("our own file");
        self.notices(&format!("{path}: removed"), &[(path, None)]);
        self.put(path, before);
        self.is_as_before(path);
    }

    /// One file more; two files with each other's bytes.
    fn tree(&mut self, tree: &str, files: &BTreeMap<String, (Vec<u8>, bool)>) {
        let new = format!("{tree}/one more.md");
        let path = self.project.file(&new, "Do this too.\n");
        self.notices(&format!("{new}: added"), &[(&new, None)]);
        fs::remove_file(path).expect("our own file");
        let mut all = files.iter();
        let first = all.next().expect("a tree has a file");
        if let Some(second) = all.find(|(_, it)| it.0 != first.1.0) {
            let (a, b) = (format!("{tree}/{}", first.0), format!("{tree}/{}", second.0));
            self.put(&a, &(second.1.0.clone(), first.1.1));
            self.put(&b, &(first.1.0.clone(), second.1.1));
            self.notices(&format!("{a} and {b}: exchanged"), &[(&a, None), (&b, None)]);
            self.put(&a, first.1);
            self.put(&b, second.1);
        }
        self.is_as_before(tree);
    }
}

/// The whole way of one sample: how many changes were tried, and the faults.
fn sample(who: Who, name: &str) -> (usize, Vec<String>) {
    let project = copied(who, name);
    reviewed(&project);
    let held = held(&project);
    let mut watch = Watch { project: &project, changes: 0, faults: Vec::new() };
    // Each line of everything once; the second user needs fewer of them.
    let all_lines = who == Who::Itself;
    for path in &held.alone {
        let full = project.path().join(path);
        let mode = fs::metadata(&full).expect("it was pinned").permissions().mode();
        let before = (fs::read(&full).expect("it was pinned"), mode & 0o100 != 0);
        watch.file(path, &before, false, all_lines);
    }
    for tree in &held.trees {
        let files = files_of(&project.path().join(tree));
        for (path, before) in &files {
            watch.file(&format!("{tree}/{path}"), before, true, all_lines);
        }
        watch.tree(tree, &files);
    }
    project.ringfence(&["lock", "--check"]).ok().done();
    project.ringfence(&["audit", "verify"]).ok().done();
    (watch.changes, watch.faults.into_iter().map(|fault| format!("{name}: {fault}")).collect())
}

#[track_caller]
fn group(index: usize) {
    each_user(|who| {
        let (mut changes, mut faults) = (0, Vec::new());
        for name in GROUPS[index] {
            let (tried, found) = sample(who, name);
            changes += tried;
            faults.extend(found);
        }
        let some = faults.iter().take(40).cloned().collect::<Vec<_>>().join("\n");
        assert!(faults.is_empty(), "{} faults in {changes} changes:\n{some}", faults.len());
    });
}

#[test]
fn samples_are_all_of_them_and_as_they_were_written() {
    let all = files_of(&corpus());
    let mut known: Vec<&str> = GROUPS.concat();
    known.sort_unstable();
    let mut found: Vec<&str> =
        all.keys().filter_map(|path| Some(path.split_once('/')?.0)).collect();
    found.dedup();
    assert_eq!(found, known, "each sample is in one group");
    assert!(known.len() >= 20);
    assert!(all.values().map(|(bytes, _)| bytes.len()).sum::<usize>() < 1 << 20);
    for name in known {
        let first = &all[&format!("{name}/{MANIFEST}")].0;
        assert!(first.starts_with(b"# "), "{name}: the first line says what shape it is");
    }
    // A clone that turned line ends or modes would test less than it says.
    let any = |what: &str, is: &dyn Fn(&[u8], bool) -> bool| {
        assert!(all.values().any(|(bytes, mode)| is(bytes, *mode)), "no file {what}");
    };
    any("is executable", &|_, mode| mode);
    any("is empty", &|bytes, _| bytes.is_empty());
    any("has Windows line ends", &|bytes, _| bytes.ends_with(b"\r\n"));
    any("ends without a line end", &|bytes, _| bytes.ends_with(b"no end"));
    any("is binary", &|bytes, _| bytes.starts_with(b"\x89PNG"));
    any("is not UTF-8", &|b, _| !b.contains(&0) && std::str::from_utf8(b).is_err());
    any("has a long line", &|b, _| b.split(|byte| *byte == b'\n').any(|line| line.len() > 20_000));
}

#[test]
fn samples_of_group_1_hold_and_no_byte_moves_unseen() {
    group(0);
}

#[test]
fn samples_of_group_2_hold_and_no_byte_moves_unseen() {
    group(1);
}

#[test]
fn samples_of_group_3_hold_and_no_byte_moves_unseen() {
    group(2);
}

#[test]
fn samples_of_group_4_hold_and_no_byte_moves_unseen() {
    group(3);
}

#[test]
fn samples_of_group_5_hold_and_no_byte_moves_unseen() {
    group(4);
}

#[test]
fn samples_of_group_6_hold_and_no_byte_moves_unseen() {
    group(5);
}
