//! The HTTP door under attack: names that are rebound, sessions that are guessed, tokens that are
//! passed on, replies that lead elsewhere.

use std::collections::BTreeSet;

use ringfence_tests::http::{exchange, raw};
use ringfence_tests::{Upstream, each_user, stateless};
use serde_json::{Value, json};

use crate::cmd_gateway::{Gate, bundle, ready, token};

fn call() -> Value {
    json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": stateless(json!({ "name": "echo", "arguments": { "a": 1 } })),
    })
}

/// A stateless call of `echo` with these headers for who asks.
fn asked(who: &[(&str, &str)]) -> String {
    let mut headers = who.to_vec();
    headers.extend([
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "echo"),
    ]);
    raw("POST", "/up/mcp", &headers, &call().to_string())
}

/// Attack 6.
#[test]
fn a_page_that_rebinds_a_name_reaches_nothing() {
    each_user(|who| {
        let up = Upstream::new();
        let project = ready(who, &bundle(&up.url()));
        let words = ["--host", "gw.example", "--origin", "https://app.example"];
        let gate = Gate::serve(&project, &words);
        let port = gate.address.port();
        let bearer = format!("Bearer {}", gate.token);
        let own = format!("127.0.0.1:{port}");
        let send = |headers: &[(&str, &str)]| exchange(gate.address, &asked(headers));
        let good = |headers: &[(&str, &str)]| {
            let mut all = headers.to_vec();
            all.push(("Authorization", &bearer));
            send(&all).status
        };
        // Controls: every name and page that was said, with a token.
        let names = [
            own.clone(),
            format!("localhost:{port}"),
            format!("[::1]:{port}"),
            "gw.example".into(),
            format!("GW.example:{port}"),
        ];
        for host in &names {
            assert_eq!(good(&[("Host", host)]), 200, "{host}");
        }
        for origin in [
            format!("http://localhost:{port}"),
            "https://app.example".into(),
            "https://APP.example".into(),
        ] {
            assert_eq!(good(&[("Host", &own), ("Origin", &origin)]), 200, "{origin}");
        }
        let before = up.seen().len();
        // Another name, though the token is right.
        for host in [
            "evil.example",
            &format!("evil.example:{port}"),
            "127.0.0.1",
            "localhost",
            "127.0.0.1:1",
            &format!("127.0.0.1.:{port}"),
            &format!("127.0.0.1.evil.example:{port}"),
            &format!("localhost.:{port}"),
            &format!("2130706433:{port}"),
            &format!("0x7f.1:{port}"),
            &format!("[::ffff:127.0.0.1]:{port}"),
            &format!("0.0.0.0:{port}"),
            &format!("gw.example.evil.example:{port}"),
            &format!("evil@127.0.0.1:{port}"),
            "",
            "null",
            "gw.example:1",
            &format!("127.0.0.1:{port},evil.example"),
        ] {
            let status = good(&[("Host", host)]);
            assert!([400, 403].contains(&status), "{host:?}: {status}");
        }
        assert_eq!(good(&[]), 400, "no Host");
        assert_eq!(good(&[("Host", &own), ("Host", &own)]), 400, "two of them");
        assert_eq!(good(&[("Host", &own), ("Host", "evil.example")]), 400);
        // A page of another place.
        for origin in [
            "null",
            "http://evil.example",
            &format!("http://evil.example:{port}"),
            "https://app.example:8443",
            "http://app.example",
            "https://app.example.evil.example",
            "https://app.example/",
            "https://xapp.example",
            &format!("https://127.0.0.1:{port}"),
            "http://127.0.0.1",
            "file://",
            "",
            "*",
            "https://app.example, http://evil.example",
        ] {
            assert_eq!(good(&[("Host", &own), ("Origin", origin)]), 403, "{origin:?}");
        }
        let (app, evil) = ("https://app.example", "http://evil.example");
        for two in [[app, app], [app, evil], [evil, app], [app, "null"]] {
            assert_eq!(
                good(&[("Host", &own), ("Origin", two[0]), ("Origin", two[1])]),
                400,
                "{two:?}"
            );
        }
        // Nobody at all, on the right name.
        for headers in [
            vec![],
            vec![("Authorization", "")],
            vec![("Authorization", "Bearer ")],
            vec![("Authorization", "Bearer x")],
            vec![("Authorization", gate.token.as_str())],
            vec![("X-Authorization", &bearer)],
            vec![("Cookie", &bearer)],
        ] {
            let mut all = vec![("Host", own.as_str())];
            all.extend(&headers);
            assert_eq!(send(&all).status, 401, "{headers:?}");
        }
        let basic = format!("Basic {}", gate.token);
        assert_eq!(send(&[("Host", &own), ("Authorization", &basic)]).status, 401);
        let twice = [
            ("Host", own.as_str()),
            ("Authorization", bearer.as_str()),
            ("Authorization", bearer.as_str()),
        ];
        assert_eq!(send(&twice).status, 400);
        // A path that a proxy could read as another, a preflight, a full URL, an upgrade.
        for (method, target) in [
            ("OPTIONS", "/up/mcp"),
            ("PUT", "/up/mcp"),
            ("CONNECT", "/up/mcp"),
            ("PATCH", "/up/mcp"),
            ("TRACE", "/up/mcp"),
            ("POST", &format!("http://{own}/up/mcp")),
            ("POST", &format!("/up/mcp?token={}", gate.token)),
        ] {
            let text = raw(method, target, &[("Host", &own), ("Authorization", &bearer)], "");
            let answered = exchange(gate.address, &text);
            assert!([400, 405].contains(&answered.status), "{method} {target}: {answered:?}");
            assert!(answered.headers.iter().all(|(name, _)| !name.starts_with("access-control")));
        }
        let upgrade = [
            ("Host", own.as_str()),
            ("Authorization", &bearer),
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
        ];
        assert_eq!(send(&upgrade).status, 400);
        assert_eq!(up.seen().len(), before, "nothing reached the server");
        gate.end();
    });
}

