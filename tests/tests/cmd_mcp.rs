//! `ringfence mcp`

use std::process::Command;

use ringfence_tests::{
    Events, Project, StdioClient, Upstream, Who, each_user, eventually, field, names, stateless,
};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Two servers, one of them over HTTP; each has a tool that may be called and one that may not.
fn two(marker: &str, url: &str) -> String {
    format!(
        r#"version = 1

[servers.mirror]
type = "stdio"
command = "/usr/bin/python3"
args = ["mirror.py", "{marker}"]
tools = ["raw"]

[servers.up]
type = "http"
url = "{url}"
tools = ["echo"]
"#
    )
}

/// `ringfence mcp` with these words, in the project's folder.
pub(crate) fn command(project: &Project, words: &[&str]) -> Command {
    let program = project.program().display().to_string();
    let mut all = vec![program.as_str(), "mcp"];
    all.extend(words);
    let mut command = project.command(&all);
    command.current_dir(project.path());
    command
}

fn client(project: &Project, words: &[&str]) -> StdioClient {
    StdioClient::start(command(project, words))
}

/// Processes of this machine whose command line has these words, but for Ringfence's own.
fn processes(words: &str) -> usize {
    let all = std::fs::read_dir("/proc").expect("this is Linux").flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(words) && !line.contains("ringfence")).count()
}

/// A word that no other process of this machine has on its command line.
fn marker(project: &Project) -> String {
    let name = project.root().file_name().expect("it has a name").to_string_lossy().into_owned();
    format!("marker-{}", name.trim_start_matches("ringfence-"))
}

/// Another folder beside the project, with this bundle and this file of the project's, trusted.
pub(crate) fn beside(project: &Project, manifest: &str, file: &str) -> std::path::PathBuf {
    let other = project.root().join("other");
    std::fs::create_dir_all(other.join("src/deep")).expect("our own folder");
    std::fs::create_dir(other.join(".ringfence")).expect("our own folder");
    std::fs::write(other.join(".ringfence/ringfence.toml"), manifest).expect("our own file");
    std::fs::copy(project.path().join(file), other.join(file)).expect("a copy");
    project.who().own(&other);
    let there = other.display().to_string();
    let program = project.program().display().to_string();
    let at = |words: &[&str]| {
        project.shell(&[&[program.as_str(), "-C", there.as_str()], words].concat()).ok()
    };
    at(&["lock"]).done();
    let digest = at(&["trust", "--preview", "--json"]).json();
    let digest = digest["review_digest"].as_str().expect("a digest").to_owned();
    at(&["trust", "--yes", "--consented", &digest]).done();
    other
}

fn ready(who: Who, up: &Upstream) -> (Project, String) {
    let project = Project::new(who);
    project.python();
    let marker = marker(&project);
    project.manifest(&two(&marker, &up.url()));
    project.lock();
    project.trust();
    (project, marker)
}

fn refused(answer: &Value) -> &Value {
    assert_eq!(answer["error"]["code"], -32001, "it must be refused: {answer}");
    &answer["error"]["data"]["ringfence"]
}

fn answered(answer: &Value) {
    assert!(answer["result"]["content"].is_array(), "it must be answered: {answer}");
}

fn record(project: &Project) -> Events {
    Events::from_value(&project.report())
}

