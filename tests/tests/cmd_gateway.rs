//! `ringfence gateway`

use std::io::{BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Condvar, Mutex};

use ringfence_tests::http::{Answered, chunk, connect, exchange, head, raw, read};
use ringfence_tests::{
    Events, PYTHON, Project, StdioClient, Upstream, Who, each_user, eventually, names, stateless,
};
use rustix::process::Signal;
use serde_json::{Value, json};

/// A gateway that serves, and a client's token.
pub(crate) struct Gate {
    pub(crate) program: StdioClient,
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    pub(crate) said: Value,
}

/// Makes a token.
#[track_caller]
pub(crate) fn token(project: &Project, name: &str) -> String {
    project.ringfence(&["gateway", "token", "create", name]).ok().stdout.trim().to_owned()
}

impl Gate {
    /// Serves the project on loopback with these words besides, with a token for `one`.
    #[track_caller]
    pub(crate) fn serve(project: &Project, words: &[&str]) -> Self {
        let token = token(project, "one");
        Self::with(project, words, token)
    }

    #[track_caller]
    pub(crate) fn with(project: &Project, words: &[&str], token: String) -> Self {
        let program = project.program().display().to_string();
        let mut all = vec![program.as_str(), "gateway", "serve", "--json"];
        if !words.contains(&"--listen") {
            all.extend(["--listen", "127.0.0.1:0"]);
        }
        all.extend(words);
        let mut command = project.command(&all);
        command.current_dir(project.path());
        let mut program = StdioClient::start(command);
        let said = program.next(|line| line["listening"].is_object())["listening"].clone();
        let address = said["address"].as_str().and_then(|text| text.parse().ok());
        Self { program, address: address.expect("it says where it listens"), token, said }
    }

    /// A request as it is sent by a client with this token.
    pub(crate) fn text(
        &self,
        token: &str,
        path: &str,
        more: &[(&str, &str)],
        body: &Value,
    ) -> String {
        let (host, bearer) = (self.address.to_string(), format!("Bearer {token}"));
        let mut headers = vec![
            ("Host", host.as_str()),
            ("Authorization", bearer.as_str()),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        headers.extend(more);
        raw("POST", path, &headers, &body.to_string())
    }

    /// Sends it, over a connection of its own.
    #[track_caller]
    pub(crate) fn post(&self, path: &str, more: &[(&str, &str)], body: &Value) -> Answered {
        exchange(self.address, &self.text(&self.token, path, more, body))
    }

    /// Opens a session of a revision with a handshake, as the client with this token.
    #[track_caller]
    pub(crate) fn session(&self, token: &str, path: &str) -> (String, Value) {
        let hello = json!({
            "jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": { "name": "case", "version": "0" },
            },
        });
        let answered = exchange(self.address, &self.text(token, path, &[], &hello));
        assert_eq!(answered.status, 200, "{answered:?}");
        let session = answered.header("mcp-session-id").expect("a session").to_owned();
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let noted =
            exchange(self.address, &self.text(token, path, &[("Mcp-Session-Id", &session)], &note));
        assert_eq!(noted.status, 202, "{noted:?}");
        (session, answered.message()["result"].clone())
    }

    /// A request in a session.
    #[track_caller]
    pub(crate) fn ask(&self, session: &str, path: &str, method: &str, params: Value) -> Value {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answered = self.post(path, &[("Mcp-Session-Id", session)], &body);
        assert_eq!(answered.status, 200, "{answered:?}");
        answered.message()
    }

