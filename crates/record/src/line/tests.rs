use super::{Chain, Line, Malformed, encode, genesis, hash, now, parse_hash, text};
use crate::testing::event;

fn some_line() -> Vec<u8> {
    let mut out = Vec::new();
    Chain::new("machine").append(&mut out, &now(), &encode(&event(2)).unwrap());
    out.pop();
    out
}

#[test]
fn a_line_is_its_own_canonical_form() {
    for n in 0..3 {
        let mut out = Vec::new();
        let mut chain = Chain::new("machine");
        let seq = chain.append(&mut out, &now(), &encode(&event(n)).unwrap());
        out.pop();
        let line = Line::parse(&out).expect("what is written is read");
        assert_eq!((line.seq, line.hash, line.prev), (seq, hash(&out), genesis("machine")));
        assert_eq!(line.event(), Some(event(n)));
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(serde_json_canonicalizer::to_vec(&value).unwrap(), out, "RFC 8785");
    }
}

#[test]
fn another_spelling_of_the_same_line_is_refused() {
    let good = String::from_utf8(some_line()).unwrap();
    let seq = "\"seq\":0}";
    for (bad, why) in [
        (good.replace(seq, "\"seq\": 0}"), Malformed::NotCanonical),
        (good.replace(seq, "\"seq\":0}\r"), Malformed::NotCanonical),
        (good.replace("\"type\"", "\"\\u0074ype\""), Malformed::NotCanonical),
        (good.replace(seq, "\"seq\":0,\"seq\":0}"), Malformed::NotALine),
        (good.replace(seq, "\"seq\":0,\"more\":0}"), Malformed::NotALine),
        (good.replace(seq, "\"seq\":0}{}"), Malformed::NotALine),
        (good.replace(seq, "\"seq\":0.0}"), Malformed::NotALine),
        (good.replace("\"type\"", "\"type\":\"x\",\"type\""), Malformed::NotCanonical),
        (good.replace("sha256:", "SHA256:"), Malformed::NotALine),
        (good.replace("Z\"", "+00:00\""), Malformed::NotCanonical),
        ("[".repeat(100_000), Malformed::NotALine),
        (String::new(), Malformed::NotALine),
    ] {
        assert_ne!(bad, good, "the case changes something");
        assert_eq!(Line::parse(bad.as_bytes()).unwrap_err(), why, "{bad:.120}");
    }
}

#[test]
fn a_hash_has_one_spelling() {
    let hash = genesis("x");
    assert_eq!(parse_hash(&text(&hash)), Some(hash));
    assert_ne!(genesis("x"), genesis("y"));
    let upper = text(&hash).to_uppercase().replace("SHA256", "sha256");
    for bad in ["", "sha256:", &text(&hash)[..70], &format!("{}0", text(&hash)), &upper] {
        assert_eq!(parse_hash(bad), None, "{bad}");
    }
}

#[test]
fn an_event_of_a_newer_program_is_read_as_unknown() {
    let mut out = Vec::new();
    Chain::new("machine").append(&mut out, &now(), b"{\"more\":1,\"type\":\"from_tomorrow\"}");
    out.pop();
    assert_eq!(Line::parse(&out).unwrap().event(), Some(crate::Event::Unknown));
    let known = String::from_utf8(out).unwrap().replace("from_tomorrow", "run_sealed");
    assert_eq!(
        Line::parse(known.as_bytes()).unwrap().event(),
        None,
        "a known one without its parts"
    );
}
