use super::{Authority, absolute};

fn shown(text: &str, default: Option<u16>) -> String {
    match Authority::parse(text, default) {
        Ok(Authority { host, port }) => format!("{host} {port}"),
        Err(error) => format!("refused: {error}"),
    }
}

#[test]
fn an_authority_has_one_reading() {
    for (text, want) in [
        ("example.com:443", "example.com 443"),
        ("EXAMPLE.com.:65535", "example.com 65535"),
        ("203.0.113.7:1", "203.0.113.7 1"),
        ("[2001:db8::1]:443", "[2001:db8::1] 443"),
        ("[::ffff:127.0.0.1]:443", "127.0.0.1 443"),
    ] {
        assert_eq!(shown(text, None), want, "{text}");
    }
    assert_eq!(shown("example.com", Some(80)), "example.com 80");
    assert_eq!(shown("[2001:db8::1]", Some(80)), "[2001:db8::1] 80");
}

#[test]
fn every_other_spelling_is_refused() {
    for text in [
        "",
        ":",
        ":443",
        "example.com",
        "example.com:",
        "example.com:0",
        "example.com:00443",
        "example.com:0443",
        "example.com:+443",
        "example.com:65536",
        "example.com:443:443",
        "example.com:https",
        "example.com :443",
        "example.com:443 ",
        "example.com:443/",
        "example.com:443?x",
        "example.com:443#x",
        "user@example.com:443",
        "user:pass@example.com:443",
        "example.com:443@evil.example:443",
        "http://example.com:443",
        "example%2ecom:443",
        "[fe80::1%25eth0]:443",
        "[fe80::1%eth0]:443",
        "::1:443",
        "[::1:443",
        "[::1]x:443",
        "[::1]443",
        "[]:443",
        "[127.0.0.1]:443",
        "127.1:443",
        "0x7f000001:443",
        "2130706433:443",
        "example\0.com:443",
        "exämple.com:443",
        "example\u{3002}com:443",
        "example..com:443",
        "evil.example\\@example.com:443",
    ] {
        assert!(shown(text, None).starts_with("refused"), "{text:?}: {}", shown(text, None));
    }
}

#[test]
fn an_absolute_uri_is_split_at_its_path() {
    for (text, host, port, path) in [
        ("http://example.com/a?b", "example.com", 80, "/a?b"),
        ("HTTP://example.com", "example.com", 80, "/"),
        ("http://example.com?q=/x", "example.com", 80, "/?q=/x"),
        ("http://example.com:8080//x@y", "example.com", 8080, "//x@y"),
        ("http://[2001:db8::1]/", "[2001:db8::1]", 80, "/"),
    ] {
        let (authority, rest) = absolute(text).unwrap();
        assert_eq!((authority.host.to_string().as_str(), authority.port), (host, port), "{text}");
        assert_eq!(rest, path, "{text}");
    }
    for text in [
        "/",
        "*",
        "example.com/",
        "https://example.com/",
        "ftp://example.com/",
        "http:/example.com/",
        "http:///path",
        "http://",
        "http://user@example.com/",
        "http://example.com#/",
        "http://example.com/#x",
        "http://example.com\\@evil.example/",
        "http://example.com:/",
    ] {
        assert!(absolute(text).is_err(), "{text}");
    }
}
