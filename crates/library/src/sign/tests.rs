use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringfence_identity::Signer;
use serde_json::{Value, json};

use super::envelope::pre_authentication;
use super::{Flaw, Statement, seal, sha256, unseal};

const MOST: usize = 4096;

fn signer(name: &str) -> (tempfile::TempDir, Signer) {
    let home = tempfile::tempdir().expect("a temporary folder");
    let signer = Signer::named(home.path(), name).expect("a key");
    (home, signer)
}

/// The vector of the specification (DSSE 1.0.2, protocol, test vectors).
#[test]
fn what_is_signed_is_as_the_specification_says() {
    assert_eq!(
        pre_authentication("http://example.com/HelloWorld", b"hello world"),
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    );
    assert_eq!(pre_authentication("", b""), b"DSSEv1 0  0 ");
}

#[test]
fn what_was_sealed_is_unsealed() {
    let (_home, signer) = signer("a");
    let bytes = seal(&signer, b"{}");
    let signed = unseal(&bytes, MOST).expect("control: a good one");
    assert_eq!((signed.by(), signed.payload()), (signer.did(), &b"{}"[..]));
}

/// Each with the control that the envelope it was made of is good.
#[test]
fn a_changed_envelope_says_nothing() {
    let (_home, signer) = signer("a");
    let (_other_home, other) = self::signer("b");
    let good = seal(&signer, b"{\"a\":1}");
    unseal(&good, MOST).expect("control");
    let value: Value = serde_json::from_slice(&good).expect("JSON");
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut value = value.clone();
        change(&mut value);
        unseal(&serde_json::to_vec(&value).expect("JSON"), MOST).expect_err("it was changed")
    };
    let second = value["signatures"][0].clone();
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).expect("text");
    let sig = STANDARD.decode(text("/signatures/0/sig")).expect("base64");

    assert_eq!(
        changed(&|v| v["payload"] = json!(STANDARD.encode(b"{\"a\":2}"))),
        Flaw::DoesNotVerify
    );
    assert_eq!(
        changed(&|v| v["signatures"][0]["keyid"] = json!(other.did().as_str())),
        Flaw::DoesNotVerify
    );
    assert!(matches!(
        changed(&|v| v["payloadType"] = json!("application/json")),
        Flaw::PayloadType(_)
    ));
    assert_eq!(changed(&|v| v["signatures"] = json!([])), Flaw::Signatures(0));
    assert_eq!(
        changed(&|v| v["signatures"] = json!([second.clone(), second.clone()])),
        Flaw::Signatures(2)
    );
    for keyid in ["", "did:key:z", "did:web:example.com", &text("/signatures/0/keyid")[8..]] {
        assert_eq!(changed(&|v| v["signatures"][0]["keyid"] = json!(keyid)), Flaw::Key);
    }
    // The same number modulo the group's order (RFC 8032, 5.1.7: S must be below it).
    assert_eq!(
        changed(&|v| v["signatures"][0]["sig"] = json!(STANDARD.encode(plus_order(&sig)))),
        Flaw::DoesNotVerify
    );
    for wrong in [&sig[..63], &[&sig[..], &[0]].concat(), &[]] {
        assert_eq!(
            changed(&|v| v["signatures"][0]["sig"] = json!(STANDARD.encode(wrong))),
            Flaw::Encoding("signature")
        );
    }
    let sloppy = [
        text("/signatures/0/sig").trim_end_matches('=').to_owned(),
        format!("{}\n", text("/signatures/0/sig")),
        text("/signatures/0/sig").replace(['+', '/'], "-"),
    ];
    for sig in sloppy.iter().filter(|sig| *sig != text("/signatures/0/sig")) {
        assert_eq!(
            changed(&|v| v["signatures"][0]["sig"] = json!(sig)),
            Flaw::Encoding("signature")
        );
    }
    assert!(matches!(changed(&|v| v["more"] = json!(1)), Flaw::Shape(_)));
    assert!(matches!(changed(&|v| v["signatures"][0]["cert"] = json!("x")), Flaw::Shape(_)));
}

#[test]
fn an_envelope_is_one_json_value_with_each_key_once() {
    let (_home, signer) = signer("a");
    let good = String::from_utf8(seal(&signer, b"{}")).expect("text");
    unseal(good.as_bytes(), MOST).expect("control");
    let twice = good.replacen('{', "{\"payloadType\":\"application/vnd.in-toto+json\",", 1);
    let sig_twice = good.replace("\"keyid\"", "\"sig\":\"AA==\",\"keyid\"");
    for bad in
        [&twice, &sig_twice, &format!("{good}{{}}"), &good[..good.len() / 2], "", "[]", "null"]
    {
        assert!(matches!(unseal(bad.as_bytes(), MOST), Err(Flaw::Shape(_))), "{bad}");
    }
    assert!(matches!(unseal(good.as_bytes(), 10), Err(Flaw::TooLarge { most: 10, .. })));
    assert!(matches!(unseal(b"\xff\xfe", MOST), Err(Flaw::Shape(_))));
}

#[test]
fn a_statement_is_of_its_type_about_its_files_with_each_key_once() {
    let (_home, signer) = signer("a");
    let hex = sha256(b"x");
    let good = Statement::new("urn:test:1", &[("file", hex.clone())], 7_u32).bytes();
    let read = |payload: &[u8], of: &str, names: &[&str]| {
        let signed = unseal(&seal(&signer, payload), MOST).expect("signed just now");
        Statement::<u32>::of(&signed, of, names)
    };
    assert_eq!(read(&good, "urn:test:1", &["file"]), Ok((vec![hex.clone()], 7)), "control");
    assert!(read(&good, "urn:test:2", &["file"]).is_err());
    assert!(read(&good, "urn:test:1", &["other"]).is_err());
    assert!(read(&good, "urn:test:1", &["file", "other"]).is_err());
    let text = String::from_utf8(good).expect("text");
    for bad in [
        text.replacen('{', "{\"predicate\":8,", 1),
        text.replacen('{', "{\"more\":8,", 1),
        text.replace("Statement/v1", "Statement/v0.1"),
        text.replace(&hex, &hex.to_uppercase()),
        text.replace(&hex, &hex[1..]),
        format!("{text}{{}}"),
    ] {
        assert_ne!(bad, text);
        assert!(read(bad.as_bytes(), "urn:test:1", &["file"]).is_err(), "{bad}");
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
        proptest::prop_assert!(unseal(&bytes, MOST).is_err());
    }
}

/// S + L, little-endian, where it still fits 256 bits, as it always does: S < L < 2^253.
fn plus_order(signature: &[u8]) -> Vec<u8> {
    const ORDER: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde,
        0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let mut out = signature.to_vec();
    let mut carry = 0;
    for (byte, add) in out[32..].iter_mut().zip(ORDER) {
        let sum = u16::from(*byte) + u16::from(add) + carry;
        *byte = sum.to_le_bytes()[0];
        carry = sum >> 8;
    }
    out
}
