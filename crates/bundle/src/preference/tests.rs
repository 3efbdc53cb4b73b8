use std::fs;

use super::{Layer, preferences, set_preference};
use crate::{Snapshot, write_layer};

const TEXT: &str = "# mine\nversion = 1 # one\n\n[delivery] # where\nrender_locally = false # not yet\n\n[agent]\nname = \"a\"\n";

fn bundle() -> (tempfile::TempDir, Snapshot) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join(".ringfence")).unwrap();
    fs::write(folder.path().join(".ringfence/ringfence.toml"), TEXT).unwrap();
    let snapshot = Snapshot::read(folder.path()).unwrap();
    (folder, snapshot)
}

#[test]
fn a_value_is_set_in_place_and_all_else_stays() {
    let (_folder, snapshot) = bundle();
    let set = |layer, key, value| set_preference(&snapshot, layer, key, value).unwrap();
    let list = set(Layer::Manifest, "delivery.render_locally", "[\"codex\"]");
    assert_eq!(list, TEXT.replace("= false #", "= [\"codex\"] #"));
    let meta = set(Layer::Manifest, "meta.gitignore", "true");
    assert_eq!(meta, format!("{TEXT}\n[meta]\ngitignore = true\n"));
    let overlay = set(Layer::Overlay, "meta.gitignore", " true ");
    assert_eq!(overlay, "[meta]\ngitignore = true\n");
    assert_eq!(preferences(), ["delivery.render_locally", "meta.gitignore"]);
}

#[test]
fn nothing_else_can_be_set_or_slipped_in() {
    let (_folder, snapshot) = bundle();
    for (key, value) in [
        ("sandbox.command", "[\"x\"]"),
        ("delivery", "{}"),
        ("delivery.other", "true"),
        ("meta.gitignore.x", "true"),
        ("META.gitignore", "true"),
        ("meta.gitignore", "3"),
        ("meta.gitignore", ""),
        ("meta.gitignore", "yes"),
        ("meta.gitignore", "true # more"),
        ("meta.gitignore", "true\n[agent]\nname = \"b\""),
        ("meta.gitignore", "true, x = 1"),
        ("delivery.render_locally", "{ a = 1 }"),
    ] {
        assert!(set_preference(&snapshot, Layer::Manifest, key, value).is_err(), "{key} {value}");
    }
    set_preference(&snapshot, Layer::Manifest, "meta.gitignore", "true").expect("control");
}

#[test]
fn a_file_that_somebody_else_wrote_meanwhile_is_not_written_over() {
    let (folder, snapshot) = bundle();
    let file = folder.path().join(".ringfence/ringfence.toml");
    fs::write(&file, "version = 1\n").unwrap();
    write_layer(&snapshot, Layer::Manifest, TEXT).expect_err("other bytes");
    assert_eq!(fs::read_to_string(&file).unwrap(), "version = 1\n");
    fs::write(&file, TEXT).unwrap();
    write_layer(&snapshot, Layer::Manifest, "version = 1\n").expect("control");
    write_layer(&snapshot, Layer::Overlay, "version = 1\n").expect("there is none yet");
}
