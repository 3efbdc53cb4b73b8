use std::sync::Arc;

use proptest::prelude::{ProptestConfig, any, proptest};
use proptest::sample::Index;
use proptest::{prop_assert, prop_assert_eq};
use ringfence_bundle::Host;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::{Hello, HelloReader, Progress, asks_for_retry};

const NAME: &str = "api.example.com";

/// What a real client sends first.
fn real_hello(name: &str, versions: &[&'static rustls::SupportedProtocolVersion]) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

/// A handshake message with these extensions, each a type and a value.
fn message(extensions: &[(u16, &[u8])]) -> Vec<u8> {
    let mut list = Vec::new();
    for (kind, value) in extensions {
        list.extend(kind.to_be_bytes());
        list.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        list.extend(*value);
    }
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    body.extend(u16::try_from(list.len()).unwrap().to_be_bytes());
    body.extend(list);
    framed(&body)
}

/// A body behind the header of a ClientHello.
fn framed(body: &[u8]) -> Vec<u8> {
    let mut message = vec![1];
    message.extend(&u32::try_from(body.len()).unwrap().to_be_bytes()[1..]);
    message.extend(body);
    message
}

/// A message in records of so many bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for fragment in message.chunks(size) {
        bytes.extend([22, 3, 1]);
        bytes.extend(u16::try_from(fragment.len()).unwrap().to_be_bytes());
        bytes.extend(fragment);
    }
    bytes
}

/// The value of a server_name extension with these entries.
fn names(entries: &[(u8, &str)]) -> Vec<u8> {
    let mut list = Vec::new();
    for (kind, name) in entries {
        list.push(*kind);
        list.extend(u16::try_from(name.len()).unwrap().to_be_bytes());
        list.extend(name.as_bytes());
    }
    let mut value = u16::try_from(list.len()).unwrap().to_be_bytes().to_vec();
    value.extend(list);
    value
}

fn read(bytes: &[u8]) -> Progress {
    HelloReader::new().push(bytes)
}

fn read_message(message: &[u8]) -> Progress {
    read(&records(message, 1 << 14))
}

fn named(name: &str) -> Progress {
    Progress::Hello(Hello { sni: Some(Host::parse(name).unwrap()), ech: false })
}

/// Everything a reader holds.
fn held(reader: HelloReader) -> Vec<u8> {
    let (read, behind) = reader.into_parts();
    [read, behind].concat()
}

const NAMELESS: Progress = Progress::Hello(Hello { sni: None, ech: false });

#[test]
fn real_hellos_are_read_however_they_are_cut() {
    for versions in [
        &[&rustls::version::TLS12][..],
        &[&rustls::version::TLS13],
        &[&rustls::version::TLS12, &rustls::version::TLS13],
    ] {
        let bytes = real_hello(NAME, versions);
        for cut in 0..=bytes.len() {
            let mut reader = HelloReader::new();
            let first = reader.push(&bytes[..cut]);
            if cut < bytes.len() {
                assert_eq!(first, Progress::NeedMore, "{cut} of {}", bytes.len());
                assert_eq!(reader.push(&bytes[cut..]), named(NAME), "{cut}");
            } else {
                assert_eq!(first, named(NAME));
            }
            assert_eq!(held(reader), bytes, "the held bytes are the client's");
        }
        let mut reader = HelloReader::new();
        let (last, but_last) = bytes.split_last().unwrap();
        for byte in but_last {
            assert_eq!(reader.push(&[*byte]), Progress::NeedMore);
        }
        assert_eq!(reader.push(&[*last]), named(NAME));
    }
}

#[test]
fn a_hello_may_span_records_of_any_size() {
    let bytes = real_hello(NAME, &[&rustls::version::TLS13]);
    let message = &bytes[5..];
    for size in 1..=message.len() {
        assert_eq!(read(&records(message, size)), named(NAME), "{size}");
    }
}

#[test]
fn an_address_has_no_server_name() {
    assert_eq!(read(&real_hello("192.0.2.1", &[&rustls::version::TLS13])), NAMELESS);
}

