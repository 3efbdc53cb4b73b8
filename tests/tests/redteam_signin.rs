//! Rows 8 and 30: a sign-in and its tokens, over renewals, failures and cancelled calls: none is lost, and
//! none is shown.

use base64::Engine as _;
use ringfence_tests::authority::form;
use ringfence_tests::{Authority, Project, StdioClient, each_user, eventually};
use serde_json::json;

use crate::cmd_login::desk;

const LOGIN: [&str; 4] = ["login", "up", "--store", "file"];

/// The bearer of the last call that arrived.
fn bearer(both: &Authority) -> String {
    let mut calls = both.at("/mcp").into_iter().filter(|it| it.body.contains("tools/call"));
    calls.next_back().expect("a call arrived").header("authorization").to_owned()
}

#[test]
fn a_sign_in_that_fails_leaves_the_one_that_was_there() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        let project = desk(who, &url);
        project.ringfence(&LOGIN).ok().done();
        let _ = project.desk();
        let list = || project.ringfence(&["login", "--list", "--json"]).ok().json();
        let before = list();
        project.agent("Mcp('up').call('echo', 'echo')").answered("echo");
        let first = bearer(&both);
        let files = || project.picture(&project.state().join("signins"));
        let kept = files();
        for (what, script) in [
            ("the person says no", json!({"deny": "access_denied"})),
            ("a token for another server", json!({"audience": "https://other.example.com/mcp"})),
            ("the token endpoint fails", json!({"token_error": "not today"})),
            ("no token", json!({"token": {"access_token": null}})),
            ("never content", json!({"needs": {"initialize": "more"}, "audience": "x"})),
        ] {
            both.script(&script);
            let output = project.ringfence(&LOGIN);
            assert_eq!(output.status, 1, "{what}: {}", output.stderr);
            assert_eq!((list(), files()), (before.clone(), kept.clone()), "{what}");
            both.script(&json!({}));
            project.agent("Mcp('up').call('echo', 'echo')").answered("echo");
            assert_eq!(bearer(&both), first, "{what}: it is still used");
        }
        // Control: one that comes to its end takes its place.
        project.ringfence(&LOGIN).ok().done();
        project.agent("Mcp('up').call('echo', 'echo')").answered("echo");
        assert_ne!(bearer(&both), first);
    });
}

#[test]
fn what_a_token_endpoint_says_is_escaped_and_bounded_and_has_nothing_that_it_was_sent() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        let project = desk(who, &url);
        let hostile = "\u{1b}[2Jno\r\n\u{202e}";
        // What was sent to it last, and how it may come back.
        let sent = || {
            let asked = both.at("/token").pop().expect("it was asked");
            let form = form(&asked.body);
            let names = ["code", "code_verifier", "refresh_token"];
            let raw = names.iter().filter_map(|name| form.get(*name));
            raw.flat_map(|it| [it.clone(), base64::prelude::BASE64_STANDARD.encode(it)])
                .collect::<Vec<_>>()
        };
        let clean = |text: &str, many: usize| {
            let sent = sent();
            assert_eq!(sent.len(), many, "control: something secret was sent");
            for it in sent {
                assert!(!text.contains(&it), "{it} in {text}");
            }
            let acts = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
            assert!(!text.contains(acts), "{text:?}");
        };
        both.script(&json!({"token_error": hostile}));
        let output = project.ringfence(&LOGIN).expect(1);
        clean(&output.stderr, 4);
        clean(&project.events_text(), 4);
        let events = project.events();
        let told = events.has("signed_in", &[("outcome", "refused")]);
        let detail = told["detail"].as_str().expect("why");
        assert!(detail.contains("invalid_request (\\u{1b}[2Jno"), "{detail}");
        assert!(detail.contains("[redacted:(sign-in)]"), "{detail}");
        both.script(&json!({"token_error": "x".repeat(100_000)}));
        project.ringfence(&LOGIN).expect(1).done();
        let events = project.events();
        let long = events.has("signed_in", &[("outcome", "refused")])["detail"].to_string();
        assert!((200..400).contains(&long.len()), "{} of {long}", long.len());
        // The same where a token is renewed, and nobody is there.
        both.script(&json!({"token": {"expires_in": 1}}));
        project.ringfence(&LOGIN).ok().done();
        both.end_access();
        both.script(&json!({"token_error": hostile}));
        let cases = project.agent("Mcp('up').call('echo', 'echo')");
        clean(&cases.get("echo").to_string(), 2);
        clean(&project.events_text(), 2);
        let report = project.ringfence(&["report"]).ok().stdout;
        clean(&report, 2);
        assert!(report.contains("could not be renewed") && report.contains("redacted"), "{report}");
    });
}