/// Attack 7.
#[test]
fn a_session_is_its_client_s_alone() {
    each_user(|who| {
        let up = Upstream::new();
        let project = ready(who, &bundle(&up.url()));
        let two = token(&project, "two");
        let gate = Gate::serve(&project, &[]);
        let sessions: BTreeSet<String> =
            (0..20).map(|_| gate.session(&gate.token, "/up/mcp").0).collect();
        assert_eq!(sessions.len(), 20, "no two are the same");
        assert!(sessions.iter().all(|name| name.len() >= 32), "at least 128 bits: {sessions:?}");
        let session = sessions.iter().next().expect("there are some").clone();
        let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
        let host = gate.address.to_string();
        let send = |token: &str, method: &str, session: &str, more: &[(&str, &str)]| {
            let bearer = format!("Bearer {token}");
            let mut headers = vec![
                ("Host", host.as_str()),
                ("Authorization", &bearer),
                ("Content-Type", "application/json"),
                ("Accept", "application/json, text/event-stream"),
                ("Mcp-Session-Id", session),
            ];
            headers.extend(more);
            let body = if method == "POST" { list.to_string() } else { String::new() };
            exchange(gate.address, &raw(method, "/up/mcp", &headers, &body))
        };
        assert_eq!(send(&gate.token, "POST", &session, &[]).status, 200, "control");
        for method in ["POST", "GET", "DELETE"] {
            let stolen = send(&two, method, &session, &[]);
            assert_eq!(stolen.status, 404, "{method}: {stolen:?}");
            let event = send(&two, method, &session, &[("Last-Event-ID", "1-1")]);
            assert_eq!(event.status, 404, "{method}: {event:?}");
        }
        let mut next = session.clone();
        let last = next.pop().expect("it has some");
        next.push(if last == '0' { '1' } else { '0' });
        for guess in [
            next.as_str(),
            "0",
            &"0".repeat(session.len()),
            &session.to_uppercase(),
            &format!("{session} x"),
        ] {
            if guess != session {
                assert_eq!(send(&gate.token, "POST", guess, &[]).status, 404, "{guess}");
            }
        }
        assert_eq!(send(&gate.token, "POST", &session, &[]).status, 200, "nobody ended it");
        assert_eq!(send(&gate.token, "DELETE", &session, &[]).status, 204);
        assert_eq!(send(&gate.token, "POST", &session, &[]).status, 404, "its client did");
        gate.end();
    });
}

