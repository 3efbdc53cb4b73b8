use super::check_relative;

#[test]
fn plain_paths_pass() {
    for path in ["./a", "./skills/summarize", "./a..b/c.md", "./…/ü"] {
        assert_eq!(check_relative(path), Ok(()), "{path}");
    }
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    for path in [
        "",
        ".",
        "./",
        "a",
        "/a",
        "~/a",
        "../a",
        "./../a",
        "./a/..",
        "./a/../../b",
        "./a//b",
        "./a/",
        "./a/.",
        "./a\\..\\b",
        "./a\0",
        "./a\u{202e}b",
        "C:\\a",
        "file:///a",
    ] {
        assert!(check_relative(path).is_err(), "{path}");
    }
}
