//! `ringfence sign`

use ringfence_tests::{Project, each_user};
use serde_json::Value;

use crate::bundles::{SHARED, SMALL, shared};

#[test]
fn a_signature_is_an_envelope_over_a_statement() {
    use base64::Engine as _;
    each_user(|who| {
        let project = Project::new(who);
        shared(&project);
        let before = project.picture(&project.path());
        let signed = project.ringfence(&["sign", "--json"]).ok().json();
        let file = project.path().join(".ringfence/ringfence.lock.sig");
        assert_eq!(signed["file"], file.display().to_string());
        let mut after = project.picture(&project.path());
        let bytes = after.remove(&file).expect("the signature");
        assert_eq!(after, before, "nothing else was written");
        let envelope: Value = serde_json::from_slice(&bytes).expect("JSON");
        assert_eq!(envelope["payloadType"], "application/vnd.in-toto+json");
        assert_eq!(envelope["signatures"][0]["keyid"], signed["did"]);
        let payload = base64::engine::general_purpose::STANDARD
            .decode(envelope["payload"].as_str().expect("text"))
            .expect("base64");
        let statement: Value = serde_json::from_slice(&payload).expect("JSON");
        assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
        let digest = |name: &str| {
            let path = project.path().join(".ringfence").join(name).display().to_string();
            let sum = project.shell(&["sha256sum", &path]).ok().stdout;
            sum.split_whitespace().next().expect("a sum").to_owned()
        };
        for (at, name) in ["ringfence.lock", "ringfence.toml"].iter().enumerate() {
            assert_eq!(statement["subject"][at]["name"], *name);
            assert_eq!(statement["subject"][at]["digest"]["sha256"], digest(name));
        }
        // The same bytes give the same signature (RFC 8032).
        project.ringfence(&["sign"]).ok().done();
        assert_eq!(std::fs::read(&file).expect("the signature"), bytes);
    });
}

#[test]
fn only_a_lock_that_is_there_and_holds_is_signed() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(SMALL);
        project.ringfence(&["sign"]).expect(1).says(&["no lock", "ringfence lock"]).done();
        project.lock();
        project.ringfence(&["sign"]).ok().done();
        shared(&project);
        project.ringfence(&["sign"]).ok().done();
        let before = project.picture(&project.path());
        let moved = project.path().join(".ringfence/instructions/team.md");
        std::fs::write(&moved, "Be unkind.\n").expect("our own file");
        project.ringfence(&["sign"]).expect(3).says(&["team", "ringfence lock"]).done();
        std::fs::write(&moved, "Be kind.\n").expect("our own file");
        assert_eq!(project.picture(&project.path()), before, "a refusal writes nothing");
    });
}

#[test]
fn another_identity_signs_when_it_is_named_and_has_a_key_here() {
    each_user(|who| {
        let project = Project::new(who);
        shared(&project);
        let other = Project::new(who);
        other.manifest(SHARED);
        let stranger = {
            shared(&other);
            other.ringfence(&["sign", "--json"]).ok().json()["did"].clone()
        };
        let stranger = stranger.as_str().expect("a did");
        project.ringfence(&["sign", "--did", stranger]).expect(1).says(&["no key for"]).done();
        project.ringfence(&["sign", "--did", "did:key:z6Mk"]).expect(1).says(&["did:key"]).done();
        assert!(!project.path().join(".ringfence/ringfence.lock.sig").exists());
        // The same key, as an identity of this machine.
        let key = std::fs::read(other.state().join("identities/machine/key.pem")).expect("a key");
        let path = project.state_file("identities/other/key.pem", key);
        let private = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&path, private(0o600)).expect("our own file");
        let folder = path.parent().expect("in a folder");
        std::fs::set_permissions(folder, private(0o700)).expect("our own folder");
        let signed = project.ringfence(&["sign", "--did", stranger, "--json"]).ok().json();
        assert_eq!(signed["did"], stranger);
    });
}

#[test]
fn a_link_in_the_signature_s_place_is_replaced_and_not_followed() {
    each_user(|who| {
        let project = Project::new(who);
        shared(&project);
        let victim = project.file("victim", "untouched");
        let link = project.path().join(".ringfence/ringfence.lock.sig");
        project
            .shell(&["ln", "-s", &victim.display().to_string(), &link.display().to_string()])
            .ok()
            .done();
        project.ringfence(&["verify"]).expect(1).done();
        project.ringfence(&["sign"]).ok().done();
        assert_eq!(std::fs::read(&victim).expect("our own file"), b"untouched");
        assert!(link.symlink_metadata().expect("there").is_file());
    });
}
