use std::path::PathBuf;

use ringfence_bundle::{Snapshot, Whose};
use ringfence_record::{Event, VerifyOptions, verify};

use super::{Carried, TrustCarry};
use crate::State;
use crate::store::tests::Scene;

const MANIFEST: &str =
    "version = 1\n\n[instructions.team]\npath = \"./team.md\"\n\n[policy.tools]\n\"*\" = [\"*\"]\n";
const PREFERENCE: &str = "[delivery]\nrender_locally = [\"codex\"]\n";

fn trusted() -> Scene {
    let scene = Scene::of(MANIFEST);
    scene.grant().unwrap();
    scene
}

/// The preference before everything else, so that every line of the rest moves.
fn with_preference() -> String {
    MANIFEST.replacen("\n\n", &format!("\n\n{PREFERENCE}\n"), 1)
}

fn carry(scene: &Scene, file: &str, text: &str) -> Option<Carried> {
    let carry = TrustCarry::capture(&scene.review())?;
    scene.write(file, text);
    Some(carry.carry(&scene.store, &scene.path(file), text.as_bytes(), &scene.log).unwrap())
}

fn refused(carried: Option<Carried>, why: &str) {
    match carried {
        Some(Carried::No(reason)) => assert!(reason.contains(why), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_preference_carries_trust_and_says_so() {
    for (file, text) in [
        ("ringfence.toml", with_preference()),
        ("ringfence.toml", format!("{MANIFEST}\n[meta]\ngitignore = true\n# why not\n")),
        ("ringfence.local.toml", PREFERENCE.to_owned()),
    ] {
        let scene = trusted();
        assert_eq!(carry(&scene, file, &text), Some(Carried::Yes), "{file}");
        assert_eq!(scene.state(), State::Trusted, "{file}");
        scene.check().expect("still trusted");
        let events = scene.events();
        let consent = scene.snapshot().consent_digest().to_string();
        assert!(events.iter().any(|event| matches!(event,
            Event::TrustIntended { action, consent: told, .. }
                if action == "carry" && *told == consent)));
        assert!(verify(&scene.home, &VerifyOptions::default()).unwrap().findings.is_empty());
    }
}

#[test]
fn it_never_makes_trust() {
    let scene = Scene::of(MANIFEST);
    assert_eq!(carry(&scene, "ringfence.toml", &with_preference()), None);
    assert_eq!(scene.state(), State::Untrusted);
}

#[test]
fn it_never_settles_a_change_that_waits_for_review() {
    let scene = trusted();
    scene.write("ringfence.toml", &format!("{MANIFEST}# a change\n"));
    assert_eq!(carry(&scene, "ringfence.local.toml", PREFERENCE), None);
    assert_eq!(scene.state(), State::Changed);
    // A pin that does not hold waits as well.
    let scene = trusted();
    scene.write("team.md", "Be cruel.\n");
    assert_eq!(carry(&scene, "ringfence.local.toml", PREFERENCE), None);
    // And so does a grant that was taken back between.
    let scene = trusted();
    let held = TrustCarry::capture(&scene.review()).unwrap();
    scene.store.revoke(&scene.project, &scene.log).unwrap();
    let file = scene.path("ringfence.local.toml");
    let carried = held.carry(&scene.store, &file, PREFERENCE.as_bytes(), &scene.log).unwrap();
    refused(Some(carried), "meanwhile");
    assert!(scene.store.grants().unwrap().is_empty());
}

#[test]
fn it_never_blesses_a_race() {
    let scene = trusted();
    let held = TrustCarry::capture(&scene.review()).unwrap();
    let ours = with_preference();
    // Ours is written, and then somebody else's.
    scene.write("ringfence.toml", &format!("{ours}\n[sandbox]\ncommand = [\"evil\"]\n"));
    let file = scene.path("ringfence.toml");
    let carried = held.carry(&scene.store, &file, ours.as_bytes(), &scene.log).unwrap();
    assert_eq!(carried, Carried::Yes, "for our bytes, and no others");
    assert_eq!(scene.state(), State::Changed, "which are not those that are there");
    scene.write("ringfence.toml", &ours);
    assert_eq!(scene.state(), State::Trusted, "control");
    // Another file is raced.
    let scene = trusted();
    let held = TrustCarry::capture(&scene.review()).unwrap();
    scene.write("ringfence.lock", "version = 1\n");
    let file = scene.path("ringfence.toml");
    held.carry(&scene.store, &file, ours.as_bytes(), &scene.log).unwrap();
    assert_eq!(scene.state(), State::Changed);
    assert!(scene.store.check(Snapshot::read(&scene.project).unwrap(), None, Whose::All).is_err());
}

#[test]
fn it_is_for_the_two_layers_alone() {
    let scene = trusted();
    let elsewhere: Vec<PathBuf> = vec![
        scene.path("ringfence.lock"),
        scene.path("team.md"),
        scene.path("../ringfence.toml"),
        scene.path("x/../ringfence.toml"),
        scene.project.join("ringfence.toml"),
        "ringfence.toml".into(),
        ".ringfence/ringfence.toml".into(),
        "/etc/ringfence.toml".into(),
    ];
    let text = with_preference();
    for file in elsewhere {
        let held = TrustCarry::capture(&scene.review()).unwrap();
        let carried = held.carry(&scene.store, &file, text.as_bytes(), &scene.log).unwrap();
        refused(Some(carried), "not one of the two layers");
    }
    assert_eq!(scene.state(), State::Trusted, "nothing happened");
    assert_eq!(carry(&scene, "ringfence.toml", &text), Some(Carried::Yes), "control");
}

#[test]
fn anything_but_a_preference_is_no_carry() {
    for more in [
        "[sandbox]\ncommand = [\"evil\"]\n",
        "[hooks.x]\nevent = \"post_tool_use\"\ncommand = \"evil\"\n",
        "[settings.claude-code]\nmodel = \"opus\"\n",
        "[policy.secrets]\n\"*\" = [\"X\"]\n",
        "[limits]\nmax_duration_seconds = 5\n",
        "[toolsets.t]\ndefault = true\n",
        "[agent]\nname = \"other\"\n",
    ] {
        let scene = trusted();
        let text = format!("{}\n{more}", with_preference());
        refused(carry(&scene, "ringfence.toml", &text), "more than");
        assert_eq!(scene.state(), State::Changed, "{more}");
        let scene = trusted();
        refused(carry(&scene, "ringfence.local.toml", &format!("{PREFERENCE}{more}")), "more than");
    }
    let scene = trusted();
    refused(carry(&scene, "ringfence.toml", "version = 1\nnonsense"), "not a valid manifest");
    let scene = trusted();
    let widened = with_preference().replace("= [\"*\"]", "= [\"x\"]");
    refused(carry(&scene, "ringfence.toml", &widened), "more than");
}