#[test]
fn what_follows_the_hello_in_later_records_is_held_with_it() {
    let mut bytes = records(&message(&[(0, &names(&[(0, NAME)]))]), 1 << 14);
    let (hello, behind) = (bytes.clone(), [20, 3, 3, 0, 1, 1]);
    bytes.extend(behind);
    let mut reader = HelloReader::new();
    assert_eq!(reader.push(&bytes), named(NAME));
    assert_eq!(reader.into_parts(), (hello, behind.to_vec()));
}

#[test]
fn names_have_one_form() {
    let with = |entries: &[(u8, &str)]| read_message(&message(&[(0, &names(entries))]));
    assert_eq!(with(&[(0, NAME)]), named(NAME));
    assert_eq!(with(&[(0, "API.Example.COM")]), named(NAME));
    for entries in [
        &[][..],
        &[(0, "")],
        &[(1, NAME)],
        &[(0, NAME), (0, "evil.example")],
        &[(0, NAME), (1, "evil.example")],
        &[(0, "api.example.com.")],
        &[(0, "api.example.com\0.evil.example")],
        &[(0, "192.0.2.1")],
        &[(0, "[2001:db8::1]")],
        &[(0, "äpi.example.com")],
        &[(0, "api..example.com")],
    ] {
        assert!(matches!(with(entries), Progress::Malformed(_)), "{entries:?}");
    }
}

#[test]
fn an_encrypted_hello_is_seen_in_every_draft() {
    let name = names(&[(0, NAME)]);
    for kind in [0xfe0d, 0xfe0c, 0xfe08, 0xffce, 0xfd00] {
        let read = read_message(&message(&[(0, &name), (kind, &[0])]));
        assert!(matches!(read, Progress::Hello(Hello { ech: true, .. })), "{kind:x}");
    }
    assert_eq!(read_message(&message(&[(0, &name), (0x2a2a, &[0])])), named(NAME));
}

#[test]
fn structure_is_exact() {
    let name = names(&[(0, NAME)]);
    let good = message(&[(0, &name), (16, &[0, 3, 2, b'h', b'2'])]);
    assert_eq!(read_message(&good), named(NAME));

    let twice = message(&[(0, &name), (0, &name)]);
    let other_twice = message(&[(0, &name), (16, &[]), (16, &[])]);
    let trailing_name = message(&[(0, &[name.as_slice(), b"x"].concat())]);
    let mut trailing_hello = good.clone();
    trailing_hello.push(0);
    let trailing_extensions = framed(&[&good[4..], b"x"].concat());
    let cut_extension = framed(&good[4..good.len() - 1]);
    let many: Vec<(u16, &[u8])> = (1000..1300).map(|kind| (kind, &[][..])).collect();
    for bad in [
        twice,
        other_twice,
        trailing_name,
        trailing_hello,
        trailing_extensions,
        cut_extension,
        message(&many),
        framed(&[]),
        framed(&[3, 3]),
        [2].iter().chain(&good[1..]).copied().collect(),
        vec![1, 0xff, 0xff, 0xff],
    ] {
        let read = read_message(&bad);
        assert!(matches!(read, Progress::Malformed(_)), "{read:?}: {bad:02x?}");
    }

    // Without extensions, as old clients have it.
    let mut bare = vec![3, 1];
    bare.extend([7; 32]);
    bare.extend([0, 0, 2, 0, 47, 1, 0]);
    assert_eq!(read_message(&framed(&bare)), NAMELESS);
    bare.extend([0, 0]);
    assert_eq!(read_message(&framed(&bare)), NAMELESS);
}

#[test]
fn records_are_exact() {
    let good = message(&[(0, &names(&[(0, NAME)]))]);
    let (head, tail) = good.split_at(20);
    let one = records(head, 1 << 14);
    assert_eq!(read(&[one.clone(), records(tail, 1 << 14)].concat()), named(NAME));
    for between in
        [&[20, 3, 3, 0, 1, 1][..], &[23, 3, 3, 0, 1, 1], &[22, 3, 3, 0, 0], &[22, 9, 9, 0, 1, 1]]
    {
        let read = read(&[&one, between, &records(tail, 1 << 14)].concat());
        assert!(matches!(read, Progress::Malformed(_)), "{read:?}: {between:?}");
    }
    assert!(matches!(read(&[22, 3, 1, 0x40, 1]), Progress::Malformed(_)));
    assert!(matches!(read(&[22, 3, 1, 0, 0]), Progress::Malformed(_)));
}

