use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::prepare_home;
use crate::Error;

#[test]
fn a_missing_home_is_made_private() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("a/b");
    prepare_home(&home).expect("made");
    let mode = home.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_home_that_others_can_write_to_is_refused_with_a_hint() {
    let home = tempfile::tempdir().unwrap();
    set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
    prepare_home(home.path()).expect("control: others may read it");
    for mode in [0o770, 0o707, 0o720, 0o702] {
        set_permissions(home.path(), Permissions::from_mode(mode)).unwrap();
        let error = prepare_home(home.path()).expect_err("writable by others");
        assert!(matches!(&error, Error::Unsafe { .. }));
        assert!(error.to_string().contains("chmod 700"), "{error}");
    }
}

#[test]
fn a_symlink_or_file_is_not_a_home() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("real");
    prepare_home(&real).unwrap();
    symlink(&real, folder.path().join("link")).unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    for name in ["link", "file"] {
        let error = prepare_home(&folder.path().join(name)).expect_err(name);
        assert!(matches!(error, Error::Unsafe { .. }));
    }
}
