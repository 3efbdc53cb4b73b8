use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use ringfence_identity::Signer;

use super::Recorder;
use crate::testing::{Home, event};
use crate::writer::MAX_QUEUED;
use crate::{Error, Event, RunId, list_runs, read_run};

fn over(path: &str) -> (tempfile::TempDir, Recorder) {
    let home = tempfile::tempdir().unwrap();
    let signer = Signer::machine(home.path()).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    let recorder = Recorder::over(file, PathBuf::from(path), &RunId::fresh(), signer).unwrap();
    (home, recorder)
}

#[test]
fn what_is_recorded_is_read_back_in_order() {
    let home = Home::new();
    let recorder = home.recorder();
    for n in 0..10 {
        recorder.note(event(n)).unwrap();
    }
    assert_eq!(recorder.commit_blocking(event(10)).unwrap().seq() % 2, 0, "it has a number");
    let seal = recorder.seal(&home.log).unwrap();
    let entries: Vec<_> =
        read_run(home.path(), recorder.run()).unwrap().map(Result::unwrap).collect();
    assert_eq!(entries.len() as u64, seal.lines);
    assert!(entries.iter().zip(0..).all(|(entry, seq)| entry.seq == seq));
    let events: Vec<_> = entries
        .into_iter()
        .map(|entry| entry.event)
        .filter(|event| !matches!(event, Event::Commit { .. }))
        .collect();
    assert_eq!(events, (0..=10).map(event).collect::<Vec<_>>());
}

/// What nobody waits for costs no sync of its own when something that is waited for comes soon, and
/// is on disk soon when nothing comes.
#[test]
fn what_nobody_waits_for_shares_the_next_group() {
    let home = Home::new();
    let recorder = home.recorder();
    let groups = || {
        read_run(home.path(), recorder.run())
            .unwrap()
            .filter(|entry| matches!(entry.as_ref().unwrap().event, Event::Commit { .. }))
            .count()
    };
    let soon = Duration::from_millis(1);
    for n in 0..5 {
        recorder.note(event(n)).unwrap();
        std::thread::sleep(soon);
        let _ = recorder.commit_blocking(event(n)).unwrap();
    }
    // A busy machine may hold this thread up for longer than a note waits.
    assert!((5..10).contains(&groups()), "{}", groups());
    let before = recorder.bytes();
    recorder.note(event(9)).unwrap();
    while recorder.bytes() == before {
        std::thread::sleep(soon);
    }
    recorder.seal(&home.log).unwrap();
}

#[test]
fn the_file_is_private_and_never_made_twice() {
    let home = Home::new();
    let recorder = home.recorder();
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(recorder.path()), 0o600);
    assert_eq!(mode(recorder.path().parent().unwrap()), 0o700);
    let again = Recorder::create(home.path(), recorder.run(), home.signer(), &home.log);
    assert!(matches!(again, Err(Error::Write { .. })));
    assert_eq!(std::fs::read_dir(home.path().join("runs")).unwrap().count(), 1);
}

#[test]
fn a_full_disk_refuses_and_stays_refused() {
    let (_home, recorder) = over("/dev/full");
    let error = recorder.commit_blocking(event(0)).expect_err("the device is full");
    assert!(
        matches!(&error, Error::Write { source, .. }
        if source.kind() == std::io::ErrorKind::StorageFull),
        "{error}"
    );
    assert!(matches!(recorder.commit_blocking(event(1)), Err(Error::Closed)));
    assert!(matches!(recorder.note(event(2)), Err(Error::Closed)));
    let log = Home::new();
    assert!(matches!(recorder.seal(&log.log), Err(Error::Write { .. })));
}

#[tokio::test]
async fn a_supervisor_learns_of_a_failed_append() {
    let (_home, recorder) = over("/dev/full");
    recorder.note(event(0)).unwrap();
    let reason = tokio::time::timeout(Duration::from_secs(10), recorder.failed()).await.unwrap();
    assert!(reason.contains("/dev/full"), "{reason}");
    assert!(matches!(recorder.commit(event(1)).await, Err(Error::Closed)));

    let home = Home::new();
    let well = home.recorder();
    let _receipt = well.commit(event(0)).await.expect("control: a disk with room");
    let pending = tokio::time::timeout(Duration::from_millis(1), well.failed()).await;
    assert!(pending.is_err(), "all is well");
}

#[test]
fn a_writer_that_cannot_keep_up_fails_closed() {
    // A pipe that nobody reads takes 64 KiB and then blocks the writer: a disk that hangs.
    let (reader, writer) = std::io::pipe().unwrap();
    let home = tempfile::tempdir().unwrap();
    let signer = Signer::machine(home.path()).unwrap();
    let file = File::from(std::os::fd::OwnedFd::from(writer));
    let recorder = Recorder::over(file, PathBuf::from("pipe"), &RunId::fresh(), signer).unwrap();
    let refused = (0..4 * MAX_QUEUED as u64).find_map(|n| recorder.note(event(n)).err());
    assert!(matches!(refused, Some(Error::Closed)));
    assert!(matches!(recorder.commit_blocking(event(0)), Err(Error::Closed)));
    drop(reader);
}

