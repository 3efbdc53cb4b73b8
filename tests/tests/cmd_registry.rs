//! `ringfence registry`, with real git repositories on disk

use std::path::{Path, PathBuf};

use ringfence_tests::{Project, Who, each_user};
use serde_json::Value;

use crate::bundles::{SHARED, share, shared};

/// A bare repository, and a machine whose person publishes to it under the name `team`.
struct Case {
    project: Project,
    remote: PathBuf,
    did: String,
}

impl Case {
    fn new(who: Who) -> Self {
        let project = Project::new(who);
        shared(&project);
        let config = project.home().join(".gitconfig");
        std::fs::write(&config, "[user]\nname = p\nemail = p@example.com\n").expect("our own file");
        who.own(&config);
        let remote = project.home().join("remote.git");
        let path = remote.display().to_string();
        project.shell(&["git", "init", "-q", "--bare", "-b", "main", &path]).ok().done();
        project.ringfence(&["registry", "add", "team", &path]).ok().says(&["0 version(s)"]).done();
        let (_, did) = share(&project, "out");
        Self { project, remote, did }
    }

    fn published(who: Who) -> Self {
        let case = Self::new(who);
        case.project.ringfence(&["registry", "publish", "team"]).ok().says(&["case@1.2.0"]).done();
        case
    }

    fn install(&self, more: &[&str]) -> ringfence_tests::Output {
        let mut words = vec!["registry", "install", "case@1.2.0"];
        words.extend(more);
        self.project.ringfence(&words)
    }

    fn waiting(&self) -> usize {
        let list = self.project.ringfence(&["receive", "--list", "--json"]).ok().json();
        list["quarantine"].as_array().map_or(0, Vec::len)
    }

    /// The registry's owner changes files by hand, in a clone of their own, and pushes.
    fn owner(&self, name: &str, change: impl FnOnce(&Path)) {
        let clone = self.project.home().join(name);
        let words = |words: &[&str]| {
            let mut all = vec!["git", "-C"];
            let path = clone.display().to_string();
            all.push(&path);
            all.extend(words);
            self.project.shell(&all).ok().done();
        };
        let (remote, path) = (self.remote.display().to_string(), clone.display().to_string());
        self.project.shell(&["git", "clone", "-q", &remote, &path]).ok().done();
        change(&clone);
        self.project.who().own(&clone);
        words(&["add", "-A"]);
        words(&["commit", "-q", "-m", "change"]);
        words(&["push", "-q"]);
    }
}

const INDEX: &str = "index/case/1.2.0.json";
const ARCHIVE: &str = "archives/case-1.2.0.ringfence.tar.zst";

fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value: Value =
        serde_json::from_slice(&std::fs::read(path).expect("an entry")).expect("JSON");
    change(&mut value);
    std::fs::write(path, value.to_string()).expect("our own file");
}

#[test]
fn a_bundle_is_published_found_installed_and_trusted() {
    each_user(|who| {
        let case = Case::published(who);
        let found = case.project.ringfence(&["registry", "search", "SKILL", "case", "--json"]).ok();
        let found = found.json();
        assert_eq!(found["found"][0]["name"], "case");
        assert_eq!(found["found"][0]["did"], case.did.as_str());
        assert_eq!(found["found"][0]["publisher"], Value::Null);
        let none = case.project.ringfence(&["registry", "search", "nothing-such"]).ok();
        assert_eq!(none.stdout, "");
        // Nobody whom the person knows signed it.
        case.install(&[]).expect(3).says(&["have not listed", "--unlisted"]).done();
        assert_eq!(case.waiting(), 0, "it was refused before it was taken in");
        let unlisted = case.install(&["--unlisted"]).ok();
        assert!(unlisted.stdout.starts_with("UNKNOWN PUBLISHER"), "{}", unlisted.stdout);
        case.project.ringfence(&["publisher", "add", "acme", &case.did]).ok().done();
        let json = case.install(&["--json"]).ok().json();
        assert_eq!(json["publisher"], "acme");
        assert!(!case.project.state().join("trust.json").exists(), "installed is not trusted");
        let into = case.project.home().join("new").display().to_string();
        let id = json["id"].as_str().expect("an id");
        let digest = json["card"]["review_digest"].as_str().expect("a digest");
        let words = ["trust", "--received", id, "--into", &into, "--yes", "--consented", digest];
        case.project.ringfence(&words).ok().done();
        assert_eq!(case.waiting(), 0);
    });
}

