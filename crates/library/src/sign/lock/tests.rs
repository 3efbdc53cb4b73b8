use ringfence_bundle::{Objects, Snapshot};
use ringfence_identity::Signer;

use super::{LockSignature, sign_lock, verify_lock};
use crate::archive::tests::Bundle;
use crate::{Error, Publishers};

#[test]
fn a_verdict_is_good_for_a_listed_publisher_and_these_bytes_alone() {
    let bundle = Bundle::locked();
    let home = tempfile::tempdir().expect("a temporary folder");
    let signer = Signer::named(home.path(), "p").expect("a key");
    let verdict = || {
        let snapshot = Snapshot::read(bundle.project()).expect("a bundle");
        let publishers = Publishers::read(home.path()).expect("readable");
        verify_lock(&snapshot, &bundle.objects(), &publishers).expect("readable")
    };
    assert_eq!(verdict().signature, LockSignature::Absent);
    sign_lock(&bundle.snapshot(), &bundle.objects(), &signer).expect("signed");
    assert!(matches!(verdict().signature, LockSignature::Good { .. }));
    assert!(!verdict().is_good(), "nobody listed this key");
    Publishers::add(home.path(), "acme", signer.did().as_str()).expect("listed");
    assert!(verdict().is_good(), "control");
    // What the bundle may do stands in the manifest, and the lock does not say it.
    let manifest = bundle.project().join(".ringfence/ringfence.toml");
    let before = std::fs::read_to_string(&manifest).expect("our own file");
    std::fs::write(&manifest, format!("{before}\n[limits]\nmax_duration_seconds = 9\n"))
        .expect("our own file");
    let other = verdict();
    assert!(
        matches!(&other.signature, LockSignature::OtherBytes { files, .. } if files[..] == ["ringfence.toml"])
    );
    assert_eq!(other.moved, Some(0));
    assert!(!other.is_good());
    std::fs::write(&manifest, before).expect("our own file");
    assert!(verdict().is_good(), "control");
    std::fs::write(bundle.project().join(".ringfence/skills/s/SKILL.md"), "other\n")
        .expect("our own file");
    assert!(!verdict().is_good());
    assert_eq!(verdict().moved, Some(1));
    let snapshot = bundle.snapshot();
    assert!(matches!(
        sign_lock(&snapshot, &Objects::of(bundle.home()), &signer),
        Err(Error::Drifted(_))
    ));
}
