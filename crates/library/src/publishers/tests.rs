use ringfence_identity::Signer;

use super::Publishers;
use crate::Error;

fn did(home: &std::path::Path, name: &str) -> String {
    Signer::named(home, name).expect("a key").did().to_string()
}

#[test]
fn a_publisher_is_listed_found_and_taken_off() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let (a, b) = (did(home.path(), "a"), did(home.path(), "b"));
    Publishers::add(home.path(), "acme", &a).expect("listed");
    Publishers::add(home.path(), "other", &b).expect("listed");
    let list = Publishers::read(home.path()).expect("readable");
    assert_eq!(list.name_of(&a.parse_did()), Some("acme"));
    assert_eq!(list.iter().count(), 2);
    let mode = std::os::unix::fs::MetadataExt::mode(
        &std::fs::metadata(home.path().join("publishers.toml")).expect("there"),
    );
    assert_eq!(mode & 0o777, 0o600);
    assert!(Publishers::remove(home.path(), "acme").expect("written"));
    assert!(!Publishers::remove(home.path(), "acme").expect("written"));
    let list = Publishers::read(home.path()).expect("readable");
    assert_eq!(list.name_of(&a.parse_did()), None);
}

#[test]
fn nobody_is_replaced_and_names_are_plain() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let (a, b) = (did(home.path(), "a"), did(home.path(), "b"));
    Publishers::add(home.path(), "acme", &a).expect("listed");
    for (name, key) in [("acme", &b), ("again", &a), ("", &b), ("A", &b), ("a b", &b), ("-a", &b)] {
        assert!(
            matches!(Publishers::add(home.path(), name, key), Err(Error::Refused { .. })),
            "{name:?}"
        );
    }
    assert!(matches!(Publishers::add(home.path(), "x", "did:key:zQ"), Err(Error::Identity(_))));
    assert_eq!(Publishers::read(home.path()).expect("readable").iter().count(), 1);
}

#[test]
fn what_is_not_exactly_a_list_is_refused() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let a = did(home.path(), "a");
    Publishers::add(home.path(), "acme", &a).expect("listed");
    let path = home.path().join("publishers.toml");
    let good = std::fs::read_to_string(&path).expect("there");
    assert!(Publishers::parse(good.as_bytes()).is_ok(), "control");
    for bad in [
        good.replace("version = 1", "version = 2"),
        good.replace("version = 1", ""),
        format!("{good}acme = \"{a}\"\n"),
        format!("{good}again = \"{a}\"\n"),
        format!("{good}\n[more]\n"),
        good.replace("did:key:z", "did:key:Z"),
        String::new(),
    ] {
        assert!(Publishers::parse(bad.as_bytes()).is_err(), "{bad}");
    }
    assert!(Publishers::parse(b"\xff").is_err());
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&path, open).expect("our own file");
    assert!(matches!(Publishers::read(home.path()), Err(Error::Refused { .. })));
}

trait ParseDid {
    fn parse_did(&self) -> ringfence_identity::Did;
}

impl ParseDid for String {
    fn parse_did(&self) -> ringfence_identity::Did {
        ringfence_identity::Did::parse(self).expect("a did")
    }
}
