use super::{Framing, Head, HeadError, find_end};
use proptest::prelude::{ProptestConfig, any, proptest};
use proptest::prop_assert;

fn read(bytes: &[u8]) -> Result<Option<(Head, usize)>, HeadError> {
    match find_end(bytes, 0)? {
        Some(end) => Head::parse(&bytes[..end]).map(|head| Some((head, end))),
        None => Ok(None),
    }
}

fn framing(lines: &str) -> Result<Framing, HeadError> {
    read(format!("POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\n{lines}\r\n").as_bytes())
        .map(|head| head.expect("whole").0.framing)
}

#[test]
fn a_head_ends_at_its_empty_line_and_no_later() {
    let bytes = b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n\x16\x03\x01\0\n";
    let (head, end) = read(bytes).unwrap().unwrap();
    assert_eq!(&bytes[end..], b"\x16\x03\x01\0\n");
    assert_eq!((head.method.as_str(), head.target.as_str()), ("CONNECT", "a.example:443"));
    assert_eq!(head.framing, Framing::Empty);
}

#[test]
fn a_head_cut_anywhere_is_found_when_its_last_byte_is_there() {
    let bytes = b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n";
    for cut in 1..bytes.len() {
        assert_eq!(find_end(&bytes[..cut], 0), Ok(None), "{cut}");
        assert_eq!(find_end(bytes, cut), Ok(Some(bytes.len())), "{cut}");
    }
}

#[test]
fn lines_that_two_parsers_read_in_two_ways_are_refused() {
    for text in [
        "GET http://a.example/ HTTP/1.1\nHost: a.example\n\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: a.example\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: a.exa\rmple\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost: a.exa\0mple\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nX: a\r\n folded\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nHost : a.example\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\n Host: a.example\r\n\r\n",
        "GET http://a.example/ HTTP/1.1\r\nno colon\r\n\r\n",
        "GET  http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://a.example/ x HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "GET http://a.example/\r\n\r\n",
        "GET http://a.example/ HTTP/2.0\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\r\nGET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        "\u{16}\u{3}\u{1}",
    ] {
        assert!(read(text.as_bytes()).is_err(), "{text:?}");
    }
}

#[test]
fn lengths_must_agree_by_there_being_only_one() {
    assert_eq!(framing(""), Ok(Framing::Empty));
    assert_eq!(framing("Content-Length: 7\r\n"), Ok(Framing::Length(7)));
    assert_eq!(framing("transfer-encoding: CHUNKED\r\n"), Ok(Framing::Chunked));
    for lines in [
        "Content-Length: 7\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 7\r\n",
        "Content-Length: 7\r\nContent-Length: 7\r\n",
        "Content-Length: 7\r\nContent-Length: 8\r\n",
        "Content-Length: 7, 7\r\n",
        "Content-Length: +7\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x7\r\n",
        "Content-Length:\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding:\r\n",
    ] {
        assert!(framing(lines).is_err(), "{lines:?}");
    }
    let old = b"POST http://a.example/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert!(read(old).is_err());
}

#[test]
fn the_head_is_bounded() {
    let fits = format!("GET http://a.example/{} HTTP/1.1\r\n\r\n", "a".repeat(60_000));
    assert!(read(fits.as_bytes()).unwrap().is_some());
    let long = format!("GET http://a.example/{}", "a".repeat(70_000));
    assert!(read(long.as_bytes()).is_err());
    let many = format!("GET http://a.example/ HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(200));
    assert!(read(many.as_bytes()).is_err());
}

#[test]
fn close_is_seen_in_either_header() {
    let keeps = |version: &str, line: &str| {
        let text = format!("GET http://a.example/ {version}\r\n{line}\r\n");
        read(text.as_bytes()).unwrap().unwrap().0.keeps_alive()
    };
    assert!(keeps("HTTP/1.1", ""));
    assert!(keeps("HTTP/1.1", "Proxy-Connection: keep-alive\r\n"));
    assert!(!keeps("HTTP/1.1", "Connection: te, Close\r\n"));
    assert!(!keeps("HTTP/1.1", "Proxy-Connection: close\r\n"));
    assert!(!keeps("HTTP/1.0", "Connection: keep-alive\r\n"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        let _ = read(&bytes);
    }

    #[test]
    fn mangled_heads_never_panic_and_never_read_past_their_end(at in 0_usize..60, byte: u8) {
        let mut bytes = b"POST http://a.example/x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n\r\n".to_vec();
        bytes[at] = byte;
        if let Ok(Some((_, end))) = read(&bytes) {
            prop_assert!(bytes[..end].ends_with(b"\r\n\r\n"));
        }
    }

    #[test]
    fn the_end_is_the_same_however_the_bytes_arrive(cut in any::<proptest::sample::Index>()) {
        let bytes = b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nX: y\r\n\r\nrest";
        let cut = cut.index(bytes.len());
        let early = find_end(&bytes[..cut], 0).unwrap();
        let late = find_end(bytes, cut.min(54)).unwrap();
        prop_assert!(early.or(late) == find_end(bytes, 0).unwrap());
    }
}
