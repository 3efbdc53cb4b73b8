use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};

use super::{Host, HostRule};

fn host(text: &str) -> Host {
    Host::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn one_canonical_form() {
    for (given, canonical) in [
        ("example.com", "example.com"),
        ("EXAMPLE.com.", "example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
        ("ｅｘａｍｐｌｅ.com", "example.com"),
        ("example。com", "example.com"),
        ("example.com。", "example.com"),
        ("127.0.0.1", "127.0.0.1"),
        ("１２７.0.0.1", "127.0.0.1"),
        ("::1", "[::1]"),
        ("[2001:DB8:0:0::1]", "[2001:db8::1]"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("[::ffff:a00:1]", "10.0.0.1"),
        ("r3---sn-4g5e.example", "r3---sn-4g5e.example"),
        ("1.example", "1.example"),
        ("0x.example", "0x.example"),
    ] {
        assert_eq!(host(given).to_string(), canonical, "{given}");
    }
}

#[test]
fn ambiguous_spellings_are_refused() {
    let long_label = format!("{}.com", "a".repeat(64));
    let long_name = vec!["a".repeat(60); 5].join(".");
    for given in [
        "",
        ".",
        "..",
        "a..b",
        ".a",
        "a.b..",
        "example.com\0",
        "exa%6dple.com",
        "fe80::1%eth0",
        "[fe80::1%25eth0]",
        "user@example.com",
        "a b",
        " a",
        "a\t",
        "a\n",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "0x7f000001",
        "2130706433",
        "127.1",
        "127.0.1",
        "1.2.3.4.5",
        "256.1.1.1",
        "1.2.3.04",
        "example.0x",
        "example.1",
        "a_b.com",
        "-a.com",
        "a-.com",
        "http://a",
        "a/b",
        "a\\b",
        "a?b",
        "a#b",
        "[::1",
        "::1]",
        "[example.com]",
        ":",
        ":::",
        "1::2::3",
        "ex\u{200b}ample.com",
        "ex\u{ad}ample.com",
        "ex\u{202e}ample.com",
        "xn--a.com",
        "xn--.com",
        "\u{fffd}.com",
        "a:b",
        "example.com:443",
        "％.com",
        "a：b",
        &long_label,
        &long_name,
    ] {
        assert!(Host::parse(given).is_err(), "{given:?} gave {:?}", Host::parse(given));
    }
}

#[test]
fn look_alikes_stay_apart() {
    assert_ne!(host("аpple.com"), host("apple.com"), "the first begins with a Cyrillic letter");
}

#[test]
fn an_error_shows_what_cannot_be_seen() {
    let error = Host::parse("a\u{202e}b").expect_err("bidi");
    assert!(error.to_string().contains("\\u{202e}"), "{error}");
}

#[test]
fn rules_cover_at_label_boundaries_only() {
    let rule = HostRule::parse(".example.com").expect("a suffix");
    assert!(rule.covers(&host("a.example.com"), 443));
    assert!(rule.covers(&host("b.A.example.com."), 80));
    for other in ["example.com", "notexample.com", "a.example.com.evil.net", "example.com.net"] {
        assert!(!rule.covers(&host(other), 443), "{other}");
    }
    let exact = HostRule::parse("example.com").expect("a host");
    assert!(exact.covers(&host("example.com"), 443));
    assert!(!exact.covers(&host("a.example.com"), 443));
}

#[test]
fn rules_cover_two_ports_or_the_one_they_name() {
    let bare = HostRule::parse("a.com").expect("bare");
    assert!(bare.covers(&host("a.com"), 443) && bare.covers(&host("a.com"), 80));
    assert!(!bare.covers(&host("a.com"), 8443));
    let one = HostRule::parse("a.com:8443").expect("with a port");
    assert!(one.covers(&host("a.com"), 8443) && !one.covers(&host("a.com"), 443));
}

#[test]
fn rule_spellings() {
    for (given, shown) in [
        (".Arxiv.org:443", ".arxiv.org:443"),
        ("[2001:db8::1]:443", "[2001:db8::1]:443"),
        ("2001:db8::1", "[2001:db8::1]"),
        ("93.184.216.34:80", "93.184.216.34:80"),
    ] {
        assert_eq!(HostRule::parse(given).expect(given).to_string(), shown);
    }
    for given in [
        "*.a.com",
        "*",
        "a.com:",
        "a.com:0",
        "a.com:65536",
        "a.com:+80",
        "a.com:080",
        "a.com:http",
        "..a.com",
        ".",
        ".1.2.3.4",
        ".[::1]",
        "[::1]x",
        "[::1]:",
        "a.com:80:80",
        "https://a.com",
    ] {
        assert!(HostRule::parse(given).is_err(), "{given}");
    }
}

#[test]
fn local_spellings_are_known() {
    for given in [
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "host.docker.internal",
        "gateway.docker.internal",
        "kubernetes.docker.internal",
        "host.containers.internal",
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",
        "0.1.2.3",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "localhost.localdomain",
        "ip6-localhost",
        "ⓛocalhost",
    ] {
        assert!(host(given).is_local(), "{given}");
    }
    for given in ["example.com", "localhost.example.com", "10.0.0.1", "2001:db8::1", "mylocalhost"]
    {
        assert!(!host(given).is_local(), "{given}");
    }
    for given in [".internal", ".localhost", ".docker.internal"] {
        assert!(HostRule::parse(given).expect(given).is_local(), "{given}");
    }
    assert!(!HostRule::parse(".example.com").expect("suffix").is_local());
}

fn labels() -> impl Strategy<Value = String> {
    proptest::collection::vec("[a-zA-Z0-9äßéЖ日x-]{1,8}", 1..5).prop_map(|labels| labels.join("."))
}

proptest! {
    #[test]
    fn parse_is_idempotent_over_display(given in any::<String>()) {
        if let Ok(first) = Host::parse(&given) {
            prop_assert_eq!(Host::parse(&first.to_string()), Ok(first));
        }
    }

    #[test]
    fn parse_is_idempotent_on_names(given in labels()) {
        if let Ok(first) = Host::parse(&given) {
            let shown = first.to_string();
            prop_assert!(shown.is_ascii() && !shown.ends_with('.'));
            prop_assert_eq!(Host::parse(&shown), Ok(first));
        }
    }

    #[test]
    fn addresses_survive(v4 in any::<[u8; 4]>(), v6 in any::<[u16; 8]>()) {
        let v4 = std::net::Ipv4Addr::from(v4);
        prop_assert_eq!(Host::parse(&v4.to_string()), Ok(Host::V4(v4)));
        let v6 = std::net::Ipv6Addr::from(v6);
        let parsed = Host::parse(&v6.to_string());
        prop_assert_eq!(parsed.clone(), Host::parse(&format!("[{v6}]")));
        prop_assert_eq!(parsed, Ok(v6.to_ipv4_mapped().map_or(Host::V6(v6), Host::V4)));
    }

    #[test]
    fn rules_are_idempotent_over_display(given in labels(), suffix in any::<bool>(), port in any::<Option<u16>>()) {
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        let given = format!("{}{given}{port}", if suffix { "." } else { "" });
        if let Ok(first) = HostRule::parse(&given) {
            prop_assert_eq!(HostRule::parse(&first.to_string()), Ok(first));
        }
    }
}