#[test]
fn a_version_is_never_replaced() {
    each_user(|who| {
        let case = Case::published(who);
        let head = || {
            let remote = case.remote.display().to_string();
            case.project.shell(&["git", "-C", &remote, "rev-parse", "main"]).ok().stdout
        };
        let before = head();
        let publish = || case.project.ringfence(&["registry", "publish", "team"]);
        publish().expect(1).says(&["never replaced"]).done();
        case.project.file(".ringfence/instructions/team.md", "Be unkind.\n");
        publish().expect(3).done();
        case.project.lock();
        publish().expect(1).says(&["never replaced"]).done();
        assert_eq!(head(), before, "the registry did not change");
        // A new version is one.
        case.project.manifest(&SHARED.replace("1.2.0", "1.3.0"));
        case.project.lock();
        publish().ok().done();
        assert_ne!(head(), before);
        let found = case.project.ringfence(&["registry", "search", "--json"]).ok().json();
        assert_eq!(found["found"].as_array().map(Vec::len), Some(2));
    });
}

#[test]
fn bytes_that_changed_since_they_were_seen_are_refused_for_good() {
    each_user(|who| {
        let case = Case::published(who);
        case.project.ringfence(&["publisher", "add", "acme", &case.did]).ok().done();
        case.install(&[]).ok().done();
        // The publisher's own key, other bytes, the same version: what a stolen key would do.
        case.project.file(".ringfence/instructions/team.md", "Be unkind.\n");
        case.project.lock();
        let (other, _) = share(&case.project, "other");
        let sum = case.project.shell(&["sha256sum", &other.display().to_string()]).ok().stdout;
        let sum = sum.split_whitespace().next().expect("a sum").to_owned();
        case.owner("clone", |clone| {
            std::fs::copy(&other, clone.join(ARCHIVE)).expect("our own file");
            edit(&clone.join(INDEX), |entry| entry["sha256"] = sum.as_str().into());
        });
        case.install(&[]).expect(3).says(&["other bytes", "case@1.2.0"]).done();
        case.project.ringfence(&["registry", "sync"]).expect(3).says(&["case@1.2.0"]).done();
        // Taking the registry off the list and back on forgets nothing.
        let path = case.remote.display().to_string();
        case.project.ringfence(&["registry", "remove", "team"]).ok().done();
        case.project.ringfence(&["registry", "remove", "team"]).expect(1).done();
        case.project.ringfence(&["registry", "add", "team", &path]).expect(3).done();
        case.install(&[]).expect(3).says(&["other bytes"]).done();
        assert_eq!(case.waiting(), 1, "the first one alone");
    });
}

#[test]
fn an_index_that_says_other_things_than_the_archive_is_refused() {
    each_user(|who| {
        let case = Case::published(who);
        case.project.ringfence(&["publisher", "add", "acme", &case.did]).ok().done();
        case.owner("one", |clone| {
            edit(&clone.join(INDEX), |entry| entry["contents"] = serde_json::json!(["skill nice"]));
        });
        case.install(&[]).expect(3).says(&["other things", "contents"]).done();
        case.owner("two", |clone| {
            edit(&clone.join(INDEX), |entry| entry["more"] = 1.into());
        });
        case.install(&[]).expect(3).says(&["unknown field"]).done();
        let synced = case.project.ringfence(&["registry", "sync", "--json"]).ok();
        assert_eq!(synced.json()["registries"][0]["versions"], 0);
        synced.says(&["passed over index/case/1.2.0.json"]).done();
        // Another archive under its name.
        case.owner("three", |clone| {
            std::fs::write(clone.join(ARCHIVE), "PK").expect("our own file");
        });
        case.install(&[]).expect(3).done();
        assert_eq!(case.waiting(), 0);
        // Control: as it was.
        case.owner("four", |clone| {
            let path = clone.display().to_string();
            let words = ["git", "-C", &path, "checkout", "-q", "HEAD~3", "--", "."];
            case.project.who().own(clone);
            case.project.shell(&words).ok().done();
        });
        case.install(&[]).ok().done();
    });
}

#[test]
fn a_registry_with_a_link_in_it_is_refused_whole() {
    each_user(|who| {
        let case = Case::published(who);
        case.project.ringfence(&["registry", "sync"]).ok().done();
        let before = case.project.picture(&case.project.state().join("registries/team/index"));
        case.owner("clone", |clone| {
            std::os::unix::fs::symlink("/etc", clone.join("index/evil")).expect("our own link");
        });
        case.project.ringfence(&["registry", "sync"]).expect(1).says(&["index/evil"]).done();
        let after = case.project.picture(&case.project.state().join("registries/team/index"));
        assert_eq!(after, before);
    });
}

#[test]
fn what_was_not_pushed_is_not_left_behind() {
    each_user(|who| {
        let case = Case::new(who);
        // The remote cannot move its branch.
        let busy = case.remote.join("refs/heads/main.lock");
        std::fs::write(&busy, "").expect("our own file");
        who.own(&busy);
        let publish = || case.project.ringfence(&["registry", "publish", "team"]);
        publish().expect(1).done();
        let found = case.project.ringfence(&["registry", "search", "--json"]).ok().json();
        assert_eq!(found["found"], serde_json::json!([]));
        std::fs::remove_file(&busy).expect("our own file");
        publish().ok().done();
    });
}

