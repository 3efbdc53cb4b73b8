use std::collections::BTreeMap;

use ringfence_bundle::{Blob, Content, Kind};

use super::Store;

fn blob(text: &str, executable: bool) -> Blob {
    Blob { bytes: text.into(), executable }
}

#[test]
fn what_is_kept_is_given_back_with_its_digest() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::of(home.path());
    let tree: BTreeMap<_, _> =
        [("SKILL.md".to_owned(), blob("a", false)), ("bin/run".to_owned(), blob("b", true))].into();
    let digest = store.deposit_tree(Kind::Skill, &tree).unwrap();
    assert_eq!(store.deposit_tree(Kind::Skill, &tree).unwrap(), digest);
    let read = store.objects().read(Kind::Skill, &digest).unwrap();
    assert_eq!(read, Some(Content::Tree(tree)));
    let digest = store.deposit_definition(Kind::Server, b"{}").unwrap();
    assert_eq!(store.objects().proved(Kind::Server, &digest).unwrap(), Some(digest));
    let digest = store.deposit_file(Kind::Instruction, &blob("x", false)).unwrap();
    assert_eq!(
        store.objects().read(Kind::Instruction, &digest).unwrap(),
        Some(Content::File(blob("x", false)))
    );
    // An address of another kind holds nothing.
    assert_eq!(store.objects().read(Kind::Program, &digest).unwrap(), None);
}

#[test]
fn a_damaged_object_is_never_given_back_and_is_replaced() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::of(home.path());
    let digest = store.deposit_file(Kind::Instruction, &blob("right", false)).unwrap();
    let place = store.objects().place(Kind::Instruction, &digest).join("content");
    std::fs::write(&place, "wrong").unwrap();
    let error = store.objects().read(Kind::Instruction, &digest).unwrap_err();
    assert!(error.to_string().contains("its bytes have the digest"), "{error}");
    assert_ne!(store.objects().proved(Kind::Instruction, &digest).unwrap(), Some(digest));
    store.deposit_file(Kind::Instruction, &blob("right", false)).unwrap();
    assert!(store.objects().read(Kind::Instruction, &digest).unwrap().is_some());
}
