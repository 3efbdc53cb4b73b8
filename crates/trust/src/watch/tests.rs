use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{SETTLED, Watch};
use crate::store::tests::Scene;

/// What is looked at has been quiet for long enough to be remembered.
fn watched() -> (Scene, Watch) {
    let (scene, bundle) = Scene::trusted();
    let watch = Watch::new(scene.store.clone(), Arc::new(bundle));
    let patience = Instant::now() + Duration::from_secs(10);
    while watch.seen.lock().unwrap().is_none() {
        assert!(watch.holds() && Instant::now() < patience);
    }
    (scene, watch)
}

fn in_place(path: &std::path::Path, text: &str) {
    use std::io::Write as _;
    let mut file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_byte_that_changed_is_seen_at_once_whatever_the_file_says_of_its_time() {
    let (scene, watch) = watched();
    let path = scene.path("ringfence.toml");
    let (text, times) = {
        let metadata = path.metadata().unwrap();
        (std::fs::read_to_string(&path).unwrap(), metadata.modified().unwrap())
    };
    assert!(watch.holds());
    // As long, in place, and dated back.
    in_place(&path, &text.replace("team", "meat"));
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(times).unwrap();
    assert!(!watch.holds());
    in_place(&path, &text);
    assert!(watch.holds(), "control");
}

#[test]
fn each_file_and_folder_is_looked_at() {
    type Change = fn(&Scene);
    let changes: [(&str, Change); 6] = [
        ("another overlay", |scene| scene.write("ringfence.local.toml", "# \n")),
        ("no lock", |scene| std::fs::remove_file(scene.path("ringfence.lock")).unwrap()),
        ("a lock through a link", |scene| {
            let (path, other) = (scene.path("ringfence.lock"), scene.folder.path().join("lock"));
            std::fs::rename(&path, &other).unwrap();
            symlink(other, path).unwrap();
        }),
        ("the folder through a link", |scene| {
            let (path, other) = (scene.project.join(".ringfence"), scene.folder.path().join("x"));
            std::fs::rename(&path, &other).unwrap();
            symlink(other, path).unwrap();
        }),
        ("no store", |scene| std::fs::remove_file(scene.home.join("trust.json")).unwrap()),
        ("revoked", |scene| {
            scene.store.revoke(&scene.project, &scene.log).unwrap();
        }),
    ];
    for (name, change) in changes {
        let (scene, watch) = watched();
        assert!(watch.holds(), "control: {name}");
        change(&scene);
        assert!(!watch.holds(), "{name}");
    }
}

#[test]
fn a_look_is_good_for_a_millisecond_and_no_longer() {
    let (scene, watch) = watched();
    let deadline = Instant::now() + Duration::from_secs(10);
    // On a busy machine the millisecond may be over before the second look: then once more.
    let looked_once = || {
        assert!(watch.holds());
        let begun = watch.seen.lock().unwrap().as_ref().map(|seen| seen.looked);
        assert!(watch.holds_now());
        begun.is_some() && watch.seen.lock().unwrap().as_ref().map(|seen| seen.looked) == begun
    };
    while !looked_once() {
        assert!(Instant::now() < deadline);
    }
    std::fs::remove_file(scene.path("ringfence.lock")).unwrap();
    let removed = Instant::now();
    while watch.holds_now() {
        assert!(removed.elapsed() < Duration::from_secs(1));
    }
    assert!(!watch.holds_now());
}

#[test]
fn what_has_just_changed_is_not_remembered() {
    let (scene, watch) = watched();
    let text = std::fs::read_to_string(scene.path("ringfence.toml")).unwrap();
    // On a busy machine a moment may be long: then it is tried again.
    let tried = (0..100).any(|_| {
        let begun = Instant::now();
        in_place(&scene.path("ringfence.toml"), &text);
        assert!(watch.holds());
        let remembered = watch.seen.lock().unwrap().is_some();
        let in_time = begun.elapsed() < SETTLED;
        assert!(!(in_time && remembered));
        in_time
    });
    assert!(tried);
}
