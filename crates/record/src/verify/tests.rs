use std::collections::BTreeSet;
use std::path::PathBuf;

use ringfence_identity::Signer;

use super::chain::Checker;
use super::machine::Known;
use super::{Class, Report, RunState, Severity, VerifyOptions, finish, verify};
use crate::testing::{Home, event};
use crate::{Error, Event, RunId, line, machine_file, run_file};

/// A sealed run of some 40 lines in groups of one to four events.
fn sealed(home: &Home) -> (RunId, PathBuf) {
    let recorder = home.recorder();
    let mut n = 0;
    for group in [1_u64, 3, 2, 4, 1, 2, 3, 4, 2, 3, 4, 1] {
        for _ in 1..group {
            recorder.note(event(n)).unwrap();
            n += 1;
        }
        let _receipt = recorder.commit_blocking(event(n)).unwrap();
        n += 1;
    }
    recorder.seal(&home.log).unwrap();
    (recorder.run().clone(), recorder.path().to_owned())
}

/// Whether an error names this line of this file.
fn names(report: &Report, file: &std::path::Path, lines: &[u64]) -> bool {
    !report.intact()
        && report.findings.iter().any(|finding| {
            finding.file == file && finding.line.is_some_and(|line| lines.contains(&line))
        })
}

fn classes(report: &Report) -> BTreeSet<Class> {
    report.findings.iter().map(|finding| finding.class).collect()
}

/// Start of each line, and the end of the file.
fn starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts = vec![0];
    starts
        .extend(bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1));
    starts
}

/// Line, from 1, in which a byte stands; the line end belongs to its line.
fn line_of(starts: &[usize], at: usize) -> u64 {
    starts.partition_point(|start| *start <= at) as u64
}

struct Case {
    home: Home,
    file: PathBuf,
    good: Vec<u8>,
    starts: Vec<usize>,
}

impl Case {
    fn run() -> Self {
        let home = Home::new();
        let (_, file) = sealed(&home);
        Self::over(home, file)
    }

    fn log() -> Self {
        let home = Home::new();
        for n in 0..10 {
            let _receipt = home.log.append(event(n)).unwrap();
        }
        let file = machine_file(home.path());
        Self::over(home, file)
    }

    fn over(home: Home, file: PathBuf) -> Self {
        let report = home.verify();
        assert!(report.findings.is_empty(), "control: {:?}", report.findings);
        let good = std::fs::read(&file).unwrap();
        let starts = starts(&good);
        Self { home, file, good, starts }
    }

    fn lines(&self) -> usize {
        self.starts.len() - 1
    }

    fn line(&self, at: usize) -> &[u8] {
        &self.good[self.starts[at]..self.starts[at + 1]]
    }

    fn with(&self, bytes: &[u8]) -> Report {
        std::fs::write(&self.file, bytes).unwrap();
        self.home.verify()
    }

    fn joined(&self, lines: impl IntoIterator<Item = usize>) -> Vec<u8> {
        lines.into_iter().flat_map(|at| self.line(at)).copied().collect()
    }

