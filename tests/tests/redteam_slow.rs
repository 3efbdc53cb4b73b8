//! Row 33's kin, at the HTTP door: who is slow, silent or gone holds up nobody else for long. And what
//! servers answer there: encoded, or not at all.

use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringfence_tests::http::{connect, exchange, read};
use ringfence_tests::{Events, Project, Upstream, each_user, eventually};
use serde_json::{Value, json};

use crate::cmd_gateway::{Gate, bundle, ready, token};

/// More than any of this takes, and less than an idle client is given.
const SOON: Duration = Duration::from_secs(60);

fn list() -> Value {
    let params = ringfence_tests::stateless(json!({}));
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params })
}

const HEADERS: [(&str, &str); 2] =
    [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/list")];

/// Waits until the other side has closed, and says after how long.
fn closed(mut stream: TcpStream, since: Instant) -> Duration {
    stream.set_read_timeout(Some(SOON)).expect("a socket has timeouts");
    let mut rest = [0; 1024];
    loop {
        match stream.read(&mut rest) {
            Ok(0) => return since.elapsed(),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("it is open still")
            }
            Err(_) => return since.elapsed(),
        }
    }
}

#[test]
fn who_never_asks_holds_no_place_and_the_next_client_comes_in() {
    each_user(|who| {
        let up = Upstream::new();
        let project = ready(who, &bundle(&up.url()));
        let gate = Gate::serve(&project, &["--connections", "5"]);
        let text = gate.text(&gate.token, "/up/mcp", &HEADERS, &list());
        // A client, whose connection stays.
        let client = connect(gate.address).expect("it listens");
        (&client).write_all(text.as_bytes()).expect("it reads");
        let mut client = BufReader::new(client);
        assert_eq!(read(&mut client).status, 200, "the control");
        // One that says nothing, one that never ends its head, one that sends it byte by byte, and one
        // that is nobody and keeps its connection.
        let since = Instant::now();
        let open = |said: &str| {
            let stream = connect(gate.address).expect("it listens");
            (&stream).write_all(said.as_bytes()).expect("it reads");
            stream
        };
        let silent = open("");
        let half = open(&text[..text.len() / 2]);
        let trickles = open("POST /up/mcp HTTP/1.1\r\nX-Slow: ");
        let nobody = open(&gate.text("rfg_nobody", "/up/mcp", &HEADERS, &list()));
        let drip = trickles.try_clone().expect("a socket can be shared");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while since.elapsed() < SOON && (&drip).write_all(b"x").is_ok() {
                    std::thread::park_timeout(Duration::from_millis(200));
                }
            });
            // All places are taken, so that this one waits until one of them is free.
            let next = scope.spawn(|| (exchange(gate.address, &text).status, since.elapsed()));
            for (name, stream) in
                [("silent", silent), ("half", half), ("trickles", trickles), ("nobody", nobody)]
            {
                let after = closed(stream, since);
                assert!(after < Duration::from_secs(30), "{name}: {after:?}");
            }
            let (status, after) = next.join().expect("it is answered");
            assert_eq!(status, 200);
            assert!(after > Duration::from_secs(1), "the limit holds: {after:?}");
        });
        // The client is there still, though it has said nothing meanwhile.
        client.get_mut().write_all(text.as_bytes()).expect("it is open");
        assert_eq!(read(&mut client).status, 200);
        gate.end();
    });
}

#[test]
fn connections_of_clients_have_a_limit_and_the_next_waits_for_one_to_end() {
    each_user(|who| {
        let up = Upstream::new();
        let project = ready(who, &bundle(&up.url()));
        let gate = Gate::serve(&project, &["--connections", "2"]);
        let text = gate.text(&gate.token, "/up/mcp", &HEADERS, &list());
        let mut clients = Vec::new();
        for _ in 0..2 {
            let client = connect(gate.address).expect("it listens");
            (&client).write_all(text.as_bytes()).expect("it reads");
            let mut client = BufReader::new(client);
            assert_eq!(read(&mut client).status, 200);
            clients.push(client);
        }
        let third = connect(gate.address).expect("the kernel takes it");
        (&third).write_all(text.as_bytes()).expect("the kernel takes it");
        third.set_read_timeout(Some(Duration::from_secs(2))).expect("a socket has timeouts");
        let mut third = BufReader::new(third);
        let mut byte = [0];
        let waits = third.get_mut().read(&mut byte).expect_err("there is no place for it");
        assert_eq!(waits.kind(), std::io::ErrorKind::WouldBlock);
        drop(clients.pop());
        third.get_mut().set_read_timeout(Some(SOON)).expect("a socket has timeouts");
        assert_eq!(read(&mut third).status, 200);
        gate.end();
    });
}