#[tokio::test]
async fn whoever_waits_for_room_waits_for_the_disk() {
    use std::io::Read as _;
    let home = tempfile::tempdir().unwrap();
    let signer = Signer::machine(home.path()).unwrap();
    // A pipe that nobody reads is a disk that does not keep up.
    let (mut reader, writer) = std::io::pipe().unwrap();
    let file = File::from(std::os::fd::OwnedFd::from(writer));
    let recorder = Recorder::over(file, PathBuf::from("pipe"), &RunId::fresh(), signer).unwrap();
    recorder.room().await;
    let big = Event::SandboxStarted { principal: "x".repeat(100 << 10), mode: None };
    recorder.note(big.clone()).unwrap();
    // The writer has begun, and waits with the first group.
    reader.read_exact(&mut [0]).unwrap();
    for _ in 0..40 {
        recorder.note(big.clone()).unwrap();
    }
    let short = Duration::from_millis(50);
    assert!(tokio::time::timeout(short, recorder.room()).await.is_err());
    let draining = std::thread::spawn(move || {
        let mut all = Vec::new();
        while reader.read(&mut [0; 65536]).is_ok_and(|n| n > 0) {
            all.push(());
        }
    });
    recorder.room().await;
    drop(recorder);
    draining.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_and_threads_share_one_chain() {
    let home = Home::new();
    let recorder = home.recorder();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8 {
        let recorder = recorder.clone();
        tasks.spawn(async move {
            for n in 0..40 {
                let _receipt = recorder.commit(event(task * 100 + n)).await.unwrap();
            }
        });
    }
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let recorder = recorder.clone();
            scope.spawn(move || {
                for n in 0..40 {
                    let _receipt =
                        recorder.commit_blocking(event(1000 + thread * 100 + n)).unwrap();
                }
            });
        }
    });
    while tasks.join_next().await.is_some() {}
    recorder.seal(&home.log).unwrap();
    let entries = read_run(home.path(), recorder.run()).unwrap().map(Result::unwrap);
    let events = entries.filter(|entry| !matches!(entry.event, Event::Commit { .. })).count();
    assert_eq!(events, 12 * 40);
    assert!(home.verify().findings.is_empty());
}

#[test]
fn more_waiters_than_the_queue_holds_all_get_through() {
    let home = Home::new();
    let recorder = home.recorder();
    let big = |n: usize| Event::SandboxStarted {
        principal: "x".repeat(900 << 10) + &n.to_string(),
        mode: None,
    };
    std::thread::scope(|scope| {
        for thread in 0..12 {
            let recorder = recorder.clone();
            scope.spawn(move || {
                let _receipt = recorder.commit_blocking(big(thread)).unwrap();
            });
        }
    });
    let huge = Event::SandboxStarted { principal: "x".repeat(1 << 20), mode: None };
    assert!(matches!(recorder.note(huge), Err(Error::TooLarge(_))));
    recorder.seal(&home.log).unwrap();
    assert!(home.verify().findings.is_empty());
}

#[test]
fn a_dropped_recorder_writes_what_was_noted() {
    let home = Home::new();
    let recorder = home.recorder();
    let run = recorder.run().clone();
    assert!(list_runs(home.path()).unwrap()[0].live);
    recorder.note(event(7)).unwrap();
    drop(recorder);
    let first = read_run(home.path(), &run).unwrap().next().unwrap().unwrap();
    assert_eq!(first.event, event(7));
    assert!(!list_runs(home.path()).unwrap()[0].live);
}

#[test]
fn nothing_is_taken_after_the_seal() {
    let home = Home::new();
    let recorder = home.recorder();
    recorder.note(event(0)).unwrap();
    let seal = recorder.seal(&home.log).unwrap();
    assert!(matches!(recorder.note(event(1)), Err(Error::Closed)));
    assert!(matches!(recorder.commit_blocking(event(1)), Err(Error::Closed)));
    assert!(matches!(recorder.seal(&home.log), Err(Error::Closed)));
    let lines = std::fs::read_to_string(recorder.path()).unwrap().lines().count() as u64;
    assert_eq!(lines, seal.lines);
    assert!(home.verify().findings.is_empty());
}

#[test]
fn a_run_that_cannot_be_announced_leaves_nothing() {
    let home = Home::new();
    let recorder = home.recorder();
    recorder.seal(&home.log).unwrap();
    let copy = crate::machine_file(home.path()).with_file_name("machine.head");
    let head = std::fs::read(&copy).unwrap();
    std::fs::remove_file(&copy).unwrap();
    let create = || Recorder::create(home.path(), &RunId::fresh(), home.signer(), &home.log);
    assert!(matches!(create(), Err(Error::Damaged { .. })));
    assert_eq!(list_runs(home.path()).unwrap().len(), 1);
    std::fs::write(&copy, head).unwrap();
    assert!(create().is_ok(), "control");
    assert_eq!(list_runs(home.path()).unwrap().len(), 2);
}

#[test]
fn a_file_of_anything_else_is_damaged_and_not_read_to_its_end() {
    let home = Home::new();
    let recorder = home.recorder();
    let _receipt = recorder.commit_blocking(event(0)).unwrap();
    let (run, path) = (recorder.run().clone(), recorder.path().to_owned());
    drop(recorder);
    let good = std::fs::read(&path).unwrap();
    // What a killed writer can have left is passed over.
    std::fs::write(&path, [&good[..], b"torn\n"].concat()).unwrap();
    assert_eq!(read_run(home.path(), &run).unwrap().filter(Result::is_ok).count(), 2);
    assert!(read_run(home.path(), &run).unwrap().all(|entry| entry.is_ok()), "control");
    std::fs::write(&path, [&good[..], &b"{}\n".repeat(MAX_QUEUED + 8)].concat()).unwrap();
    let last = read_run(home.path(), &run).unwrap().last().unwrap();
    assert!(matches!(last, Err(Error::Damaged { line: 3, .. })), "{last:?}");
}
