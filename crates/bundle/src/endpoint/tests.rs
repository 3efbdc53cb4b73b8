use super::Endpoint;

#[test]
fn addresses_are_taken_apart() {
    for (given, shown, port) in [
        ("https://mcp.example.com/mcp", "https://mcp.example.com/mcp", 443),
        ("HTTPS://MCP.Example.com.", "https://mcp.example.com/", 443),
        ("http://127.0.0.1:8080/mcp?x=1", "http://127.0.0.1:8080/mcp?x=1", 8080),
        ("http://[::1]:80/", "http://[::1]/", 80),
        ("https://a.com?q", "https://a.com/?q", 443),
    ] {
        let endpoint = Endpoint::parse(given).expect(given);
        assert_eq!((endpoint.to_string().as_str(), endpoint.port), (shown, port));
        assert_eq!(Endpoint::parse(shown), Ok(endpoint));
    }
}

#[test]
fn odd_addresses_are_refused() {
    for given in [
        "",
        "mcp.example.com",
        "ftp://a.com",
        "file:///etc/passwd",
        "https://",
        "https:///mcp",
        "https://user@a.com/",
        "https://a.com@b.com/",
        "https://a.com/#x",
        "https://a.com\\@b.com/",
        "https://0x7f.1/",
        "https://a.com:0/",
        "https://a.com:99999/",
        "https://a b/",
        "https://a.com/a b",
        "https://a.com/${TOKEN}",
        "https://::1/",
        "https://[fe80::1%25eth0]/",
        "javascript:alert(1)",
        "https://a.com/\r\nX: y",
        "https:/a.com",
        "//a.com/",
        "https://a.com/é",
    ] {
        assert!(Endpoint::parse(given).is_err(), "{given}");
    }
}
