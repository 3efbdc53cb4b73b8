//! Row 17: a skill with a link out of its folder, from beside the manifest, from git and from the
//! library: refused and named, never followed. And an object of the store with other bytes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use ringfence_tests::{GitHost, Project, Who, each_user};

use crate::bundles::SMALL;

const SECRET: &str = "the secret outside\n";

/// Ways out of a folder, each with its target.
fn links(outside: &Path) -> Vec<(&'static str, String)> {
    let absolute = outside.display().to_string();
    vec![
        ("to a file", absolute),
        ("relative", "../../../../outside".to_owned()),
        ("to a folder", "/etc".to_owned()),
        ("to itself", "link".to_owned()),
        ("within", "SKILL.md".to_owned()),
        ("to nothing", "/nonexistent".to_owned()),
        ("magic", "/proc/self/environ".to_owned()),
    ]
}

/// The secret is nowhere in the store.
fn unread(project: &Project, case: &str) {
    for (path, bytes) in project.picture(&project.state()) {
        assert!(
            !String::from_utf8_lossy(&bytes).contains(SECRET.trim()),
            "{case}: it was followed, into {}",
            path.display()
        );
    }
}

fn outside(project: &Project) -> std::path::PathBuf {
    project.file("outside", SECRET)
}

#[test]
fn content_link_beside_the_manifest() {
    each_user(|who| {
        let project = Project::new(who);
        let outside = outside(&project);
        project.file(".ringfence/skills/s/SKILL.md", "# s\n");
        project.manifest(&format!("{SMALL}\n[skills.s]\npath = \"./skills/s\"\n"));
        project.lock();
        for (case, target) in links(&outside) {
            let link = project.path().join(".ringfence/skills/s/link");
            symlink(target, &link).expect("our own link");
            project.ringfence(&["lock"]).expect(1).says(&["link", "symbolic"]).done();
            project.ringfence(&["lock", "--check"]).expect(1).done();
            unread(&project, case);
            fs::remove_file(link).expect("our own link");
        }
        // The folder itself, and one on the way.
        let skills = project.path().join(".ringfence/skills");
        fs::rename(&skills, project.path().join("elsewhere")).expect("our own folder");
        symlink("../elsewhere", &skills).expect("our own link");
        project.ringfence(&["lock"]).expect(1).says(&["symbolic"]).done();
        fs::remove_file(&skills).expect("our own link");
        fs::rename(project.path().join("elsewhere"), &skills).expect("our own folder");
        // Control.
        project.lock();
        project.trust();
    });
}

#[test]
fn content_link_from_git() {
    each_user(|who| {
        let host = GitHost::new();
        host.commit("skills", &[("sum/SKILL.md", "# s\n"), ("other/x", "x\n")]);
        let project = of_git(who, &host, "sum");
        let outside = outside(&project);
        for (case, target) in links(&outside) {
            let link = host.folder("skills").join("sum/link");
            symlink(target, &link).expect("our own link");
            host.commit("skills", &[]);
            let refused = project.ringfence(&["lock", "--fetch"]).expect(1);
            refused.says(&["link", "symbolic", "ringfence.toml"]).done();
            unread(&project, case);
            fs::remove_file(link).expect("our own link");
        }
        // A link as the folder that is named, and on the way to it.
        symlink("other", host.folder("skills").join("alias")).expect("our own link");
        host.commit("skills", &[]);
        for subpath in ["alias", "alias/x"] {
            of_git(who, &host, subpath).ringfence(&["lock", "--fetch"]).expect(1).done();
        }
        // A submodule.
        let head = host.git("skills", &["rev-parse", "HEAD"]);
        let row = format!("160000,{head},sum/module");
        host.git("skills", &["update-index", "--add", "--cacheinfo", &row]);
        host.git("skills", &["commit", "-q", "-m", "module"]);
        project.ringfence(&["lock", "--fetch"]).expect(1).says(&["module", "submodule"]).done();
        // Control: without it.
        host.git("skills", &["rm", "-q", "--cached", "sum/module"]);
        host.git("skills", &["commit", "-q", "-m", "no module"]);
        project.ringfence(&["lock", "--fetch"]).ok().done();
        project.trust();
    });
}

