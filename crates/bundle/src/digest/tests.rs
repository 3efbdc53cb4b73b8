use super::Digest;

#[test]
fn text_form_survives_and_is_strict() {
    let digest = Digest::framed("test", &[b"a"]);
    let text = digest.to_string();
    assert_eq!(text.parse(), Ok(digest));
    for bad in [
        text.to_uppercase(),
        text.replace("sha256:", "sha1:"),
        text[..70].to_owned(),
        format!("{text}0"),
        format!(" {text}"),
        text.replace("sha256:", ""),
    ] {
        assert!(bad.parse::<Digest>().is_err(), "{bad}");
    }
}

#[test]
fn framing_keeps_parts_and_purposes_apart() {
    let digests = [
        Digest::framed("a", &[b"xy"]),
        Digest::framed("a", &[b"x", b"y"]),
        Digest::framed("a", &[b"xy", b""]),
        Digest::framed("b", &[b"xy"]),
        Digest::framed("a", &[]),
    ];
    for (index, one) in digests.iter().enumerate() {
        assert!(!digests[..index].contains(one), "{index}");
    }
}

#[test]
fn bytes_are_those_of_the_written_rule() {
    // printf 'ringfence/test/1\0\0\0\0\0\0\0\0\001a' | sha256sum
    assert_eq!(
        Digest::framed("test", &[b"a"]).to_string(),
        "sha256:dab490d5ea2de94beec87fd46a520ea1317cd65bc6904399e14f75ca97c39d88"
    );
}
