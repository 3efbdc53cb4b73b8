//! `ringfence lock`

use ringfence_tests::{Project, each_user};

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
        project.ringfence(&["validate"]).ok().done();
        let output = project.ringfence(&["lock"]).expect(1).says(&["ringfence.toml:13"]);
        let next: Vec<&str> = output.stderr.lines().filter(|l| l.contains("next:")).collect();
        assert_eq!(next, ["  next: ringfence lock"], "{}", output.stderr);
        project.file(".ringfence/skills/s/SKILL.md", "# s\n");
        project.lock();
    });
}
