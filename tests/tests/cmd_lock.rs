//! `ringfence lock`

use std::path::Path;

use ringfence_tests::{Output, Project, Started, Who, each_user};

use crate::bundles::MIRROR;

#[test]
fn check_says_missing_current_and_stale_and_writes_nothing() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        let before = project.picture(&project.path());
        project.ringfence(&["lock", "--check"]).expect(1).says(&["ringfence lock"]).done();
        assert_eq!(project.picture(&project.path()), before, "--check wrote something");
        project.lock();
        project.ringfence(&["lock", "--check"]).ok().done();
        project.manifest(&MIRROR.replace("mirror.py", "other.py"));
        let locked = project.picture(&project.path());
        let stale = project.ringfence(&["lock", "--check"]).expect(1);
        assert!(
            format!("{}{}", stale.stdout, stale.stderr).contains("mirror"),
            "{} {}",
            stale.stdout,
            stale.stderr
        );
        assert_eq!(project.picture(&project.path()), locked);
    });
}

#[test]
fn the_same_bundle_gives_the_same_bytes() {
    each_user(|who| {
        let bytes = || {
            let project = Project::new(who);
            project.manifest(MIRROR);
            project.lock();
            let path = project.path().join(".ringfence/ringfence.lock");
            let first = std::fs::read(&path).expect("a lock");
            project.lock();
            assert_eq!(std::fs::read(&path).expect("a lock"), first);
            first
        };
        assert_eq!(bytes(), bytes());
    });
}

#[test]
fn a_changed_instruction_is_drift() {
    each_user(|who| {
        let project = Project::new(who);
        project.file(".ringfence/instructions/team.md", "Be kind.\n");
        project.manifest(&format!(
            "{MIRROR}\n[instructions.team]\npath = \"./instructions/team.md\"\n"
        ));
        project.python();
        project.lock();
        project.trust();
        project.run(&["true"]).ok().done();
        project.file(".ringfence/instructions/team.md", "Be unkind.\n");
        project.ringfence(&["lock", "--check"]).expect(1).done();
        project.run(&["true"]).expect(3).says(&["team"]).done();
    });
}

#[test]
fn a_skill_with_a_link_out_of_it_is_refused() {
    each_user(|who| {
        let project = Project::new(who);
        project.file(".ringfence/skills/s/SKILL.md", "# s\n");
        project.manifest(&format!("{MIRROR}\n[skills.s]\npath = \"./skills/s\"\n"));
        project.lock();
        let link = project.path().join(".ringfence/skills/s/passwd");
        project.shell(&["ln", "-s", "/etc/passwd", &link.display().to_string()]).ok().done();
        let output = project.ringfence(&["lock"]).expect(1);
        assert!(format!("{}{}", output.stdout, output.stderr).contains("passwd"));
    });
}

#[test]
fn what_cannot_be_pinned_says_once_what_to_type_after_mending() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(&format!("{MIRROR}\n[skills.s]\npath = \"./skills/s\"\n"));
        project.ringfence(&["validate"]).expect(1).says(&["ringfence.toml:13"]).done();
        let output = project.ringfence(&["lock"]).expect(1).says(&["ringfence.toml:13"]);
        let next: Vec<&str> = output.stderr.lines().filter(|l| l.contains("next:")).collect();
        assert_eq!(next, ["  next: ringfence lock"], "{}", output.stderr);
        project.file(".ringfence/skills/s/SKILL.md", "# s\n");
        project.lock();
    });
}

#[test]
fn nothing_to_pin_is_said_in_words() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(crate::bundles::SMALL);
        project.ringfence(&["lock"]).ok().says(&["wrote ", "nothing is declared"]).done();
        project.ringfence(&["lock"]).ok().says(&["holds: nothing is declared"]).done();
        project.manifest(MIRROR);
        project.ringfence(&["lock"]).ok().says(&[": 1 pin\n"]).done();
    });
}

/// A command in a folder of the project, without `-C`.
fn from(project: &Project, folder: &Path, args: &[&str]) -> Output {
    let program = project.program().display().to_string();
    let mut words = vec![program.as_str()];
    words.extend(args);
    let mut command = project.command(&words);
    command.current_dir(folder);
    Started::new(command).finish()
}