#[test]
fn every_revision_is_served_and_held_to_the_rules() {
    each_user(|who| {
        let up = Upstream::new();
        let (project, marker) = ready(who, &up);
        for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
            let mut client = client(&project, &[]);
            client.handshake(revision);
            let tools = client.tools();
            for tool in ["mirror__raw", "up__echo"] {
                assert!(tools.contains(&tool.to_owned()), "{tools:?}");
            }
            assert!(!tools.iter().any(|tool| tool.contains("secret_tool")), "{tools:?}");
            answered(&client.call("mirror__raw", json!({ "a": 1 })));
            answered(&client.call("up__echo", json!({ "a": 1 })));
            let no = client.call("mirror__secret_tool", json!({}));
            assert_eq!(refused(&no)["check"], "tools");
            assert_eq!(client.request("ping", json!({}))["result"], json!({}));
            let (status, said) = client.finish();
            assert_eq!(status, 0, "{said}");
        }
        let mut client = client(&project, &[]);
        let hello = client.stateless("server/discover", json!({}));
        let versions = hello["result"]["supportedVersions"].as_array().expect("a list");
        assert!(versions.contains(&"2026-07-28".into()), "{hello}");
        let list = client.stateless("tools/list", json!({}));
        assert!(names(&list).contains(&"mirror__raw".to_owned()), "{list}");
        assert_eq!(list["result"]["resultType"], "complete", "{list}");
        assert!(list["result"]["ttlMs"].is_number() && list["result"]["cacheScope"].is_string());
        let call = client.stateless("tools/call", json!({ "name": "up__echo", "arguments": {} }));
        answered(&call);
        let no = client.stateless("tools/call", json!({ "name": "up__wipe", "arguments": {} }));
        assert_eq!(refused(&no)["check"], "tools");
        assert_eq!(client.finish().0, 0);
        assert_eq!(processes(&marker), 0, "nothing is left behind");
        let events = record(&project);
        assert_eq!(field(events.has("run_started", &[]), "kind"), "serve");
        events.has("call_decided", &[("tool", "echo"), ("outcome", "allowed")]);
        events.has("call_decided", &[("tool", "wipe"), ("outcome", "refused")]);
        events.has("run_finished", &[("ended_by", "exit")]);
        assert_eq!(project.runs().len(), 5, "each has a record of its own");
        project.ringfence(&["audit", "verify"]).ok().done();
    });
}

#[test]
fn nothing_is_started_before_trust_and_after_it_no_restart_is_needed() {
    each_user(|who| {
        let up = Upstream::new();
        let project = Project::new(who);
        project.python();
        let marker = marker(&project);
        let mut client = client(&project, &[]);
        // No manifest at all.
        let hello = client.handshake("2025-11-25");
        let words = hello["instructions"].as_str().expect("it says why");
        assert!(words.contains("ringfence -C") && words.contains(" init"), "{words}");
        assert!(client.tools().is_empty());
        // A manifest that nobody said yes to.
        project.manifest(&two(&marker, &up.url()));
        project.lock();
        let no = client.call("mirror__raw", json!({}));
        assert_eq!(refused(&no)["check"], "trust");
        let next = refused(&no)["next"].as_str().expect("a command");
        let path = project.path().display().to_string();
        assert_eq!(next, format!("ringfence -C {path} trust"));
        assert!(client.tools().is_empty());
        assert!(names(&client.stateless("tools/list", json!({}))).is_empty());
        assert!(project.runs().is_empty() && up.seen().is_empty() && processes(&marker) == 0);
        // A yes in another terminal. Whoever listens is told, without asking.
        project.trust();
        client.next(|message| message["method"] == "notifications/tools/list_changed");
        assert_eq!(client.tools().len(), 2 + names_of_lease(&project));
        answered(&client.call("mirror__raw", json!({})));
        answered(&client.call("up__echo", json!({})));
        assert_eq!(processes(&marker), 1, "control: it is seen when it runs");
        // It drifts in the middle.
        let other = two(&marker, &up.url()).replace("\"raw\"", "\"raw\", \"environment\"");
        project.manifest(&other);
        let before = up.seen().len();
        assert_eq!(refused(&client.call("up__echo", json!({})))["check"], "trust");
        assert!(client.tools().is_empty());
        assert_eq!(up.seen().len(), before, "nothing went on");
        eventually("the end of its server", || processes(&marker) == 0);
        // Said yes to again: another session takes over.
        project.lock();
        project.trust();
        let list = client.tools();
        assert!(list.contains(&"mirror__environment".to_owned()), "{list:?}");
        answered(&client.call("mirror__environment", json!({})));
        // And taken back: at once.
        project.ringfence(&["trust", "--revoke"]).ok().done();
        assert_eq!(refused(&client.call("mirror__raw", json!({})))["check"], "trust");
        assert_eq!(client.finish().0, 0);
        assert_eq!(project.runs().len(), 2);
        assert_eq!(processes(&marker), 0);
        let verified = project.ringfence(&["audit", "verify", "--json"]).ok().json();
        assert!(!verified.to_string().contains("unsealed\":1"), "{verified}");
        assert!(project.ringfence(&["ps", "--json"]).ok().json()["runs"] == json!([]));
    });
}

