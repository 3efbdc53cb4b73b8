use ringfence_bundle::Kind;

use super::{Deliverable, File, PriorTrust};
use crate::store::tests::Scene;
use crate::{Error, State};

const MANIFEST: &str = "version = 1\n\n[instructions.team]\npath = \"./team.md\"\n";
const MORE: &str = "\n[instructions.more]\npath = \"./more.md\"\n";

/// A command that adds something: it writes manifest and lock, and notes what it wrote.
fn add(scene: &Scene, prior: &mut PriorTrust) {
    scene.write("more.md", "Be brief.\n");
    let manifest = format!("{MANIFEST}{MORE}");
    scene.write("ringfence.toml", &manifest);
    prior.wrote(File::Manifest, manifest.as_bytes());
    scene.lock();
    prior.wrote(File::Lock, &std::fs::read(scene.path("ringfence.lock")).unwrap());
}

fn judge(scene: &Scene, prior: &PriorTrust, kind: Kind) -> Result<Deliverable, Error> {
    prior.judge(&scene.store, scene.snapshot(), None, kind)
}

#[test]
fn a_command_does_not_refuse_itself_and_pins_nothing() {
    let scene = Scene::of(MANIFEST);
    scene.grant().unwrap();
    let mut prior = PriorTrust::capture(&scene.review());
    let before = std::fs::read(scene.home.join("trust.json")).unwrap();
    add(&scene, &mut prior);
    assert!(matches!(judge(&scene, &prior, Kind::Instruction), Ok(Deliverable::Prior(_))));
    assert!(matches!(judge(&scene, &prior, Kind::Skill), Ok(Deliverable::Prior(_))));
    assert_eq!(std::fs::read(scene.home.join("trust.json")).unwrap(), before, "never re-pins");
    assert_eq!(scene.state(), State::Changed, "the next command asks");
    assert!(matches!(scene.check(), Err(Error::Changed { .. })));
    let next = PriorTrust::capture(&scene.review());
    assert!(judge(&scene, &next, Kind::Skill).is_err(), "and is not relaxed either");
    scene.grant().unwrap();
    assert!(matches!(judge(&scene, &prior, Kind::Skill), Ok(Deliverable::Trusted(_))), "control");
}

#[test]
fn strict_is_the_default_and_relaxes_nothing() {
    let scene = Scene::of(MANIFEST);
    scene.grant().unwrap();
    for mut prior in [PriorTrust::default(), PriorTrust::STRICT] {
        add(&scene, &mut prior);
        assert!(matches!(judge(&scene, &prior, Kind::Skill), Err(Error::Changed { .. })));
    }
    scene.grant().unwrap();
    assert!(judge(&scene, &PriorTrust::STRICT, Kind::Skill).is_ok(), "control");
}

#[test]
fn it_authorises_nothing_that_was_not_trusted_before() {
    let scene = Scene::of(MANIFEST);
    let mut prior = PriorTrust::capture(&scene.review());
    add(&scene, &mut prior);
    assert!(matches!(judge(&scene, &prior, Kind::Skill), Err(Error::Untrusted { .. })));

    let scene = Scene::of(MANIFEST);
    scene.grant().unwrap();
    scene.write("team.md", "Be cruel.\n");
    let mut prior = PriorTrust::capture(&scene.review());
    add(&scene, &mut prior);
    assert!(judge(&scene, &prior, Kind::Skill).is_err(), "it was changed at the start");
}

#[test]
fn what_somebody_else_wrote_meanwhile_is_judged_as_ever() {
    for (file, text) in [
        ("ringfence.toml", format!("{MANIFEST}{MORE}# theirs\n")),
        ("ringfence.local.toml", "[limits]\nmax_duration_seconds = 5\n".to_owned()),
        ("team.md", "Be cruel.\n".to_owned()),
    ] {
        let scene = Scene::of(MANIFEST);
        scene.grant().unwrap();
        let mut prior = PriorTrust::capture(&scene.review());
        add(&scene, &mut prior);
        judge(&scene, &prior, Kind::Skill).expect("control");
        scene.write(file, &text);
        assert!(judge(&scene, &prior, Kind::Skill).is_err(), "{file}");
    }
    let scene = Scene::of(MANIFEST);
    scene.grant().unwrap();
    let mut prior = PriorTrust::capture(&scene.review());
    add(&scene, &mut prior);
    scene.store.revoke(&scene.project, &scene.log).unwrap();
    assert!(matches!(judge(&scene, &prior, Kind::Skill), Err(Error::Untrusted { .. })));
}

#[test]
fn hooks_take_no_relaxation() {
    let scene = Scene::of(MANIFEST);
    scene.grant().unwrap();
    let mut prior = PriorTrust::capture(&scene.review());
    add(&scene, &mut prior);
    assert!(matches!(judge(&scene, &prior, Kind::Hook), Err(Error::Changed { .. })));
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Hook) {
        judge(&scene, &prior, kind).expect("control");
    }
    scene.grant().unwrap();
    judge(&scene, &prior, Kind::Hook).expect("after the full ceremony");
}