    /// Checks in memory, from line `from` on, bytes that are the good ones up to there. `known` is
    /// the seal; stops as soon as the line is named.
    fn named(&self, before: &Checker<'_>, rest: &[u8], known: &Known, line: u64) -> bool {
        let mut checker = before.clone();
        let named = |checker: &Checker<'_>| {
            checker
                .findings
                .iter()
                .any(|it| it.line == Some(line) && it.severity == Severity::Error)
        };
        let mut after = 0;
        for piece in rest.split_inclusive(|byte| *byte == b'\n') {
            match piece.strip_suffix(b"\n") {
                Some(piece) => drop(checker.line(piece)),
                None => after = piece.len() as u64,
            }
            if named(&checker) {
                return true;
            }
        }
        finish(&mut checker, RunState::Sealed, known, after);
        named(&checker)
    }

    /// Calls back with each line's number, where it begins, and the check of all lines before it.
    fn each_line(&self, run: &str, mut act: impl FnMut(u64, usize, &Checker<'_>)) {
        let key = self.home.signer().did().to_string();
        let mut checker = Checker::new(&self.file, run, Some(&key));
        for at in 0..self.lines() {
            act(at as u64 + 1, self.starts[at], &checker);
            checker.line(self.line(at).strip_suffix(b"\n").unwrap());
        }
        assert!(checker.findings.is_empty(), "control");
    }

    /// The seal of the file as it is.
    fn known(&self) -> Known {
        let last = self.line(self.lines() - 1).strip_suffix(b"\n").unwrap();
        let head = line::text(&line::hash(last));
        Known { opened: None, sealed: Some((1, self.lines() as u64, head)) }
    }

    /// Flips every bit of the file, one at a time.
    fn flip_every_bit(&self, run: &str) {
        let known = self.known();
        let mut bytes = self.good.clone();
        self.each_line(run, |line, start, before| {
            let end = self.starts[usize::try_from(line).unwrap()];
            for at in start..end {
                for bit in 0..8 {
                    bytes[at] ^= 1 << bit;
                    let named = self.named(before, &bytes[start..], &known, line);
                    assert!(named, "byte {at} bit {bit} of line {line}");
                    bytes[at] ^= 1 << bit;
                }
            }
        });
        // The same through the whole check, for one bit in every stretch of bytes.
        for at in (0..bytes.len()).step_by(61).chain(bytes.len() - 2..bytes.len()) {
            let line = line_of(&self.starts, at);
            bytes[at] ^= 1 << (at % 8);
            let report = self.with(&bytes);
            assert!(names(&report, &self.file, &[line]), "byte {at}: {:?}", report.findings);
            bytes[at] ^= 1 << (at % 8);
        }
    }
}

#[test]
fn every_flipped_bit_of_a_run_is_named() {
    let case = Case::run();
    let run = case.file.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    case.flip_every_bit(&run);
}

#[test]
fn every_flipped_bit_of_the_machine_log_is_named() {
    Case::log().flip_every_bit("machine");
}

#[test]
fn every_deleted_line_is_named() {
    for case in [Case::run(), Case::log()] {
        for gone in 0..case.lines() {
            let report = case.with(&case.joined((0..case.lines()).filter(|at| *at != gone)));
            assert!(
                names(&report, &case.file, &[gone as u64 + 1]),
                "{gone}: {:?}",
                report.findings
            );
            assert!(
                classes(&report).contains(&Class::MissingLine),
                "{gone}: {:?}",
                report.findings
            );
        }
    }
}

#[test]
fn every_swapped_pair_is_named() {
    for case in [Case::run(), Case::log()] {
        for at in 0..case.lines() - 1 {
            let mut order: Vec<usize> = (0..case.lines()).collect();
            order.swap(at, at + 1);
            let report = case.with(&case.joined(order));
            assert!(names(&report, &case.file, &[at as u64 + 1]), "{at}: {:?}", report.findings);
        }
    }
}

#[test]
fn every_doubled_line_is_named() {
    for case in [Case::run(), Case::log()] {
        for at in 0..case.lines() {
            let lines =
                (0..case.lines()).flat_map(|it| std::iter::repeat_n(it, 1 + usize::from(it == at)));
            let report = case.with(&case.joined(lines));
            assert!(names(&report, &case.file, &[at as u64 + 2]), "{at}: {:?}", report.findings);
            let class = if at + 1 == case.lines() && case.file.ends_with("events.jsonl") {
                Class::SealMismatch
            } else {
                Class::DuplicateSeq
            };
            assert!(classes(&report).contains(&class), "{at}: {:?}", report.findings);
        }
    }
}

