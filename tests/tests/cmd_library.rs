//! `ringfence library`

use std::fs;
use std::path::{Path, PathBuf};

use ringfence_tests::{Project, Who, each_user};

use crate::bundles::SMALL;

/// A folder beside the project, the user's own, with these files.
fn folder(project: &Project, name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = project.home().join(name);
    for (path, text) in files {
        let file = folder.join(path);
        fs::create_dir_all(file.parent().expect("a file is in a folder")).expect("our own folder");
        fs::write(file, text).expect("our own file");
    }
    fs::create_dir_all(&folder).expect("our own folder");
    project.who().own(&folder);
    folder
}

fn text(path: &Path) -> &str {
    path.to_str().expect("our own path is UTF-8")
}

/// Two linked folders, `team` before `mine`.
fn linked(who: Who) -> Project {
    let project = Project::new(who);
    let team = folder(&project, "team", &[("skills/sum/SKILL.md", "team\n")]);
    let mine = folder(
        &project,
        "mine",
        &[("skills/sum/SKILL.md", "mine\n"), ("instructions/tone.md", "Be brief.\n")],
    );
    project.ringfence(&["library", "link", "team", text(&team)]).ok().done();
    project.ringfence(&["library", "link", "mine", text(&mine)]).ok().done();
    project
}

#[test]
fn collisions_are_reported_and_the_first_wins() {
    each_user(|who| {
        let project = linked(who);
        let list = project.ringfence(&["library", "list", "--json"]).ok().json();
        assert_eq!(list["sources"][0]["name"], "team");
        let rows = list["entries"].as_array().expect("entries");
        let hidden: Vec<_> = rows.iter().filter(|row| !row["hidden_by"].is_null()).collect();
        assert_eq!(hidden.len(), 1);
        assert_eq!(
            (&hidden[0]["source"], &hidden[0]["hidden_by"]),
            (&"mine".into(), &"team".into())
        );
        let shown = project.ringfence(&["library", "list"]).ok();
        assert!(shown.stdout.contains("hidden by team"), "{}", shown.stdout);

        let digest = |given: &str| {
            project.manifest(&format!("{SMALL}\n[skills.s]\nlibrary = \"{given}\"\n"));
            let lock = project.ringfence(&["lock", "--json"]).ok().json();
            let pins = lock["pins"].as_array().expect("pins").clone();
            let pin = pins.into_iter().find(|pin| pin["kind"] == "skill").expect("the skill's");
            pin["digest"].as_str().expect("a digest").to_owned()
        };
        let of = |source: &str| {
            let row = rows.iter().find(|it| it["source"] == source && it["kind"] == "skill");
            row.expect("an entry")["digest"].as_str().expect("a digest").to_owned()
        };
        assert_eq!(digest("sum"), of("team"));
        assert_eq!(digest("mine:sum"), of("mine"));
        assert_ne!(of("team"), of("mine"));
        project.ringfence(&["library", "unlink", "team"]).ok().done();
        assert_eq!(digest("sum"), of("mine"));
        project.ringfence(&["library", "unlink", "team"]).expect(1).done();
    });
}

#[test]
fn a_change_in_the_library_counts_when_it_is_locked() {
    each_user(|who| {
        let project = linked(who);
        project.manifest(&format!("{SMALL}\n[instructions.tone]\nlibrary = \"tone\"\n"));
        project.lock();
        project.trust();
        project.run(&["true"]).ok().done();
        folder(&project, "mine", &[("instructions/tone.md", "Be long.\n")]);
        project.ringfence(&["lock", "--check"]).ok().done();
        project.run(&["true"]).ok().done();
        let moved = project.ringfence(&["lock"]).ok();
        assert!(
            moved.stdout.contains("changed") && moved.stdout.contains("tone"),
            "{}",
            moved.stdout
        );
        project.run(&["true"]).expect(3).done();
    });
}