#[test]
fn a_token_for_more_than_the_server_is_shown_before_and_after() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        let project = desk(who, &url);
        let narrow = project.ringfence(&LOGIN).ok();
        assert!(!narrow.stderr.contains("more than"), "control: {}", narrow.stderr);
        let base = url.trim_end_matches("/mcp").to_owned();
        both.script(&json!({"resource": {"resource": base}, "audience": url}));
        let wide = project.ringfence(&LOGIN).ok().stderr;
        let said = wide.find(&format!("made for {base}, which is more than {url}"));
        let page = wide.find("open this address");
        assert!(said.is_some() && said < page, "before the person goes there: {wide}");
        let list = project.ringfence(&["login", "--list"]).ok().stdout;
        assert!(list.contains(&format!("good at all of {base}")), "{list}");
    });
}

/// A client of the project's servers.
fn client(project: &Project) -> StdioClient {
    let mut client = StdioClient::start(crate::cmd_mcp::command(project, &[]));
    client.handshake("2025-11-25");
    client
}

fn call(client: &mut StdioClient) -> i64 {
    client.ask("tools/call", json!({"name": "up__echo", "arguments": {}}))
}

#[test]
fn a_token_of_before_a_renewal_stays_hidden() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        let project = desk(who, &url);
        project.ringfence(&LOGIN).ok().done();
        let mut client = client(&project);
        let id = call(&mut client);
        assert!(client.answer(id)["result"].is_object(), "control");
        let old = both.tokens();
        assert_eq!(old.len(), 2, "{old:?}");
        both.end_access();
        both.script(&json!({"say": format!(" PLAIN {}", old.join(" "))}));
        let id = call(&mut client);
        let said = client.answer(id).to_string();
        assert!(said.contains("PLAIN [redacted:(sign-in)] [redacted:(sign-in)]"), "{said}");
        assert!(old.iter().all(|token| !said.contains(token.as_str())), "{said}");
        assert!(both.tokens().iter().all(|token| !old.contains(token)), "control: it was renewed");
        assert_eq!(client.finish().0, 0);
        let events = project.events_text();
        assert!(old.iter().all(|token| !events.contains(token.as_str())), "{events}");
    });
}

/// A token endpoint that is asked and says nothing yet.
fn held(both: &Authority) -> usize {
    let before = both.at("/token").len();
    both.script(&json!({"hold": "/token"}));
    before
}

#[test]
fn two_programs_renew_one_token_once_and_both_have_it() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        let project = desk(who, &url);
        both.script(&json!({"token": {"expires_in": 1}}));
        project.ringfence(&LOGIN).ok().done();
        let before = held(&both);
        let (mut one, mut two) = (client(&project), client(&project));
        let ids = [call(&mut one), call(&mut two)];
        eventually("it is asked", || both.at("/token").len() > before);
        // The other one waits for the lock of this sign-in.
        let lock = std::fs::read_dir(project.state()).expect("a folder").flatten();
        let lock = lock.map(|it| it.path()).find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.starts_with("signins-") && name.ends_with(".lock")
        });
        let inode = std::fs::metadata(lock.expect("there is a lock")).expect("it is there");
        let inode = format!(":{} ", std::os::unix::fs::MetadataExt::ino(&inode));
        eventually("the other one waits", || {
            let locks = std::fs::read_to_string("/proc/locks").expect("this is Linux");
            locks.lines().any(|line| line.contains("-> FLOCK") && line.contains(&inode))
        });
        both.script(&json!({}));
        for (client, id) in [(&mut one, ids[0]), (&mut two, ids[1])] {
            assert!(client.answer(id)["result"].is_object());
        }
        assert_eq!(both.at("/token").len(), before + 1, "{:?}", both.at("/token"));
        let calls = both.at("/mcp").into_iter().filter(|it| it.body.contains("tools/call"));
        let bearers: Vec<_> = calls.map(|it| it.header("authorization").to_owned()).collect();
        assert_eq!(bearers.len(), 2);
        assert_eq!(bearers[0], bearers[1]);
        for client in [one, two] {
            assert_eq!(client.finish().0, 0);
        }
    });
}

#[test]
fn a_call_that_is_cancelled_during_a_renewal_loses_no_token() {
    each_user(|who| {
        let (both, url) = Authority::on_loopback();
        let project = desk(who, &url);
        both.script(&json!({"token": {"expires_in": 1}}));
        project.ringfence(&LOGIN).ok().done();
        let before = held(&both);
        let mut client = client(&project);
        let id = call(&mut client);
        eventually("it is asked", || both.at("/token").len() > before);
        let params = json!({"requestId": id, "reason": "no matter"});
        client.send(&json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params,
        }));
        // What was sent before this is read before this is answered.
        client.request("ping", json!({}));
        both.script(&json!({}));
        // It ends at once, with the answer of the token endpoint still on its way.
        assert_eq!(client.finish().0, 0);
        assert_eq!(both.at("/token").len(), before + 1);
        project.agent("Mcp('up').call('echo', 'echo')").answered("echo");
        assert_eq!(both.at("/token").len(), before + 1, "what it gave is kept, and good");
    });
}
