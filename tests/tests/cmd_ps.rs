//! `ringfence ps`

use ringfence_tests::{Project, each_user};

use crate::bundles::files;
use crate::cmd_stop::{OUT, waiting};

#[test]
fn it_lists_what_is_alive_and_nothing_else() {
    each_user(|who| {
        let project = Project::ready(who, &files(OUT));
        let none = project.ringfence(&["ps", "--json"]).ok().json();
        assert_eq!(none["runs"], serde_json::json!([]));
        let run = waiting(&project);
        let id = project.runs().pop().expect("a run");
        let one = project.ringfence(&["ps", "--json"]).ok().json();
        assert_eq!(one["runs"].as_array().map(Vec::len), Some(1), "{one}");
        assert!(
            one.to_string().contains(&id) && one.to_string().contains(&run.pid().to_string()),
            "{one}"
        );
        assert!(project.ringfence(&["ps"]).ok().stdout.contains(&id));
        project.ringfence(&["stop", &id]).ok().done();
        run.finish().done();
        let none = project.ringfence(&["ps", "--json"]).ok().json();
        assert_eq!(none["runs"], serde_json::json!([]));
    });
}