/// The tools about leases are there where there are toolsets.
fn names_of_lease(project: &Project) -> usize {
    let manifest = std::fs::read_to_string(project.path().join(".ringfence/ringfence.toml"));
    if manifest.unwrap_or_default().contains("[toolsets") { 3 } else { 0 }
}

#[test]
fn a_client_s_roots_say_which_folder_is_meant() {
    each_user(|who| {
        let up = Upstream::new();
        let (project, marker) = ready(who, &up);
        let manifest = two(&marker, &up.url()).replace("servers.mirror", "servers.other");
        let other = beside(&project, &manifest, "mirror.py");
        let below = other.join("src/deep");

        let uri = |folder: &std::path::Path| format!("file://{}", folder.display());
        let seen = |uris: &[String], words: &[&str]| {
            let mut client = client(&project, words);
            client.with_roots(uris).handshake("2025-11-25");
            let tools = client.tools();
            assert_eq!(client.finish().0, 0);
            tools.into_iter().find(|tool| tool.ends_with("__raw")).unwrap_or_default()
        };
        let nowhere = project.root().join("home");
        assert_eq!(seen(&[uri(&below)], &[]), "other__raw", "from below it");
        assert_eq!(
            seen(&[uri(&nowhere), uri(&other)], &[]),
            "other__raw",
            "the first with a bundle"
        );
        assert_eq!(seen(&[uri(&project.path()), uri(&other)], &[]), "mirror__raw");
        let named = project.path().display().to_string();
        assert_eq!(seen(&[uri(&other)], &["--folder", &named]), "mirror__raw", "it was named");
        for bad in [
            "",
            "other",
            "file:",
            "http://localhost/x",
            "file://elsewhere/x",
            "file:///%2e%2e",
            &format!("{}?x", uri(&other)),
            &format!("{}#x", uri(&other)),
            &uri(&other)[7..],
        ] {
            assert_eq!(seen(&[bad.to_owned()], &[]), "mirror__raw", "{bad:?} leads nowhere");
        }

        // The roots change, and change back.
        let mut client = client(&project, &[]);
        client.with_roots(&[uri(&project.path())]).handshake("2025-06-18");
        assert!(client.tools().contains(&"mirror__raw".to_owned()));
        answered(&client.call("mirror__raw", json!({})));
        client.with_roots(&[uri(&other)]);
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }));
        client.next(|message| message["method"] == "notifications/tools/list_changed");
        assert!(client.tools().contains(&"other__raw".to_owned()));
        answered(&client.call("other__raw", json!({})));
        // The stateless revision is served from the working folder, and asks nothing.
        let list = client.stateless("tools/list", json!({}));
        assert!(names(&list).contains(&"mirror__raw".to_owned()), "{list}");
        assert_eq!(client.finish().0, 0);
        assert_eq!(processes(&marker), 0);
        project.ringfence(&["audit", "verify"]).ok().done();

        let mut silent = self::client(&project, &[]);
        let hello = silent.stateless("server/discover", json!({}));
        assert!(hello["result"].is_object());
        silent.stateless("tools/list", json!({}));
        silent.close();
        let (status, said) = silent.finish();
        assert_eq!((status, said.contains("roots")), (0, false), "{said}");
    });
}

