//! `ringfence verify`

use ringfence_tests::{Key, Project, each_user};
use serde_json::{Value, json};

use crate::bundles::{SMALL, shared};

/// A project whose lock a listed publisher signed, and the signer's DID.
fn signed(project: &Project) -> String {
    shared(project);
    let did = project.ringfence(&["sign", "--json"]).ok().json()["did"].clone();
    let did = did.as_str().expect("a did").to_owned();
    project.ringfence(&["publisher", "add", "acme", &did]).ok().done();
    project.ringfence(&["verify"]).ok().says(&["acme", "the lock holds", "verified"]).done();
    did
}

#[test]
fn only_a_listed_publisher_s_signature_over_these_bytes_verifies() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(SMALL);
        project.ringfence(&["verify"]).expect(1).says(&["no lock"]).done();
        project.lock();
        let absent = project.ringfence(&["verify", "--json"]).expect(1).json();
        assert_eq!((&absent["signature"], &absent["good"]), (&json!("absent"), &json!(false)));
        let did = signed(&project);
        let good = project.ringfence(&["verify", "--json"]).ok().json();
        assert_eq!(good["good"], true);
        assert_eq!((&good["publisher"], &good["did"]), (&json!("acme"), &json!(did)));
        // An unlisted key.
        project.ringfence(&["publisher", "remove", "acme"]).ok().done();
        let unknown = project.ringfence(&["verify", "--json"]).expect(1);
        assert_eq!(unknown.json()["publisher"], Value::Null);
        assert_eq!(unknown.json()["signature"], "good");
        unknown.says(&["a key that you have not listed", "publisher add"]).done();
        project.ringfence(&["publisher", "add", "acme", &did]).ok().done();
        // Other bytes: a pin that does not hold, then a lock made anew, then the manifest alone.
        project.file(".ringfence/instructions/team.md", "Be unkind.\n");
        project.ringfence(&["verify"]).expect(1).says(&["1 pin(s) moved"]).done();
        project.lock();
        let other = project.ringfence(&["verify", "--json"]).expect(1);
        assert_eq!(other.json()["signature"], "other_bytes");
        other.says(&["other bytes of ringfence.lock"]).done();
        project.file(".ringfence/instructions/team.md", "Be kind.\n");
        project.lock();
        project.ringfence(&["verify"]).ok().done();
        let manifest = crate::bundles::SHARED.to_owned();
        project
            .manifest(&format!("{manifest}\n[sandbox.network]\nallowed_hosts = [\"a.example\"]\n"));
        project.ringfence(&["lock", "--check"]).ok().done();
        project.ringfence(&["verify"]).expect(1).says(&["other bytes of ringfence.toml"]).done();
        // The same in the file that nobody signs: it verifies, and says what it does not cover.
        project.manifest(&manifest);
        let good = project.ringfence(&["verify", "--json"]).ok();
        assert_eq!(good.json()["overlay"], false);
        assert!(!good.stderr.contains("ringfence.local.toml"));
        project.local("version = 1\n[sandbox.network]\nallowed_hosts = [\"a.example\"]\n");
        let over = project.ringfence(&["verify", "--json"]).ok();
        assert_eq!(over.json()["overlay"], true);
        over.says(&["nobody signs ringfence.local.toml"]).done();
    });
}

#[test]
fn a_signature_trusts_nothing() {
    each_user(|who| {
        let project = Project::new(who);
        signed(&project);
        let verified = project.ringfence(&["verify"]).ok();
        verified.says(&["never makes anything trusted"]).done();
        project.run(&["true"]).expect(3).done();
        assert!(!project.state().join("trust.json").exists());
        project.trust();
        project.run(&["true"]).ok().done();
    });
}

/// Each is refused as what it is; between them the good one verifies.
#[test]
fn a_forged_signature_says_nothing() {
    each_user(|who| {
        let project = Project::new(who);
        let did = signed(&project);
        let key = Key::of_machine(&project.state(), &did);
        let path = ".ringfence/ringfence.lock.sig";
        let good = std::fs::read_to_string(project.path().join(path)).expect("the signature");
        let value: Value = serde_json::from_str(&good).expect("JSON");
        let changed = |change: &dyn Fn(&mut Value)| {
            let mut value = value.clone();
            change(&mut value);
            value.to_string()
        };
        let refused = |bytes: &str, words: &str| {
            project.file(path, bytes);
            let output = project.ringfence(&["verify", "--json"]).expect(1);
            assert_eq!(output.json()["signature"], "flawed", "{words}: {}", output.stdout);
            output.says(&["the signature says nothing", words]).done();
            project.file(path, &good);
            project.ringfence(&["verify"]).ok().done();
        };
        let one = value["signatures"][0].clone();
        refused(&good[..good.len() / 2], "not a signed envelope");
        refused("", "not a signed envelope");
        refused(&"x".repeat(20_000), "bytes");
        refused(&format!("{good}{good}"), "not a signed envelope");
        let twice = good.replacen('{', "{\"payload\":\"\",", 1);
        refused(&twice, "duplicate field");
        refused(&changed(&|v| v["signatures"] = json!([one.clone(), one.clone()])), "2 signatures");
        refused(&changed(&|v| v["signatures"] = json!([])), "0 signatures");
        refused(&changed(&|v| v["payloadType"] = json!("text/plain")), "payload type");
        refused(&changed(&|v| v["signatures"][0]["keyid"] = json!("acme")), "no Ed25519 did:key");
        refused(&changed(&|v| v["signatures"][0]["sig"] = json!("AAAA")), "canonical base64");
        let high = plus_order(one["sig"].as_str().expect("text"));
        refused(&changed(&|v| v["signatures"][0]["sig"] = json!(high)), "does not verify");
        // Signed by the right key, and not what is expected.
        let envelope = |kind: &str, payload: &str| key.envelope(kind, payload.as_bytes());
        let kind = "application/vnd.in-toto+json";
        refused(&envelope(kind, "{}").to_string(), "not the expected one");
        let statement = payload(&value);
        refused(&envelope("text/plain", &statement).to_string(), "payload type");
        let twice = statement.replacen('{', "{\"subject\":[],", 1);
        refused(&envelope(kind, &twice).to_string(), "duplicate field");
        let other = statement.replace("urn:ringfence:lock:1", "urn:ringfence:archive:1");
        refused(&envelope(kind, &other).to_string(), "predicate type");
        // Control: the same key over the same statement is the good one.
        project.file(path, envelope(kind, &statement).to_string());
        project.ringfence(&["verify"]).ok().done();
    });
}

fn payload(envelope: &Value) -> String {
    use base64::Engine as _;
    let payload = envelope["payload"].as_str().expect("text");
    let bytes = base64::engine::general_purpose::STANDARD.decode(payload).expect("base64");
    String::from_utf8(bytes).expect("JSON")
}

/// The signature with S + L for S, which is the same number to a careless reader (RFC 8032, 5.1.7).
fn plus_order(sig: &str) -> String {
    use base64::Engine as _;
    const ORDER: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde,
        0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let base64 = base64::engine::general_purpose::STANDARD;
    let mut out = base64.decode(sig).expect("base64");
    let mut carry = 0;
    for (byte, add) in out[32..].iter_mut().zip(ORDER) {
        let sum = u16::from(*byte) + u16::from(add) + carry;
        *byte = sum.to_le_bytes()[0];
        carry = sum >> 8;
    }
    base64.encode(out)
}
