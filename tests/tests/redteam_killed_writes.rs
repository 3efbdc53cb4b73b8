//! Row 31, crash between two writes: a command that is killed before any one of its writes leaves the
//! old state or the new one, never half of one, and the next command works.
//!
//! The shipped program is killed by `strace` with SIGKILL as it enters the N-th call of a kind that
//! changes something, for each such call that it makes when nobody kills it, or for some where they are many. What one call leaves is
//! what the next one finds, so a kill before each covers every state in between.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use ringfence_tests::{Events, Output, Project, each_user, field};
use serde_json::Value;

use crate::bundles::{share, shared};

/// Everything by which the program changes a file or a folder. `openat` counts where it makes one.
const CALLS: &str = "write,writev,pwrite64,openat,open,creat,rename,renameat,renameat2,link,linkat,\
                     symlinkat,unlink,unlinkat,rmdir,mkdir,mkdirat,ftruncate,fallocate,fsync,\
                     fdatasync,fchmod,fchmodat,fchown,utimensat,copy_file_range";

/// Files that are there whole or as they were.
const WHOLE: [&str; 3] =
    [".ringfence/ringfence.toml", ".ringfence/ringfence.lock", ".ringfence/.gitignore"];

/// A command, what is there before it, and what must hold after each kill beyond [`always`]. To have
/// another command killed, add a line.
type Case = (&'static str, fn(&Project), fn(&Project));

const CASES: &[Case] = &[
    ("init", nothing, then_init),
    ("lock", unlocked, then_lock),
    ("lock", changed, then_lock),
    ("trust --yes --consented @", locked, then_trust),
    ("trust --yes --consented @", changed_since, then_trust),
    ("trust --revoke", trusted, then_revoke),
    ("policy use ci --yes", own_rules, then_undone),
    ("policy undo --yes", replaced, then_undone),
    ("receive in", given, then_received),
    (OUT, waiting, then_out),
    ("library add notes", linked, then_library),
    ("library remove skill:sum", linked, then_library),
    ("library restore @trash", removed, then_library),
];

const SKILL: &str =
    "version = 1\n\n[agent]\nname = \"case\"\n\n[skills.s]\npath = \"./skills/s\"\n";

fn nothing(_: &Project) {}

fn unlocked(project: &Project) {
    project.manifest(SKILL);
    project.file(".ringfence/skills/s/SKILL.md", "# s\n");
}

fn locked(project: &Project) {
    unlocked(project);
    project.lock();
}

fn trusted(project: &Project) {
    locked(project);
    project.trust();
}

fn changed(project: &Project) {
    trusted(project);
    project.file(".ringfence/skills/s/SKILL.md", "# other\n");
}

fn changed_since(project: &Project) {
    changed(project);
    project.lock();
}

/// Rules of a person's own, byte for byte.
const RULES: &str = "# mine\n[policy]\nisolation = \"network\"   # so\n\n[guard]\nx = 1\n";

fn own_rules(project: &Project) {
    project.machine(RULES);
}

fn replaced(project: &Project) {
    own_rules(project);
    project.ringfence(&["policy", "use", "ci", "--yes"]).ok().done();
}

/// The person's own rules are what holds, or can be taken back.
fn then_undone(project: &Project) {
    project.ringfence(&["policy", "check"]).ok().done();
    project.ringfence(&["policy", "use", "developer", "--yes"]).ok().done();
    let file = project.state().join("machine.toml");
    let rules = || std::fs::read_to_string(&file).unwrap_or_default();
    for _ in 0..3 {
        if rules() == RULES {
            return;
        }
        project.ringfence(&["policy", "undo", "--yes"]).ok().done();
    }
    assert_eq!(rules(), RULES, "the person's rules are lost");
}

/// An archive of another machine's, beside the project.
fn given(project: &Project) {
    let sender = Project::new(project.who());
    shared(&sender);
    let (file, _) = share(&sender, "out");
    project.file("in", std::fs::read(file).expect("an archive"));
}

fn waiting(project: &Project) {
    given(project);
    let file = project.path().join("in").display().to_string();
    project.ringfence(&["receive", &file]).ok().done();
}

/// A library in the project's folder.
fn linked(project: &Project) {
    project.file("notes/SKILL.md", "# notes\n");
    project.file("mine/skills/sum/SKILL.md", "# sum\n");
    project.file("mine/skills/sum/scripts/a", "1\n");
    let folder = project.path().join("mine").display().to_string();
    project.ringfence(&["library", "link", "mine", &folder]).ok().done();
}

fn removed(project: &Project) {
    linked(project);
    project.ringfence(&["library", "remove", "skill:sum"]).ok().done();
}

/// It waits whole or not at all, and can be received.
fn then_received(project: &Project) {
    assert!(quarantined(project).len() < 2);
    let file = project.path().join("in").display().to_string();
    project.ringfence(&["receive", &file]).ok().done();
    let all = quarantined(project);
    assert_eq!(all.len(), 1);
    assert!(all[0]["damaged"].is_null(), "{all:?}");
    only(&project.state().join("quarantine"), &[all[0]["id"].as_str().expect("an id")]);
}

/// The new folder is whole or not there, trusted only if its yes is recorded, and the bundle is not
/// lost.
fn then_out(project: &Project) {
    let target = project.path().join("received").display().to_string();
    let again = strace(project, OUT, &["-e", "signal=none"]);
    assert!([0, 1].contains(&again.status), "{again:?}");
    let there = |words: &[&str]| {
        let program = project.program().display().to_string();
        project.shell(&[&[&*program, "-C", &*target][..], words].concat())
    };
    there(&["lock", "--check"]).ok().done();
    if again.status == 1 {
        let preview = there(&["trust", "--preview", "--json"]).ok().json();
        let digest = preview["review_digest"].as_str().expect("a digest").to_owned();
        there(&["trust", "--yes", "--consented", &digest]).ok().done();
    }
    assert!(granted(project, &target), "the yes counts");
    settled(project);
    // What was left beside goes when the next one comes out.
    for kept in quarantined(project) {
        let id = kept["id"].as_str().expect("an id");
        project.ringfence(&["receive", "--discard", id]).ok().done();
    }
    project.ringfence(&["receive", &project.path().join("in").display().to_string()]).ok().done();
    strace(project, &OUT.replace("--into received", "--into second"), &["-e", "signal=none"])
        .ok()
        .done();
    only(&project.path(), &["in", "received", "second", ".ringfence"]);
    only(&project.state().join("quarantine"), &[]);
}

const OUT: &str = "trust --received @id --into received --yes --consented @card";

/// Everything is whole, in its place or in the trash, and can be changed again.
fn then_library(project: &Project) {
    let library = |words: &[&str]| project.ringfence(&[&["library"][..], words].concat());
    let sum = |folder: &Path| {
        let files = [("SKILL.md", "# sum\n"), ("scripts/a", "1\n")];
        files.iter().all(|(path, text)| {
            std::fs::read_to_string(folder.join(path)).is_ok_and(|found| found == *text)
        })
    };
    let place = project.path().join("mine/skills/sum");
    let trash = library(&["trash", "--json"]).ok().json();
    let trash = trash["trash"].as_array().expect("a list").clone();
    for row in &trash {
        let id = row["id"].as_str().expect("an id");
        assert!(sum(&project.state().join("trash").join(id).join("content")), "half in the trash");
    }
    assert_eq!(place.exists(), sum(&place), "half in its place");
    assert!(place.exists() || !trash.is_empty(), "lost");
    for row in &trash {
        library(&["restore", row["id"].as_str().expect("an id")]).ok().done();
    }
    let notes = project.path().join("notes").display().to_string();
    let added = library(&["add", &notes]);
    assert!(added.status == 0 || added.stderr.contains("already"), "{added:?}");
    library(&["remove", "skill:sum"]).ok().done();
    only(&project.path().join("mine/skills"), &["notes"]);
    let trash = library(&["trash", "--json"]).ok().json();
    let id = trash["trash"][0]["id"].as_str().expect("an id").to_owned();
    library(&["restore", &id]).ok().done();
    assert!(sum(&place));
    only(&project.path().join("mine/skills"), &["notes", "sum"]);
    only(&project.state().join("trash"), &[]);
}

fn quarantined(project: &Project) -> Vec<Value> {
    let list = project.ringfence(&["receive", "--list", "--json"]).ok().json();
    list["quarantine"].as_array().expect("a list").clone()
}

/// Nothing else lies in a folder.
#[track_caller]
fn only(folder: &Path, names: &[&str]) {
    let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let found: BTreeSet<String> =
        found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(found.iter().all(|name| names.contains(&&**name)), "{}: {found:?}", folder.display());
}

/// What a person would do next: whatever was left, it works.
fn then_init(project: &Project) {
    let again = project.ringfence(&["init"]);
    let there = again.stderr.contains("is there already");
    assert!(again.status == 0 || (again.status == 1 && there), "{again:?}");
    project.ringfence(&["validate"]).ok().done();
    then_lock(project);
}

fn then_lock(project: &Project) {
    project.lock();
    project.ringfence(&["lock", "--check"]).ok().done();
}

fn then_trust(project: &Project) {
    project.trust();
    assert!(listed(project), "the next yes counts");
    settled(project);
}

fn then_revoke(project: &Project) {
    project.ringfence(&["trust", "--revoke"]).ok().done();
    assert!(!listed(project));
    settled(project);
    then_trust(project);
}

#[test]
fn a_command_killed_before_any_of_its_writes_leaves_the_old_state_or_the_new() {
    each_user(|who| {
        let (mut kills, mut failed) = (0, Vec::new());
        for (command, before, then) in CASES {
            let kept = Project::new(who);
            before(&kept);
            let project = Project::new(who);
            restore(&kept, &project);
            let unharmed = strace(&project, command, &["-e", "signal=none"]).ok();
            let old = files(&kept);
            let new = files(&project);
            for (call, nth) in some(points(&unharmed.stderr)) {
                restore(&kept, &project);
                let inject = format!("inject={call}:signal=SIGKILL:when={nth}");
                let killed = strace(&project, command, &["-e", &inject]);
                assert_eq!(killed.status, 137, "{command}: not killed at {call} {nth}: {killed:?}");
                let checked = catch_unwind(AssertUnwindSafe(|| {
                    always(&project, &old, &new);
                    // Before a name changes, once more: what one kill leaves is there for the next.
                    if call == "renameat" {
                        let again = strace(&project, command, &["-e", &inject]);
                        assert!([0, 1, 137].contains(&again.status), "{again:?}");
                        always(&project, &old, &new);
                    }
                    then(&project);
                    nothing_left(&project);
                }));
                if checked.is_err() {
                    failed.push(format!("{command}: killed before {call} number {nth}"));
                }
                kills += 1;
            }
            // Control: one call later than it makes, it ends unharmed.
            restore(&kept, &project);
            strace(&project, command, &["-e", "inject=fsync:signal=SIGKILL:when=999"]).ok().done();
            always(&project, &old, &new);
        }
        assert!(failed.is_empty(), "of {kills} kills: {failed:#?}");
        assert!(kills > 60, "only {kills} kills: is strace seeing the calls?");
    });
}

/// After any kill, with the ordinary program.
fn always(project: &Project, old: &BTreeMap<PathBuf, Vec<u8>>, new: &BTreeMap<PathBuf, Vec<u8>>) {
    let now = files(project);
    for name in WHOLE.map(Path::new) {
        let (now, old, new) = (now.get(name), old.get(name), new.get(name));
        assert!(now == old || now == new, "{}: {now:?} is half of something", name.display());
    }
    if !project.state().join("log").exists() {
        assert!(!project.state().join("trust.json").exists(), "trusted, and nothing says so");
        return;
    }
    // Trust never without its event.
    if listed(project) {
        let intent = machine(project).iter().any(|event| event.contains("trust_intended"));
        assert!(intent, "trusted, and nothing says so");
    }
    project.ringfence(&["audit", "verify"]).ok().done();
}

/// Each change of trust that was begun has its end in the log.
fn settled(project: &Project) {
    let log = machine(project).join("\n");
    let events = Events::from_lines(&log);
    for intent in events.with("trust_intended", &[]) {
        let change = field(intent, "change");
        events.has("trust_settled", &[("change", &change)]);
    }
    project.ringfence(&["audit", "verify"]).ok().done();
}

/// What the next command does not need is gone once it has run; what was half put into the store goes
/// when it is asked to take away what nothing needs.
fn nothing_left(project: &Project) {
    project.ringfence(&["store", "gc"]).ok().done();
    let mut left = project.picture(&project.path());
    left.extend(project.picture(&project.state()));
    left.retain(|path, _| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.contains(".new") || name.contains(".tmp")
    });
    assert!(left.is_empty(), "{:?}", left.keys());
}

