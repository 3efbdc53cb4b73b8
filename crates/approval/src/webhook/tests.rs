use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use ringfence_identity::{Did, Signer};
use serde_json::{Value, json};

use super::{Post, Posted, Received, Webhook, check_url, public_text};
use crate::bound::tests::question;
use crate::desk::tests::Home;
use crate::{Boxed, Channel as _, Decision, Question, Ticket, Verdict};

/// An endpoint that answers one thing after the other.
#[derive(Default)]
struct Endpoint {
    seen: Mutex<Vec<Posted>>,
    says: Mutex<VecDeque<Result<Received, String>>>,
}

impl Post for Endpoint {
    fn post(&self, request: Posted) -> Boxed<'_, Result<Received, String>> {
        self.seen.lock().unwrap().push(request);
        let next = self.says.lock().unwrap().pop_front();
        Box::pin(async move {
            match next {
                Some(next) => next,
                None => std::future::pending().await,
            }
        })
    }
}

fn says(status: u16, body: &[u8]) -> Result<Received, String> {
    Ok(Received { status, retry_after: Some(0), body: body.to_owned() })
}

fn key(signer: &Signer) -> String {
    signer.did().as_str().trim_start_matches("did:key:").to_owned()
}

fn decision(ticket: &Ticket, signer: &Signer) -> Vec<u8> {
    let mut decision = Decision {
        version: 1,
        question: ticket.id.clone(),
        digest: ticket.digest.clone(),
        nonce: ticket.nonce.clone(),
        expires: ticket.expires.clone(),
        verdict: Verdict::Approve,
        reason: None,
        key: key(signer),
        signature: String::new(),
    };
    let engine = base64::engine::general_purpose::STANDARD;
    decision.signature = engine.encode(signer.sign(&decision.signed()));
    serde_json::to_vec(&decision).unwrap()
}

#[tokio::test(start_paused = true)]
async fn it_is_asked_again_until_a_decision_counts() {
    let home = Home::new();
    let approver = Signer::named(home.path(), "approver").unwrap();
    let stranger = Signer::named(home.path(), "stranger").unwrap();
    let hostile =
        Question { arguments: format!("\x1b[2J\u{202e}{}", "x".repeat(3000)), ..question() };
    let hostile = Question { other_params: format!("\x1b]0;{}", "y".repeat(2500)), ..hostile };
    let ticket = Ticket::new(&hostile, "run", "/p", Duration::from_secs(86_400)).unwrap();
    let other = Ticket::new(&hostile, "run", "/p", Duration::from_secs(86_400)).unwrap();
    let endpoint = Arc::new(Endpoint::default());
    endpoint.says.lock().unwrap().extend([
        says(202, b""),
        Err("no connection".into()),
        says(500, b"oops"),
        says(302, b""),
        says(200, b"yes"),
        says(200, &decision(&ticket, &stranger)),
        says(200, &decision(&other, &approver)),
        says(200, &decision(&ticket, &approver)),
    ]);
    let webhook = Webhook {
        url: check_url("https://approve.example/hook?token=s3cret").unwrap(),
        keys: vec![key(&approver)],
        signer: Signer::machine(home.path()).unwrap(),
        post: Arc::clone(&endpoint) as Arc<dyn Post>,
        recorder: home.recorder.clone(),
    };
    let answer = webhook.ask(&ticket).await.expect("it counts in the end");
    assert_eq!(
        (answer.verdict, answer.by, answer.channel),
        (Verdict::Approve, key(&approver), "webhook")
    );

    let seen = endpoint.seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 8);
    let header = |request: &Posted, name: &str| {
        request.headers.iter().find(|(n, _)| *n == name).unwrap().1.clone()
    };
    let machine: Did = Signer::machine(home.path()).unwrap().did().clone();
    for request in &seen {
        let id = header(request, "webhook-id");
        assert_eq!(id, header(&seen[0], "webhook-id"), "the same question");
        let mut signed = format!("{id}.{}.", header(request, "webhook-timestamp")).into_bytes();
        signed.extend_from_slice(&request.body);
        let signature = header(request, "webhook-signature");
        let raw = base64::engine::general_purpose::STANDARD
            .decode(signature.strip_prefix("v1a,").unwrap())
            .unwrap();
        machine.verify(&signed, &raw.try_into().unwrap()).expect("this machine's signature");
    }
    let body: Value = serde_json::from_slice(&seen[0].body).unwrap();
    let data = &body["data"];
    assert_eq!(data["digest"], json!(ticket.digest));
    assert_eq!(data["arguments_cut"], json!(true));
    let arguments = data["arguments"].as_str().unwrap();
    assert!(
        arguments.starts_with("\\u{1b}[2J\\u{202e}xx") && arguments.contains("more characters")
    );

    let beside = data["other_params"].as_str().unwrap();
    assert!(beside.starts_with("\\u{1b}]0;yy") && beside.contains("more characters"), "{beside}");
    assert_eq!(
        (&data["other_params_characters"], &data["other_params_cut"]),
        (&json!(2504), &json!(true))
    );

    let told = home.told().await;
    assert!(told[0].contains("no connection"), "{told:?}");
    assert!(told.iter().all(|text| !text.contains("s3cret") && !text.contains("approve.example")));
}

#[tokio::test]
async fn where_the_machine_lists_none_of_its_keys_nobody_is_asked() {
    let home = Home::new();
    let endpoint = Arc::new(Endpoint::default());
    let webhook = Webhook {
        url: check_url("https://approve.example/hook").unwrap(),
        keys: Vec::new(),
        signer: Signer::machine(home.path()).unwrap(),
        post: Arc::clone(&endpoint) as Arc<dyn Post>,
        recorder: home.recorder.clone(),
    };
    let ticket = Ticket::new(&question(), "run", "/p", Duration::from_secs(60)).unwrap();
    assert!(webhook.ask(&ticket).await.is_none());
    assert!(endpoint.seen.lock().unwrap().is_empty());
}

#[test]
fn an_address_is_https_or_written_as_loopback() {
    for good in [
        "https://approve.example/hook?token=1",
        "http://127.0.0.1:8080/",
        "http://127.8.9.1:8080/x",
        "http://[::1]:9/",
        "https://127.0.0.1/",
    ] {
        check_url(good).unwrap_or_else(|error| panic!("{good}: {error}"));
    }
    for bad in [
        "http://approve.example/",
        "http://localhost.approve.example/",
        "http://10.0.0.1/",
        "http://127.0.0.1.nip.io/",
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "https://user:pass@approve.example/",
        "",
    ] {
        let error = check_url(bad).expect_err(bad).to_string();
        assert!(bad.is_empty() || !error.contains(bad), "it is not shown: {error}");
    }
}

#[test]
fn the_public_key_is_written_as_standard_webhooks_does() {
    let home = tempfile::tempdir().unwrap();
    let signer = Signer::named(home.path(), "one").unwrap();
    let text = public_text(signer.did());
    let raw = base64::engine::general_purpose::STANDARD.decode(&text["whpk_".len()..]).unwrap();
    assert_eq!(raw, signer.did().public_key());
    assert_eq!(raw.len(), 32);
}