fn of_git(who: Who, host: &GitHost, subpath: &str) -> Project {
    let mut project = Project::new(who);
    host.known_to(&mut project);
    let url = host.url("skills");
    project.manifest(&format!(
        "{SMALL}\n[skills.s]\ngit = \"{url}\"\nrev = \"main\"\nsubpath = \"{subpath}\"\n"
    ));
    project
}

#[test]
fn content_link_from_the_library() {
    each_user(|who| {
        let project = Project::new(who);
        let outside = outside(&project);
        let mine = project.home().join("mine");
        fs::create_dir_all(mine.join("skills/s")).expect("our own folder");
        fs::write(mine.join("skills/s/SKILL.md"), "# s\n").expect("our own file");
        who.own(&mine);
        project.ringfence(&["library", "link", "mine", &mine.display().to_string()]).ok().done();
        project.manifest(&format!("{SMALL}\n[skills.s]\nlibrary = \"mine:s\"\n"));
        for (case, target) in links(&outside) {
            let link = mine.join("skills/s/link");
            symlink(target, &link).expect("our own link");
            project.ringfence(&["lock"]).expect(1).says(&["link", "symbolic"]).done();
            unread(&project, case);
            fs::remove_file(link).expect("our own link");
        }
        project.lock();
        project.trust();
        let list = || project.ringfence(&["library", "list", "--json"]).ok().json();
        assert_eq!(list()["entries"][0]["problem"], serde_json::Value::Null, "control");
        symlink(&outside, mine.join("skills/s/link")).expect("our own link");
        assert!(list()["entries"][0]["problem"].as_str().is_some_and(|it| it.contains("symbolic")));
        unread(&project, "listed");
    });
}

#[test]
fn content_store_object_with_other_bytes_starts_nothing() {
    each_user(|who| {
        let host = GitHost::new();
        host.commit("skills", &[("sum/SKILL.md", "# s\n")]);
        let project = of_git(who, &host, "sum");
        project.ringfence(&["lock", "--fetch"]).ok().done();
        project.trust();
        project.run(&["true"]).ok().done();
        let list = project.ringfence(&["store", "list", "--json"]).ok().json();
        let rows = list["objects"].as_array().expect("objects").clone();
        let row = rows.iter().find(|row| row["kind"] == "skill").expect("the skill's");
        let content = Path::new(row["path"].as_str().expect("a path")).join("content");
        let file = content.join("SKILL.md");
        let damages: [(&str, &dyn Fn()); 5] = [
            ("other bytes", &|| fs::write(&file, "# t\n").expect("our own file")),
            ("one file more", &|| {
                fs::write(content.join("more"), "x").expect("our own file");
            }),
            ("a mode", &|| {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
                fs::set_permissions(&file, mode).expect("our own file");
            }),
            ("a link", &|| {
                fs::remove_file(&file).expect("our own file");
                symlink(project.path().join("outside"), &file).expect("our own link");
            }),
            ("gone", &|| fs::remove_dir_all(&content).expect("our own folder")),
        ];
        outside(&project);
        for (case, damage) in damages {
            damage();
            let run = project.run(&["true"]);
            assert!(matches!(run.status, 1 | 3), "{case}: {} {}", run.status, run.stderr);
            project.ringfence(&["lock", "--check"]).expect(1).done();
            project.ringfence(&["store", "verify"]).expect(1).done();
            // What is pinned comes back from where it was, and everything holds again.
            project.ringfence(&["fetch"]).ok().done();
            project.run(&["true"]).ok().done();
            unread(&project, case);
        }
    });
}
