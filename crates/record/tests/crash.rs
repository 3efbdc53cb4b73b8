//! A supervisor that is killed, and a disk that is full: with real processes and a real file system.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ringfence_identity::Signer;
use ringfence_record::{
    Class, Error, Event, MachineLog, Recorder, Report, RunId, RunState, VerifyOptions, list_runs,
    machine_file, read_run, run_file, verify,
};

/// Names the home for the copies of this program that act in their own process.
const HOME: &str = "RINGFENCE_TEST_HOME";

fn home_of_child() -> Option<PathBuf> {
    std::env::var_os(HOME).map(PathBuf::from)
}

fn recorder(home: &Path) -> (Recorder, MachineLog) {
    let log = MachineLog::of_machine(home).unwrap();
    let signer = Signer::machine(home).unwrap();
    (Recorder::create(home, &RunId::fresh(), signer, &log).unwrap(), log)
}

fn event(n: u64) -> Event {
    Event::EgressClosed { connection: n, sent: n, received: n, reason: "closed".to_owned() }
}

fn check(home: &Path) -> Report {
    verify(home, &VerifyOptions::default()).unwrap()
}

/// Does nothing unless it is started by the test below.
#[test]
fn child_that_records_until_it_is_killed() {
    let Some(home) = home_of_child() else { return };
    let (recorder, _log) = recorder(&home);
    for n in 0.. {
        recorder.note(event(n)).unwrap();
        if recorder.commit_blocking(event(n)).unwrap().seq() > 30 {
            println!("\nunder way");
        }
    }
}

#[test]
fn a_killed_supervisor_leaves_a_run_that_verifies_up_to_its_last_group() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    for _ in 0..5 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_records_until_it_is_killed", "--nocapture"])
            .env(HOME, home)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "under way"));
        let live = list_runs(home).unwrap().into_iter().filter(|run| run.live).count();
        assert_eq!(live, 1);
        let report = check(home);
        assert!(report.intact(), "{:?}", report.findings);
        assert!(report.runs.iter().any(|run| run.state == RunState::Live));
        child.kill().unwrap();
        child.wait().unwrap();
        let report = check(home);
        assert!(report.intact(), "{:?}", report.findings);
        let last = report.runs.last().unwrap();
        assert_eq!(last.state, RunState::Unsealed);
        assert!(last.signed_lines > 30);
        let classes = report.findings.iter().map(|finding| finding.class);
        assert_eq!(classes.filter(|class| *class == Class::Unsealed).count(), report.runs.len());
    }
}

/// Does nothing unless it is started by the test below, on a small file system of its own.
#[test]
fn child_on_a_small_disk() {
    let Some(home) = home_of_child() else { return };
    let (recorder, log) = recorder(&home);
    let filler = home.join("filler");
    let mut n = 0;
    // Rows of many sizes, so that the disk fills in the middle of a page and of a line.
    let error = loop {
        n += 1;
        let principal = "x".repeat(usize::try_from(n * 37 % 900).unwrap());
        match recorder.commit_blocking(Event::SandboxStarted { principal, mode: None }) {
            Ok(receipt) => assert!(receipt.seq() < 100_000, "the disk is small"),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(&error, Error::Write { source, .. }
        if source.kind() == std::io::ErrorKind::StorageFull),
        "{error}"
    );
    assert!(matches!(recorder.commit_blocking(event(0)), Err(Error::Closed)));
    assert!(recorder.seal(&log).is_err());
    let run = recorder.run().clone();
    drop(recorder);
    let report = check(&home);
    assert!(report.intact(), "{:?}", report.findings);
    assert_eq!(report.runs[0].lines, report.runs[0].signed_lines, "no torn line is left");
    assert_eq!(report.runs[0].signed_lines, 2 * (n - 1), "every receipt is in the file");
    assert_eq!(read_run(&home, &run).unwrap().count() as u64, 2 * (n - 1));

    // The same for the log, which others go on writing once there is room again.
    std::fs::remove_dir_all(run_file(&home, &run).parent().unwrap()).unwrap();
    std::fs::write(&filler, "").unwrap();
    let error = loop {
        match log.append(event(n)) {
            Ok(receipt) => assert!(receipt.seq() < 100_000, "the disk is small"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Write { .. }), "{error}");
    let whole = std::fs::read(machine_file(&home)).unwrap();
    assert!(whole.ends_with(b"\n"));
    std::fs::remove_file(&filler).unwrap();
    println!("\nwent through");
}

#[test]
fn a_full_disk_refuses_and_leaves_no_torn_line() {
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=256k,mode=700 small \"$0\" && exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child_on_a_small_disk", "--nocapture"])
        .env(HOME, folder.path())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("went through"), "{told}{why}");
}
