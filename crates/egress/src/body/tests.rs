use bytes::BytesMut;
use proptest::prelude::proptest;
use proptest::prop_assert_eq;

use super::{BodyError, Decoder, Piece};
use crate::head::Framing;

/// Feeds `bytes` in steps of `step`; gives the body and what is left behind it.
fn decode(framing: Framing, bytes: &[u8], step: usize) -> Result<(Vec<u8>, Vec<u8>), BodyError> {
    let (mut decoder, mut buffer, mut body) = (Decoder::new(framing), BytesMut::new(), Vec::new());
    let mut coming = bytes.chunks(step);
    loop {
        match decoder.next(&mut buffer)? {
            Piece::Data(data) => body.extend_from_slice(&data),
            Piece::More => buffer.extend_from_slice(coming.next().ok_or(BodyError::Cut)?),
            Piece::End => {
                let rest = coming.flatten().copied();
                return Ok((body, buffer.iter().copied().chain(rest).collect()));
            }
        }
    }
}

#[test]
fn a_body_ends_where_its_framing_says() {
    for step in 1..12 {
        for (framing, bytes, body, rest) in [
            (Framing::Empty, "GET", "", "GET"),
            (Framing::Length(0), "GET", "", "GET"),
            (Framing::Length(3), "abcGET", "abc", "GET"),
            (Framing::Chunked, "0\r\n\r\nGET", "", "GET"),
            (
                Framing::Chunked,
                "3\r\nabc\r\n0A\r\n0123456789\r\n0\r\n\r\nGET",
                "abc0123456789",
                "GET",
            ),
        ] {
            let decoded = decode(framing, bytes.as_bytes(), step);
            assert_eq!(decoded, Ok((body.into(), rest.into())), "{bytes:?} by {step}");
        }
    }
}

#[test]
fn chunks_that_could_be_read_otherwise_are_refused() {
    for bytes in [
        "\r\nabc",
        "3\nabc\r\n0\r\n\r\n",
        "3 \r\nabc\r\n0\r\n\r\n",
        "+3\r\nabc\r\n0\r\n\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "3;ext=1\r\nabc\r\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "0\r\nX: y\r\n\r\n",
        "ffffffffffffffff\r\nabc",
        "0000000000000000000003\r\nabc",
        "-1\r\n\r\n",
    ] {
        assert_eq!(
            decode(Framing::Chunked, bytes.as_bytes(), 64),
            Err(BodyError::Chunks),
            "{bytes:?}"
        );
    }
    assert_eq!(decode(Framing::Length(4), b"abc", 64), Err(BodyError::Cut));
    assert_eq!(decode(Framing::Chunked, b"3\r\nab", 64), Err(BodyError::Cut));
}

proptest! {
    #[test]
    fn arbitrary_chunks_never_panic_and_do_not_depend_on_their_cuts(bytes: Vec<u8>, step in 1_usize..9) {
        prop_assert_eq!(decode(Framing::Chunked, &bytes, step), decode(Framing::Chunked, &bytes, 4096));
    }
}