/// Attack 7, of the stateless revision: what a server asked one client is no other's to answer.
#[test]
fn a_request_state_is_its_client_s_alone_and_used_once() {
    each_user(|who| {
        let manifest = "version = 1\n[servers.asking]\ntype = \"stdio\"\ncommand = \"/usr/bin/python3\"\nargs = [\"asking.py\"]\n";
        let project = ringfence_tests::Project::new(who);
        project.file("asking.py", include_str!("../agents/asking.py"));
        project.manifest(manifest);
        project.lock();
        project.trust();
        let two = token(&project, "two");
        let gate = Gate::serve(&project, &[]);
        let ask = |token: &str, more: &Value| {
            let mut params = stateless(json!({ "name": "ask", "arguments": {} }));
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
                json!({ "elicitation": { "form": {} } });
            for (key, value) in more.as_object().into_iter().flatten() {
                params[key] = value.clone();
            }
            let body =
                json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
            let headers = [
                ("MCP-Protocol-Version", "2026-07-28"),
                ("Mcp-Method", "tools/call"),
                ("Mcp-Name", "ask"),
            ];
            exchange(gate.address, &gate.text(token, "/asking/mcp", &headers, &body)).message()
        };
        let first = ask(&gate.token, &json!({}));
        assert_eq!(first["result"]["resultType"], "input_required", "{first}");
        let state = first["result"]["requestState"].clone();
        assert!(state.is_string(), "{first}");
        let asked = first["result"]["inputRequests"].as_object().expect("it asks");
        let name = asked.keys().next().expect("one thing").clone();
        let mut answers = serde_json::Map::new();
        answers.insert(name, json!({ "action": "accept", "content": { "word": "plum" } }));
        let retry = json!({ "requestState": state, "inputResponses": answers });
        let stolen = ask(&two, &retry);
        assert!(!stolen.to_string().contains("plum"), "{stolen}");
        assert!(stolen["error"].is_object(), "{stolen}");
        let forged = json!({ "requestState": "x", "inputResponses": answers });
        assert!(ask(&gate.token, &forged)["error"].is_object());
        let answered = ask(&gate.token, &retry);
        assert!(answered.to_string().contains("plum"), "control: {answered}");
        let again = ask(&gate.token, &retry);
        assert!(!again.to_string().contains("plum"), "used once: {again}");
        gate.end();
    });
}

/// A server over stdio whose tool `ask` asks its client for a word, whatever `plain` was called for.
const LATE: &str = r#"
import json, sys
def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
waiting, about = {}, "nobody"
for line in sys.stdin:
    m = json.loads(line)
    method = m.get("method")
    if method == "initialize":
        say({"id": m["id"], "result": {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}}}})
    elif method == "tools/list":
        say({"id": m["id"], "result": {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("plain", "ask")]}})
    elif method == "tools/call" and m["params"]["name"] == "plain":
        about = m["params"]["arguments"]["of"]
        say({"id": m["id"], "result": {"content": []}})
    elif method == "tools/call":
        waiting["q"] = m["id"]
        schema = {"type": "object", "properties": {}}
        say({"id": "q", "method": "elicitation/create", "params": {"message": "a word for " + about, "requestedSchema": schema}})
    elif method is None and m.get("id") in waiting:
        text = json.dumps(m.get("result", m.get("error")))
        say({"id": waiting.pop(m["id"]), "result": {"content": [{"type": "text", "text": text}]}})
"#;

/// Attack 7's kin: what a server asks late, about a call of one client, reaches no other.
#[test]
fn a_question_about_one_client_s_call_reaches_no_other() {
    each_user(|who| {
        let project = ringfence_tests::Project::new(who);
        project.file("late.py", LATE);
        project.manifest(
            "version = 1\n[servers.late]\ntype = \"stdio\"\ncommand = \"/usr/bin/python3\"\nargs = [\"late.py\"]\n",
        );
        project.lock();
        project.trust();
        let gate = Gate::serve(&project, &[]);
        let two = token(&project, "two");
        let call = |gate: &Gate, token: &str, tool: &str, of: &str| {
            let mut params = stateless(json!({ "name": tool, "arguments": { "of": of } }));
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
                json!({ "elicitation": {} });
            let body =
                json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
            let headers = [
                ("MCP-Protocol-Version", "2026-07-28"),
                ("Mcp-Method", "tools/call"),
                ("Mcp-Name", tool),
            ];
            exchange(gate.address, &gate.text(token, "/late/mcp", &headers, &body)).message()
        };
        assert!(call(&gate, &gate.token, "plain", "anna")["result"]["content"].is_array());
        let asked = call(&gate, &two, "ask", "");
        assert!(!asked.to_string().contains("a word for anna"), "{asked}");
        assert!(asked.to_string().contains("whose question"), "the server is told: {asked}");
        // Nor is she, now that two have called it.
        let hers = call(&gate, &gate.token, "ask", "");
        assert!(!hers.to_string().contains("a word for anna"), "{hers}");
        gate.end();
        // The control: whoever has the server alone is asked.
        let gate = Gate::with(&project, &[], two);
        assert!(call(&gate, &gate.token, "plain", "bert")["result"]["content"].is_array());
        let his = call(&gate, &gate.token, "ask", "");
        assert_eq!(his["result"]["resultType"], "input_required", "{his}");
        assert!(his.to_string().contains("a word for bert"), "{his}");
        gate.end();
    });
}

