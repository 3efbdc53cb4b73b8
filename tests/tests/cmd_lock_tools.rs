//! `ringfence lock --tools`

use std::io::Write;
use std::sync::{Arc, Mutex};

use ringfence_tests::{Project, Started, Upstream, each_user};
use rustix::process::Signal;
use serde_json::json;

use crate::bundles::{OFFERS, pinned, upstream};

fn offer(description: &str) -> serde_json::Value {
    json!({"instructions": "Be kind.", "tools": [{"name": "look", "description": description}]})
}

fn lock(project: &Project) -> String {
    let path = project.path().join(".ringfence/ringfence.lock");
    std::fs::read_to_string(path).expect("a lock")
}

#[test]
fn without_trust_nobody_is_asked() {
    each_user(|who| {
        let offered = Arc::new(Mutex::new(offer("a tool")));
        let server = Upstream::offering(&offered);
        let project = Project::new(who);
        let manifest = upstream(&server.url()).replace("\"echo\"", "\"look\"");
        project.manifest(&manifest);
        let asking: [&[&str]; 3] = [
            &["lock", "--tools"],
            &["lock", "--check", "--tools"],
            &["lock", "--tools", "up", "--json"],
        ];
        for args in asking {
            project.ringfence(args).expect(3).says(&["ringfence trust"]).done();
        }
        project.lock();
        for args in asking {
            project.ringfence(args).expect(3).says(&["ringfence trust"]).done();
        }
        project.trust();
        // Other bytes than were trusted.
        project.manifest(&format!("{manifest}\n[limits]\nmax_duration_seconds = 9\n"));
        for args in asking {
            project.ringfence(args).expect(3).says(&["ringfence trust"]).done();
        }
        assert!(server.seen().is_empty(), "{:?}", server.seen());
        assert!(project.runs().is_empty());
        // Control: with trust it is asked; and neither `lock` nor `lock --check` asks.
        project.lock();
        project.ringfence(&["lock", "--check"]).ok().done();
        project.trust();
        assert!(server.seen().is_empty(), "{:?}", server.seen());
        project.lock_tools().done();
        assert!(!server.seen().is_empty());
    });
}

#[test]
fn it_pins_says_what_moved_and_asks_for_trust_again() {
    each_user(|who| {
        let project = pinned(who, OFFERS, &offer("a tool"));
        let first = lock(&project);
        assert!(first.contains("[[tools]]") && first.contains("Be kind."), "{first}");
        assert!(first.contains("\"description\": \"a tool\""), "{first}");
        // Nothing moved: nothing is written, and trust holds.
        let again = project.lock_tools().says(&["the lock holds", "1 tool(s) of 1 server(s)"]);
        assert!(again.stdout.is_empty(), "{}", again.stdout);
        assert_eq!(lock(&project), first);
        project.run(&["true"]).ok().done();
        // Something moved.
        project.file("offer.json", offer("an awful tool").to_string());
        let check = project.ringfence(&["lock", "--check", "--tools", "--json"]).expect(1).json();
        assert_eq!((&check["version"], &check["holds"]), (&json!(1), &json!(false)));
        assert_eq!(check["moved"][0]["tool"], "look");
        assert_eq!(check["moved"][0]["fields"][0]["path"], "description");
        assert_eq!(lock(&project), first, "--check wrote something");
        project.run(&["true"]).ok().done();
        let moved = project.lock_tools().says(&["next: ringfence trust"]);
        assert!(moved.stdout.contains("description: [-a-]{+an awful+} tool"), "{}", moved.stdout);
        assert_ne!(lock(&project), first);
        project.run(&["true"]).expect(3).says(&["ringfence trust"]).done();
        project.trust();
        project.ringfence(&["lock", "--check", "--tools"]).ok().done();
        let json = project.ringfence(&["lock", "--tools", "offers", "--json"]).ok().json();
        assert_eq!((&json["version"], &json["written"]), (&json!(1), &json!(false)));
        assert_eq!(json["servers"], json!([{"server": "offers", "tools": 1}]));
        // It is in the record, and its evidence is whole.
        let events = project.events();
        events.has("call_decided", &[("method", "tools/list"), ("outcome", "allowed")]);
        events.has("sandbox_probed", &[("principal", "offers"), ("tight", "true")]);
        events.has("run_finished", &[("status", "0")]);
        project.ringfence(&["audit", "verify"]).ok().done();
        project.ringfence(&["report"]).ok().done();
    });
}

