use super::{Kind, NamePattern, PathPattern, Ports, Root, parse_deny};
use crate::glob::MAX_PATTERN;

fn name(kind: Kind, text: &str) -> Result<NamePattern, String> {
    NamePattern::parse(kind, text).map_err(|problem| problem.reason)
}

#[test]
fn bad_patterns_are_refused_and_their_neighbours_are_not() {
    let long = "a".repeat(MAX_PATTERN + 1);
    for kind in [Kind::Tool, Kind::Secret, Kind::Egress] {
        for bad in ["", "!", "a\u{0}b", "a\nb", &long] {
            assert!(name(kind, bad).is_err(), "{bad:?}");
        }
        for good in ["*", "!*", "a", "!a"] {
            assert!(name(kind, good).is_ok(), "{good:?}");
        }
    }
    assert!(name(Kind::Tool, &"a".repeat(MAX_PATTERN)).is_ok());
}

#[test]
fn hosts_are_canonical_and_ports_are_numbers() {
    let host = |text: &str| name(Kind::Egress, text).map(|p| (p.glob.to_string(), p.ports));
    assert_eq!(host("API.Example.com"), Ok(("api.example.com".into(), Ports::Any)));
    assert_eq!(host("*.Example.COM.:443"), Ok(("*.example.com".into(), Ports::One(443))));
    assert_eq!(host("[2001:DB8::0:1]:8443"), Ok(("[2001:db8::1]".into(), Ports::One(8443))));
    assert_eq!(host("[*]"), Ok(("[*]".into(), Ports::Any)));
    for bad in [
        "a.example:",
        "a.example:0",
        "a.example:65536",
        "a.example:+1",
        "a.example:080",
        "a.example:*",
        "a.example:https",
        "2001:db8::1",
        "[2001:db8::*]",
        "[::1",
        "[::1]x",
        ".example.com",
        "https://example.com",
        "a..*",
        "user@*",
        "*.exa mple",
    ] {
        assert!(host(bad).is_err(), "{bad}");
    }
}

#[test]
fn paths_know_their_root() {
    let path = |text: &str| PathPattern::parse(text).map(|p| (p.root, p.glob));
    assert_eq!(path("src/**"), Ok((Root::Project, "src/**".into())));
    assert_eq!(path("./src/"), Ok((Root::Project, "src".into())));
    assert_eq!(path("/opt/x"), Ok((Root::Absolute, "opt/x".into())));
    assert_eq!(path("~/x"), Ok((Root::Home, "x".into())));
    assert_eq!(path("."), Ok((Root::Project, String::new())));
    for bad in ["../x", "a/../b", "a//b", "a/./b", "~bob/x", "/..", "a/.."] {
        assert!(path(bad).is_err(), "{bad}");
    }
    assert!(parse_deny("!.env").is_err());
    assert!(parse_deny(".env*").is_ok());
}