#[test]
fn toolset_compact_and_one_server_select_what_is_seen() {
    each_user(|who| {
        let up = Upstream::new();
        let project = Project::new(who);
        project.python();
        let sets = "\n[toolsets.web]\nservers = [\"up\"]\ndefault = true\n\n[toolsets.local]\nservers = [\"mirror\"]\n";
        project.manifest(&format!("{}{sets}", two(&marker(&project), &up.url())));
        project.lock();
        project.trust();
        let tools = |words: &[&str]| {
            let mut client = client(&project, words);
            client.handshake("2025-11-25");
            let mut tools = client.tools();
            assert_eq!(client.finish().0, 0);
            tools.retain(|tool| !tool.starts_with("ringfence__"));
            tools
        };
        assert_eq!(tools(&[]), ["up__echo"], "the default toolset");
        assert_eq!(tools(&["--toolset", "local"]), ["mirror__raw"]);
        assert_eq!(tools(&["--server", "mirror"]), ["raw"]);
        assert_eq!(tools(&["--compact"]), ["tools_search", "tools_describe", "tools_call"]);
        let mut compact = client(&project, &["--compact"]);
        compact.handshake("2025-11-25");
        let call = json!({ "name": "up__echo", "arguments": { "a": 1 } });
        answered(&compact.call("tools_call", call));
        assert_eq!(compact.finish().0, 0);
        let mut unknown = client(&project, &["--toolset", "nothing"]);
        unknown.handshake("2025-11-25");
        assert!(unknown.tools().is_empty());
        assert_eq!(refused(&unknown.call("up__echo", json!({})))["check"], "toolset");
        assert_eq!(unknown.finish().0, 0);
        let mut unknown = client(&project, &["--server", "nothing"]);
        unknown.handshake("2025-11-25");
        assert_eq!(refused(&unknown.call("x", json!({})))["check"], "server");
        assert_eq!(unknown.finish().0, 0);
        for wrong in [&["--server", "../x"][..], &["--server", "a", "--compact"], &["--folder"]] {
            let mut words = vec!["mcp"];
            words.extend(wrong);
            let output = project.ringfence(&words);
            assert!([1, 2].contains(&output.status), "{wrong:?}: {}", output.status);
            assert!(output.stdout.is_empty(), "{wrong:?}: {}", output.stdout);
        }

        // A lease is seen while its connection lasts, and is none without one.
        let mut client = client(&project, &[]);
        client.handshake("2025-11-25");
        let lease = json!({ "toolset": "local", "task": "look \u{1b}[31m" });
        let leased = client.call("ringfence__lease", lease.clone());
        assert_ne!(leased["result"]["isError"], true, "{leased}");
        assert!(client.tools().contains(&"mirror__raw".to_owned()));
        let leases = project.ringfence(&["ps", "--json"]).ok().json()["leases"].clone();
        assert_eq!(leases[0]["toolset"], "local", "{leases}");
        assert_eq!(leases[0]["pid"], client.pid(), "{leases}");
        let shown = project.ringfence(&["ps"]).ok().stdout;
        assert!(shown.contains("toolset local") && !shown.contains('\u{1b}'), "{shown}");
        let no = client
            .stateless("tools/call", json!({ "name": "ringfence__lease", "arguments": lease }));
        assert!(no["error"].is_object() || no["result"]["isError"] == true, "{no}");
        // Killed, it leaves no lease.
        client.signal(Signal::KILL);
        assert_eq!(client.ended().0, 137);
        let leases = project.ringfence(&["ps", "--json"]).ok().json()["leases"].clone();
        assert_eq!(leases, json!([]));
    });
}

#[test]
fn a_hundred_calls_are_under_way_at_once() {
    each_user(|who| {
        let project = Project::new(who);
        project.file("barrier.py", include_str!("../agents/barrier.py"));
        project.manifest(
            "version = 1\n[servers.barrier]\ntype = \"stdio\"\ncommand = \"/usr/bin/python3\"\nargs = [\"barrier.py\", \"100\"]\n",
        );
        project.lock();
        project.trust();
        let mut client = client(&project, &[]);
        client.handshake("2025-11-25");
        let params = |n: usize| json!({ "name": "barrier__wait", "arguments": { "n": n } });
        let mut ids: Vec<_> = (0..100).map(|n| (n, client.ask("tools/call", params(n)))).collect();
        ids.reverse();
        for (n, id) in ids {
            let answer = client.answer(id);
            let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
            assert_eq!(text, format!("{{\"n\": {n}}}"), "each gets its own: {answer}");
        }
        // One that waits for ever is cancelled, and the rest goes on.
        let id = client.ask("tools/call", json!({ "name": "barrier__slow", "arguments": {} }));
        eventually("its decision", || project.events_text().contains("\"tool\":\"slow\""));
        client.send(&json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id },
        }));
        assert!(client.tools().contains(&"barrier__wait".to_owned()));
        assert_eq!(client.finish().0, 0);
        let events = record(&project);
        events.has("call_settled", &[("result", "cancelled")]);
        assert!(events.with("call_settled", &[("result", "answered")]).len() >= 100);
    });
}