    /// A call of a tool in the stateless revision.
    pub(crate) fn stateless(
        &self,
        path: &str,
        method: &str,
        name: &str,
        params: Value,
    ) -> Answered {
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": stateless(params) });
        let mut headers = vec![("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
        if !name.is_empty() {
            headers.push(("Mcp-Name", name));
        }
        self.post(path, &headers, &body)
    }

    /// Ends it, which must succeed.
    #[track_caller]
    pub(crate) fn end(self) -> String {
        self.program.signal(Signal::TERM);
        let (status, said) = self.program.ended();
        assert_eq!(status, 0, "{said}");
        said
    }
}

/// One server over HTTP with the tool `echo`, and one over stdio.
pub(crate) fn bundle(url: &str) -> String {
    format!(
        "version = 1\n\n[servers.up]\ntype = \"http\"\nurl = \"{url}\"\ntools = [\"echo\"]\n\n\
         [servers.mirror]\ntype = \"stdio\"\ncommand = \"/usr/bin/python3\"\nargs = [\"mirror.py\"]\ntools = [\"raw\"]\n"
    )
}

pub(crate) fn ready(who: Who, manifest: &str) -> Project {
    let project = Project::new(who);
    project.python();
    project.manifest(manifest);
    project.lock();
    project.trust();
    project
}

fn echo() -> Value {
    json!({ "name": "echo", "arguments": { "a": 1 } })
}

#[track_caller]
fn answered(message: &Value) {
    assert!(message["result"]["content"].is_array(), "it must be answered: {message}");
}

#[test]
fn a_token_is_shown_once_and_refused_once_it_is_revoked() {
    each_user(|who| {
        let up = Upstream::new();
        let project = ready(who, &bundle(&up.url()));
        let none = project.ringfence(&["gateway", "token", "list", "--json"]).ok().json();
        assert_eq!(none["tokens"], json!([]));
        let made = project.ringfence(&["gateway", "token", "create", "one", "--json"]).ok().json();
        let one = made["token"].as_str().expect("its value").to_owned();
        assert!(one.len() >= 4 + 43, "256 bits: {one}");
        let two = token(&project, "two");
        project
            .ringfence(&["gateway", "token", "create", "one"])
            .expect(1)
            .says(&["revoke"])
            .done();
        for bad in ["", "A", "a b", "../x", "a__b", "-"] {
            let output = project.ringfence(&["gateway", "token", "create", "--", bad]);
            assert_eq!(output.status, 1, "{bad:?}: {}", output.stderr);
        }
        for bad in ["0d", "1", "soon", "-1d", "9999d"] {
            let expires = format!("--expires={bad}");
            project.ringfence(&["gateway", "token", "create", "late", &expires]).expect(1).done();
        }
        project.ringfence(&["gateway", "token", "create", "late", "--expires", "90d"]).ok().done();
        let file = project.state().join("gateway-tokens.json");
        let mode = std::fs::metadata(&file).expect("it is there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        for (path, bytes) in project.picture(&project.state()) {
            let text = String::from_utf8_lossy(&bytes);
            assert!(!text.contains(&one[4..]) && !text.contains(&two[4..]), "{}", path.display());
        }
        let list = project.ringfence(&["gateway", "token", "list"]).ok().stdout;
        assert!(list.contains("one") && list.contains("until") && !list.contains(&one), "{list}");

        let gate = Gate::with(&project, &[], one);
        let call = || gate.stateless("/up/mcp", "tools/call", "echo", echo());
        answered(&call().message());
        project.ringfence(&["gateway", "token", "revoke", "one"]).ok().done();
        project.ringfence(&["gateway", "token", "revoke", "one"]).expect(1).done();
        let refused = call();
        assert_eq!(refused.status, 401, "{refused:?}");
        assert!(refused.header("www-authenticate").is_some_and(|how| how.starts_with("Bearer")));
        let other = Gate { token: two, ..gate };
        answered(&other.stateless("/up/mcp", "tools/call", "echo", echo()).message());
        // Whoever else can read the file could have written it: nobody comes in.
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("ours");
        assert_eq!(other.stateless("/up/mcp", "tools/call", "echo", echo()).status, 401);
        other.end();
    });
}

#[test]
fn every_door_leads_to_the_one_function_and_names_its_client() {
    each_user(|who| {
        let up = Upstream::new();
        let project = ready(who, &bundle(&up.url()));
        let gate = Gate::serve(&project, &[]);
        // A handshake and a session.
        let (session, hello) = gate.session(&gate.token, "/mcp");
        assert_eq!(hello["protocolVersion"], "2025-11-25");
        let tools = names(&gate.ask(&session, "/mcp", "tools/list", json!({})));
        assert!(
            tools.contains(&"up__echo".to_owned()) && tools.contains(&"mirror__raw".to_owned())
        );
        let call = |tool: &str| json!({ "name": tool, "arguments": { "a": 1 } });
        answered(&gate.ask(&session, "/mcp", "tools/call", call("up__echo")));
        answered(&gate.ask(&session, "/mcp", "tools/call", call("mirror__raw")));
        let no = gate.ask(&session, "/mcp", "tools/call", call("up__wipe"));
        assert_eq!(no["error"]["data"]["ringfence"]["check"], "tools", "{no}");
        // One server as it is.
        let (own, _) = gate.session(&gate.token, "/mirror/mcp");
        assert_eq!(names(&gate.ask(&own, "/mirror/mcp", "tools/list", json!({}))), ["raw"]);
        let stranger = gate.post(
            "/up/mcp",
            &[("Mcp-Session-Id", &own)],
            &json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }),
        );
        assert_eq!(stranger.status, 404, "a session is of one door: {stranger:?}");
        // Three tools over all.
        let (compact, _) = gate.session(&gate.token, "/compact/mcp");
        let tools = names(&gate.ask(&compact, "/compact/mcp", "tools/list", json!({})));
        assert_eq!(tools, ["tools_search", "tools_describe", "tools_call"]);
        let through = json!({ "name": "tools_call", "arguments": call("up__echo") });
        answered(&gate.ask(&compact, "/compact/mcp", "tools/call", through));
        // Without either.
        let hello = gate.stateless("/mcp", "server/discover", "", json!({})).message();
        assert!(hello["result"]["supportedVersions"].is_array(), "{hello}");
        let list = gate.stateless("/mcp", "tools/list", "", json!({})).message();
        assert!(list["result"]["ttlMs"].is_number(), "{list}");
        answered(&gate.stateless("/mcp", "tools/call", "up__echo", call("up__echo")).message());
        // Doors that are none.
        for path in [
            "/",
            "/up",
            "/up/mcp/",
            "/nothing/x",
            "//mcp",
            "/./mcp",
            "/up/../mcp",
            "/%75p/mcp",
            "/UP/mcp",
            "/mcp?x",
            "/mcp/mcp/mcp",
            "/a__b/mcp",
        ] {
            let answered = gate.post(path, &[], &json!({}));
            assert!([400, 404].contains(&answered.status), "{path}: {answered:?}");
        }
        let (nobody, hello) = gate.session(&gate.token, "/nothing/mcp");
        assert!(
            hello["instructions"]
                .as_str()
                .is_some_and(|words| words.contains("no server of this name"))
        );
        assert_eq!(names(&gate.ask(&nobody, "/nothing/mcp", "tools/list", json!({}))).len(), 0);
        let shown = project.ringfence(&["ps", "--json"]).ok().json()["runs"][0].clone();
        assert_eq!(shown["kind"], "serve", "{shown}");
        assert!(shown["connections"].is_number(), "{shown}");
        gate.end();
        let events = Events::from_value(&project.report());
        for (tool, outcome) in [("echo", "allowed"), ("wipe", "refused"), ("raw", "allowed")] {
            events.has(
                "call_decided",
                &[("tool", tool), ("principal", "client:one"), ("outcome", outcome)],
            );
        }
        events.lacks("call_decided", &[("principal", "agent")]);
        events.has("run_finished", &[("ended_by", "stopped")]);
        project.ringfence(&["audit", "verify"]).ok().done();
    });
}