#[test]
fn the_nearest_project_upwards_is_meant() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        project.file("src/deep/a", "");
        let deep = project.path().join("src/deep");
        let said = format!("ringfence: project {}", project.path().display());
        let lock = project.path().join(".ringfence/ringfence.lock");
        from(&project, &deep, &["validate"]).ok().says(&[&said]).done();
        from(&project, &deep, &["lock"]).ok().says(&[&said]).done();
        assert!(lock.exists() && !deep.join(".ringfence").exists());
        // Where the bundle is, and where a folder was named, there is nothing to say.
        let here = from(&project, &project.path(), &["lock"]).ok();
        assert!(!here.stderr.contains("ringfence: project"), "{}", here.stderr);
        let named = from(&project, &deep, &["-C", ".", "lock"]).expect(1);
        assert!(!named.stderr.contains("ringfence: project"), "{}", named.stderr);
        // Commands that are about no project say nothing of one; `init` is about this folder.
        let ps = from(&project, &deep, &["ps"]).ok();
        assert!(!ps.stderr.contains("ringfence: project"), "{}", ps.stderr);
        from(&project, &deep, &["init"]).ok().done();
        assert!(deep.join(".ringfence/ringfence.toml").exists());
    });
}

#[test]
fn trust_and_run_find_it_too() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(crate::bundles::SMALL);
        project.file("src/deep/a", "");
        let deep = project.path().join("src/deep");
        from(&project, &deep, &["lock"]).ok().done();
        let preview = from(&project, &deep, &["trust", "--preview", "--json"]).ok().json();
        let digest = preview["review_digest"].as_str().expect("a digest").to_owned();
        from(&project, &deep, &["trust", "--yes", "--consented", &digest]).ok().done();
        let run = from(&project, &deep, &["run", "--", "/bin/pwd"]).ok();
        assert_eq!(run.stdout.trim(), project.path().display().to_string());
        // It is one grant, for the project.
        project.run(&["true"]).ok().done();
    });
}

#[test]
fn borders_are_not_crossed() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        project.file("src/deep/a", "");
        let deep = project.path().join("src/deep");
        from(&project, &deep, &["validate"]).ok().done();
        let git = project.file("src/.git/HEAD", "ref: refs/heads/main\n");
        from(&project, &deep, &["validate"]).expect(1).says(&["no manifest"]).done();
        std::fs::remove_dir_all(git.parent().expect("it has one")).expect("our own folder");
        // Another file system, in a mount namespace of its own.
        let program = project.program().display();
        let line = format!(
            "mount -t tmpfs none \"$PWD\" && cd \"$PWD\" && mkdir in && cd in && exec {program} validate"
        );
        let mut command = project.command(&["unshare", "-rm", "/bin/sh", "-c", &line]);
        command.current_dir(&deep);
        Started::new(command).finish().expect(1).says(&["no manifest"]).done();
        let line = format!("true && mkdir in && cd in && exec {program} validate");
        let mut control = project.command(&["unshare", "-rm", "/bin/sh", "-c", &line]);
        control.current_dir(&deep);
        Started::new(control).finish().ok().done();
        // The home folder: its `.ringfence` is the machine's.
        let mut project = project;
        let home = project.path().join("src").display().to_string();
        project.env("HOME", &home);
        from(&project, &deep, &["validate"]).expect(1).says(&["no manifest"]).done();
    });
}

#[test]
fn a_bundle_that_somebody_else_put_above_is_not_taken() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        project.file("src/deep/a", "");
        let deep = project.path().join("src/deep");
        from(&project, &deep, &["validate"]).ok().done();
        // Only root can give a folder to another user; who may not, has the unit test of the search.
        if !Who::suite_is_root() {
            return;
        }
        let other = if who == Who::Itself { Who::Ordinary } else { Who::Itself };
        for part in ["", ".ringfence", ".ringfence/ringfence.toml"] {
            let path = project.path().join(part);
            let give = |to: Who| {
                let uid = Some(to.uid());
                std::os::unix::fs::lchown(&path, uid, uid).expect("root gives");
            };
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            if path.is_dir() {
                std::fs::set_permissions(&path, mode).expect("root may");
            }
            give(other);
            from(&project, &deep, &["validate"])
                .expect(1)
                .says(&["another user's and is not taken", "no manifest"])
                .done();
            give(who);
            from(&project, &deep, &["validate"]).ok().done();
        }
    });
}
