//! `ringfence webhook`

use std::os::unix::fs::PermissionsExt;

use ringfence_tests::{Project, each_user};

#[test]
fn a_key_is_made_once_and_is_nobody_else_s_to_read() {
    each_user(|who| {
        let project = Project::new(who);
        let made = project.ringfence(&["webhook", "keygen", "office", "--json"]).ok().json();
        let key = made["key"].as_str().expect("a key");
        assert!(key.starts_with("z6Mk") && key.len() == 48, "{key}");
        let file = project.state().join("webhook-keys/office.pem");
        assert_eq!(made["file"].as_str(), file.to_str());
        let mode = |path: &std::path::Path| {
            std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
        };
        assert_eq!(mode(&file), 0o600);
        assert_eq!(mode(file.parent().expect("a folder")), 0o700);
        let before = std::fs::read_to_string(&file).expect("our own file");
        assert!(before.starts_with("-----BEGIN PRIVATE KEY-----"), "PKCS#8 PEM");
        project
            .ringfence(&["webhook", "keygen", "office"])
            .expect(1)
            .says(&["none is ever replaced"])
            .done();
        assert_eq!(std::fs::read_to_string(&file).expect("our own file"), before);
        for name in ["", "../x", "a/b", "A", "a.b", &"a".repeat(64)] {
            let output = project.ringfence(&["webhook", "keygen", name]);
            assert_eq!(output.status, 1, "{name:?}: {}", output.stderr);
        }
        let other = project.ringfence(&["webhook", "keygen"]).ok().stdout;
        assert_ne!(other.trim(), key);
    });
}

#[test]
fn the_machine_s_key_is_printed_for_who_verifies_requests() {
    each_user(|who| {
        let project = Project::new(who);
        let text = project.ringfence(&["webhook", "key"]).ok().stdout;
        assert!(text.starts_with("whpk_"), "{text}");
        let again = project.ringfence(&["webhook", "key", "--json"]).ok().json();
        assert_eq!(again["key"].as_str(), Some(text.trim()));
        assert!(again["did"].as_str().is_some_and(|did| did.starts_with("did:key:z6Mk")));
    });
}
