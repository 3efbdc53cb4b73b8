use super::{STANDARD, Token};
use base64::Engine as _;

fn basic(pair: &str) -> Vec<u8> {
    format!("Basic {}", STANDARD.encode(pair)).into_bytes()
}

#[test]
fn tokens_are_64_hex_digits_and_differ() {
    let (one, two) = (Token::fresh().unwrap(), Token::fresh().unwrap());
    assert_eq!(one.0.len(), 64);
    assert!(one.0.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_ne!(one.0, two.0);
}

#[test]
fn only_the_token_itself_is_admitted() {
    let token = Token::fresh().unwrap();
    assert!(token.admits(&basic(&format!("ringfence:{}", token.0))));
    let mut scheme = basic(&format!("ringfence:{}", token.0));
    scheme[..5].copy_from_slice(b"bASIC");
    assert!(token.admits(&scheme));

    let other = Token::fresh().unwrap();
    for wrong in [
        basic(&format!("ringfence:{}", other.0)),
        basic(&format!("ringfence:{}x", token.0)),
        basic(&format!("ringfence:{}", &token.0[..63])),
        basic("ringfence:"),
        basic("ringfence"),
        basic(&format!("someone:{}", token.0)),
        basic(&token.0),
        format!("Bearer {}", token.0).into_bytes(),
        b"Basic !!!".to_vec(),
        b"Basic".to_vec(),
        Vec::new(),
    ] {
        assert!(!token.admits(&wrong), "{}", String::from_utf8_lossy(&wrong));
    }
}

#[test]
fn the_url_carries_it_and_debug_does_not() {
    let token = Token::fresh().unwrap();
    assert_eq!(
        token.proxy_url(([127, 0, 0, 1], 8080).into()),
        format!("http://ringfence:{}@127.0.0.1:8080", token.0)
    );
    assert!(!format!("{token:?}").contains(&token.0));
}