#[test]
fn plain_lock_keeps_the_pins_while_the_server_is_declared_as_it_was() {
    each_user(|who| {
        let project = pinned(who, OFFERS, &offer("a tool"));
        let labelled = |label: &str| {
            let output = project.ringfence(&["validate"]).ok();
            let line = output.stdout.lines().find(|line| line.starts_with("tools of offers"));
            assert!(line.expect("a line").ends_with(label), "{}", output.stdout);
        };
        labelled(" pinned (1 tools)");
        project.manifest(&format!("{OFFERS}\n[limits]\nmax_duration_seconds = 9\n"));
        project.lock();
        assert!(lock(&project).contains("[[tools]]"));
        labelled(" pinned (1 tools)");
        project.manifest(&format!("{OFFERS}tools = [\"look\"]\n"));
        labelled(" unpinned");
        project
            .ringfence(&["lock"])
            .ok()
            .says(&["tools of offers", "ringfence lock --tools"])
            .done();
        assert!(!lock(&project).contains("[[tools]]"));
        labelled(" unpinned");
    });
}

#[test]
fn whole_or_nothing() {
    each_user(|who| {
        let offered = Arc::new(Mutex::new(offer("a tool")));
        let server = Upstream::offering(&offered);
        let two =
            |url: &str| format!("{OFFERS}\n[servers.web]\ntype = \"http\"\nurl = \"{url}\"\n");
        let project = Project::new(who);
        project.python();
        project.file("offer.json", offer("a tool").to_string());
        project.manifest(&two(&Upstream::nobody()));
        project.lock();
        project.trust();
        let before = lock(&project);
        project
            .ringfence(&["lock", "--tools"])
            .expect(1)
            .says(&["web: ", "nothing is pinned"])
            .done();
        assert_eq!(lock(&project), before);
        project.ringfence(&["audit", "verify"]).ok().done();
        // The one alone can be asked, and the other stays as it is.
        project.ringfence(&["lock", "--tools", "offers"]).ok().done();
        assert_eq!(lock(&project).matches("[[tools]]").count(), 1);
        project.trust();
        project.ringfence(&["lock", "--check", "--tools", "offers"]).ok().done();
        let unknown = project.ringfence(&["lock", "--tools", "nobody"]).expect(1);
        unknown.says(&["nobody", "offers, web"]).done();
        // Control: with both there, both are pinned.
        project.manifest(&two(&server.url()));
        project.lock();
        project.trust();
        let check = project.ringfence(&["lock", "--check", "--tools"]).expect(1);
        assert!(check.stdout.contains("new      server web"), "{}", check.stdout);
        project.lock_tools().done();
        assert_eq!(lock(&project).matches("[[tools]]").count(), 2);
    });
}

#[test]
fn what_does_not_show_is_not_pinned_and_its_place_is_named() {
    each_user(|who| {
        let project = Project::new(who);
        project.python();
        project.manifest(OFFERS);
        let hidden = json!({"tools": [
            {"name": "fine", "description": "\u{26a0}\u{fe0f} careful"},
            {"name": "bad", "inputSchema": {"properties": {"p": {"description": "a\u{202e}b"}}}},
        ]});
        project.file("offer.json", hidden.to_string());
        project.lock();
        project.trust();
        let output = project.lock_tools();
        assert!(!output.stderr.contains('\u{202e}') && !output.stdout.contains('\u{202e}'));
        output.says(&["not pinned", "inputSchema.properties.p.description", "U+202E"]).done();
        assert!(lock(&project).contains("\"fine\"") && !lock(&project).contains("\"bad\""));
        let before = lock(&project);
        project.trust();
        let hidden = json!({"instructions": "a\u{200b}b", "tools": []});
        project.file("offer.json", hidden.to_string());
        let output = project.ringfence(&["lock", "--tools"]).expect(1);
        output.says(&["instructions", "U+200B"]).done();
        assert_eq!(lock(&project), before);
    });
}