fn listed(project: &Project) -> bool {
    granted(project, &project.path().display().to_string())
}

fn granted(project: &Project, path: &str) -> bool {
    let list = project.ringfence(&["trust", "--list", "--json"]).ok().json();
    list["projects"].as_array().expect("a list").iter().any(|row| row["project"] == path)
}

/// Whole lines of the machine's log.
fn machine(project: &Project) -> Vec<String> {
    let log = std::fs::read(project.state().join("log/machine.jsonl")).unwrap_or_default();
    let whole = log.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    String::from_utf8_lossy(&log[..whole]).lines().map(str::to_owned).collect()
}

/// Files of the project by relative path.
fn files(project: &Project) -> BTreeMap<PathBuf, Vec<u8>> {
    let of = project.path();
    let all = project.picture(&of).into_iter();
    all.map(|(path, bytes)| (path.strip_prefix(&of).expect("in it").to_owned(), bytes)).collect()
}

/// Puts project and machine state as another has them. Grants and library name the other's path.
fn restore(from: &Project, to: &Project) {
    for (from, to) in [(from.path(), to.path()), (from.state(), to.state())] {
        let (from, to) = (from.display().to_string(), to.display().to_string());
        let _ = std::fs::remove_dir_all(&to);
        let copied = std::process::Command::new("cp").args(["-a", &from, &to]).status();
        assert!(copied.expect("cp runs").success());
    }
    for name in ["trust.json", "library.toml"] {
        let file = to.state().join(name);
        if let Ok(text) = std::fs::read_to_string(&file) {
            let (from, to) = (from.path().display().to_string(), to.path().display().to_string());
            std::fs::write(&file, text.replace(&from, &to)).expect("our own file");
        }
    }
}

