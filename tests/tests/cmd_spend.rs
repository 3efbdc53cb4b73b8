//! `ringfence spend`

use ringfence_tests::{Ledger, PYTHON, Postgres, Project, each_user};

#[test]
fn it_shows_what_is_spent_and_what_is_left() {
    each_user(|who| {
        let project = Project::new(who);
        let none = project.ringfence(&["spend"]).ok();
        assert!(none.stderr.contains("nothing is spent") && none.stdout.is_empty());
        assert!(!project.state().join("state.db").exists(), "looking makes nothing");
        let ledger = Ledger::of(&project, None);
        assert_eq!(ledger.spend("run-a", "0.50 1.00 -", "0.05", "4", 2).said().len(), 5);
        assert_eq!(ledger.spend("run-b", "0.50 1.00 -", "0.05", "-", 1).said().len(), 2);

        let json = project.ringfence(&["spend", "--json"]).ok().json();
        let sum = |kind: &str| {
            let sums = json["sums"].as_array().expect("sums");
            let mut sums = sums.iter().filter(|sum| sum["kind"] == kind);
            sums.next().unwrap_or_else(|| panic!("{kind}: {json}")).clone()
        };
        let day = sum("day");
        assert_eq!(
            [&day["cap_usd"], &day["spent_usd"], &day["reserved_usd"], &day["left_usd"]],
            ["1.00", "0.08", "0.05", "0.87"]
        );
        assert_eq!(sum("month")["cap_usd"], serde_json::Value::Null);
        assert_eq!(json["version"], 1);
        assert_eq!(json["calls"].as_array().expect("calls").len(), 3);

        let shown = project.ringfence(&["spend"]).ok().stdout;
        for part in ["did:key:zA", "set aside", "run run-a", "0.87", "s.t", "last calls"] {
            assert!(shown.contains(part), "{part}\n{shown}");
        }
        let one = project.ringfence(&["spend", "--run", "run-a", "--json"]).ok().json();
        assert_eq!(one["calls"].as_array().expect("calls").len(), 2);
        assert_eq!(one["sums"].as_array().expect("sums").len(), 1);
        let nobody = project.ringfence(&["spend", "--did", "did:key:zB", "--json"]).ok().json();
        assert_eq!(nobody["sums"], serde_json::json!([]));
        let later = project.ringfence(&["spend", "--since", "2999-01-01", "--json"]).ok().json();
        assert_eq!(later["calls"], serde_json::json!([]));
        let before = project.ringfence(&["spend", "--since", "2020-01-01", "--json"]).ok().json();
        assert_eq!(before["calls"], json["calls"]);
    });
}

#[test]
fn what_is_no_day_and_what_cannot_be_read_is_said() {
    each_user(|who| {
        let project = Project::new(who);
        for day in ["yesterday", "2026-13-01", "2026-1-1", "2026-11-30T00:00", ""] {
            let said = project.ringfence(&["spend", "--since", day]).expect(1);
            assert!(said.stderr.contains("is not a day such as"), "{}", said.stderr);
        }
        project.state_file("state.db", [b'x'; 8192]);
        let said = project.ringfence(&["spend"]);
        assert!(said.status != 0 && said.stderr.contains("state.db"), "{}", said.stderr);
    });
}

#[test]
fn the_ledger_of_many_hosts_is_named_by_the_machine_alone() {
    let server = Postgres::start();
    let mut project = Project::new(ringfence_tests::Who::Itself);
    let ledger = Ledger::of(&project, Some(&server));
    assert_eq!(ledger.spend("elsewhere", "- 1.00 -", "0.05", "4", 1).said().len(), 3);
    project.machine("[state]\nurl_ref = \"LEDGER_AT\"\n");
    let said = project.ringfence(&["spend"]);
    assert!(said.status != 0 && said.stderr.contains("LEDGER_AT"), "{}", said.stderr);
    project.env("LEDGER_AT", &server.url());
    let json = project.ringfence(&["spend", "--json", "--run", "elsewhere"]).ok().json();
    assert_eq!(json["calls"][0]["cost_usd"], "0.04");
    assert!(json["place"].as_str().expect("a place").starts_with("postgres at /"));
    assert!(!project.state().join("state.db").exists());
    // A bundle has no such key.
    project.manifest("version = 1\n[state]\nurl_ref = \"LEDGER_AT\"\n");
    let said = project.ringfence(&["validate"]).expect(1);
    assert!(said.stdout.contains("state") || said.stderr.contains("state"), "{said:?}");
}

#[test]
fn nothing_that_somebody_wrote_into_the_ledger_acts_on_a_terminal() {
    each_user(|who| {
        let project = Project::new(who);
        let ledger = Ledger::of(&project, None);
        assert_eq!(ledger.spend("run-a", "0.50 1.00 -", "0.05", "4", 1).said().len(), 3);
        let poison = r#"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
bad = "\x1b[2J\x1b]0;x\x07\x9b31m\r\u202eevil"
db.execute("UPDATE spend_calls SET who = ?, run = ?, day = ?, server = ?, tool = ?, result = ?", (bad,) * 6)
db.execute("UPDATE spend_scopes SET who = ?, period = ?||kind", (bad, bad))
db.execute("UPDATE spend_holders SET who = ?, day = ?", (bad, "9" + bad))
db.commit()
"#;
        let database = project.state().join("state.db").display().to_string();
        project.shell(&[PYTHON, "-c", poison, &database]).ok().done();
        let bad = "\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}31m\r\u{202e}evil";
        for words in [
            vec!["spend"],
            vec!["spend", "--json"],
            vec!["spend", "--run", bad],
            vec!["spend", "--did", bad],
            vec!["spend", "--since", bad],
        ] {
            let output = project.ringfence(&words);
            let said = format!("{}{}", output.stdout, output.stderr);
            let acts = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
            assert!(!said.contains(acts), "{words:?}: {said:?}");
        }
        let shown = project.ringfence(&["spend"]).ok();
        assert!(shown.stdout.contains("\\u{1b}[2J"), "control: {}", shown.stdout);
        assert!(shown.stderr.contains("\\u{202e}evil"), "control: {}", shown.stderr);
    });
}