#[test]
fn a_secret_that_a_server_tells_does_not_reach_the_lock() {
    each_user(|who| {
        let token = "tok-3f9a1c77e2b84d06";
        let offered = Arc::new(Mutex::new(offer(&format!("call me with {token}"))));
        let server = Upstream::offering(&offered);
        let manifest = upstream(&server.url()).replace("\"echo\"", "\"look\"")
            + "headers = { Authorization = \"Bearer ${TOKEN}\" }\n";
        let mut project = Project::new(who);
        project.env("TOKEN", token);
        project.manifest(&manifest);
        project.lock();
        project.trust();
        let output = project.lock_tools();
        let said = server.seen();
        let header = said.iter().filter_map(|seen| seen.header("authorization")).next();
        assert_eq!(header, Some(&*format!("Bearer {token}")), "control: the server has it");
        let all = crate::bundles::all_text(&project, project.root(), "");
        assert!(all.contains("call me with"), "control: the definition is there");
        for text in [all, output.stdout, output.stderr] {
            assert!(!text.contains(token), "{text}");
        }
        project.events().has("secret_accessed", &[("name", "TOKEN"), ("outcome", "allowed")]);
        project.trust();
        project.ringfence(&["lock", "--check", "--tools"]).ok().done();
    });
}

#[test]
fn a_machine_can_require_it() {
    each_user(|who| {
        let project = Project::new(who);
        project.python();
        project.manifest(OFFERS);
        project.file("offer.json", offer("a tool").to_string());
        project.machine("[policy]\nmax_duration_seconds = 60\nrequire_pinned_tools = true\n");
        project.lock();
        project.trust();
        for args in [["run", "--", "true"].as_slice(), &["run", "--plan", "--", "true"]] {
            let refused = project.ringfence(args).expect(3);
            refused
                .says(&[
                    "offers",
                    "machine.toml:3",
                    "require_pinned_tools",
                    "ringfence lock --tools",
                ])
                .done();
        }
        project.lock_tools().done();
        project.trust();
        project.run(&["true"]).ok().done();
    });
}

/// A server that is being asked, at the moment when it lists its tools; and its gate's end.
fn asked(project: &Project) -> (Started, std::fs::File) {
    project.shell(&["mkfifo", "gate"]).ok().done();
    let run = project.start(&["lock", "--tools"]);
    // Opens when the server does.
    let gate = std::fs::OpenOptions::new().write(true).open(project.path().join("gate"));
    (run, gate.expect("our own FIFO"))
}

#[test]
fn a_bundle_that_changes_meanwhile_is_not_written_over() {
    each_user(|who| {
        let project = pinned(who, OFFERS, &offer("a tool"));
        project.file("offer.json", offer("another tool").to_string());
        let before = lock(&project);
        let (run, mut gate) = asked(&project);
        project.manifest(&format!("{OFFERS}\n[limits]\nmax_duration_seconds = 9\n"));
        gate.write_all(b"go").expect("the server reads");
        drop(gate);
        run.finish().expect(1).says(&["changed while", "ringfence trust"]).done();
        assert_eq!(lock(&project), before);
        // Control: when nothing changes it is written.
        project.manifest(OFFERS);
        let path = project.path().join("gate");
        std::fs::remove_file(&path).expect("our own FIFO");
        let (run, mut gate) = asked(&project);
        gate.write_all(b"go").expect("the server reads");
        drop(gate);
        run.finish().ok().done();
        assert_ne!(lock(&project), before);
    });
}

#[test]
fn it_can_be_stopped_and_its_evidence_is_whole() {
    each_user(|who| {
        let project = pinned(who, OFFERS, &offer("a tool"));
        project.file("offer.json", offer("another tool").to_string());
        let before = lock(&project);
        let (run, gate) = asked(&project);
        run.signal(Signal::TERM);
        run.finish().expect(1).says(&["stopped", "nothing is pinned"]).done();
        drop(gate);
        assert_eq!(lock(&project), before);
        project.events().has("run_finished", &[("ended_by", "stopped")]);
        project.ringfence(&["audit", "verify"]).ok().done();
        let alive = project.ringfence(&["ps", "--json"]).ok().json();
        assert!(!alive.to_string().contains("lock"), "{alive}");
    });
}