#[test]
fn nothing_is_served_before_trust_and_a_listener_hears_of_it() {
    each_user(|who| {
        let up = Upstream::new();
        let project = Project::new(who);
        project.python();
        project.manifest(&bundle(&up.url()));
        project.lock();
        let gate = Gate::serve(&project, &[]);
        let (session, hello) = gate.session(&gate.token, "/mcp");
        assert!(hello["instructions"].as_str().is_some_and(|words| words.contains("trust")));
        assert!(names(&gate.ask(&session, "/mcp", "tools/list", json!({}))).is_empty());
        let call = json!({ "name": "up__echo", "arguments": {} });
        let no = gate.ask(&session, "/mcp", "tools/call", call.clone());
        assert_eq!(no["error"]["data"]["ringfence"]["check"], "trust", "{no}");
        assert!(project.runs().is_empty() && up.seen().is_empty());
        // The session's own stream.
        let (host, bearer) = (gate.address.to_string(), format!("Bearer {}", gate.token));
        let listen = raw(
            "GET",
            "/mcp",
            &[
                ("Host", &host),
                ("Authorization", &bearer),
                ("Accept", "text/event-stream"),
                ("Mcp-Session-Id", &session),
            ],
            "",
        );
        let mut stream = connect(gate.address).expect("it listens");
        stream.write_all(listen.as_bytes()).expect("it reads");
        let mut reader = BufReader::new(stream);
        assert_eq!(head(&mut reader).0, 200);
        project.trust();
        let mut heard = String::new();
        while !heard.contains("notifications/tools/list_changed") {
            heard.push_str(&String::from_utf8_lossy(
                &chunk(&mut reader).expect("the stream goes on"),
            ));
        }
        answered(&gate.ask(&session, "/mcp", "tools/call", call.clone()));
        project.ringfence(&["trust", "--revoke"]).ok().done();
        let before = up.seen().len();
        let no = gate.ask(&session, "/mcp", "tools/call", call);
        assert_eq!(no["error"]["data"]["ringfence"]["check"], "trust", "{no}");
        assert_eq!(up.seen().len(), before);
        gate.end();
    });
}

