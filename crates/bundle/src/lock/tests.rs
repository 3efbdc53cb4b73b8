use std::path::Path;

use proptest::prelude::{any, proptest};

use super::{Lock, Pin};
use crate::{Digest, Kind};

fn lock() -> Lock {
    let pin = |kind, name: &str| Pin {
        kind,
        name: name.to_owned(),
        digest: Digest::framed("t", &[name.as_bytes()]),
        origin: None,
    };
    let (server, setting) = (Kind::Server, Kind::Setting);
    Lock {
        version: 1,
        pins: vec![pin(server, "b"), pin(server, "a"), pin(setting, "x.\"\\q\n")],
        tools: Vec::new(),
    }
}

fn rules(text: &str) -> Vec<(usize, &'static str)> {
    Lock::parse(Path::new("ringfence.lock"), text.as_bytes())
        .err()
        .unwrap_or_default()
        .iter()
        .map(|f| (f.at.as_ref().map_or(0, |at| at.line), f.rule))
        .collect()
}

#[test]
fn rendering_is_stable_and_parses_back() {
    let text = lock().render();
    assert!(text.starts_with("# made by ringfence lock; do not edit\nversion = 1\n\n[[pin]]\n"));
    let parsed = Lock::parse(Path::new("ringfence.lock"), text.as_bytes()).expect("parses");
    assert_eq!(parsed.render(), text);
    assert_eq!(parsed.digest(Kind::Server, "a"), lock().digest(Kind::Server, "a"));
    assert_eq!(parsed.pins[0].name, "a", "rows are sorted");
    let empty = Lock { version: 1, ..Lock::default() };
    assert_eq!(Lock::parse(Path::new("l"), empty.render().as_bytes()), Ok(empty));
}

#[test]
fn a_broken_lock_is_refused_with_its_line_and_the_next_command() {
    let good = lock().render();
    assert_eq!(rules(&good), []);
    let second_row = good.lines().position(|line| line.contains("\"b\"")).expect("a row") + 1;
    for (text, line, rule) in [
        (good.replace("version = 1", "version = 1\n<<<<<<< HEAD"), 3, "merge-conflict"),
        (good.replace("version = 1", "version = 1\n======="), 3, "merge-conflict"),
        (good.replace("version = 1", "version = 2"), 1, "bad-lock"),
        (good.replace("version = 1", "version = 1\nextra = 2"), 3, "bad-lock"),
        (good.replace("sha256:", "sha1:"), 7, "bad-lock"),
        (good.replace("name = \"b\"", "name = \"a\""), 1, "bad-lock"),
        (good.replace("name = \"b\"", "nam = \"b\""), second_row, "bad-lock"),
        (good.replace("\"server\"", "\"serve\""), 5, "bad-lock"),
        ("garbage".to_owned(), 1, "bad-lock"),
        (String::new(), 1, "bad-lock"),
    ] {
        assert_eq!(rules(&text), [(line, rule)], "{text}");
    }
    let findings = Lock::parse(Path::new("l"), b"garbage").expect_err("no lock");
    assert_eq!(findings[0].next.as_deref(), Some("ringfence lock"));
    assert_eq!(Lock::parse(Path::new("l"), b"\xff\xfe").expect_err("binary")[0].rule, "not-utf8");
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in any::<Vec<u8>>()) {
        let _ = Lock::parse(Path::new("l"), &bytes);
    }
}
