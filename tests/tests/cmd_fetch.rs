//! `ringfence fetch`, and `ringfence lock --fetch`

use std::io::{ErrorKind, Read as _};
use std::time::Duration;

use ringfence_tests::{GitHost, Project, Who, each_user};

use crate::bundles::SMALL;

const SKILL: &str = "skills/sum/SKILL.md";

/// A bundle with one skill of a repository on this host.
fn from_git(host: &GitHost, rev: &str) -> String {
    let url = host.url("skills");
    format!("{SMALL}\n[skills.sum]\ngit = \"{url}\"\nrev = \"{rev}\"\nsubpath = \"skills/sum\"\n")
}

fn project(who: Who, host: &GitHost, manifest: &str) -> Project {
    let mut project = Project::new(who);
    host.known_to(&mut project);
    project.manifest(manifest);
    project
}

fn lock_of(project: &Project) -> String {
    std::fs::read_to_string(project.path().join(".ringfence/ringfence.lock")).expect("a lock")
}

#[test]
fn lock_asks_nobody_and_lock_fetch_says_whom() {
    each_user(|who| {
        let host = GitHost::new();
        let commit = host.commit("skills", &[(SKILL, "first\n")]);
        let project = project(who, &host, &from_git(&host, "main"));
        project.ringfence(&["lock"]).expect(1).says(&["sum", "ringfence lock --fetch"]).done();
        assert_eq!(host.seen(), Vec::<String>::new(), "lock contacted the host");
        let fetched = project.ringfence(&["lock", "--fetch"]).ok();
        fetched.says(&["asking 127.0.0.1", &host.url("skills")]).done();
        assert!(!host.seen().is_empty(), "control: a fetch is seen");
        assert!(lock_of(&project).contains(&commit));
        let before = (lock_of(&project), host.seen().len());
        project.ringfence(&["lock"]).ok().done();
        project.ringfence(&["lock", "--check"]).ok().done();
        project.trust();
        project.run(&["true"]).ok().done();
        assert_eq!((lock_of(&project), host.seen().len()), before, "it was asked again");
    });
}

#[test]
fn a_branch_moves_only_with_fetch_and_both_are_shown() {
    each_user(|who| {
        let host = GitHost::new();
        let first = host.commit("skills", &[(SKILL, "first\n")]);
        let project = project(who, &host, &from_git(&host, "main"));
        project.ringfence(&["lock", "--fetch"]).ok().done();
        let second = host.commit("skills", &[(SKILL, "second\n")]);
        project.ringfence(&["lock"]).ok().done();
        assert!(lock_of(&project).contains(&first));
        let moved = project.ringfence(&["lock", "--fetch"]).ok();
        assert!(
            moved.stdout.contains("changed") && moved.stdout.contains("sum"),
            "{}",
            moved.stdout
        );
        for commit in [&first, &second] {
            assert!(moved.stdout.contains(&commit[..12]), "{}", moved.stdout);
        }
        assert!(lock_of(&project).contains(&second) && !lock_of(&project).contains(&first));
        // Another commit with the same bytes.
        let third = host.commit("skills", &[("other", "x\n")]);
        let json = project.ringfence(&["lock", "--fetch", "--json"]).ok().json();
        assert_eq!(json["moved"], serde_json::json!([]));
        assert_eq!(json["commits"][0]["to"], third.as_str());
    });
}

#[test]
fn a_clone_gets_exactly_the_pinned_bytes_and_runs_nothing() {
    each_user(|who| {
        let host = GitHost::new();
        let marker = host.folder("RAN");
        host.commit(
            "skills",
            &[
                (SKILL, "first\n"),
                ("skills/sum/run.sh", &format!("touch {}\n", marker.display())),
                (".gitattributes", "* filter=evil\n"),
            ],
        );
        let here = project(who, &host, &from_git(&host, "main"));
        here.ringfence(&["lock", "--fetch"]).ok().done();
        let lock = lock_of(&here);
        // The branch goes on: what is brought is the pinned commit all the same.
        host.commit("skills", &[(SKILL, "second\n")]);

        let there = project(who, &host, &from_git(&host, "main"));
        there.file(".ringfence/ringfence.lock", &lock);
        let filter = format!("[filter \"evil\"]\nsmudge = touch {}\n", marker.display());
        std::fs::write(there.home().join(".gitconfig"), filter).expect("our own file");
        there.ringfence(&["lock", "--check"]).expect(1).done();
        let asked = host.seen().len();
        let brought = there.ringfence(&["fetch"]).ok();
        assert!(brought.stdout.contains("sum"), "{}", brought.stdout);
        brought.says(&["asking 127.0.0.1"]).done();
        assert!(host.seen().len() > asked);
        assert_eq!(lock_of(&there), lock, "fetch changed the lock");
        there.ringfence(&["lock", "--check"]).ok().done();
        assert!(!marker.exists(), "something of the repository ran");
        let asked = host.seen().len();
        let again = there.ringfence(&["fetch", "--json"]).ok().json();
        assert_eq!(again["here"], 1);
        assert_eq!(again["brought"], serde_json::json!([]));
        assert_eq!(host.seen().len(), asked, "what is here was asked for");
        there.trust();
        there.run(&["true"]).ok().done();
    });
}