#[test]
fn another_machine_fetches_only_the_pinned_bytes_from_its_library() {
    each_user(|who| {
        let here = linked(who);
        let manifest = format!("{SMALL}\n[instructions.tone]\nlibrary = \"mine:tone\"\n");
        here.manifest(&manifest);
        here.lock();
        let lock = fs::read(here.path().join(".ringfence/ringfence.lock")).expect("a lock");

        let there = Project::new(who);
        there.manifest(&manifest);
        there.file(".ringfence/ringfence.lock", &lock);
        there.ringfence(&["fetch"]).expect(1).says(&["mine"]).done();
        let mine = folder(&there, "mine", &[("instructions/tone.md", "Be other.\n")]);
        there.ringfence(&["library", "link", "mine", text(&mine)]).ok().done();
        let refused = there.ringfence(&["fetch"]).expect(3);
        assert_eq!(refused.stderr.matches("sha256:").count(), 2, "{}", refused.stderr);
        folder(&there, "mine", &[("instructions/tone.md", "Be brief.\n")]);
        there.ringfence(&["fetch"]).ok().done();
        there.ringfence(&["lock", "--check"]).ok().done();
        assert_eq!(fs::read(there.path().join(".ringfence/ringfence.lock")).expect("a lock"), lock);
    });
}

#[test]
fn things_are_added_removed_and_restored() {
    each_user(|who| {
        let project = linked(who);
        project.file(".ringfence/skills/own/SKILL.md", "own\n");
        project.manifest(&format!("{SMALL}\n[skills.own]\npath = \"./skills/own\"\n"));
        project.ringfence(&["library", "add", "skill:own", "--to", "mine"]).ok().done();
        let there = project.home().join("mine/skills/own/SKILL.md");
        assert_eq!(fs::read_to_string(&there).expect("it was added"), "own\n");
        project.ringfence(&["library", "add", "skill:own", "--to", "mine"]).expect(1).done();
        project.ringfence(&["library", "add", "skill:none"]).expect(1).says(&["none"]).done();
        let path = project.file("notes.md", "note\n");
        project.ringfence(&["library", "add", text(&path), "--name", "note"]).ok().done();
        assert!(project.home().join("team/instructions/note.md").is_file());

        project.ringfence(&["library", "remove", "skill:sum"]).expect(1).says(&["team:sum"]).done();
        project.ringfence(&["library", "remove", "skill:own"]).ok().says(&["restore"]).done();
        assert!(!there.exists());
        let trash = project.ringfence(&["library", "trash", "--json"]).ok().json();
        assert_eq!(trash["trash"][0]["name"], "own");
        let id = trash["trash"][0]["id"].as_str().expect("an id").to_owned();
        project.ringfence(&["library", "restore", &id]).ok().done();
        assert_eq!(fs::read_to_string(&there).expect("it is back"), "own\n");
        project.ringfence(&["library", "restore", &id]).expect(1).done();
        project.ringfence(&["library", "restore", "../../etc"]).expect(1).done();
        project.ringfence(&["library", "trash"]).ok().says(&["0 in the trash"]).done();
    });
}

/// Plain git as the project's user, in a folder.
fn git(project: &Project, folder: &Path, words: &[&str]) -> String {
    let mut all = vec!["git", "-C", text(folder)];
    all.extend(words);
    project.shell(&all).ok().stdout
}

/// A linked folder that is a repository, with a bare one as its remote and a clone of that.
fn shared(who: Who) -> (Project, PathBuf, PathBuf) {
    let project = Project::new(who);
    let config = project.home().join(".gitconfig");
    fs::write(&config, "[user]\nname = P\nemail = p@example.com\n[init]\ndefaultBranch = main\n")
        .expect("our own file");
    who.own(&config);
    let remote = folder(&project, "remote", &[]);
    git(&project, &remote, &["init", "-q", "--bare"]);
    let mine = folder(&project, "mine", &[("skills/sum/SKILL.md", "mine\n")]);
    git(&project, &mine, &["init", "-q"]);
    git(&project, &mine, &["add", "-A"]);
    git(&project, &mine, &["commit", "-q", "-m", "first"]);
    git(&project, &mine, &["remote", "add", "origin", text(&remote)]);
    project.ringfence(&["library", "link", "mine", text(&mine)]).ok().done();
    project.ringfence(&["library", "sync"]).ok().done();
    let other = project.home().join("other");
    git(&project, &project.home(), &["clone", "-q", text(&remote), text(&other)]);
    (project, mine, other)
}

