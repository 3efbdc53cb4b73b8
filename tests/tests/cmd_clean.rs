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
