//! Row 37: decisions from elsewhere count when a declared key signed them for this question, and are
//! asked for where nobody else listens.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use ed25519_dalek::{Signer as _, SigningKey, pkcs8::DecodePrivateKey as _};
use ringfence_tests::{Cases, Project, TestNet, Who, each_user, repository};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::cmd_approvals::{asking, call, project, start, text, waiting};

/// What an endpoint answers, when it is asked this.
type Says = dyn Fn(&Value, usize) -> (u16, String) + Send + Sync;

/// A decision endpoint on loopback, and what it was asked.
struct Endpoint {
    port: u16,
    seen: Arc<Mutex<Vec<Value>>>,
}

impl Endpoint {
    fn new(says: impl Fn(&Value, usize) -> (u16, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let port = listener.local_addr().expect("an address").port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (log, says): (_, Arc<Says>) = (Arc::clone(&seen), Arc::new(says));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(&stream);
                let (mut line, mut length) = (String::new(), 0);
                while reader.read_line(&mut line).unwrap_or(0) > 2 {
                    if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap_or(0);
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                let _ = reader.read_exact(&mut body);
                let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
                let number = {
                    let mut log = log.lock().expect("ours");
                    log.push(asked["data"].clone());
                    log.len()
                };
                let (status, body) = says(&asked["data"], number);
                let _ = (&stream).write_all(
                    format!(
                        "HTTP/1.1 {status} X\r\nRetry-After: 1\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                        body.len()
                    )
                    .as_bytes(),
                );
            }
        });
        Self { port, seen }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook?token=s3cret-path", self.port)
    }
}

/// An approver with a key that `ringfence webhook keygen` made.
#[derive(Clone)]
struct Approver {
    key: String,
    signing: SigningKey,
}

impl Approver {
    fn new(project: &Project, name: &str) -> Self {
        let made = project.ringfence(&["webhook", "keygen", name, "--json"]).ok().json();
        let file = std::fs::read_to_string(text(&made, "file")).expect("the key");
        let signing = SigningKey::from_pkcs8_pem(&file).expect("PKCS#8");
        Self { key: text(&made, "key").to_owned(), signing }
    }

    fn decide(&self, data: &Value, verdict: &str) -> String {
        let reason = "checked";
        let hash: String =
            Sha256::digest(reason).iter().map(|byte| format!("{byte:02x}")).collect();
        let part = |key: &str| text(data, key).to_owned();
        let lines = [
            "ringfence-approval-decision-v1".to_owned(),
            part("question"),
            part("digest"),
            part("nonce"),
            part("expires"),
            verdict.to_owned(),
            hash,
            self.key.clone(),
        ];
        let signed = format!("{}\n", lines.join("\n"));
        let signature = self.signing.sign(signed.as_bytes()).to_bytes();
        json!({
            "version": 1, "question": part("question"), "digest": part("digest"),
            "nonce": part("nonce"), "expires": part("expires"), "verdict": verdict,
            "reason": reason, "key": self.key,
            "signature": base64::engine::general_purpose::STANDARD.encode(signature),
        })
        .to_string()
    }
}

/// [`asking`], with a webhook and these approvers.
fn notified(more: &str, keys: &[&str]) -> String {
    format!(
        "{}\n[[approvals.notify]]\nchannel = \"webhook\"\nurl_ref = \"CASE_WEBHOOK\"\napprover_keys = {keys:?}\n",
        asking(more)
    )
}

/// A project whose questions go to this endpoint, and a run of it to its end.
fn ask(who: Who, prepare: impl Fn(&Project) -> (String, Endpoint)) -> (Project, Cases, Endpoint) {
    let mut project = Project::new(who);
    project.python();
    project.file("case.py", call("{\"n\": 1}"));
    let (manifest, endpoint) = prepare(&project);
    project.manifest(&manifest);
    project.lock();
    project.trust();
    project.env("CASE_WEBHOOK", &endpoint.url());
    let cases = Project::cases(start(&project).finish().ok());
    (project, cases, endpoint)
}

#[test]
fn a_decision_counts_when_a_declared_key_signed_it_for_this_question() {
    each_user(|who| {
        for verdict in ["approve", "deny"] {
            let (project, cases, endpoint) = ask(who, |project| {
                let approver = Approver::new(project, "office");
                let keys = notified("", &[&approver.key]);
                // Not decided at first: it is asked again.
                let says = move |data: &Value, number: usize| match number {
                    1 => (202, String::new()),
                    _ => (200, approver.decide(data, verdict)),
                };
                (keys, Endpoint::new(says))
            });
            if verdict == "approve" {
                cases.answered("case")
            } else {
                cases.not_answered("case")
            }
            let word = if verdict == "approve" { "approved" } else { "denied" };
            project.events().has("approval_answered", &[("answer", word), ("channel", "webhook")]);
            assert_eq!(endpoint.seen.lock().expect("ours").len(), 2);
            let all = crate::bundles::all_text(&project, &project.state().join("runs"), "");
            assert!(
                !all.contains("s3cret-path") && !all.contains(&format!(":{}", endpoint.port)),
                "{all}"
            );
            assert!(!cases.output.stderr.contains("s3cret-path"), "{}", cases.output.stderr);
        }
    });
}

