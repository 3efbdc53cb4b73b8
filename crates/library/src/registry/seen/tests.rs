use super::*;

fn releases(from: usize, to: usize) -> Vec<Release> {
    let did = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK";
    let one = |n: usize| Release {
        version: 1,
        name: "n".repeat(63),
        agent_version: format!("{n:064}"),
        did: ringfence_identity::Did::parse(did).unwrap(),
        sha256: "0".repeat(64),
        contents: Vec::new(),
    };
    (from..to).map(one).collect()
}

#[test]
fn a_registry_without_end_is_refused_and_makes_nothing_forgotten() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path().join("home");
    let (endless, other) =
        (format!("https://example.com/{}", "x".repeat(2000)), "https://o.example/");
    assert!(note(&home, other, &releases(0, 1)).unwrap().is_empty());
    for from in (0..MOST).step_by(20_000) {
        let listed = releases(from, MOST.min(from + 20_000));
        assert!(note(&home, &endless, &listed).unwrap().is_empty());
    }
    let error = note(&home, &endless, &releases(MOST, MOST + 1)).unwrap_err();
    assert!(matches!(error, Error::Distrusted(_)), "{error}");
    // What is remembered is, of both.
    for address in [&*endless, other] {
        let mut first = releases(0, 1);
        assert!(note(&home, address, &first).unwrap().is_empty());
        first[0].sha256 = "1".repeat(64);
        assert_eq!(note(&home, address, &first).unwrap().len(), 1);
    }
    // A file under another's name says nothing.
    let name =
        |address: &str| home.join(FOLDER).join(format!("{}.toml", sha256(address.as_bytes())));
    std::fs::rename(name(&endless), name(other)).unwrap();
    assert!(note(&home, other, &releases(0, 1)).is_err());
}