#[test]
fn it_ends_with_its_client_and_leaves_nothing() {
    each_user(|who| {
        let up = Upstream::new();
        let (project, marker) = ready(who, &up);
        let busy = |client: &mut StdioClient| {
            client.handshake("2025-11-25");
            answered(&client.call("mirror__raw", json!({})));
            assert_eq!(processes(&marker), 1, "control");
        };
        for (signal, status) in [(Signal::TERM, 0), (Signal::INT, 0), (Signal::HUP, 0)] {
            let mut client = client(&project, &[]);
            busy(&mut client);
            client.signal(signal);
            assert_eq!(client.ended().0, status, "{signal:?}");
            assert_eq!(processes(&marker), 0, "{signal:?}");
            record(&project).has("run_finished", &[("ended_by", "stopped")]);
        }
        // Stopped by its id, as any run.
        let mut stopped = client(&project, &[]);
        busy(&mut stopped);
        let id = project.runs().pop().expect("a run");
        let shown = project.ringfence(&["ps", "--json"]).ok().json()["runs"][0].clone();
        assert_eq!(
            (&shown["kind"], &shown["connections"]),
            (&json!("serve"), &json!(1)),
            "{shown}"
        );
        project.ringfence(&["stop", &id]).ok().done();
        assert_eq!(stopped.ended().0, 0);
        project.ringfence(&["audit", "verify", "--run", &id]).ok().done();

        // Killed: its servers go with it, and the next start clears the rest away.
        let mut killed = client(&project, &[]);
        busy(&mut killed);
        killed.signal(Signal::KILL);
        assert_eq!(killed.ended().0, 137);
        eventually("the end of its server", || processes(&marker) == 0);
        let mut next = client(&project, &[]);
        busy(&mut next);
        assert_eq!(next.finish().0, 0);
        let left = std::fs::read_dir(project.state().join("live")).expect("a folder").count();
        assert_eq!(left, 0, "nothing is left of any");

        // The program that started it is killed while somebody else holds its stdin.
        let program = project.program().display().to_string();
        let line = format!("exec 3<&0; {program} mcp <&3 & wait");
        let mut command = project.command(&["sh", "-c", &line]);
        command.current_dir(project.path());
        let mut orphan = StdioClient::start(command);
        busy(&mut orphan);
        let id = project.runs().pop().expect("a run");
        orphan.signal(Signal::KILL);
        eventually("its end", || project.ringfence(&["ps", "--json"]).json()["runs"] == json!([]));
        assert_eq!(processes(&marker), 0);
        project.ringfence(&["audit", "verify", "--run", &id]).ok().done();
        drop(orphan);
    });
}

#[test]
fn without_namespaces_http_servers_are_served_and_stdio_ones_refused() {
    each_user(|who| {
        let up = Upstream::new();
        let (project, _) = ready(who, &up);
        let program = project.program().display().to_string();
        let line = format!("echo 0 > /proc/sys/user/max_user_namespaces; exec {program} mcp");
        let how: &[&str] = match who.is_root() {
            true => &["--map-root-user"],
            false => &["--map-current-user", "--keep-caps"],
        };
        let words = [&["unshare", "--user"], how, &["sh", "-c", &line]].concat();
        let mut command = project.command(&words);
        command.current_dir(project.path());
        let mut client = StdioClient::start(command);
        client.handshake("2025-11-25");
        answered(&client.call("up__echo", json!({})));
        let no = client.call("mirror__raw", json!({}));
        assert!(no["error"].is_object(), "{no}");
        assert_eq!(client.finish().0, 0);
        let report = project.ringfence(&["report", "last"]).ok().stdout;
        assert!(report.contains("namespace"), "it says why: {report}");
    });
}

