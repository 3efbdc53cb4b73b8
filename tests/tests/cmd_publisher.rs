//! `ringfence publisher`

use std::os::unix::fs::MetadataExt;

use ringfence_tests::{Project, each_user};

use crate::bundles::shared;

#[test]
fn publishers_are_added_listed_and_removed() {
    each_user(|who| {
        let project = Project::new(who);
        project.ringfence(&["publisher", "list"]).ok().says(&["no publisher"]).done();
        shared(&project);
        let did = project.ringfence(&["sign", "--json"]).ok().json()["did"].clone();
        let did = did.as_str().expect("a did");
        project.ringfence(&["publisher", "add", "acme", did]).ok().done();
        let list = project.ringfence(&["publisher", "list"]).ok();
        assert_eq!(list.stdout, format!("acme  {did}\n"));
        let list = project.ringfence(&["publisher", "list", "--json"]).ok().json();
        assert_eq!(list, serde_json::json!({ "version": 1, "publishers": { "acme": did } }));
        let file = project.state().join("publishers.toml");
        assert_eq!(std::fs::metadata(&file).expect("the list").mode() & 0o777, 0o600);
        let before = std::fs::read(&file).expect("the list");
        // Nobody is replaced, and no key has two names.
        for words in [["acme", did], ["again", did], ["A b", did], ["", did], ["x", "z6Mk"]] {
            project.ringfence(&["publisher", "add", words[0], words[1]]).expect(1).done();
        }
        assert_eq!(std::fs::read(&file).expect("the list"), before);
        project.ringfence(&["publisher", "remove", "other"]).expect(1).done();
        project.ringfence(&["publisher", "remove", "acme"]).ok().done();
        assert_eq!(project.ringfence(&["publisher", "list"]).ok().stdout, "");
    });
}

#[test]
fn a_list_that_others_can_write_or_that_is_broken_is_not_believed() {
    each_user(|who| {
        let project = Project::new(who);
        shared(&project);
        let did = project.ringfence(&["sign", "--json"]).ok().json()["did"].clone();
        let did = did.as_str().expect("a did");
        project.ringfence(&["publisher", "add", "acme", did]).ok().done();
        project.ringfence(&["verify"]).ok().done();
        let file = project.state().join("publishers.toml");
        let mode = |mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&file, mode).expect("our own file");
        };
        mode(0o666);
        project.ringfence(&["verify"]).expect(1).says(&["publishers.toml"]).done();
        mode(0o600);
        project.ringfence(&["verify"]).ok().done();
        let good = std::fs::read_to_string(&file).expect("the list");
        for bad in [good.replace("= 1", "= 2"), format!("{good}acme = \"{did}\"\n"), "x".into()] {
            std::fs::write(&file, &bad).expect("our own file");
            project.ringfence(&["verify"]).expect(1).says(&["publishers.toml"]).done();
            project.ringfence(&["publisher", "add", "b", did]).expect(1).done();
            assert_eq!(std::fs::read_to_string(&file).expect("the list"), bad);
        }
        std::fs::write(&file, &good).expect("our own file");
        project.ringfence(&["verify"]).ok().done();
    });
}