#[test]
fn every_truncation_is_named() {
    let case = Case::run();
    let known = case.known();
    let run = case.file.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    case.each_line(&run, |line, start, before| {
        for end in start..case.starts[usize::try_from(line).unwrap()] {
            assert!(case.named(before, &case.good[start..end], &known, line), "{end}");
        }
    });
    // Through the whole check at the ends of lines and between them.
    for case in [case, Case::log()] {
        for end in (0..case.good.len())
            .step_by(67)
            .chain(case.starts.iter().map(|start| start - start.min(&1)))
        {
            let report = case.with(&case.good[..end]);
            let line = line_of(&case.starts, end);
            assert!(names(&report, &case.file, &[line]), "{end}: {:?}", report.findings);
        }
        for start in &case.starts[..case.lines()] {
            let report = case.with(&case.good[..*start]);
            let line = line_of(&case.starts, *start);
            assert!(names(&report, &case.file, &[line]), "{start}: {:?}", report.findings);
        }
    }
}

#[test]
fn a_run_of_several_lines_gone_or_moved_is_found() {
    let case = Case::run();
    for from in 0..case.lines() - 3 {
        let report =
            case.with(&case.joined((0..case.lines()).filter(|at| *at < from || *at > from + 2)));
        assert!(names(&report, &case.file, &[from as u64 + 1]), "{:?}", report.findings);
    }
}

#[test]
fn a_run_written_anew_by_another_key_is_found() {
    let home = Home::new();
    let (run, file) = sealed(&home);
    let stranger = Home::new();
    let forger =
        super::super::Recorder::create(stranger.path(), &run, stranger.signer(), &stranger.log);
    let forger = forger.unwrap();
    let _receipt = forger.commit_blocking(event(0)).unwrap();
    forger.seal(&stranger.log).unwrap();
    std::fs::copy(forger.path(), &file).unwrap();
    let found = classes(&home.verify());
    assert!(found.contains(&Class::UnknownKey) && found.contains(&Class::MissingLine), "{found:?}");
}

#[test]
fn a_run_taken_away_or_put_there_is_found() {
    let home = Home::new();
    let (run, file) = sealed(&home);
    let folder = file.parent().unwrap();
    let aside = home.path().join("aside");
    std::fs::rename(folder, &aside).unwrap();
    let report = home.verify();
    assert!(names(&report, &machine_file(home.path()), &[1]), "{:?}", report.findings);
    assert_eq!(classes(&report), BTreeSet::from([Class::MissingRun]));
    let only = VerifyOptions { run: Some(run.clone()), did: None };
    assert!(!verify(home.path(), &only).unwrap().intact());

    // Only its file, not its folder.
    std::fs::create_dir(folder).unwrap();
    assert_eq!(classes(&home.verify()), BTreeSet::from([Class::MissingRun]));
    std::fs::remove_dir(folder).unwrap();

    // Under another name.
    let other = RunId::fresh();
    let put = run_file(home.path(), &other);
    std::fs::rename(&aside, put.parent().unwrap()).unwrap();
    let report = home.verify();
    assert!(names(&report, &put, &[1]), "{:?}", report.findings);
    assert!(classes(&report).is_superset(&BTreeSet::from([Class::MissingRun, Class::Unannounced])));
    let nobody = VerifyOptions { run: Some(RunId::fresh()), did: None };
    assert!(matches!(verify(home.path(), &nobody), Err(Error::NoSuchRun(_))));
}

#[test]
fn a_file_put_there_is_found_while_somebody_holds_it() {
    let home = Home::new();
    let recorder = home.recorder();
    let _receipt = recorder.commit_blocking(event(0)).unwrap();
    assert!(home.verify().findings.is_empty(), "control: a live run");

    // A whole run of another machine, with its lock held as a recorder holds it.
    let other = Home::new();
    let (run, made) = sealed(&other);
    let put = run_file(home.path(), &run);
    std::fs::create_dir(put.parent().unwrap()).unwrap();
    std::fs::copy(made, &put).unwrap();
    let held = std::fs::File::open(&put).unwrap();
    held.lock().unwrap();
    let report = home.verify();
    assert!(classes(&report).contains(&Class::Unannounced), "{report:?}");
    assert!(!report.intact());
}

