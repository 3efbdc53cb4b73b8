//! `ringfence share`

use ringfence_tests::{Forged, Project, each_user};

use crate::bundles::{SMALL, give, share, shared};

#[test]
fn every_kind_is_in_it_and_nothing_else_and_twice_is_the_same() {
    each_user(|who| {
        let project = Project::new(who);
        shared(&project);
        project.file("src/plans.txt", "not of the bundle\n");
        project.local("[limits]\nmax_duration_seconds = 7\n");
        let before = project.picture(&project.path());
        let (first, did) = share(&project, "one");
        let (second, _) = share(&project, "two");
        assert_eq!(project.picture(&project.path()), before);
        let bytes = std::fs::read(&first).expect("an archive");
        assert_eq!(bytes, std::fs::read(&second).expect("an archive"));
        assert!(did.starts_with("did:key:z6Mk"), "{did}");
        let forged = Forged::open(&bytes);
        let rows = forged.statement["predicate"]["members"].as_array().expect("rows");
        let paths: Vec<_> = rows.iter().map(|row| row["path"].as_str().expect("text")).collect();
        assert_eq!(
            paths,
            [
                "bundle/.ringfence/extensions/lint.ts",
                "bundle/.ringfence/instructions/team.md",
                "bundle/.ringfence/ringfence.lock",
                "bundle/.ringfence/ringfence.toml",
                "bundle/.ringfence/skills/s/SKILL.md",
                "bundle/.ringfence/skills/s/scripts/run.sh",
                "bundle/.ringfence/workflows/triage/a.js",
                "bundle/tools/server.py",
            ]
        );
        // An ordinary tar finds the same in it.
        let tar = project.home().join("plain.tar");
        std::fs::write(&tar, zstd::decode_all(&bytes[..]).expect("zstd")).expect("our own file");
        who.own(&tar);
        let listed = project.shell(&["tar", "--numeric-owner", "-tvf", &tar.display().to_string()]);
        for line in listed.ok().stdout.lines() {
            assert!(line.contains(" 0/0 ") && line.contains("1970-01-01 00:00"), "{line}");
            let script = line.ends_with("run.sh");
            assert!(line.starts_with(if script { "-rwxr-xr-x" } else { "-rw-r--r--" }), "{line}");
        }
    });
}

#[test]
fn the_default_name_is_made_of_agent_and_version_and_nothing_is_replaced() {
    each_user(|who| {
        let project = Project::new(who);
        shared(&project);
        let run = || {
            let program = project.program().display().to_string();
            let path = project.path().display().to_string();
            project.shell(&[&program, "-C", &path, "share"])
        };
        run().ok().done();
        let file = project.path().join("case-1.2.0.ringfence.tar.zst");
        let bytes = std::fs::read(&file).expect("an archive");
        run().expect(1).says(&["is there already"]).done();
        assert_eq!(std::fs::read(&file).expect("an archive"), bytes);
        let names = project.picture(&project.path());
        assert!(!names.keys().any(|path| path.display().to_string().contains(".ringfence-share")));
    });
}

#[test]
fn what_is_not_locked_or_named_or_has_moved_is_not_shared() {
    each_user(|who| {
        let project = Project::new(who);
        let file = project.home().join("out").display().to_string();
        let share = |status| project.ringfence(&["share", "-o", &file]).expect(status);
        project.manifest(SMALL);
        share(1).says(&["no lock"]).done();
        project.lock();
        share(1).says(&["agent.version"]).done();
        for version in ["1 0", "../x", "V1", "-1", "1/2"] {
            project.manifest(&format!("{SMALL}version = \"{version}\"\n"));
            project.lock();
            share(1).says(&["agent.version"]).done();
        }
        shared(&project);
        project.file(".ringfence/skills/s/SKILL.md", "# other\n");
        share(3).says(&["skill s", "ringfence lock"]).done();
        project.file(".ringfence/skills/s/SKILL.md", "# s\n");
        // What the lock pins is the overlay's, and the overlay stays at home.
        project.local("[settings.claude-code]\nmodel = \"haiku\"\n");
        project.lock();
        share(3).says(&["never shared", "claude-code.model", "ringfence lock"]).done();
        project.local("");
        project.lock();
        assert!(!project.home().join("out").exists());
        share(0).done();
    });
}

#[test]
fn a_program_that_only_a_link_leads_to_is_not_shared() {
    each_user(|who| {
        let project = Project::new(who);
        shared(&project);
        let manifest = crate::bundles::SHARED.replace("tools/server.py", "tools/link.py");
        let link = project.path().join("tools/link.py").display().to_string();
        project.shell(&["ln", "-s", "server.py", &link]).ok().done();
        project.manifest(&manifest);
        project.lock();
        let file = project.home().join("out");
        project.ringfence(&["share", "-o", &file.display().to_string()]).expect(3).done();
        assert!(!file.exists());
        project.manifest(crate::bundles::SHARED);
        project.lock();
        project.ringfence(&["share", "-o", &file.display().to_string()]).ok().done();
    });
}

#[test]
fn what_is_shared_arrives_though_its_maker_is_gone() {
    each_user(|who| {
        let sender = Project::new(who);
        shared(&sender);
        let (file, _) = share(&sender, "out");
        let bytes = std::fs::read(file).expect("an archive");
        drop(sender);
        let receiver = Project::new(who);
        let file = give(&receiver, "in", &bytes).display().to_string();
        receiver.ringfence(&["receive", &file]).ok().done();
    });
}

#[test]
fn a_literal_secret_is_named_by_its_place_and_not_shared() {
    each_user(|who| {
        let project = Project::new(who);
        shared(&project);
        let out = project.home().join("out").display().to_string();
        let secret = format!("gh{}_{}", 'p', "aZ3kQ9".repeat(6));
        project.file(".ringfence/skills/s/SKILL.md", format!("# s\n\ntoken = \"{secret}\"\n"));
        project.lock();
        let refused = project.ringfence(&["share", "-o", &out]).expect(3);
        assert!(!refused.stderr.contains(&secret), "it shows the secret: {}", refused.stderr);
        refused.says(&["SKILL.md:3:", "github-token"]).done();
        assert!(!project.home().join("out").exists());
        project.file(".ringfence/skills/s/SKILL.md", "# s\n\ntoken = \"${TOKEN}\"\n");
        project.lock();
        project.ringfence(&["share", "-o", &out]).ok().done();
    });
}