#[test]
fn a_call_waits_for_a_person_who_answers_elsewhere() {
    each_user(|who| {
        let up = Upstream::new();
        let project = Project::new(who);
        project.python();
        project.manifest(&format!(
            "{}\n[[approvals.require]]\nserver = \"up\"\ntool = \"echo\"\n",
            two(&marker(&project), &up.url())
        ));
        project.lock();
        project.trust();
        let mut client = client(&project, &[]);
        client.handshake("2025-11-25");
        let id = client.ask("tools/call", json!({ "name": "up__echo", "arguments": { "a": 1 } }));
        let mut question = Value::Null;
        eventually("a question", || {
            let list = project.ringfence(&["approvals", "list", "--json"]).ok().json();
            question = list["approvals"][0].clone();
            question.is_object()
        });
        let text = |key: &str| question[key].as_str().unwrap_or_default().to_owned();
        project
            .ringfence(&["approvals", "approve", &text("id"), "--yes", "--digest", &text("digest")])
            .ok()
            .done();
        answered(&client.answer(id));
        let id = client.ask("tools/call", json!({ "name": "up__echo", "arguments": { "a": 2 } }));
        eventually("a question", || {
            let list = project.ringfence(&["approvals", "list", "--json"]).ok().json();
            question = list["approvals"][0].clone();
            question.is_object()
        });
        let text = question["id"].as_str().unwrap_or_default().to_owned();
        project.ringfence(&["approvals", "deny", &text]).ok().done();
        assert_eq!(refused(&client.answer(id))["check"], "approval");
        assert_eq!(client.finish().0, 0);
        record(&project).has("call_decided", &[("tool", "echo"), ("outcome", "allowed")]);
    });
}

#[test]
fn a_cap_that_is_crossed_ends_what_is_served() {
    each_user(|who| {
        let up = Upstream::new();
        let project = Project::new(who);
        project.python();
        let manifest = two(&marker(&project), &up.url());
        let priced = "\n[servers.up.pricing]\nmax_usd_per_call = \"0.05\"\n[[servers.up.pricing.meters]]\nusage_path = \"result.usage.units\"\nusd_per_unit = \"0.01\"\n\n[spending]\nmax_per_run_usd = \"0.10\"\n";
        project.manifest(&format!("{manifest}{priced}"));
        project.lock();
        project.trust();
        let mut client = client(&project, &[]);
        client.handshake("2025-11-25");
        // This server says nothing of its usage: that cannot be paid for, and the run is over.
        client.call("up__echo", json!({}));
        let no = client.call("up__echo", json!({}));
        assert!(no["error"].is_object(), "{no}");
        let other = client.call("mirror__raw", json!({}));
        assert_eq!(refused(&other)["layer"], "declared", "{other}");
        assert_eq!(client.finish().0, 0);
        let events = record(&project);
        events.has("limit_reached", &[("limit", "spending")]);
        events.has("run_finished", &[("ended_by", "limit")]);
    });
}

#[test]
fn stdout_is_the_protocol_s_alone() {
    each_user(|who| {
        let up = Upstream::new();
        let (project, _) = ready(who, &up);
        let mut client = client(&project, &[]);
        // Every line is read as JSON by the client; these are answered with errors, not with words.
        for nonsense in ["", "nonsense", "[1]", "{\"jsonrpc\":\"2.0\"}", "null"] {
            client.send(&Value::String(nonsense.into()));
        }
        client.handshake("2025-11-25");
        assert_eq!(client.tools().len(), 2);
        let sent = client.request("nonsense/method", json!({}));
        assert!(sent["error"].is_object(), "{sent}");
        let twice = stateless(json!({ "name": "up__echo" }));
        answered(&client.request("tools/call", twice));
        let (status, said) = client.finish();
        assert_eq!(status, 0, "{said}");
    });
}
