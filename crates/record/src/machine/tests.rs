use std::io::Write as _;

use ringfence_identity::Signer;

use super::MachineLog;
use crate::testing::{Home, event};
use crate::{Class, Error, Event, Severity, machine_file, read_machine};

/// Set for the copies of this test program that append from their own process.
const CHILD: &str = "RINGFENCE_TEST_APPEND_TO";

fn events(home: &Home) -> Vec<Event> {
    let entries = read_machine(home.path()).unwrap().expect("there is a log");
    let events = entries.map(|entry| entry.expect("a whole line").event);
    events.filter(|event| !matches!(event, Event::Commit { .. })).collect()
}

#[test]
fn appends_chain_and_verify() {
    let home = Home::new();
    assert!(read_machine(home.path()).unwrap().is_none());
    for n in 0..5 {
        assert_eq!(home.log.append(event(n)).unwrap().seq(), n * 2);
    }
    assert_eq!(events(&home), (0..5).map(event).collect::<Vec<_>>());
    let report = home.verify();
    assert_eq!((report.machine_lines, report.findings.len()), (10, 0));
}

#[test]
fn threads_and_logs_take_turns() {
    let home = Home::new();
    let second = MachineLog::open(home.path(), home.signer()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let log = if thread % 2 == 0 { &home.log } else { &second };
            scope.spawn(move || {
                for n in 0..20 {
                    let _receipt = log.append(event(thread * 100 + n)).unwrap();
                }
            });
        }
    });
    let report = home.verify();
    assert_eq!((report.machine_lines, report.findings.len()), (240, 0));
}

/// Does nothing unless it is started by the test below.
#[test]
fn child_that_appends() {
    let Some(home) = std::env::var_os(CHILD) else { return };
    let home = std::path::PathBuf::from(home);
    let log = MachineLog::open(&home, Signer::machine(&home).unwrap()).unwrap();
    for n in 0..20 {
        let _receipt = log.append(event(n)).unwrap();
    }
}

#[test]
fn processes_take_turns() {
    let home = Home::new();
    let program = std::env::current_exe().unwrap();
    let children: Vec<_> = (0..5)
        .map(|_| {
            std::process::Command::new(&program)
                .args(["--exact", "machine::tests::child_that_appends"])
                .env(CHILD, home.path())
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let report = home.verify();
    assert_eq!((report.machine_lines, report.findings.len()), (200, 0));
}

#[test]
fn a_torn_write_is_marked_and_never_written_onto() {
    let home = Home::new();
    for n in 0..3 {
        let _receipt = home.log.append(event(n)).unwrap();
    }
    let path = machine_file(home.path());
    let whole = std::fs::read(&path).unwrap();
    let copy = path.with_file_name(super::HEAD);
    let head = std::fs::read(&copy).unwrap();
    let _receipt = home.log.append(event(3)).unwrap();
    let next = std::fs::read(&path).unwrap()[whole.len()..].to_vec();

    // Places at which the write of a group can have been cut off, and garbage.
    let first = next.iter().position(|byte| *byte == b'\n').unwrap();
    let near =
        |end: &usize| end.is_multiple_of(31) || end.abs_diff(first) < 3 || next.len() - end < 3;
    let ends = (1..next.len()).filter(near);
    let mut tails: Vec<Vec<u8>> = ends.map(|end| next[..end].to_vec()).collect();
    tails.push(b"garbage\nmore\n".to_vec());
    tails.push(vec![0; 9000]);
    for tail in tails {
        std::fs::write(&path, &whole).unwrap();
        std::fs::write(&copy, &head).unwrap();
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(&tail).unwrap();
        let before = std::fs::read(&path).unwrap();
        let _receipt = home.log.append(event(8)).unwrap();
        let _receipt = home.log.append(event(9)).unwrap();

        let after = std::fs::read(&path).unwrap();
        assert!(after.starts_with(&before), "the torn bytes stay");
        let found = home.verify().findings;
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].class, found[0].severity), (Class::Torn, Severity::Warning));
        assert_eq!(found[0].line, Some(7), "the first line behind the last signed one");
        let mut events = events(&home);
        assert!(matches!(events.remove(3), Event::TornLine { .. }));
        assert_eq!(events, [0, 1, 2, 8, 9].map(event));
    }
}