#[test]
fn swapping_the_files_of_two_runs_is_found() {
    let home = Home::new();
    let (_, first) = sealed(&home);
    let (_, second) = sealed(&home);
    assert!(home.verify().findings.is_empty(), "control");
    let bytes = std::fs::read(&first).unwrap();
    std::fs::copy(&second, &first).unwrap();
    std::fs::write(&second, bytes).unwrap();
    let report = home.verify();
    assert!(names(&report, &first, &[1]) && names(&report, &second, &[1]), "{:?}", report.findings);
}

#[test]
fn a_machine_log_taken_away_is_found() {
    let home = Home::new();
    sealed(&home);
    std::fs::remove_dir_all(home.path().join("log")).unwrap();
    let found = classes(&home.verify());
    assert!(
        found.is_superset(&BTreeSet::from([Class::MissingLog, Class::Unannounced])),
        "{found:?}"
    );
}

#[test]
fn a_new_machine_key_does_not_vouch_for_the_old_log() {
    let home = Home::new();
    sealed(&home);
    let old = home.signer().did().clone();
    std::fs::remove_dir_all(home.path().join("identities")).unwrap();
    assert!(classes(&home.verify()).contains(&Class::UnknownKey), "no key at all");
    Signer::machine(home.path()).unwrap();
    assert!(classes(&home.verify()).contains(&Class::UnknownKey));
    let pinned = VerifyOptions { run: None, did: Some(old) };
    assert!(verify(home.path(), &pinned).unwrap().intact(), "the signer that was expected");
}

#[test]
fn a_run_is_signed_by_the_key_that_the_log_names() {
    let home = Home::new();
    let agent = Signer::named(home.path(), "agent").unwrap();
    let did = agent.did().clone();
    let recorder =
        super::super::Recorder::create(home.path(), &RunId::fresh(), agent, &home.log).unwrap();
    let _receipt = recorder.commit_blocking(event(0)).unwrap();
    recorder.seal(&home.log).unwrap();
    let report = home.verify();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!(report.runs[0].key, Some(did.to_string()));
    let run = Some(recorder.run().clone());
    let options = VerifyOptions { run: run.clone(), did: Some(did) };
    assert!(verify(home.path(), &options).unwrap().intact());
    let options = VerifyOptions { run, did: Some(home.signer().did().clone()) };
    assert_eq!(
        classes(&verify(home.path(), &options).unwrap()),
        BTreeSet::from([Class::UnknownKey])
    );
}

#[test]
fn a_live_run_is_live_and_a_dead_one_unsealed() {
    let home = Home::new();
    let recorder = home.recorder();
    let report = home.verify();
    assert_eq!((report.runs[0].state, report.findings.len()), (RunState::Live, 0));
    let _receipt = recorder.commit_blocking(event(0)).unwrap();
    let _receipt = recorder.commit_blocking(event(1)).unwrap();
    let path = recorder.path().to_owned();
    let report = home.verify();
    assert_eq!((report.runs[0].state, report.runs[0].signed_lines), (RunState::Live, 4));
    assert!(report.findings.is_empty());
    drop(recorder);

    let report = home.verify();
    assert_eq!((report.runs[0].state, report.runs[0].signed_lines), (RunState::Unsealed, 4));
    assert_eq!(classes(&report), BTreeSet::from([Class::Unsealed]));
    assert!(report.intact(), "a crash is no tampering");

    let good = std::fs::read(&path).unwrap();
    let torn = [&good[..], b"{\"at\":"].concat();
    std::fs::write(&path, torn).unwrap();
    let report = home.verify();
    assert_eq!(classes(&report), BTreeSet::from([Class::Unsealed, Class::Torn]));
    assert!(report.intact(), "nor is a write that was cut off");

    let first = starts(&good)[1];
    std::fs::write(&path, [&good[..], &good[..first]].concat()).unwrap();
    assert!(!home.verify().intact(), "whole lines without a signature are");
    std::fs::write(&path, &good[first..]).unwrap();
    assert!(!home.verify().intact());
}