/// The program under `strace`; a word with `@` stands for what [`meant`] says.
fn strace(project: &Project, command: &str, options: &[&str]) -> Output {
    let command: Vec<String> = command.split(' ').map(|word| meant(project, word)).collect();
    let program = project.program().display().to_string();
    let path = project.path().display().to_string();
    let trace = format!("trace={CALLS}");
    let mut words = vec!["strace", "-f", "-qq", "-e", &trace];
    words.extend(options);
    words.extend([&*program, "-C", &*path]);
    words.extend(command.iter().map(String::as_str));
    project.shell(&words)
}

/// Each rename, and of a command with many calls every so many of the others.
fn some(points: Vec<(String, usize)>) -> impl Iterator<Item = (String, usize)> {
    let step = if points.len() > 90 { points.len().div_ceil(30) } else { 1 };
    let kept = move |(at, (call, _)): &(usize, (String, usize))| {
        at % step == 0 || call.starts_with("rename")
    };
    points.into_iter().enumerate().filter(kept).map(|(_, point)| point)
}

/// `@`: the review digest; `@id`, `@card`: what waits in quarantine and its review digest; `@trash`:
/// the first thing in the trash.
fn meant(project: &Project, word: &str) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("0000").to_owned();
    match word {
        "@" => project.preview(),
        "@id" => quarantined(project).first().map_or("0000".to_owned(), |kept| text(&kept["id"])),
        "@card" => {
            let file = project.path().join("in").display().to_string();
            let card = project.ringfence(&["receive", &file, "--json"]).ok().json();
            text(&card["card"]["review_digest"])
        }
        "@trash" => {
            let list = project.ringfence(&["library", "trash", "--json"]).ok().json();
            text(&list["trash"][0]["id"])
        }
        other => other.to_owned(),
    }
}

/// The calls in a trace that change something: name, and which of its name it is.
fn points(trace: &str) -> Vec<(String, usize)> {
    let mut counts = BTreeMap::new();
    let mut points = Vec::new();
    for line in trace.lines() {
        // Once there is a second thread, a line begins with the number of its own.
        let line =
            line.strip_prefix("[pid").and_then(|it| it.split_once("] ")).map_or(line, |it| it.1);
        let Some((call, rest)) = line.split_once('(') else { continue };
        if !CALLS.split(',').any(|known| known.trim() == call) {
            continue;
        }
        let count = counts.entry(call.to_owned()).or_insert(0);
        *count += 1;
        let reads = call.starts_with("open") && !rest.contains("O_CREAT");
        if !reads {
            points.push((call.to_owned(), *count));
        }
    }
    points
}