#[test]
fn a_lease_ends_when_nothing_carries_its_session_any_more() {
    each_user(|who| {
        let up = Upstream::new();
        let toolsets = "\n[toolsets.near]\nservers = [\"up\"]\ndefault = true\n\n[toolsets.far]\nservers = [\"mirror\"]\n";
        let project = ready(who, &format!("{}{toolsets}", bundle(&up.url())));
        let gate = Gate::serve(&project, &[]);
        let leases =
            || project.ringfence(&["ps", "--json"]).ok().json()["leases"].as_array().map(Vec::len);
        // One whose connection stays, and one whose connections are closed after each answer.
        let lease = |session: &str| {
            let arguments = json!({ "toolset": "far", "task": "t" });
            let params = json!({ "name": "ringfence__lease", "arguments": arguments });
            let body =
                json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
            gate.text(&gate.token, "/mcp", &[("Mcp-Session-Id", session)], &body)
        };
        let (gone, _) = gate.session(&gate.token, "/mcp");
        let (stays, _) = gate.session(&gate.token, "/mcp");
        assert_eq!(exchange(gate.address, &lease(&gone)).status, 200);
        let carries = connect(gate.address).expect("it listens");
        (&carries).write_all(lease(&stays).as_bytes()).expect("it reads");
        let mut carries = BufReader::new(carries);
        assert_eq!(read(&mut carries).status, 200);
        assert_eq!(leases(), Some(2), "the control");
        // Nobody says that the session is over.
        eventually("the end of the lease", || leases() == Some(1));
        let names = |session: &str| {
            ringfence_tests::names(&gate.ask(session, "/mcp", "tools/list", json!({})))
        };
        assert!(names(&stays).contains(&"mirror__raw".to_owned()));
        assert!(names(&gone).contains(&"up__echo".to_owned()), "its session is there still");
        drop(carries);
        gate.end();
    });
}

/// As gzip writes it.
fn gzip(text: &str) -> Vec<u8> {
    let mut gzip = Command::new("gzip")
        .arg("-c")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("gzip runs");
    gzip.stdin.take().expect("its stdin").write_all(text.as_bytes()).expect("it reads");
    gzip.wait_with_output().expect("it ends").stdout
}