#[test]
fn an_edit_that_is_chained_anew_breaks_the_signature() {
    use crate::line::{Chain, Line, encode};
    let case = Case::run();
    let mut out = Vec::new();
    let first = Line::parse(case.line(0).trim_ascii_end()).unwrap();
    let mut chain = Chain::new(&first.run);
    for at in 0..case.lines() {
        let line = Line::parse(case.line(at).trim_ascii_end()).unwrap();
        let event = if at == 3 { event(99) } else { line.event().unwrap() };
        chain.append(&mut out, &line.at, &encode(&event).unwrap());
    }
    let report = case.with(&out);
    let bad: Vec<_> = report.findings.iter().filter(|it| it.class == Class::BadSignature).collect();
    let commit = (4..case.lines())
        .find(|at| Line::parse(case.line(*at).trim_ascii_end()).unwrap().kind() == "commit");
    assert_eq!(bad[0].line, commit.map(|at| at as u64 + 1), "the group that was changed");
    assert!(classes(&report).contains(&Class::SealMismatch));
}

#[test]
fn hostile_files_are_findings_and_never_a_panic() {
    let home = Home::new();
    let (_, file) = sealed(&home);
    let long = vec![b'a'; 5 << 20];
    let deep = "[".repeat(1 << 19).into_bytes();
    let numbers = b"{\"at\":\"2026-01-01T00:00:00.000000Z\",\"event\":{\"n\":1e999},\"prev\":\"\",\"run\":\"\",\"seq\":-1}\n";
    let many = b"\n".repeat(100_000);
    for bytes in [&long[..], &deep, &[&long[..], b"\n"].concat(), numbers, &many, &[0xff; 4096]] {
        std::fs::write(&file, bytes).unwrap();
        let report = home.verify();
        assert!(names(&report, &file, &[1]), "{:?}", report.findings.first());
        assert!(report.findings.len() < 2000);
    }
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
    assert_eq!(classes(&home.verify()), BTreeSet::from([Class::Unreadable]));
}

#[test]
fn a_seal_in_the_log_twice_is_found() {
    let home = Home::new();
    let (run, _) = sealed(&home);
    let (head, at) = ("sha256:00".to_owned(), "2026-01-01T00:00:00.000000Z".to_owned());
    let again = Event::RunSealed { run, lines: 1, head, started: at.clone(), ended: at };
    let _receipt = home.log.append(again).unwrap();
    assert_eq!(classes(&home.verify()), BTreeSet::from([Class::DuplicateSeq]));
}

#[test]
fn a_cut_log_is_found_with_and_without_its_copy() {
    let case = Case::log();
    let copy = case.file.with_file_name("machine.head");
    let good = std::fs::read(&copy).unwrap();
    let cut = case.joined(0..case.lines() - 4);
    assert!(names(&case.with(&cut), &case.file, &[case.lines() as u64 - 3]));
    // An older copy is what a killed writer leaves, and no finding.
    let older = case.joined([case.lines() - 3]);
    std::fs::write(&copy, &older).unwrap();
    assert!(case.with(&case.good).findings.is_empty());
    for bad in [&b""[..], b"{}\n", &good[1..], &[&good[..], b"\n"].concat()] {
        std::fs::write(&copy, bad).unwrap();
        let report = case.with(&cut);
        assert!(!report.intact());
        assert_eq!(classes(&report), BTreeSet::from([Class::MissingLog]));
    }
    std::fs::remove_file(&copy).unwrap();
    assert!(!case.with(&cut).intact());
    assert!(case.home.log.append(event(0)).is_err(), "no append makes a copy of the new end");
    assert!(!case.home.verify().intact());
}

#[test]
fn every_flipped_byte_of_the_copy_is_found() {
    let case = Case::log();
    let copy = case.file.with_file_name("machine.head");
    let mut bytes = std::fs::read(&copy).unwrap();
    for at in 0..bytes.len() {
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&copy, &bytes).unwrap();
        assert!(!case.home.verify().intact(), "byte {at}");
        bytes[at] ^= 1 << (at % 8);
    }
}
