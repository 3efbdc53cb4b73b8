use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::Replacement;
use crate::{Error, MachinePolicy, Preset};

fn preset(name: &str) -> &'static Preset {
    Preset::named(name).unwrap()
}

fn apply(home: &Path, name: &str) -> Replacement {
    let change = Replacement::with(home, preset(name)).unwrap();
    change.apply().unwrap();
    change
}

fn reason<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Replace { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_first_file_and_back_to_none() {
    let root = tempfile::tempdir().unwrap();
    let home = root.path().join("a/home");
    let change = apply(&home, "developer");
    assert!(change.old.is_none() && change.changes());
    assert!(change.diff().iter().all(|line| line.starts_with('+')));
    let file = home.join("machine.toml");
    assert_eq!(fs::read_to_string(&file).unwrap(), preset("developer").text);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&home), mode(&file)), (0o700, 0o600));
    assert!(MachinePolicy::load(&home).is_ok());
    Replacement::undo(&home).unwrap().apply().unwrap();
    assert!(!file.exists());
    assert_eq!(reason(Replacement::undo(&home)), "nothing was put away to take back");
}

#[test]
fn each_step_is_taken_back_byte_for_byte() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("machine.toml");
    let odd = "# mine\r\n[policy]   \nisolation='network'\n\n\n# end, no line end";
    fs::write(&file, odd).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    apply(home.path(), "ci");
    apply(home.path(), "compatible");
    fs::write(&file, "# edited since\n").unwrap();
    let undo = || Replacement::undo(home.path()).unwrap().apply().unwrap();
    let kept = undo().expect("what is taken back is kept");
    assert_eq!(fs::read_to_string(kept).unwrap(), "# edited since\n");
    assert_eq!(fs::read_to_string(&file).unwrap(), preset("ci").text);
    undo();
    assert_eq!(fs::read_to_string(&file).unwrap(), odd);
    assert!(Replacement::undo(home.path()).is_err());
    let left: Vec<_> =
        fs::read_dir(home.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left.len(), 3, "the file, and what each undo took away: {left:?}");
}

#[test]
fn no_edit_is_lost_by_the_next_undo() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("machine.toml");
    for edit in ["# one\n", "# two\n", "# one\n"] {
        apply(home.path(), "ci");
        fs::write(&file, edit).unwrap();
        let kept = Replacement::undo(home.path()).unwrap().apply().unwrap().unwrap();
        assert_eq!(fs::read_to_string(kept).unwrap(), edit);
    }
    let undone = |name: &str| fs::read_to_string(home.path().join(name)).unwrap();
    assert_eq!(undone("machine.toml.undone"), "# one\n");
    assert_eq!(undone("machine.toml.undone-2"), "# two\n");
    assert!(!home.path().join("machine.toml.undone-3").exists(), "the same bytes are kept once");
}

#[test]
fn the_guards_own_table_stays() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("machine.toml");
    for guard in [
        "[guard]\n# why\nanything = { goes = [1, 2] }   # so\n\n[guard.more]\nx = 1",
        "guard.a = 1\nguard.b = \"x\"",
        "guard = { a = 1 }",
        "[[guard.list]]\na = 1\n\n[[guard.list]]\na = 2",
    ] {
        let first = guard.starts_with("guard");
        let text = if first {
            format!("{guard}\n[policy]\nallow_execute = true\n")
        } else {
            format!("[policy]\nallow_execute = true\n\n{guard}\n")
        };
        fs::write(&file, &text).unwrap();
        match Replacement::with(home.path(), preset("developer")) {
            Ok(change) => {
                let new = String::from_utf8(change.new.clone().unwrap()).unwrap();
                assert!(new.starts_with(preset("developer").text.trim_end()));
                assert!(!new.contains("allow_execute"));
                let value =
                    |text: &str| text.parse::<toml_edit::DocumentMut>().unwrap()["guard"].clone();
                let plain =
                    |item: toml_edit::Item| item.to_string().split_whitespace().collect::<String>();
                assert_eq!(plain(value(&new)), plain(value(&text)), "{guard}");
            }
            // What cannot be kept is refused, not lost.
            Err(error) => {
                assert!(first, "{guard}: {error}");
                assert!(error.to_string().contains("[guard]"), "{error}");
            }
        }
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            text,
            "nothing is done before it is applied"
        );
    }
    fs::write(&file, "[guard]\n# why\na = 1 # so\n").unwrap();
    apply(home.path(), "ci");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.ends_with("[guard]\n# why\na = 1 # so\n"), "{text}");
    // And again, and it does not grow.
    apply(home.path(), "ci");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn where_shared_state_is_stays_too() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("machine.toml");
    let tables = "[guard]\na = 1\n\n[state]   # many hosts\nurl_ref = \"LEDGER_URL\"\n";
    fs::write(&file, format!("[policy]\nallow_execute = true\n\n{tables}")).unwrap();
    apply(home.path(), "ci");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.ends_with(tables) && !text.contains("allow_execute = true"), "{text}");
    let policy = MachinePolicy::load(home.path()).unwrap();
    assert_eq!(policy.state_url_ref.unwrap().as_str(), "LEDGER_URL");
}

#[test]
fn what_was_shown_is_what_is_replaced() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("machine.toml");
    fs::write(&file, "[policy]\n").unwrap();
    let change = Replacement::with(home.path(), preset("ci")).unwrap();
    fs::write(&file, "[policy]\nallow_execute = false\n").unwrap();
    assert!(reason(change.apply()).contains("no longer"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "[policy]\nallow_execute = false\n");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn what_is_no_plain_file_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("machine.toml");
    let with = || reason(Replacement::with(home.path(), preset("ci")));
    fs::write(&file, "[policy").unwrap();
    assert!(with().contains("does not parse"));
    fs::write(&file, b"\xff").unwrap();
    assert!(with().contains("UTF-8"));
    fs::write(&file, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(with().contains("larger"));
    fs::remove_file(&file).unwrap();
    symlink("elsewhere", &file).unwrap();
    assert!(with().contains("symlink"));
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(with().contains("regular file"));
    fs::remove_dir(&file).unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(with().contains("written by others"));
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
    apply(home.path(), "ci");
}

#[test]
fn the_oldest_is_let_go() {
    let home = tempfile::tempdir().unwrap();
    for n in 0..60 {
        apply(home.path(), if n % 2 == 0 { "ci" } else { "developer" });
    }
    let kept = fs::read_dir(home.path()).unwrap().count() - 1;
    assert_eq!(kept, super::MOST);
    Replacement::undo(home.path()).unwrap().apply().unwrap();
    let text = fs::read_to_string(home.path().join("machine.toml")).unwrap();
    assert_eq!(text, preset("ci").text);
}