#[test]
fn a_reload_that_fails_keeps_the_rules_and_one_that_succeeds_replaces_them() {
    each_user(|who| {
        let up = Upstream::new();
        let project = ready(who, &bundle(&up.url()));
        let gate = Gate::serve(&project, &[]);
        let call = || gate.stateless("/up/mcp", "tools/call", "echo", echo()).message();
        answered(&call());
        project.machine("[policy.tools\n");
        answered(&call());
        gate.program.signal(Signal::HUP);
        answered(&call());
        project.machine("[policy.tools]\nup = [\"!echo\"]\n");
        let no = call();
        assert_eq!(no["error"]["data"]["ringfence"]["layer"], "machine", "{no}");
        project.machine("[policy.tools]\nup = [\"*\"]\n");
        answered(&call());
        project.machine("[policy]\nrequire_pinned_tools = true\n");
        let no = call();
        assert_eq!(no["error"]["data"]["ringfence"]["check"], "policy", "{no}");
        let said = gate.end();
        assert!(said.contains("the rules stay as they were"), "{said}");
        assert_eq!(project.runs().len(), 3, "one for each set of rules");
        project.ringfence(&["audit", "verify"]).ok().done();
    });
}

#[test]
fn calls_in_flight_have_their_time_at_the_end() {
    each_user(|who| {
        let open = Arc::new((Mutex::new(false), Condvar::new()));
        let up = Upstream::held(&open);
        let project = ready(who, &bundle(&up.url()));
        let waiting = |gate: &Gate, before: usize| {
            let mut stream = connect(gate.address).expect("it listens");
            let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": stateless(echo()) });
            let headers = [
                ("MCP-Protocol-Version", "2026-07-28"),
                ("Mcp-Method", "tools/call"),
                ("Mcp-Name", "echo"),
            ];
            let text = gate.text(&gate.token, "/up/mcp", &headers, &body);
            stream.write_all(text.as_bytes()).expect("it reads");
            let calls = || up.seen().iter().filter(|seen| seen.body.contains("tools/call")).count();
            eventually("the call", || calls() > before);
            BufReader::new(stream)
        };
        let gate = Gate::serve(&project, &[]);
        let mut reader = waiting(&gate, 0);
        gate.program.signal(Signal::TERM);
        eventually("its deafness", || connect(gate.address).is_err());
        *open.0.lock().expect("ours") = true;
        open.1.notify_all();
        answered(&read(&mut reader).message());
        assert_eq!(gate.program.ended().0, 0);
        Events::from_value(&project.report()).has("call_settled", &[("result", "answered")]);

        // One that does not come to an end is cut off, and settled.
        *open.0.lock().expect("ours") = false;
        let gate = Gate::with(&project, &["--drain", "0"], gate.token);
        let mut reader = waiting(&gate, 1);
        gate.program.signal(Signal::TERM);
        let cut = read(&mut reader);
        assert!(cut.status == 0 || cut.message()["error"].is_object(), "{cut:?}");
        assert_eq!(gate.program.ended().0, 0);
        Events::from_value(&project.report()).has("call_settled", &[("result", "cancelled")]);
        project.ringfence(&["audit", "verify"]).ok().done();
        open.1.notify_all();
    });
}

