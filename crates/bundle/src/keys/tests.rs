use super::{check_did, check_key};

// The first example of the did:key method specification.
const KEY: &str = "z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK";

#[test]
fn keys_of_the_right_form_pass() {
    assert_eq!(check_key(KEY), Ok(KEY));
    assert!(check_did(&format!("did:key:{KEY}")).is_ok());
}

#[test]
fn others_do_not() {
    for bad in [
        "",
        "z6Mk...",
        KEY,
        "did:key:",
        "did:web:example.com",
        "did:key:z6Mkabc",
        &format!("DID:key:{KEY}"),
        &format!("did:key:{KEY}#x"),
        &format!("did:key:{}0", &KEY[..47]),
    ] {
        assert!(check_did(bad).is_err(), "{bad}");
    }
    assert!(check_key(&format!("did:key:{KEY}")).is_err());
}
