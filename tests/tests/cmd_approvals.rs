//! `ringfence approvals`

use ringfence_tests::{PYTHON, Project, Screen, Started, Who, each_user};
use serde_json::Value;

use crate::bundles::MIRROR;

/// [`MIRROR`], where every call of `raw` needs a yes, with more of `[approvals]`.
pub(crate) fn asking(more: &str) -> String {
    format!(
        "{MIRROR}\n[approvals]\n{more}\n[[approvals.require]]\nserver = \"mirror\"\ntool = \"raw\"\n"
    )
}

/// One call of `raw` with these arguments, as Python text.
pub(crate) fn call(arguments: &str) -> String {
    format!("from agent import *\nMcp(\"mirror\").call(\"case\", \"raw\", {arguments})\n")
}

/// A trusted project with this manifest, whose agent is this text.
pub(crate) fn project(who: Who, manifest: &str, script: &str) -> Project {
    let project = Project::new(who);
    project.python();
    project.file("case.py", script);
    project.manifest(manifest);
    project.lock();
    project.trust();
    project
}

pub(crate) fn start(project: &Project) -> Started {
    project.start(&["run", "--json", "--", PYTHON, "-B", "case.py"])
}

/// The questions that wait, once there are so many. The run must still be there.
#[track_caller]
pub(crate) fn waiting(project: &Project, many: usize) -> Vec<Value> {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let list = project.ringfence(&["approvals", "list", "--json"]).ok().json();
        let all = list["approvals"].as_array().cloned().unwrap_or_default();
        if all.len() >= many {
            return all;
        }
        assert!(
            std::time::Instant::now() < end,
            "nothing waits: {list}\n{}",
            project.events_text()
        );
    }
}

pub(crate) fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

/// Says yes to a question as it is listed.
#[track_caller]
pub(crate) fn approve(project: &Project, question: &Value) {
    let (id, digest) = (text(question, "id"), text(question, "digest"));
    project
        .ringfence(&["approvals", "approve", id, "--yes", "--digest", digest])
        .ok()
        .says(&["approved"])
        .done();
}