#[test]
fn sync_shows_brings_in_and_sends_out() {
    each_user(|who| {
        let (project, mine, other) = shared(who);
        assert!(other.join("skills/sum/SKILL.md").is_file(), "the first sync sent it out");
        fs::write(other.join("skills/sum/SKILL.md"), "theirs\n").expect("our own file");
        git(&project, &other, &["commit", "-q", "-am", "from elsewhere"]);
        git(&project, &other, &["push", "-q"]);
        let dry = project.ringfence(&["library", "sync", "--dry-run", "--json"]).ok().json();
        assert_eq!(dry["synced"][0]["incoming"][0]["subject"], "from elsewhere");
        let file = mine.join("skills/sum/SKILL.md");
        assert_eq!(fs::read_to_string(&file).expect("our own file"), "mine\n");
        project.ringfence(&["library", "sync"]).ok().says(&["1 came in", "0 went out"]).done();
        assert_eq!(fs::read_to_string(&file).expect("our own file"), "theirs\n");

        let note = project.file("note.md", "note\n");
        project.ringfence(&["library", "add", text(&note)]).ok().says(&["committed"]).done();
        let dry = project.ringfence(&["library", "sync", "--dry-run"]).ok();
        assert!(dry.stdout.contains("would go out"), "{}", dry.stdout);
        fs::write(mine.join("loose.md"), "x\n").expect("our own file");
        let sent = project.ringfence(&["library", "sync", "mine"]).ok();
        sent.says(&["1 went out", "loose.md"]).done();
        git(&project, &other, &["pull", "-q"]);
        assert!(other.join("instructions/note.md").is_file() && !other.join("loose.md").exists());

        // Both went on: nothing is forced.
        git(&project, &other, &["commit", "-q", "--allow-empty", "-m", "theirs"]);
        git(&project, &other, &["push", "-q"]);
        project.ringfence(&["library", "remove", "instruction:note"]).ok().done();
        project.ringfence(&["library", "sync"]).expect(1).says(&["went apart", "rebase"]).done();
        project.ringfence(&["library", "sync", "none"]).expect(1).done();
    });
}

#[test]
fn no_literal_secret_goes_out_not_even_in_an_old_commit() {
    each_user(|who| {
        let (project, mine, _) = shared(who);
        let remote = project.home().join("remote");
        let head = || git(&project, &remote, &["rev-parse", "main"]);
        let before = head();
        let token = format!("gh{}_{}", 'p', "aZ3kQ9".repeat(6));
        let file = mine.join("skills/sum/SKILL.md");
        fs::write(&file, format!("a\ntoken = \"{token}\"\n")).expect("our own file");
        let words = ["skills/sum/SKILL.md", ":2:"];
        // In a file that is not even committed.
        let refused = project.ringfence(&["library", "sync"]).expect(3).says(&words);
        assert!(!refused.stderr.contains(&token));
        git(&project, &mine, &["commit", "-q", "-am", "with a secret"]);
        project.ringfence(&["library", "sync"]).expect(3).says(&words).done();
        // Taken out again, it is still in the commit.
        fs::write(&file, "clean\n").expect("our own file");
        git(&project, &mine, &["commit", "-q", "-am", "without"]);
        project.ringfence(&["library", "sync"]).expect(3).says(&["commit", "SKILL.md"]).done();
        let json = project.ringfence(&["library", "sync", "--json"]).expect(3).json();
        assert!(json["failed"][0]["problem"].as_str().is_some_and(|it| it.contains("SKILL.md")));
        assert_eq!(head(), before, "something went out");
        // And in a message alone.
        git(&project, &mine, &["reset", "-q", "--hard", "HEAD~2"]);
        git(&project, &mine, &["commit", "-q", "--allow-empty", "-m", &format!("key {token}")]);
        project.ringfence(&["library", "sync"]).expect(3).says(&["message"]).done();
        assert_eq!(head(), before);
        // In the name of who made it.
        let author = format!("--author={token} <a@example.com>");
        let amend = ["commit", "-q", "--allow-empty", "--amend", "-m", "fine"];
        git(&project, &mine, &[&amend[..], &[&*author]].concat());
        let refused = project.ringfence(&["library", "sync"]).expect(3).says(&["message"]);
        assert!(!refused.stderr.contains(&token));
        // In the name of a file, which is not shown then.
        git(&project, &mine, &[&amend[..], &["--reset-author"]].concat());
        fs::write(mine.join(format!("skills/sum/{token}.md")), "x\n").expect("our own file");
        let refused = project.ringfence(&["library", "sync"]).expect(3).says(&["name of a file"]);
        assert!(!refused.stderr.contains(&token));
        git(&project, &mine, &["add", "-A"]);
        git(&project, &mine, &["commit", "-q", "-m", "named"]);
        git(&project, &mine, &["rm", "-q", &format!("skills/sum/{token}.md")]);
        git(&project, &mine, &["commit", "-q", "-m", "gone"]);
        let refused = project.ringfence(&["library", "sync"]).expect(3).says(&["name of a file"]);
        assert!(!refused.stderr.contains(&token));
        assert_eq!(head(), before);
        // Control: without it, it goes out.
        git(&project, &mine, &["reset", "-q", "--hard", "HEAD~2"]);
        project.ringfence(&["library", "sync"]).ok().done();
        assert_ne!(head(), before);
    });
}

