use std::os::unix::fs::PermissionsExt as _;

use jiff::SignedDuration;
use ringfence_bundle::Id;

use super::{Keyring, PREFIX, Tokens, parse_lifetime};

fn name(text: &str) -> Id {
    Id::parse(text).unwrap()
}

fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    home
}

#[test]
fn a_token_is_known_by_its_value_alone_until_it_is_revoked() {
    let home = home();
    let tokens = Tokens::of(home.path());
    let keyring = Keyring::new(tokens.clone());
    assert_eq!(keyring.client("rfg_anything"), None);
    let (_, one) = tokens.create(&name("one"), None).unwrap();
    let (_, two) = tokens.create(&name("two"), None).unwrap();
    assert_eq!(one.expose().len(), PREFIX.len() + 43, "256 bits");
    assert_ne!(one.expose(), two.expose());
    assert_eq!(keyring.client(one.expose()).as_deref(), Some("one"));
    assert_eq!(keyring.client(two.expose()).as_deref(), Some("two"));
    let file = std::fs::read_to_string(home.path().join("gateway-tokens.json")).unwrap();
    assert!(!file.contains(one.expose()) && !file.contains(&one.expose()[PREFIX.len()..]));
    let digest = tokens.list().unwrap()[0].sha256.clone();
    for bad in ["", "one", &one.expose()[1..], &one.expose().to_uppercase(), &digest] {
        assert_eq!(keyring.client(bad), None, "{bad}");
    }
    assert!(tokens.create(&name("one"), None).is_err(), "a name is one client's");
    assert!(tokens.revoke(&name("one")).unwrap());
    assert!(!tokens.revoke(&name("one")).unwrap());
    assert_eq!(keyring.client(one.expose()), None);
    assert_eq!(keyring.client(two.expose()).as_deref(), Some("two"));
}

#[test]
fn an_expired_token_is_refused() {
    let home = home();
    let tokens = Tokens::of(home.path());
    let (token, value) = tokens.create(&name("old"), Some(SignedDuration::from_millis(1))).unwrap();
    let (_, good) = tokens.create(&name("new"), Some(SignedDuration::from_mins(1))).unwrap();
    while !token.has_expired() {
        std::thread::yield_now();
    }
    let keyring = Keyring::new(tokens);
    assert_eq!(keyring.client(value.expose()), None);
    assert!(keyring.client(good.expose()).is_some());
}

#[test]
fn a_file_that_others_can_reach_or_that_does_not_parse_lets_nobody_in() {
    let home = home();
    let tokens = Tokens::of(home.path());
    let (_, value) = tokens.create(&name("one"), None).unwrap();
    let keyring = Keyring::new(tokens.clone());
    let file = home.path().join("gateway-tokens.json");
    let mode = |mode| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(keyring.client(value.expose()).is_some());
    for open in [0o640, 0o602, 0o604] {
        mode(open);
        assert_eq!(keyring.client(value.expose()), None, "{open:o}");
        mode(0o600);
        assert!(keyring.client(value.expose()).is_some());
    }
    let whole = std::fs::read_to_string(&file).unwrap();
    let doubled = whole.replacen("\"tokens\": [", "\"tokens\": [], \"tokens\": [", 1);
    for broken in ["", "{}", &whole[1..], &whole.replace("one", "ONE"), &doubled] {
        std::fs::write(&file, broken).unwrap();
        assert!(tokens.list().is_err(), "{broken}");
        assert_eq!(keyring.client(value.expose()), None, "{broken}");
    }
    std::fs::write(&file, whole).unwrap();
    assert!(keyring.client(value.expose()).is_some());
}

#[test]
fn a_lifetime_is_a_number_and_a_unit() {
    for (text, minutes) in [("1m", 1), ("2h", 120), ("90d", 129_600), ("1w", 10_080)] {
        assert_eq!(parse_lifetime(text), Ok(SignedDuration::from_mins(minutes)), "{text}");
    }
    for bad in
        ["", "d", "0d", "-1d", "+1d", "1", "1.5h", "1y", "3651d", "99999999999999999w", "é", "1é"]
    {
        assert!(parse_lifetime(bad).is_err(), "{bad}");
    }
}