#[test]
fn nothing_is_appended_that_would_hide_a_cut() {
    let home = Home::new();
    for n in 0..4 {
        let _receipt = home.log.append(event(n)).unwrap();
    }
    let path = machine_file(home.path());
    let copy = path.with_file_name(super::HEAD);
    let (good, head) = (std::fs::read_to_string(&path).unwrap(), std::fs::read(&copy).unwrap());
    let lines: Vec<&str> = good.split_inclusive('\n').collect();
    let other = Home::new();
    for n in 0..4 {
        let _receipt = other.log.append(event(n)).unwrap();
    }
    let foreign = std::fs::read(machine_file(other.path()).with_file_name(super::HEAD)).unwrap();
    let shut = |log: &str, head: Option<&[u8]>, what: &str| {
        std::fs::write(&path, log).unwrap();
        drop(std::fs::remove_file(&copy));
        if let Some(head) = head {
            std::fs::write(&copy, head).unwrap();
        }
        let refused = home.log.append(event(9));
        assert!(matches!(refused, Err(Error::Damaged { .. })), "{what}: {refused:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), log, "{what}: nothing is written");
        assert!(!home.verify().intact(), "{what}: it stays in sight");
    };
    for left in [0, 1, 2, 3, 6, 7] {
        shut(&lines[..left].concat(), Some(&head), &format!("cut to {left} lines"));
    }
    shut(&lines[..6].concat(), None, "cut, and the copy is gone");
    shut(&lines[..6].concat(), Some(&foreign), "cut, and a copy by another key");
    shut(&lines[..6].concat(), Some(b""), "cut, and an empty copy");
    shut(&good, None, "the copy is gone");

    std::fs::write(&path, &good).unwrap();
    std::fs::write(&copy, lines[5]).unwrap();
    let _receipt = home.log.append(event(9)).expect("control: a writer was killed before its copy");
    assert!(home.verify().findings.is_empty());
    std::fs::write(&path, lines[..2].concat()).unwrap();
    std::fs::remove_file(&copy).unwrap();
    let _receipt = home.log.append(event(9)).expect("control: killed at the very first append");
    assert!(home.verify().findings.is_empty());
}

#[test]
fn a_new_key_does_not_go_on_with_an_old_log() {
    let home = Home::new();
    let _receipt = home.log.append(event(0)).unwrap();
    let again = MachineLog::of_machine(home.path()).unwrap();
    let _receipt = again.append(event(1)).expect("control: the same key");
    std::fs::remove_dir_all(home.path().join("identities")).unwrap();
    let new = MachineLog::of_machine(home.path()).unwrap();
    let refused = new.append(event(2));
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
}

#[test]
fn a_mark_over_other_bytes_is_no_mark() {
    let home = Home::new();
    let _receipt = home.log.append(event(0)).unwrap();
    let path = machine_file(home.path());
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"torn").unwrap();
    let _receipt = home.log.append(event(1)).unwrap();
    assert!(home.verify().intact(), "control");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\ntorn \n", "\ntore \n")).unwrap();
    let report = home.verify();
    assert!(!report.intact());
    assert!(report.findings.iter().any(|it| it.line == Some(3) && it.class == Class::Edited));
    std::fs::write(&path, text.replace("\ntorn \n", "\n")).unwrap();
    assert!(!home.verify().intact());
}

#[test]
fn a_torn_tear_is_marked_as_a_whole() {
    let home = Home::new();
    let _receipt = home.log.append(event(0)).unwrap();
    let path = machine_file(home.path());
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"torn").unwrap();
    let _receipt = home.log.append(event(1)).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 6, "event, commit, torn, mark, event, commit");
    // The writer that marked was killed too, after its mark.
    std::fs::write(&path, lines[..4].join("\n") + "\n" + &lines[4][..50]).unwrap();
    let copy = path.with_file_name(super::HEAD);
    std::fs::write(&copy, format!("{}\n", lines[1])).unwrap();
    let _receipt = home.log.append(event(2)).unwrap();
    let found = home.verify().findings;
    assert!(
        found.iter().all(|it| it.class == Class::Torn || it.class == Class::MissingLine),
        "{found:?}"
    );
    assert_eq!(events(&home).last(), Some(&event(2)));
}

#[test]
fn a_log_that_others_may_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    let log = home.path().join("log");
    std::fs::set_permissions(&log, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(MachineLog::open(home.path(), home.signer()), Err(Error::Folder(_))));
    std::fs::set_permissions(&log, std::fs::Permissions::from_mode(0o700)).unwrap();
    MachineLog::open(home.path(), home.signer()).expect("control: mended");
}

#[test]
fn a_log_behind_a_symlink_is_not_written_to() {
    let home = Home::new();
    let elsewhere = home.path().join("elsewhere");
    std::fs::write(&elsewhere, "").unwrap();
    std::os::unix::fs::symlink(&elsewhere, machine_file(home.path())).unwrap();
    assert!(matches!(home.log.append(event(0)), Err(Error::Write { .. })));
    assert_eq!(std::fs::read(&elsewhere).unwrap(), b"");
}