#[test]
fn registries_are_listed_and_names_and_addresses_are_checked() {
    each_user(|who| {
        let case = Case::new(who);
        let path = case.remote.display().to_string();
        let list = case.project.ringfence(&["registry", "list"]).ok();
        assert_eq!(list.stdout, format!("team  {path}\n"));
        let json = case.project.ringfence(&["registry", "list", "--json"]).ok().json();
        assert_eq!(json["registries"]["team"], path);
        let missing = case.project.home().join("missing").display().to_string();
        for words in [
            ["team", path.as_str()],
            ["../x", &path],
            ["A", &path],
            ["x", "--upload-pack=touch /tmp/x"],
            ["x", "ext::sh -c true"],
            ["x", "http://127.0.0.1/x"],
            ["x", "remote.git"],
            ["x", &missing],
        ] {
            let output = case.project.ringfence(&["registry", "add", "--", words[0], words[1]]);
            assert_eq!(output.expect(1).stdout, "");
        }
        let again = case.project.ringfence(&["registry", "list"]).ok();
        assert_eq!(again.stdout, list.stdout);
        for label in ["case", "@", "case@", "case@../1", "CASE@1", "case@1.2.0"] {
            case.project.ringfence(&["registry", "install", label]).expect(1).done();
        }
        case.project.ringfence(&["registry", "sync", "other"]).expect(1).done();
    });
}

/// A clone of a registry, as killed processes leave it.
#[test]
fn what_lies_in_a_clone_and_not_in_the_registry_is_gone() {
    each_user(|who| {
        let case = Case::published(who);
        let clone = case.project.state().join("registries/team");
        let path = clone.display().to_string();
        let git = |words: &[&str]| {
            let all = [&["git", "-C", &path][..], words].concat();
            case.project.shell(&all).ok().stdout
        };
        let listed = || {
            let json = case.project.ringfence(&["registry", "sync", "--json"]).ok().json();
            json["registries"][0]["versions"].clone()
        };
        let head = git(&["rev-parse", "HEAD"]);
        let index = git(&["show", &format!("HEAD:{INDEX}")]);
        // Killed before its files were there, after it wrote some, and before it pushed.
        git(&["rm", "-q", "--cached", "-r", "."]);
        std::fs::remove_dir_all(clone.join("index")).expect("it was there");
        assert_eq!(listed(), 1);
        std::fs::write(clone.join("index/case/9.0.0.json"), index.replace("1.2.0", "9.0.0"))
            .expect("our own file");
        who.own(&clone);
        assert_eq!(listed(), 1);
        std::fs::write(clone.join("index/case/9.0.0.json"), index.replace("1.2.0", "9.0.0"))
            .expect("our own file");
        who.own(&clone);
        git(&["add", "-A"]);
        git(&["commit", "-q", "-m", "not pushed"]);
        assert_eq!(listed(), 1);
        assert_eq!(git(&["rev-parse", "HEAD"]), head);
        // A version is not replaced because its files are not here.
        std::fs::remove_dir_all(clone.join("index")).expect("it was there");
        std::fs::remove_dir_all(clone.join("archives")).expect("it was there");
        let publish = case.project.ringfence(&["registry", "publish", "team"]);
        publish.expect(1).says(&["never replaced"]).done();
        // A clone that git left locked.
        std::fs::write(clone.join(".git/index.lock"), "").expect("our own file");
        who.own(&clone);
        assert_eq!(listed(), 1);
        assert_eq!(git(&["status", "--porcelain"]), "");
    });
}

#[test]
fn a_registry_whose_history_was_rewritten_is_refused_each_time() {
    each_user(|who| {
        let case = Case::published(who);
        case.owner("clone", |clone| {
            let path = clone.display().to_string();
            let git = |words: &[&str]| {
                let all = [&["git", "-C", &path][..], words].concat();
                case.project.shell(&all).ok().done();
            };
            git(&["commit", "-q", "--amend", "-m", "otherwise"]);
            git(&["push", "-q", "--force"]);
            std::fs::write(clone.join("more"), "").expect("our own file");
        });
        for _ in 0..2 {
            case.project.ringfence(&["registry", "sync"]).expect(1).says(&["rewritten"]).done();
        }
    });
}

#[test]
fn a_clone_of_another_address_is_made_anew() {
    each_user(|who| {
        let case = Case::published(who);
        let other = case.project.home().join("other.git").display().to_string();
        case.project.shell(&["git", "init", "-q", "--bare", "-b", "main", &other]).ok().done();
        let list = case.project.state().join("registries.toml");
        let text = std::fs::read_to_string(&list).expect("the list");
        let text = text.replace(&case.remote.display().to_string(), &other);
        std::fs::write(&list, text).expect("our own file");
        case.project.ringfence(&["registry", "sync"]).ok().says(&["0 version(s)"]).done();
        case.project.ringfence(&["registry", "publish", "team"]).ok().done();
        let log = case.project.shell(&["git", "-C", &other, "log", "--oneline", "main"]).ok();
        assert_eq!(log.stdout.lines().count(), 1);
    });
}