#[test]
fn one_client_cannot_take_the_place_of_another() {
    each_user(|who| {
        let open = Arc::new((Mutex::new(false), Condvar::new()));
        let up = Upstream::held(&open);
        let project = ready(who, &bundle(&up.url()));
        let two = token(&project, "two");
        let gate = Gate::serve(&project, &["--per-client", "2"]);
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": stateless(echo()) });
        let headers = [
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "echo"),
        ];
        let text = gate.text(&gate.token, "/up/mcp", &headers, &body);
        let held: Vec<_> = (0..2)
            .map(|_| {
                let mut stream = connect(gate.address).expect("it listens");
                stream.write_all(text.as_bytes()).expect("it reads");
                stream
            })
            .collect();
        let calls = || up.seen().iter().filter(|seen| seen.body.contains("tools/call")).count();
        eventually("two calls", || calls() == 2);
        assert_eq!(exchange(gate.address, &text).status, 429);
        let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": stateless(json!({})) });
        let listing = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/list")];
        let other = exchange(gate.address, &gate.text(&two, "/up/mcp", &listing, &list));
        assert_eq!(other.status, 200, "{other:?}");
        *open.0.lock().expect("ours") = true;
        open.1.notify_all();
        for stream in held {
            answered(&read(&mut BufReader::new(stream)).message());
        }
        assert_eq!(exchange(gate.address, &text).status, 200, "its places are free again");
        gate.end();
    });
}

#[test]
fn beyond_this_machine_it_takes_tls() {
    each_user(|who| {
        let up = Upstream::new();
        let project = ready(who, &bundle(&up.url()));
        let refused = project.ringfence(&["gateway", "serve", "--listen", "0.0.0.0:0"]).expect(1);
        refused.says(&["--tls-cert", "--unencrypted-on-the-network"]).done();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a key");
        let certificate = project.file("cert.pem", made.cert.pem());
        let key = project.file("key.pem", made.signing_key.serialize_pem());
        let (cert, key) = (certificate.display().to_string(), key.display().to_string());
        let wrong = ["gateway", "serve", "--tls-cert", &cert, "--tls-key", &cert];
        project.ringfence(&wrong).expect(1).says(&["cert.pem"]).done();
        let tls = ["--listen", "0.0.0.0:0", "--tls-cert", &cert, "--tls-key", &key];
        let gate = Gate::serve(&project, &tls);
        assert_eq!(gate.said["scheme"], "https");
        let ask = "import sys, ssl, json, urllib.request as u\n\
            url, token, cert = sys.argv[1:]\n\
            body = json.dumps({'jsonrpc':'2.0','id':1,'method':'ping'}).encode()\n\
            head = {'Authorization': 'Bearer ' + token, 'Content-Type': 'application/json'}\n\
            hello = json.dumps({'jsonrpc':'2.0','id':0,'method':'initialize','params':{'protocolVersion':'2025-11-25','capabilities':{},'clientInfo':{'name':'x','version':'0'}}}).encode()\n\
            print(u.urlopen(u.Request(url, hello, head), context=ssl.create_default_context(cafile=cert)).status)\n";
        let port = gate.address.port();
        let url = format!("https://localhost:{port}/up/mcp");
        let output = project.shell(&[PYTHON, "-c", ask, &url, &gate.token, &cert]).ok();
        assert_eq!(output.stdout.trim(), "200");
        let plain =
            exchange(([127, 0, 0, 1], port).into(), "GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_ne!(plain.status, 200, "{plain:?}");
        // Plain, where a person says so.
        gate.end();
        project.ringfence(&["gateway", "token", "revoke", "one"]).ok().done();
        let words = ["--listen", "0.0.0.0:0", "--unencrypted-on-the-network"];
        let gate = Gate::serve(&project, &words);
        assert_eq!(gate.said["scheme"], "http");
        gate.end();
    });
}

#[test]
fn several_folders_have_doors_of_their_own() {
    each_user(|who| {
        let up = Upstream::new();
        let project = ready(who, &bundle(&up.url()));
        let other = project.root().join("other");
        std::fs::create_dir(&other).expect("our own folder");
        who.own(&other);
        let (one, two) = (project.path().display().to_string(), other.display().to_string());
        let twice = ["gateway", "serve", "--folder", &one, "--folder", &one];
        project.ringfence(&twice).expect(1).says(&["project"]).done();
        let second = format!("second={two}");
        let gate = Gate::serve(&project, &["--folder", &one, "--folder", &second]);
        let call = gate.stateless("/project/up/mcp", "tools/call", "echo", echo()).message();
        answered(&call);
        let list = gate.stateless("/second/mcp", "tools/list", "", json!({})).message();
        assert!(names(&list).is_empty(), "nothing is there: {list}");
        for path in ["/mcp", "/up/mcp", "/third/mcp", "/second", "/project/up"] {
            assert_eq!(gate.stateless(path, "tools/list", "", json!({})).status, 404, "{path}");
        }
        gate.end();
    });
}
