//! `ringfence report`

use ringfence_tests::{Events, Project, each_user};

use crate::bundles::MIRROR;

#[test]
fn it_tells_people_and_programs_the_same() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        project.python();
        project.lock();
        project.trust();
        let cases =
            project.agent("m = Mcp('mirror')\nm.call('yes', 'raw')\nm.call('no', 'secret_tool')");
        cases.answered("yes");
        let id = project.runs().pop().expect("a run");
        let words = project.ringfence(&["report", &id]).ok().stdout;
        for word in [id.as_str(), "allowed", "refused", "raw", "secret_tool"] {
            assert!(words.contains(word), "{word} is missing:\n{words}");
        }
        let events = Events::from_value(&project.report());
        events.has("call_decided", &[("tool", "raw"), ("outcome", "allowed")]);
        events.has("call_decided", &[("tool", "secret_tool"), ("outcome", "refused")]);
        events.has("call_settled", &[("result", "answered")]);
        events.has("run_finished", &[("status", "0")]);
        // The beginning of an id is enough when it is the only one.
        project.ringfence(&["report", &id[..id.len() - 2]]).ok().done();
    });
}

#[test]
fn what_an_agent_chose_is_shown_escaped() {
    each_user(|who| {
        let project = Project::new(who);
        project.manifest(MIRROR);
        project.python();
        project.lock();
        project.trust();
        let cases = project.agent("Mcp('mirror').call('odd', 'evil\\x1b[2Jtool\\r\\nallowed call raw\\u202e')\ntry_connect('host', b'evil\\x1b]0;x\\x07.example.com:443')");
        cases.not_answered("odd");
        let id = project.runs().pop().expect("a run");
        let shown = project.ringfence(&["report", &id]).ok();
        for text in [&shown.stdout, &cases.output.stderr] {
            assert!(
                !text.contains('\u{1b}') && !text.contains('\r') && !text.contains('\u{202e}'),
                "{text:?}"
            );
        }
        assert!(shown.stdout.contains("evil"), "{}", shown.stdout);
    });
}

#[test]
fn an_unknown_run_is_the_persons_error() {
    each_user(|who| {
        let project = Project::ready(who, crate::bundles::SMALL);
        for id in ["nonsense", "../../etc", "/etc/passwd", ""] {
            let output = project.ringfence(&["report", id]);
            assert!([1, 2].contains(&output.status), "{id:?}: {}", output.stderr);
        }
        project.run(&["true"]).ok().done();
        project.ringfence(&["report", "last"]).ok().done();
    });
}