/// Attack 8.
#[test]
fn a_client_s_token_goes_nowhere() {
    each_user(|who| {
        let up = Upstream::new();
        let headers = format!(
            "url = \"{}\"\nheaders = {{ Authorization = \"Bearer ${{UP_TOKEN}}\" }}",
            up.url()
        );
        let manifest = bundle(&up.url()).replace(&format!("url = \"{}\"", up.url()), &headers);
        let mut project = ready(who, &manifest);
        project.env("UP_TOKEN", "the-servers-own-value");
        let gate = Gate::serve(&project, &[]);
        let (session, _) = gate.session(&gate.token, "/up/mcp");
        let params = json!({ "name": "echo", "arguments": { "a": 1 } });
        let answer = gate.ask(&session, "/up/mcp", "tools/call", params.clone());
        assert!(answer["result"].is_object(), "{answer}");
        let over = gate.stateless("/up/mcp", "tools/call", "echo", params);
        assert_eq!(over.status, 200, "{over:?}");
        let seen = up.seen();
        assert!(seen.iter().any(|seen| seen.body.contains("tools/call")), "control: it was called");
        for seen in &seen {
            let own = seen.header("authorization");
            assert!(own.is_none_or(|value| value == "Bearer the-servers-own-value"), "{seen:?}");
            assert!(!format!("{seen:?}").contains(&gate.token[4..]), "{seen:?}");
            assert!(!format!("{seen:?}").contains(&session), "{seen:?}");
        }
        assert!(!over.body.contains("the-servers-own-value"), "{over:?}");
        let token = gate.token.clone();
        let said = gate.end();
        assert!(!said.contains(&token[4..]), "{said}");
        for (path, bytes) in project.picture(&project.state()) {
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(&token[4..]), "{}", path.display());
        }
        // A token of another machine, and the server's own, are nobody's here.
        let other = ringfence_tests::Project::new(who);
        let foreign = self::token(&other, "one");
        let gate = Gate::with(&project, &[], token);
        for value in [&foreign, "the-servers-own-value"] {
            let host = gate.address.to_string();
            let bearer = format!("Bearer {value}");
            let answered =
                exchange(gate.address, &asked(&[("Host", &host), ("Authorization", &bearer)]));
            assert_eq!(answered.status, 401, "{value}");
        }
        gate.end();
    });
}

/// Attack 38.
#[test]
fn a_reply_that_leads_elsewhere_is_not_followed_and_names_no_address() {
    each_user(|who| {
        let elsewhere = Upstream::new();
        for status in [
            "301 Moved Permanently",
            "302 Found",
            "303 See Other",
            "307 Temporary Redirect",
            "308 Permanent Redirect",
        ] {
            let leads = format!(
                "HTTP/1.1 {status}\r\nLocation: {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                elsewhere.url()
            );
            let up = Upstream::until("tools/call", &leads);
            let project = ready(who, &bundle(&up.url()));
            let gate = Gate::serve(&project, &[]);
            let call = gate.stateless(
                "/up/mcp",
                "tools/call",
                "echo",
                json!({ "name": "echo", "arguments": {} }),
            );
            assert!(call.message()["error"].is_object(), "{status}: {call:?}");
            assert_eq!(call.header("location"), None, "{call:?}");
            let text = format!("{call:?}");
            assert!(
                !text.contains(&elsewhere.authority()) && !text.contains(&up.authority()),
                "{text}"
            );
            gate.end();
        }
        assert!(elsewhere.seen().is_empty(), "nobody went there");
        // A server that says where it is, in its headers and its words.
        let words = Upstream::new();
        let authority = words.authority();
        let body = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"see {}\"}}]}}}}",
            words.url()
        );
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Location: {0}\r\nLink: <{0}>\r\nX-Served-By: {authority}\r\nSet-Cookie: at={authority}\r\nServer: {authority}\r\nContent-Length: {1}\r\nConnection: close\r\n\r\n{body}",
            words.url(),
            body.len()
        );
        let up = Upstream::until("tools/call", &head);
        let project = ready(who, &bundle(&up.url()));
        let gate = Gate::serve(&project, &[]);
        let call = gate.stateless(
            "/up/mcp",
            "tools/call",
            "echo",
            json!({ "name": "echo", "arguments": {} }),
        );
        assert!(call.message()["result"].is_object(), "control: {call:?}");
        for name in ["content-location", "link", "x-served-by", "set-cookie", "server"] {
            assert_eq!(call.header(name), None, "{call:?}");
        }
        let hello = gate.session(&gate.token, "/up/mcp").1.to_string();
        assert!(!hello.contains(&up.authority()), "{hello}");
        gate.end();
    });
}