#[test]
fn nothing_of_a_linked_folder_runs() {
    each_user(|who| {
        let (project, mine, other) = shared(who);
        let ran = project.home().join("RAN");
        let touch = format!("touch {}", ran.display());
        for hook in ["pre-push", "post-merge", "pre-commit", "reference-transaction"] {
            let hook = mine.join(".git/hooks").join(hook);
            fs::create_dir_all(hook.parent().expect("hooks")).expect("our own folder");
            fs::write(&hook, format!("#!/bin/sh\n{touch}\n")).expect("our own file");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(&hook, mode).expect("our own file");
        }
        who.own(&mine);
        git(&project, &other, &["commit", "-q", "--allow-empty", "-m", "more"]);
        git(&project, &other, &["push", "-q"]);
        project.ringfence(&["library", "sync"]).ok().says(&["1 came in"]).done();
        let note = project.file("note.md", "note\n");
        project.ringfence(&["library", "add", text(&note)]).ok().done();
        project.ringfence(&["library", "sync"]).ok().says(&["1 went out"]).done();
        assert!(!ran.exists(), "a hook ran");
        git(&project, &mine, &["commit", "-q", "--allow-empty", "-m", "control"]);
        assert!(ran.exists(), "control: plain git runs the hook");
        // Nor a hook of a folder that is pushed to, nor what a repository in the folder says.
        let _ = fs::remove_file(&ran);
        let bare = project.home().join("bare");
        fs::create_dir(&bare).expect("our own folder");
        who.own(&bare);
        git(&project, &bare, &["init", "-q", "--bare"]);
        let hook = bare.join("hooks/pre-receive");
        fs::write(&hook, format!("#!/bin/sh\n{touch}\n")).expect("our own file");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&hook, mode).expect("our own file");
        who.own(&bare);
        git(&project, &mine, &["remote", "set-url", "origin", text(&bare)]);
        project.ringfence(&["library", "sync"]).ok().says(&["went out"]).done();
        assert!(!ran.exists(), "a hook of the folder ran");
        git(&project, &mine, &["commit", "-q", "--allow-empty", "-m", "control"]);
        git(&project, &mine, &["-c", "core.hooksPath=/dev/null", "push", "-q", "origin", "main"]);
        assert!(ran.exists(), "control: plain git runs the hook of the folder");
        git(&project, &mine, &["config", "core.sshCommand", &touch]);
        project.ringfence(&["library", "sync"]).expect(1).says(&["core.sshcommand"]).done();
    });
}
