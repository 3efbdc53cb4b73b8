use std::collections::BTreeMap;
use std::fs;

use ringfence_bundle::{Kind, Lock, Reason, Snapshot};

use super::{moved, resolve};
use crate::{Library, Store};

#[test]
fn a_library_source_is_what_the_folder_holds_now_or_what_is_pinned() {
    let home = tempfile::tempdir().unwrap();
    let (state, folder) = (home.path().join("state"), home.path().join("mine"));
    let project = home.path().join("project");
    for path in [&folder.join("skills/sum"), &project.join(".ringfence")] {
        fs::create_dir_all(path).unwrap();
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&folder, mode).unwrap();
    fs::write(folder.join("skills/sum/SKILL.md"), "first").unwrap();
    let manifest = "version = 1\n[skills.s]\nlibrary = \"mine:sum\"\n";
    fs::write(project.join(".ringfence/ringfence.toml"), manifest).unwrap();
    let store = Store::of(&state);
    let mut library = Library::open(&state).unwrap();

    let snapshot = Snapshot::read(&project).unwrap();
    let error = resolve(&snapshot, &store, &library, None).unwrap_err();
    assert!(
        matches!(&error, crate::Error::Bundle(ringfence_bundle::Error::Invalid(found))
        if found[0].at.as_ref().is_some_and(|at| at.line == 2)),
        "{error:?}"
    );

    library.link("mine".to_owned().try_into().unwrap(), &folder).unwrap();
    let lock = |snapshot: &Snapshot, library: &Library| {
        let found = resolve(snapshot, &store, library, None).unwrap();
        let drift = snapshot.drift(store.objects()).unwrap();
        let moved = moved(drift, snapshot.lock.as_ref(), &found);
        let lock = Lock::compute(snapshot, store.objects(), &found).unwrap();
        ringfence_bundle::write_lock(snapshot, &lock.render()).unwrap();
        (moved, lock.digest(Kind::Skill, "s").unwrap())
    };
    let (rows, first) = lock(&snapshot, &library);
    assert_eq!((rows[0].reason, rows[0].found), (Reason::Unpinned, Some(first)));
    let (rows, _) = lock(&Snapshot::read(&project).unwrap(), &library);
    assert_eq!(rows, []);
    fs::write(folder.join("skills/sum/SKILL.md"), "second").unwrap();
    // Until it is locked, what is pinned holds.
    assert_eq!(Snapshot::read(&project).unwrap().drift(store.objects()).unwrap(), []);
    let (rows, second) = lock(&Snapshot::read(&project).unwrap(), &library);
    assert_eq!(
        (rows[0].reason, rows[0].pinned, rows[0].found),
        (Reason::Changed, Some(first), Some(second))
    );
    // Without the folder, what is pinned and kept stays.
    library.unlink("mine").unwrap();
    let (rows, third) = lock(&Snapshot::read(&project).unwrap(), &library);
    assert_eq!((rows, third), (Vec::new(), second));
    fs::remove_dir_all(state.join("store")).unwrap();
    let snapshot = Snapshot::read(&project).unwrap();
    assert!(resolve(&snapshot, &store, &library, None).is_err());
    assert!(Lock::compute(&snapshot, store.objects(), &BTreeMap::new()).is_err());
}