#[test]
fn a_call_waits_for_a_yes_and_goes_on_by_it() {
    each_user(|who| {
        let project = project(who, &asking(""), &call("{\"amount\": 100}"));
        let none = project.ringfence(&["approvals", "list"]).ok();
        assert!(none.stdout.is_empty(), "{}", none.stdout);
        let run = start(&project);
        let question = waiting(&project, 1).remove(0);
        let id = text(&question, "id").to_owned();
        let list = project.ringfence(&["approvals", "list"]).ok().stdout;
        assert!(
            list.contains(&id) && list.contains("mirror: raw") && list.contains("s left"),
            "{list}"
        );
        let shown = project.ringfence(&["approvals", "show", &id]).ok().stdout;
        for part in [
            r#"{"amount":100}"#,
            text(&question, "digest"),
            "[[approvals.require]] server = \"mirror\" tool = \"raw\"",
            text(&question, "run"),
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        // Nobody is at a terminal, and what was looked at was something else.
        project
            .ringfence(&["approvals", "approve", &id])
            .expect(1)
            .says(&["--yes --digest"])
            .done();
        let other = format!("sha256:{}", "0".repeat(64));
        project
            .ringfence(&["approvals", "approve", &id, "--yes", "--digest", &other])
            .expect(3)
            .says(&["not what was looked at"])
            .done();
        approve(&project, &question);
        let again = ["approvals", "deny", &id];
        project.ringfence(&again).expect(1).says(&["does not count"]).done();
        let output = run.finish().ok();
        assert!(
            output.stderr.contains(&format!("ringfence approvals show {id}")),
            "{}",
            output.stderr
        );
        let cases = Project::cases(output);
        cases.answered("case");
        project.events().has("approval_asked", &[("question", &id), ("tool", "raw")]);
        project.events().has("approval_answered", &[("question", &id), ("answer", "approved")]);
        let report = project.ringfence(&["report"]).ok().stdout;
        assert!(report.contains("approved by uid"), "{report}");
        let all = project.ringfence(&["approvals", "list", "--all", "--json"]).ok().json();
        assert_eq!(all["approvals"][0]["standing"], "used");
        assert!(project.ringfence(&["approvals", "list"]).ok().stdout.is_empty());
    });
}

#[test]
fn a_no_reaches_the_agent_with_its_reason() {
    each_user(|who| {
        let project = project(who, &asking(""), &call("{}"));
        let run = start(&project);
        let question = waiting(&project, 1).remove(0);
        let words = ["approvals", "deny", text(&question, "id"), "--reason", "not on a Friday"];
        project.ringfence(&words).ok().says(&["denied"]).done();
        let cases = Project::cases(run.finish());
        cases.not_answered("case");
        assert!(cases.body("case").contains("not on a Friday"), "{}", cases.body("case"));
        project.events().has("approval_answered", &[("answer", "denied"), ("channel", "command")]);
    });
}

#[test]
fn nobody_in_time_denies_or_ends_the_run_and_a_late_yes_is_refused() {
    each_user(|who| {
        for (then, status) in [("deny", 0), ("abort", 124)] {
            let manifest = asking(&format!("timeout_seconds = 2\non_timeout = \"{then}\""));
            let script = format!("{}import time\ntime.sleep(20)\n", call("{}"));
            let script = if then == "deny" { call("{}") } else { script };
            let project = project(who, &manifest, &script);
            let run = start(&project);
            let question = waiting(&project, 1).remove(0);
            let output = run.finish().expect(status);
            let cases = Project::cases(output);
            if then == "deny" {
                cases.not_answered("case");
            } else {
                assert_eq!(cases.output.last_json()["finished"]["ended_by"], "approval");
            }
            project.events().has("approval_answered", &[("answer", "timed_out")]);
            let (id, digest) = (text(&question, "id"), text(&question, "digest"));
            let late = ["approvals", "approve", id, "--yes", "--digest", digest];
            project.ringfence(&late).expect(1).says(&["does not count"]).done();
        }
    });
}

#[test]
fn a_person_types_yes_below_what_is_approved() {
    each_user(|who| {
        let project = project(who, &asking(""), &call("{\"a\": \"\\u001b[2J\"}"));
        let run = start(&project);
        let question = waiting(&project, 1).remove(0);
        let id = text(&question, "id");
        let screen = Screen::start(&project, &["approvals", "approve", id]);
        screen.shows("Type `yes`:");
        assert!(screen.text().contains("\\u001b[2J"), "{:?}", screen.text());
        screen.send("no thanks\r");
        let (status, said) = screen.finish();
        assert_eq!(status, 1, "{said}");
        assert!(said.contains("the question waits on"), "{said}");
        let screen = Screen::start(&project, &["approvals", "approve", id]);
        screen.shows("Type `yes`:");
        screen.send("yes\r");
        let (status, said) = screen.finish();
        assert_eq!(status, 0, "{said}");
        Project::cases(run.finish().ok()).answered("case");
    });
}

#[test]
fn an_unknown_question_is_an_error_that_says_what_to_type() {
    each_user(|who| {
        let project = Project::ready(who, &asking(""));
        for verb in [&["show"][..], &["approve"], &["deny"]] {
            for id in ["nobody", "", "../..", "' OR 1=1 --", "\u{1b}[2J"] {
                let mut words = vec!["approvals"];
                words.extend(verb);
                words.push(id);
                let said = project.ringfence(&words).expect(1).says(&["ringfence approvals list"]);
                assert!(!said.stderr.contains('\u{1b}'), "{:?}", said.stderr);
            }
        }
    });
}

#[test]
fn nothing_that_somebody_wrote_into_the_database_acts_on_a_terminal() {
    each_user(|who| {
        let project = project(who, &asking(""), &call("{}"));
        let run = start(&project);
        let question = waiting(&project, 1).remove(0);
        let id = text(&question, "id").to_owned();
        let poison = r#"
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
bad = "\x1b[2k\x1b]0;x\x07\x9b31m\r\u202eevil"
row = db.execute("SELECT ticket, digest FROM approval_questions").fetchone()
ticket = json.loads(row[0])
for standing in ("pending", "denied"):
    for key in ticket:
        if isinstance(ticket[key], str) and key != "expires":
            ticket[key] = bad + standing
    columns = {"id": bad + standing, "run": bad, "standing": standing, "digest": bad, "created_ms": 1,
        "expires_ms": 1 << 60, "ticket": json.dumps(ticket), "arguments": bad, "characters": 3,
        "answered_by": bad, "channel": bad, "reason": bad, "answered_ms": 1, "other_params": bad}
    names = ", ".join(columns)
    marks = ", ".join("?" * len(columns))
    db.execute(f"INSERT INTO approval_questions ({names}) VALUES ({marks})", list(columns.values()))
db.execute("UPDATE approval_questions SET answered_by = ?, channel = ? WHERE id = ?", (bad, bad, sys.argv[2]))
db.commit()
"#;
        let database = project.state().join("state.db").display().to_string();
        project.shell(&[PYTHON, "-c", poison, &database, &id]).ok().done();
        let bad = "\u{1b}[2k\u{1b}]0;x\u{7}\u{9b}31m\r\u{202e}evil";
        let (pending, denied) = (format!("{bad}pending"), format!("{bad}denied"));
        for words in [
            vec!["list"],
            vec!["list", "--all"],
            vec!["list", "--all", "--json"],
            vec!["show", &id],
            vec!["show", &pending],
            vec!["show", &denied],
            vec!["show", &denied, "--full"],
            vec!["show", &denied, "--json"],
            vec!["approve", &pending],
            vec!["approve", &denied],
            vec!["approve", &denied, "--yes", "--digest", "sha256:0"],
            vec!["deny", &pending],
            vec!["deny", &denied],
        ] {
            let all = [&["approvals"], &words[..]].concat();
            let output = project.ringfence(&all);
            let said = format!("{}{}", output.stdout, output.stderr);
            let acts = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
            assert!(!said.contains(acts), "{words:?}: {said:?}");
        }
        let list = project.ringfence(&["approvals", "list"]).ok().stdout;
        assert!(list.contains("\\u{1b}[2k") && list.contains("\\u{202e}evil"), "control: {list}");
        // Nor is anything said yes to that was not asked.
        project
            .ringfence(&["approvals", "approve", &pending])
            .expect(255)
            .says(&["cannot be read"])
            .done();
        approve(&project, &question);
        Project::cases(run.finish().ok()).answered("case");
    });
}
