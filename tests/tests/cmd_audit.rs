//! `ringfence audit`; what verify finds is in `redteam_evidence.rs`.

use ringfence_tests::{Project, each_user};

use crate::bundles::SMALL;

#[test]
fn verify_checks_all_runs_or_one() {
    each_user(|who| {
        let project = Project::ready(who, SMALL);
        project.ringfence(&["audit", "verify"]).ok().done();
        project.run(&["true"]).ok().done();
        project.run(&["true"]).ok().done();
        let all = project.ringfence(&["audit", "verify", "--json"]).ok().json();
        assert!(all.is_object(), "{all}");
        let runs = project.runs();
        for id in &runs {
            project.ringfence(&["audit", "verify", "--run", id]).ok().done();
        }
        // One changed run does not make the other one wrong.
        let path = project.state().join("runs").join(&runs[0]).join("events.jsonl");
        let text = std::fs::read_to_string(&path).expect("the record");
        std::fs::write(&path, text.replacen("run_started", "run_startle", 1))
            .expect("our own file");
        project.ringfence(&["audit", "verify"]).expect(1).done();
        project.ringfence(&["audit", "verify", "--run", &runs[0]]).expect(1).done();
        project.ringfence(&["audit", "verify", "--run", &runs[1]]).ok().done();
    });
}

#[test]
fn verify_asks_whose_signature_it_is() {
    each_user(|who| {
        let project = Project::ready(who, SMALL);
        project.run(&["true"]).ok().done();
        let record =
            std::fs::read_to_string(project.last_run().join("events.jsonl")).expect("the record");
        let at = record.find("did:key:").expect("the signer is named");
        let did: String = record[at..].chars().take_while(|c| *c != '"').collect();
        project.ringfence(&["audit", "verify", "--did", &did]).ok().done();
        let other = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK";
        project.ringfence(&["audit", "verify", "--did", other]).expect(1).done();
        let nonsense = project.ringfence(&["audit", "verify", "--did", "nonsense"]);
        assert!([1, 2].contains(&nonsense.status), "{}", nonsense.stderr);
    });
}
