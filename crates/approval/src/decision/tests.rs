use base64::Engine as _;
use ringfence_identity::Signer;

use super::{Decision, Verdict};
use crate::bound::tests::question;
use crate::{Question, Ticket};

fn ticket() -> Ticket {
    Ticket::new(&question(), "run", "/p", std::time::Duration::from_secs(300)).unwrap()
}

fn key(signer: &Signer) -> String {
    signer.did().as_str().trim_start_matches("did:key:").to_owned()
}

fn signed(ticket: &Ticket, signer: &Signer) -> Decision {
    let mut decision = Decision {
        version: 1,
        question: ticket.id.clone(),
        digest: ticket.digest.clone(),
        nonce: ticket.nonce.clone(),
        expires: ticket.expires.clone(),
        verdict: Verdict::Approve,
        reason: Some("fine\nby me".into()),
        key: key(signer),
        signature: String::new(),
    };
    sign(&mut decision, signer);
    decision
}

fn sign(decision: &mut Decision, signer: &Signer) {
    let engine = base64::engine::general_purpose::STANDARD;
    decision.signature = engine.encode(signer.sign(&decision.signed()));
}

fn verify(decision: &Decision, ticket: &Ticket, keys: &[String]) -> Result<(), String> {
    let text = serde_json::to_vec(decision).unwrap();
    Decision::verify(&text, ticket, keys).map(drop).map_err(|error| error.to_string())
}

#[test]
fn only_a_declared_key_over_exactly_this_question_counts() {
    let home = tempfile::tempdir().unwrap();
    let one = Signer::named(home.path(), "one").unwrap();
    let other = Signer::named(home.path(), "other").unwrap();
    let keys = [key(&one)];
    let ticket = ticket();
    let good = signed(&ticket, &one);
    verify(&good, &ticket, &keys).expect("control: it counts");

    let why = verify(&signed(&ticket, &other), &ticket, &keys).unwrap_err();
    assert!(why.contains("no approver's"), "{why}");
    // Whose name is put over another's signature.
    let mut claimed = signed(&ticket, &other);
    claimed.key = key(&one);
    assert!(verify(&claimed, &ticket, &keys).unwrap_err().contains("does not verify"));
    assert!(verify(&good, &ticket, &[]).is_err(), "where nobody is an approver, nobody is");

    // What was signed for another question, another run, or for this one asked anew.
    let changed = Question { arguments: r#"{"amount":100000}"#.into(), ..question() };
    let minutes = std::time::Duration::from_secs(300);
    let mut same_id = Ticket::new(&changed, "run", "/p", minutes).unwrap();
    for replay in [
        Ticket::new(&changed, "run", "/p", minutes).unwrap(),
        Ticket::new(&question(), "other-run", "/p", minutes).unwrap(),
        self::ticket(),
    ] {
        assert!(verify(&good, &replay, &keys).unwrap_err().contains("another question"));
    }
    same_id.id.clone_from(&ticket.id);
    assert!(verify(&good, &same_id, &keys).unwrap_err().contains("another digest"));
    let nonce = Ticket { nonce: "0".repeat(32), ..ticket.clone() };
    assert!(verify(&good, &nonce, &keys).unwrap_err().contains("another nonce"));
    let expires = Ticket { expires: "2099-01-01T00:00:00Z".into(), ..ticket.clone() };
    assert!(verify(&good, &expires, &keys).unwrap_err().contains("another expiry"));
}

#[test]
fn a_no_is_not_turned_into_a_yes() {
    let home = tempfile::tempdir().unwrap();
    let one = Signer::named(home.path(), "one").unwrap();
    let keys = [key(&one)];
    let ticket = ticket();
    let changes: [fn(&mut Decision); 5] = [
        |d| d.verdict = Verdict::Deny,
        |d| d.reason = None,
        |d| d.reason = Some("fine".into()),
        |d| d.version = 2,
        |d| d.signature.truncate(40),
    ];
    for change in changes {
        let mut decision = signed(&ticket, &one);
        change(&mut decision);
        assert!(verify(&decision, &ticket, &keys).is_err(), "{decision:?}");
    }
    // The text of one part does not become another.
    let mut lines = signed(&ticket, &one);
    lines.question = format!("{}\n{}", ticket.id, ticket.digest);
    sign(&mut lines, &one);
    assert!(verify(&lines, &ticket, &keys).is_err());
}

#[test]
fn an_expired_one_does_not_count_and_neither_does_what_two_could_read_differently() {
    let home = tempfile::tempdir().unwrap();
    let one = Signer::named(home.path(), "one").unwrap();
    let keys = [key(&one)];
    let past = Ticket { expires: "2020-01-01T00:00:00Z".into(), ..ticket() };
    assert!(verify(&signed(&past, &one), &past, &keys).unwrap_err().contains("expired"));

    let ticket = ticket();
    let text = serde_json::to_string(&signed(&ticket, &one)).unwrap();
    Decision::verify(text.as_bytes(), &ticket, &keys).expect("control");
    let twice = text.replacen('{', "{\"verdict\":\"deny\",", 1);
    let more = text.replacen('{', "{\"also\":1,", 1);
    let second = format!("{text} {text}");
    let padded = format!("{text}{}", " ".repeat(20_000));
    for text in [twice, more, second, padded, String::new(), "null".into()] {
        assert!(Decision::verify(text.as_bytes(), &ticket, &keys).is_err(), "{text}");
    }
    // A small-order key makes signatures that verify over anything: it is no key.
    let weak = "z6MkeTG3bFFSLYVU7VqhgZxqr6YzpaGrQtFMh1uvqGy1vDnP".to_owned();
    let mut decision = signed(&ticket, &one);
    decision.key.clone_from(&weak);
    assert!(verify(&decision, &ticket, &[weak]).is_err());
}
