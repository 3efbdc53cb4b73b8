//! `ringfence clean`

use ringfence_tests::{Project, each_user};
use rustix::process::Signal;

use crate::bundles::files;
use crate::cmd_stop::waiting;

#[test]
fn it_takes_away_what_a_crash_left_and_never_a_live_run() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(&files("write = [\"**\"]"));
        project.lock();
        project.trust();
        project.ringfence(&["clean"]).ok().done();
        let before = project.picture(&project.path());
        let live = waiting(&project);
        let crashed = waiting(&project);
        crashed.signal(Signal::KILL);
        crashed.finish().expect(137).done();
        project.ringfence(&["clean"]).ok().done();
        let alive = project.ringfence(&["ps", "--json"]).ok().json();
        assert_eq!(alive["runs"].as_array().map(Vec::len), Some(1), "{alive}");
        let id = alive["runs"][0]["run"].as_str().expect("an id").to_owned();
        project.ringfence(&["stop", &id]).ok().done();
        live.finish().done();
        std::fs::remove_dir_all(project.path().join("out")).expect("our own folder");
        assert_eq!(project.picture(&project.path()), before);
    });
}

#[test]
fn it_says_what_it_took_away_and_when_there_was_nothing() {
    each_user(|who| {
        let project = Project::ready(who, &files("write = [\"**\"]\ndeny = [\"secret.txt\"]"));
        let nothing = project.ringfence(&["clean", "--json"]).ok().json();
        assert_eq!(
            (&nothing["cleaned"]["runs"], &nothing["cleaned"]["left"]),
            (&0.into(), &0.into())
        );
        project.ringfence(&["clean"]).ok().says(&["nothing was left behind"]).done();
        for json in [true, false] {
            let crashed = waiting(&project);
            crashed.signal(Signal::KILL);
            crashed.finish().expect(137).done();
            let placeholder = project.path().join("secret.txt");
            assert!(placeholder.exists(), "control: something is left");
            let before = project.picture(&project.path()).len();
            let told = project.ringfence(if json { &["clean", "--json"] } else { &["clean"] }).ok();
            let gone = before - project.picture(&project.path()).len();
            if json {
                let told = told.json();
                assert_eq!(told["cleaned"]["runs"], 1, "{told}");
                assert_eq!(told["cleaned"]["removed"]["placeholders"], gone, "{told}");
                assert_eq!(told["cleaned"]["removed"]["containers"], 0, "{told}");
            } else {
                let removed = format!("removed {gone} placeholder");
                told.says(&["after 1 run that had crashed", &removed]).done();
            }
            assert!(!placeholder.exists());
            project.ringfence(&["clean"]).ok().says(&["nothing was left behind"]).done();
        }
    });
}
