//! `ringfence init`

use ringfence_tests::{Project, each_user};

#[test]
fn what_it_writes_validates() {
    each_user(|who| {
        let project = Project::new(who);
        project.ringfence(&["init"]).ok().done();
        let path = project.path().join(".ringfence/ringfence.toml");
        let text = std::fs::read_to_string(&path).expect("a manifest was written");
        assert!(text.contains("version = 1"), "{text}");
        project.ringfence(&["validate"]).ok().done();
        project.lock();
        project.trust();
    });
}

#[test]
fn it_never_replaces_a_manifest() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest("version = 1\n# mine\n");
        let before = project.picture(&project.path());
        project.ringfence(&["init"]).expect(1).says(&["ringfence.toml"]).done();
        assert_eq!(project.picture(&project.path()), before);
    });
}

#[test]
fn it_does_not_write_through_a_link() {
    each_user(|who| {
        let project = Project::new(who);
        std::fs::create_dir(project.root().join("elsewhere")).expect("our own folder");
        who.own(&project.root().join("elsewhere"));
        let link = project.path().join(".ringfence");
        project.shell(&["ln", "-s", "../elsewhere", &link.display().to_string()]).ok().done();
        let output = project.ringfence(&["init"]);
        assert_ne!(output.status, 0, "{}", output.stdout);
        let made =
            std::fs::read_dir(project.root().join("elsewhere")).expect("our own folder").count();
        assert_eq!(made, 0);
    });
}
