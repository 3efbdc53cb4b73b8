//! `ringfence ps`

use std::os::unix::fs::PermissionsExt;

use ringfence_tests::{Project, Who, each_user};

use crate::bundles::files;
use crate::cmd_stop::{OUT, waiting, waiting_behind};

#[test]
fn it_lists_what_is_alive_and_nothing_else() {
    each_user(|who| {
        let project = Project::ready(who, &files(OUT));
        let none = project.ringfence(&["ps", "--json"]).ok().json();
        assert_eq!(none["runs"], serde_json::json!([]));
        let run = waiting(&project);
        let id = project.runs().pop().expect("a run");
        let one = project.ringfence(&["ps", "--json"]).ok().json();
        assert_eq!(one["runs"].as_array().map(Vec::len), Some(1), "{one}");
        assert!(
            one.to_string().contains(&id) && one.to_string().contains(&run.pid().to_string()),
            "{one}"
        );
        assert!(project.ringfence(&["ps"]).ok().stdout.contains(&id));
        project.ringfence(&["stop", &id]).ok().done();
        run.finish().done();
        let none = project.ringfence(&["ps", "--json"]).ok().json();
        assert_eq!(none["runs"], serde_json::json!([]));
    });
}

#[test]
fn it_says_of_each_run_which_sandbox_it_is_in_and_what_that_is_worth() {
    each_user(|who| {
        let project = Project::ready(who, &files(OUT));
        let command = ["/bin/sh", "-c", "echo up > out/ready; exec sleep 1000"];
        let runs =
            [("native", "NATIVE / ENFORCED"), ("host", "HOST / ADVISORY")].map(|(name, mode)| {
                let run = waiting_behind(&project, name, &command);
                (run, project.runs().pop().expect("a run"), name, mode)
            });
        let json = project.ringfence(&["ps", "--json"]).ok().json();
        let text = project.ringfence(&["ps"]).ok().stdout;
        let all = project.ringfence(&["ps", "--all"]).ok().stdout;
        for (_, id, name, mode) in &runs {
            let rows = json["runs"].as_array().into_iter().flatten();
            let rows: Vec<_> = rows.filter(|row| row["run"] == **id).collect();
            assert_eq!(rows.len(), 1, "{json}");
            assert_eq!((&rows[0]["backend"], &rows[0]["mode"]), (&(*name).into(), &(*mode).into()));
            for text in [&text, &all] {
                let rows: Vec<_> = text.lines().filter(|line| line.contains(&**id)).collect();
                assert!(matches!(rows[..], [row] if row.contains(mode)), "{text}");
            }
        }
        for (run, id, ..) in runs {
            project.ringfence(&["stop", &id]).ok().done();
            run.finish().done();
        }
        let all = project.ringfence(&["ps", "--all", "--json"]).ok().json();
        let modes: Vec<_> =
            all["runs"].as_array().expect("a list").iter().map(|r| &r["mode"]).collect();
        assert!(modes.contains(&&"HOST / ADVISORY".into()), "{all}");
        assert!(modes.contains(&&"NATIVE / ENFORCED".into()), "{all}");
    });
}

#[test]
fn nothing_says_enforced_before_the_probe_has_passed() {
    each_user(|who| {
        let project = Project::ready(who, &files(OUT));
        project.run(&["true"]).ok().done();
        let events = project.events().0;
        let probed = events.iter().position(|event| event["type"] == "sandbox_probed");
        let (before, after) = events.split_at(probed.expect("control: it was probed") + 1);
        assert!(!before.iter().any(|event| event.to_string().contains("ENFORCED")), "{before:?}");
        assert_eq!(after[0]["mode"], "NATIVE / ENFORCED", "{after:?}");
    });
}

#[test]
fn a_run_that_the_probe_refused_is_never_called_enforced() {
    // Root may execute it, and is root no more inside: the probe finds that its program does not work.
    let root = Who::suite_is_root().then_some(Who::Itself);
    if let Some(who) = root {
        let project = Project::ready(who, &files(OUT));
        let program = project.file("program", "#!/bin/sh\nexit 0\n");
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o700)).expect("our own file");
        let program = program.display().to_string();
        project.run(&[&program]).ok().done();
        assert!(project.events().0.iter().any(|e| e.to_string().contains("NATIVE / ENFORCED")));
        std::os::unix::fs::chown(&program, Some(65534), None).expect("our own file");
        let output = project.run(&[&program]).says(&["not shown to be tight"]);
        assert_ne!(output.status, 0);
        let events = project.events();
        events.has("sandbox_probed", &[("principal", "agent"), ("tight", "false")]);
        assert!(events.with("sandbox_started", &[]).is_empty());
        let id = project.runs().pop().expect("a run");
        let report = project.ringfence(&["report", &id]).ok().stdout;
        let all = project.ringfence(&["ps", "--all"]).ok().stdout;
        let row = all.lines().find(|line| line.contains(&id)).expect("its row");
        assert!(row.contains("native, not released"), "{row}");
        for told in [&output.stdout, &output.stderr, &report, &project.events_text(), row] {
            assert!(!told.contains("ENFORCED"), "{told}");
        }
    }
}