#[test]
fn other_protocols_are_told_apart_at_once() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"SSH-2.0-x",
        b"\x80\x2e\x01\x03\x01",
        b"\x16\x02\x00",
        b"\x16\x03\x09",
        b"\x17\x03\x03",
        b"\0",
    ] {
        assert_eq!(read(bytes), Progress::NotTls, "{bytes:?}");
    }
    assert_eq!(read(b"\x16\x03\x01"), Progress::NeedMore);
    assert_eq!(read(b""), Progress::NeedMore);
}

#[test]
fn a_second_hello_is_found_behind_what_may_stand_before_it() {
    let hello = records(&message(&[(0, &names(&[(0, NAME)]))]), 1 << 14);
    let before = [&[20, 3, 3, 0, 1, 1][..], &[23, 3, 3, 0, 2, 9, 9]].concat();
    let bytes = [&before[..], &hello].concat();
    assert!(matches!(read(&bytes), Progress::NotTls), "only after a retry");
    for cut in 0..bytes.len() {
        let mut reader = HelloReader::after_retry();
        assert_eq!(reader.push(&bytes[..cut]), Progress::NeedMore, "{cut}");
        assert_eq!(reader.push(&bytes[cut..]), named(NAME), "{cut}");
    }
    for bad in [&[21, 3, 3, 0, 2][..], &[23, 2, 3, 0, 1], &[23, 3, 3, 0, 0], &[22, 3, 3, 0, 1, 16]]
    {
        let mut reader = HelloReader::after_retry();
        assert!(!matches!(reader.push(bad), Progress::NeedMore | Progress::Hello(_)), "{bad:?}");
    }
}

#[test]
fn a_retry_is_told_from_a_server_hello() {
    let mut retry = vec![22, 3, 3, 0, 90, 2, 0, 0, 86, 3, 3];
    retry.extend(super::RETRY_RANDOM);
    for cut in 0..retry.len() {
        assert_eq!(asks_for_retry(&retry[..cut]), None, "{cut}");
    }
    assert_eq!(asks_for_retry(&retry), Some(true));
    for at in [0, 1, 5, 11, 30, 42] {
        let mut other = retry.clone();
        other[at] ^= 1;
        assert_eq!(asks_for_retry(&other), Some(false), "{at}");
    }
}

#[test]
fn a_hello_that_never_ends_is_bounded() {
    let header = [1, 0, 0xff, 0xff];
    let endless = [&header[..], &vec![0; 80_000]].concat();
    let mut reader = HelloReader::new();
    let mut taken = 0;
    for bytes in records(&endless, 1).chunks(4096) {
        taken += bytes.len();
        match reader.push(bytes) {
            Progress::NeedMore => {}
            Progress::Malformed(_) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(taken <= 64 * 1024 + 4096, "{taken}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
        read(&bytes);
        let _ = HelloReader::after_retry().push(&bytes);
        let _ = asks_for_retry(&bytes);
        read_message(&bytes);
        read_message(&framed(&bytes));
    }

    #[test]
    fn one_changed_byte_never_panics(at: Index, byte: u8) {
        let mut bytes = real_hello(NAME, &[&rustls::version::TLS13]);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        read(&bytes);
    }

    #[test]
    fn the_answer_does_not_depend_on_the_cuts(
        bytes: Vec<u8>,
        whole in any::<bool>(),
        cuts in proptest::collection::vec(any::<Index>(), 0..6),
    ) {
        let bytes = if whole { records(&framed(&bytes), 7) } else { bytes };
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.push(bytes.len());
        cuts.sort_unstable();
        let (mut reader, mut from, mut last) = (HelloReader::new(), 0, Progress::NeedMore);
        for cut in cuts {
            last = reader.push(&bytes[from..cut]);
            from = cut;
            if last != Progress::NeedMore {
                break;
            }
        }
        prop_assert_eq!(&last, &read(&bytes));
        prop_assert!(held(reader) == bytes[..from]);
    }
}