/// Row 33: what is not read is not metered, and what is not metered is paid for in full.
#[test]
fn an_encoded_reply_is_refused_and_paid_for_in_full() {
    each_user(|who| {
        let how: Arc<Mutex<(&str, bool)>> = Arc::new(Mutex::new(("", false)));
        let now = Arc::clone(&how);
        let up = Upstream::answering(move |id| {
            let (encoding, packed) = *now.lock().expect("nobody failed");
            let result = json!({ "content": [], "usage": { "units": 1 } });
            let text = json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string();
            let body = if packed { gzip(&text) } else { text.into_bytes() };
            let encoding = match encoding {
                "" => String::new(),
                encoding => format!("Content-Encoding: {encoding}\r\n"),
            };
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{encoding}Content-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            [head.into_bytes(), body].concat()
        });
        let priced = "\n[servers.up.pricing]\nmax_usd_per_call = \"0.05\"\n[[servers.up.pricing.meters]]\nusage_path = \"result.usage.units\"\nusd_per_unit = \"0.01\"\n\n[spending]\nmax_per_run_usd = \"9.00\"\n";
        let project = ready(who, &format!("{}{priced}", bundle(&up.url())));
        let token = token(&project, "one");
        for (encoding, packed, words) in [
            ("gzip", true, "compressed"),
            ("gzip", false, "compressed"),
            ("GZIP", true, "compressed"),
            ("x-gzip", true, "compressed"),
            ("br", false, "compressed"),
            ("deflate, gzip", true, "compressed"),
            ("identity", false, "compressed"),
            ("", true, "not JSON"),
        ] {
            let gate = Gate::with(&project, &[], token.clone());
            let call = |encoding, packed| {
                *how.lock().expect("nobody failed") = (encoding, packed);
                let echo = json!({ "name": "echo", "arguments": {} });
                gate.stateless("/up/mcp", "tools/call", "echo", echo).message()
            };
            let plain = call("", false);
            assert_eq!(plain["result"]["usage"]["units"], 1, "the control: {plain}");
            let no = call(encoding, packed);
            let message = no["error"]["message"].as_str().unwrap_or_default();
            assert!(message.contains(words), "{encoding} {packed}: {no}");
            // What it cost nobody knows: there is no next call.
            let next = call("", false);
            assert!(next["error"].is_object(), "{encoding} {packed}: {next}");
            eventually("the limit is in the record", || {
                let text = project.report().to_string();
                text.contains("limit_reached")
            });
            gate.end();
            let events = Events::from_value(&project.report());
            events.has("call_settled", &[("result", "answered"), ("cost_usd", "0.01")]);
            events.has("call_settled", &[("result", "failed"), ("cost_usd", "0.05")]);
            events.has("limit_reached", &[("limit", "spending")]);
            let told = project.ringfence(&["spend", "--run", "last", "--json"]).ok().json();
            assert_eq!(told["sums"][0]["spent_usd"], "0.06", "{encoding} {packed}: {told}");
            assert_eq!(told["sums"][0]["reserved_usd"], "0.00", "{encoding} {packed}: {told}");
        }
        for seen in up.seen() {
            let asked = seen.header("accept-encoding").unwrap_or("identity");
            assert_eq!(asked, "identity", "it is not asked for: {seen:?}");
        }
    });
}

#[test]
fn a_server_that_is_down_is_told_to_who_asks() {
    each_user(|who| {
        let project = Project::new(who);
        project.python();
        // Starts, says something for a person alone, and ends.
        project.file(
            "gone.py",
            "import sys\nsys.stderr.write('NO DATABASE AT /secret/place')\nsys.exit(3)\n",
        );
        project.manifest(&bundle(&Upstream::nobody()).replace("mirror.py", "gone.py"));
        project.lock();
        project.trust();
        let gate = Gate::serve(&project, &[]);
        let (session, _) = gate.session(&gate.token, "/mcp");
        let list = gate.ask(&session, "/mcp", "tools/list", json!({}));
        let missing = &list["result"]["_meta"]["ringfence"]["missing"];
        assert_eq!(*missing, json!(["mirror", "up"]), "{list}");
        assert_eq!(ringfence_tests::names(&list).len(), 0, "{list}");
        for (path, tool, words) in [
            ("/mcp", "up__echo", "cannot be reached"),
            ("/mcp", "mirror__raw", "ended the connection"),
            ("/up/mcp", "echo", "cannot be reached"),
            ("/mirror/mcp", "raw", ""),
        ] {
            let call = json!({ "name": tool, "arguments": {} });
            let no = gate.stateless(path, "tools/call", tool, call).message();
            let message = no["error"]["message"].as_str().unwrap_or_default();
            assert!(message.starts_with("the server"), "{path} {tool}: {no}");
            assert!(message.contains(words) || message.contains("tried again"), "{tool}: {no}");
            let data = &no["error"]["data"]["ringfence"];
            assert_eq!(
                (&data["check"], &data["next"]),
                (&json!("upstream"), &json!("ringfence report"))
            );
            // Neither its address nor what it said.
            for secret in ["127.0.0.1", "DATABASE", "/secret"] {
                assert!(!no.to_string().contains(secret), "{no}");
            }
        }
        gate.end();
        assert!(project.events_text().contains("NO DATABASE"), "the record has it");
    });
}