#[test]
fn decisions_that_are_replayed_strange_for_others_or_late_do_not_count() {
    each_user(|who| {
        let names = [
            "an undeclared key",
            "a key that the machine does not list",
            "another call",
            "another digest",
            "a signature of nothing",
            "no signature at all",
            "a redirect",
            "an endless answer",
            "a yes in another form",
        ];
        for name in names {
            let (project, cases, endpoint) = ask(who, |project| {
                let office = Approver::new(project, "office");
                let stranger = Approver::new(project, "stranger");
                let keys = notified("timeout_seconds = 3", &[&office.key]);
                if name == "a key that the machine does not list" {
                    project.machine(&format!(
                        "[policy]\napprover_keys = [{:?}, {:?}]\n",
                        office.key, stranger.key
                    ));
                }
                let keys = match name {
                    "a key that the machine does not list" => {
                        keys.replace(&office.key, &stranger.key)
                    }
                    _ => keys,
                };
                let says = move |data: &Value, _| {
                    let mut other = data.clone();
                    match name {
                        "an undeclared key" => (200, stranger.decide(data, "approve")),
                        "a key that the machine does not list" => {
                            (200, office.decide(data, "approve"))
                        }
                        "another call" => {
                            other["question"] = "aaaa-bbbb".into();
                            (200, office.decide(&other, "approve"))
                        }
                        "another digest" => {
                            other["digest"] = format!("sha256:{}", "0".repeat(64)).into();
                            (200, office.decide(&other, "approve"))
                        }
                        "a signature of nothing" => {
                            let deny = office.decide(data, "deny");
                            (200, deny.replace("\"deny\"", "\"approve\""))
                        }
                        "no signature at all" => (200, json!({ "verdict": "approve" }).to_string()),
                        "a redirect" => (302, office.decide(data, "approve")),
                        "an endless answer" => (
                            200,
                            format!("{}{}", office.decide(data, "approve"), " ".repeat(1 << 20)),
                        ),
                        _ => (200, "\"approve\"".to_owned()),
                    }
                };
                (keys, Endpoint::new(says))
            });
            cases.not_answered("case");
            project.events().has("approval_answered", &[("answer", "timed_out")]);
            project.events().has("approval_unheard", &[("channel", "webhook")]);
            assert!(!endpoint.seen.lock().expect("ours").is_empty(), "{name}: it was asked");
        }
    });
}

#[test]
fn a_decision_is_used_once_and_not_after_its_time() {
    each_user(|who| {
        let first: Arc<Mutex<Option<String>>> = Arc::default();
        let (project, cases, endpoint) = ask(who, |project| {
            project.file(
                "case.py",
                format!(
                    "{}Mcp(\"mirror\").call(\"again\", \"raw\", {{\"n\": 1}})\n",
                    call("{\"n\": 1}")
                ),
            );
            let office = Approver::new(project, "office");
            let keys = notified("timeout_seconds = 3", &[&office.key]);
            let first = Arc::clone(&first);
            let says = move |data: &Value, _| {
                let mut first = first.lock().expect("ours");
                // The same bytes for every question there is.
                (200, first.get_or_insert_with(|| office.decide(data, "approve")).clone())
            };
            (keys, Endpoint::new(says))
        });
        cases.answered("case");
        cases.not_answered("again");
        project.events().has("approval_answered", &[("answer", "timed_out")]);
        let seen = endpoint.seen.lock().expect("ours");
        assert_ne!(seen[0]["digest"], seen[1]["digest"], "the same call, another question");
    });
}

#[test]
fn a_webhook_goes_to_public_addresses_or_to_a_loopback_that_was_written() {
    each_user(|who| {
        for (url, says) in [
            ("http://approve.example.com/", "https"),
            ("http://10.0.0.1/", "https"),
            ("ftp://127.0.0.1/", "only `https` and `http`"),
            ("nonsense s3cret", "expected `https://host"),
        ] {
            let mut project = project(
                who,
                &notified("", &["z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"]),
                &call("{}"),
            );
            project.env("CASE_WEBHOOK", url);
            let output = start(&project).finish().expect(1).says(&["CASE_WEBHOOK", says]);
            assert!(
                !output.stderr.contains("approve.example") && !output.stderr.contains("s3cret"),
                "{}",
                output.stderr
            );
        }
        // A private address behind https: refused when it is to be dialled, and the question waits on.
        let mut project = project(
            who,
            &notified("timeout_seconds = 2", &["z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"]),
            &call("{}"),
        );
        project.env("CASE_WEBHOOK", "https://10.66.0.44/s3cret");
        let cases = Project::cases(start(&project).finish().ok());
        cases.not_answered("case");
        project.events().has("approval_unheard", &[("reason", "it is not at a public address")]);
        // Nothing says where it goes: no run.
        let project = self::project(
            who,
            &notified("", &["z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"]),
            &call("{}"),
        );
        start(&project).finish().expect(1).says(&["CASE_WEBHOOK", "ringfence secret set"]).done();
    });
}

