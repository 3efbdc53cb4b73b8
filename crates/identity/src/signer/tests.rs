use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::{Signer, machine_did};
use crate::{Did, Error};

#[test]
fn the_machine_key_is_made_once_and_private() {
    let home = tempfile::tempdir().unwrap();
    assert!(matches!(machine_did(home.path()), Err(Error::NoKey(_))));
    let first = Signer::machine(home.path()).unwrap();
    let again = Signer::machine(home.path()).unwrap();
    assert_eq!(first.did(), again.did());
    assert_eq!(machine_did(home.path()).unwrap(), *first.did());

    let folder = home.path().join("identities/machine");
    let file = folder.join("key.pem");
    assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1, "no temporary file is left");
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.starts_with("-----BEGIN PRIVATE KEY-----"));
}

#[test]
fn a_signature_verifies_under_the_did_alone() {
    let home = tempfile::tempdir().unwrap();
    let machine = Signer::machine(home.path()).unwrap();
    let other = Signer::named(home.path(), "other").unwrap();
    let signature = machine.sign(b"evidence");
    machine.did().verify(b"evidence", &signature).expect("its own");
    assert!(machine.did().verify(b"evidencE", &signature).is_err());
    assert!(other.did().verify(b"evidence", &signature).is_err());
}

#[test]
fn many_makers_agree_on_one_key() {
    let home = tempfile::tempdir().unwrap();
    let barrier = std::sync::Barrier::new(16);
    let dids: Vec<Did> = std::thread::scope(|scope| {
        let makers: Vec<_> = (0..16)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    Signer::machine(home.path()).unwrap().did().clone()
                })
            })
            .collect();
        makers.into_iter().map(|maker| maker.join().unwrap()).collect()
    });
    assert!(dids.windows(2).all(|pair| pair[0] == pair[1]));
    let folder = home.path().join("identities/machine");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn a_declared_did_finds_its_key_among_others() {
    let home = tempfile::tempdir().unwrap();
    Signer::machine(home.path()).unwrap();
    let agent = Signer::named(home.path(), "invoice-processor").unwrap();
    let found = Signer::for_did(home.path(), agent.did()).expect("its key is here");
    assert_eq!(found.did(), agent.did());
    let stranger = Did::parse("did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp").unwrap();
    assert!(matches!(Signer::for_did(home.path(), &stranger), Err(Error::NoKey(_))));
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(Signer::for_did(empty.path(), agent.did()), Err(Error::NoKey(_))));
}

#[test]
fn exposed_or_replaced_key_files_are_refused_at_every_load() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("identities/machine");
    let file = folder.join("key.pem");
    let did = Signer::machine(home.path()).unwrap().did().clone();
    let refused = |what: &str| {
        for result in [Signer::machine(home.path()), Signer::for_did(home.path(), &did)] {
            let error = result.expect_err(what);
            assert!(matches!(error, Error::Unsafe { .. } | Error::Malformed { .. }), "{error}");
        }
    };

    set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    refused("readable by the group");
    set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    set_permissions(&folder, Permissions::from_mode(0o711)).unwrap();
    refused("a folder that others may enter");
    set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    Signer::machine(home.path()).expect("control: mended");

    let aside = home.path().join("aside.pem");
    std::fs::rename(&file, &aside).unwrap();
    symlink(&aside, &file).unwrap();
    refused("a symlink");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    refused("a folder");
    std::fs::remove_dir(&file).unwrap();
    for garbage in [b"".as_slice(), b"-----BEGIN PRIVATE KEY-----\n", &[0xff; 9000]] {
        std::fs::write(&file, garbage).unwrap();
        set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        refused("not a key");
    }
}

#[test]
fn names_that_are_no_component_are_refused() {
    let home = tempfile::tempdir().unwrap();
    for name in ["", ".", "..", "a/b", "A", "a\0", &"a".repeat(64)] {
        assert!(matches!(Signer::named(home.path(), name), Err(Error::NoKey(_))), "{name}");
    }
}

#[test]
fn debug_shows_no_key() {
    let home = tempfile::tempdir().unwrap();
    let signer = Signer::machine(home.path()).unwrap();
    let shown = format!("{signer:?}");
    assert_eq!(shown, format!("Signer {{ did: Did(\"{}\"), .. }}", signer.did()));
}