#[test]
fn other_bytes_than_the_pinned_are_refused_and_both_named() {
    each_user(|who| {
        let host = GitHost::new();
        let first = host.commit("skills", &[(SKILL, "first\n")]);
        let here = project(who, &host, &from_git(&host, "main"));
        here.ringfence(&["lock", "--fetch"]).ok().done();
        let lock = lock_of(&here);
        let digest = lock.split("digest = \"").nth(1).expect("a digest")[..71].to_owned();
        // A lock that says the second commit has the first one's bytes.
        let second = host.commit("skills", &[(SKILL, "second\n")]);
        let there = project(who, &host, &from_git(&host, "main"));
        there.file(".ringfence/ringfence.lock", lock.replace(&first, &second));
        let refused = there.ringfence(&["fetch"]).expect(3).says(&[&digest, "sum"]);
        assert_eq!(refused.stderr.matches("sha256:").count(), 2, "{}", refused.stderr);
        there.ringfence(&["lock", "--check"]).expect(1).done();
        // A commit that is nowhere.
        there.file(".ringfence/ringfence.lock", lock.replace(&first, &"a".repeat(40)));
        there.ringfence(&["fetch"]).expect(1).says(&[&"a".repeat(40)]).done();
        // Control.
        there.file(".ringfence/ringfence.lock", &lock);
        there.ringfence(&["fetch"]).ok().done();
    });
}

#[test]
fn bytes_that_are_here_for_anothers_sake_are_not_taken_for_a_repositorys() {
    each_user(|who| {
        let host = GitHost::new();
        let first = host.commit("skills", &[(SKILL, "first\n")]);
        let here = project(who, &host, &from_git(&host, "main"));
        here.ringfence(&["lock", "--fetch"]).ok().done();
        let lock = lock_of(&here);
        const WORD: &str = "by the lock's word";
        let card = here.ringfence(&["trust", "--preview"]).ok();
        assert!(
            card.stdout.contains("skill sum") && !card.stdout.contains(WORD),
            "{}",
            card.stdout
        );
        // The lock says another commit, and the store has these bytes.
        let second = host.commit("skills", &[(SKILL, "second\n")]);
        here.file(".ringfence/ringfence.lock", lock.replace(&first, &second));
        let card = here.ringfence(&["trust", "--preview"]).ok();
        assert!(card.stdout.contains(WORD), "{}", card.stdout);
        here.ringfence(&["fetch"]).expect(3).says(&["sum"]).done();
        // They are said to come from where they came from.
        here.file(".ringfence/ringfence.lock", &lock);
        let asked = host.seen().len();
        here.ringfence(&["fetch"]).ok().done();
        assert_eq!(host.seen().len(), asked, "control: what is known is not asked for");
    });
}

#[test]
fn without_a_lock_or_with_a_host_that_is_gone_it_says_so() {
    each_user(|who| {
        let host = GitHost::new();
        host.commit("skills", &[(SKILL, "first\n")]);
        let project = project(who, &host, &from_git(&host, "none"));
        project.ringfence(&["fetch"]).expect(1).says(&["ringfence lock --fetch"]).done();
        project.ringfence(&["lock", "--fetch"]).expect(1).says(&["none", "ringfence.toml"]).done();
        let dead =
            SMALL.to_owned() + "\n[skills.sum]\ngit = \"https://127.0.0.1:1/x\"\nrev = \"main\"\n";
        project.manifest(&dead);
        project.ringfence(&["lock", "--fetch"]).expect(1).says(&["127.0.0.1"]).done();
        assert!(!project.path().join(".ringfence/ringfence.lock").exists());
        project.ringfence(&["lock", "--fetch", "--check"]).expect(2).done();
        // A host that shows a certificate of nobody's.
        let mut stranger = Project::new(who);
        stranger.manifest(&from_git(&host, "main"));
        stranger.ringfence(&["lock", "--fetch"]).expect(1).says(&["certificate"]).done();
        host.known_to(&mut stranger);
        stranger.ringfence(&["lock", "--fetch"]).ok().done();
    });
}

#[test]
fn a_whole_commit_that_is_here_is_not_asked_for_again() {
    each_user(|who| {
        let host = GitHost::new();
        let commit = host.commit("skills", &[(SKILL, "first\n")]);
        let project = project(who, &host, &from_git(&host, &commit));
        project.ringfence(&["lock", "--fetch"]).ok().done();
        let asked = host.seen().len();
        assert!(asked > 0);
        project.ringfence(&["lock", "--fetch"]).ok().done();
        assert_eq!(host.seen().len(), asked);
    });
}

#[test]
fn what_contacts_a_host_ends_with_the_program() {
    use rustix::process::Signal;
    each_user(|who| {
        for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
            // It takes what comes, and never answers.
            let host = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let port = host.local_addr().expect("its own").port();
            let project = Project::new(who);
            let url = format!("https://127.0.0.1:{port}/x");
            project.manifest(&format!("{SMALL}\n[skills.sum]\ngit = \"{url}\"\nrev = \"main\"\n"));
            let started = project.start(&["lock", "--fetch"]);
            let (mut stream, _) = host.accept().expect("git asks");
            let mut first = [0; 1];
            stream.read_exact(&mut first).expect("control: git is there, and speaks");
            started.signal(signal);
            stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
            let ended = stream.read_to_end(&mut Vec::new());
            // Whether it was closed or torn down: nobody is at its other end.
            let torn = |error: &std::io::Error| error.kind() == ErrorKind::ConnectionReset;
            assert!(ended.as_ref().err().is_none_or(torn), "{signal:?}: git goes on: {ended:?}");
            let _ = started.finish();
        }
    });
}