/// Ended with the case.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_reference_endpoint_verifies_decides_and_signs() {
    each_user(|who| {
        let mut project = Project::new(who);
        project.python();
        let office = Approver::new(&project, "office");
        let whpk = project.ringfence(&["webhook", "key"]).ok().stdout.trim().to_owned();
        let pending = project.root().join("pending");
        let mut command = Command::new("/usr/bin/node");
        command
            .arg(repository().join("examples/approval-endpoint/endpoint.mjs"))
            .arg("--key")
            .arg(project.state().join("webhook-keys/office.pem"))
            .args(["--ringfence", &whpk, "--listen", "127.0.0.1:0", "--pending"])
            .arg(&pending)
            .stdout(Stdio::piped());
        let mut node = Node(command.spawn().expect("node is installed (cargo xtask test does it)"));
        let mut line = String::new();
        let stdout = node.0.stdout.take().expect("a pipe");
        let _ = BufReader::new(stdout).read_line(&mut line);
        let address = line.split_whitespace().nth(2).expect("it says where it listens").to_owned();
        assert!(line.contains(&office.key), "{line}");

        // Who is not this Ringfence is told nothing.
        let body = r#"{"data":{"version":1}}"#;
        let out = project.shell(&[
            "curl",
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-H",
            "webhook-id: a",
            "-H",
            "webhook-timestamp: 1",
            "-H",
            "webhook-signature: v1a,AAAA",
            "-d",
            body,
            &format!("http://{address}/"),
        ]);
        assert_eq!(out.stdout, "401");

        project.manifest(&notified("", &[&office.key]));
        project.file("case.py", call("{\"n\": 1}"));
        project.lock();
        project.trust();
        project.env("CASE_WEBHOOK", &format!("http://{address}/"));
        for (verdict, goes) in [("approve", true), ("deny", false)] {
            let run = start(&project);
            let question = waiting(&project, 1).remove(0);
            let file = pending.join(format!("{}.json", text(&question, "id")));
            let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while !file.exists() {
                assert!(std::time::Instant::now() < end, "the endpoint was not asked");
                std::thread::yield_now();
            }
            std::fs::write(file.with_extension(verdict), "by a person").expect("ours");
            let cases = Project::cases(run.finish().ok());
            if goes {
                cases.answered("case")
            } else {
                cases.not_answered("case")
            }
            project
                .events()
                .has("approval_answered", &[("channel", "webhook"), ("by", &office.key)]);
        }
    });
}

#[test]
fn a_webhook_over_tls_is_believed_by_the_certificates_of_this_machine_alone() {
    each_user(|who| {
        let zone = [
            ("approve.example.com", json!([TestNet::PUBLIC])),
            ("approve.example.net", json!([TestNet::PUBLIC])),
        ];
        for (what, url, certified, decides) in [
            ("its own name", "https://approve.example.com/hook?token=s3cret", true, true),
            ("nobody vouches for it", "https://approve.example.com/hook", false, false),
            ("another name", "https://approve.example.net/hook", true, false),
        ] {
            let net = TestNet::new(who, &zone);
            let mut project = Project::new(who);
            project.python();
            project.file("case.py", call("{\"n\": 1}"));
            let office = Approver::new(&project, "office");
            let timeout = if decides { "" } else { "timeout_seconds = 4" };
            project.manifest(&notified(timeout, &[&office.key]));
            project.lock();
            project.trust();
            project.env("CASE_WEBHOOK", url);
            if certified {
                project.env("SSL_CERT_FILE", &net.certificate().display().to_string());
            }
            net.host(&mut project);
            net.authority(&json!({}));
            let run = start(&project);
            let mut question = waiting(&project, 1).remove(0);
            if decides {
                question["question"] = question["id"].clone();
                net.authority(&json!({ "decision": office.decide(&question, "approve") }));
            }
            let cases = Project::cases(run.finish().ok());
            let events = project.events();
            let asked = "POST https://approve.example.com/hook";
            if decides {
                cases.answered("case");
                net.saw("asked", asked);
                let fields = [("answer", "approved"), ("channel", "webhook")];
                events.has("approval_answered", &fields);
                events.lacks("approval_unheard", &[]);
            } else {
                cases.not_answered("case");
                net.saw_no("asked", "/hook");
                assert!(net.sightings().iter().any(|it| it.kind == "tls"), "{what}: it was tried");
                let unheard = events.with("approval_unheard", &[]);
                assert!(text(unheard[0], "reason").contains("TLS"), "{what}: {unheard:?}");
                events.has("approval_answered", &[("answer", "timed_out")]);
            }
            assert!(!project.events_text().contains("s3cret"), "{what}");
        }
    });
}
