//! Checks the machine log and gathers what it says of runs.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use ringfence_identity::Did;
use rustix::fs::{FlockOperation, flock};

use super::chain::{Checker, Seen};
use super::file::feed;
use super::finding::{Class, Finding, Severity};
use crate::line::Line;
use crate::machine::Head;
use crate::{Event, RunId, machine, paths};

/// How many events one group of the machine log holds at most; a writer makes three at most.
const MAX_GROUP: usize = 64;

/// Lines that one append makes.
const FIRST_GROUP: u64 = 2;

/// What the machine log says of one run.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// Line of its opening, and its key.
    pub(super) opened: Option<(u64, String)>,
    /// Line of its seal, the lines of its file, and the last one's hash.
    pub(super) sealed: Option<(u64, u64, String)>,
}

/// The machine log, checked.
#[derive(Debug, Default)]
pub(super) struct Machine {
    pub(super) lines: u64,
    pub(super) runs: BTreeMap<RunId, Known>,
    pub(super) findings: Vec<Finding>,
}

/// Checks the log. `key` is who must sign it; `expected` whether there must be one at all.
pub(super) fn check(home: &Path, key: Option<&Did>, expected: bool) -> Machine {
    let path = paths::machine_file(home);
    let mut machine = Machine::default();
    let mut fail = |class, message: String| {
        let (file, line, severity) = (path.clone(), None, Severity::Error);
        machine.findings.push(Finding { file, line, class, severity, message });
    };
    let head_path = path.with_file_name(machine::HEAD);
    let file = match paths::open(&path) {
        Ok(file) => file,
        Err(error) => {
            let there = path.symlink_metadata().is_ok();
            if there {
                fail(Class::Unreadable, error.to_string());
            } else if expected || head_path.symlink_metadata().is_ok() {
                fail(Class::MissingLog, "the machine log is gone".to_owned());
            }
            return machine;
        }
    };
    // A writer holds the lock while it appends; without it the file ends where a group ends.
    let locked = flock(&file, FlockOperation::LockShared);
    let length = file.metadata().map(|metadata| metadata.len());
    let head = machine::read_head(&head_path);
    // Closing the file unlocks it too.
    let _ = flock(&file, FlockOperation::Unlock);
    let length = match (locked, length) {
        (Ok(()), Ok(length)) => length,
        (Err(errno), _) => {
            fail(Class::Unreadable, errno.to_string());
            return machine;
        }
        (_, Err(error)) => {
            fail(Class::Unreadable, error.to_string());
            return machine;
        }
    };
    if key.is_none() {
        let message = "this machine has no key, so nobody can say who signed this; give the signer's \
                       DID (--did)";
        fail(Class::UnknownKey, message.to_owned());
    }
    read(&path, file, length, key, head, &mut machine);
    machine
}

fn read(
    path: &Path,
    file: File,
    length: u64,
    key: Option<&Did>,
    head: Head,
    machine: &mut Machine,
) {
    let mut checker = Checker::new(path, paths::MACHINE, key.map(Did::as_str));
    let mut group: Vec<(u64, Line)> = Vec::new();
    let mut head_found = false;
    let mut last_seq = None;
    let mut double = Vec::new();
    let ended = feed(file, length, &mut checker, |no, seen| match seen {
        Seen::Event(line) if group.len() < MAX_GROUP => group.push((no, line)),
        Seen::Event(_) | Seen::Nothing => {}
        Seen::Torn => group.clear(),
        Seen::Group { seq, hash } => {
            last_seq = Some(seq);
            head_found |= matches!(&head, Head::Line(line) if line.seq == seq && line.hash == hash);
            for (no, line) in group.drain(..) {
                double.extend(learn(&mut machine.runs, no, &line));
            }
        }
    });
    let whole = checker.lines();
    for (no, message) in double {
        checker.find(no, Class::DuplicateSeq, Severity::Error, message);
    }
    let after = match ended {
        Ok(after) => after,
        Err(error) => {
            checker.find(whole + 1, Class::Unreadable, Severity::Error, &error.to_string());
            0
        }
    };
    checker.end(false);
    check_head(&mut checker, path, &head, head_found, last_seq, key);
    // The copy shows that nothing durable is gone, so what follows is a write that was cut off.
    let severity = if head_found { Severity::Warning } else { Severity::Error };
    if let Some(first) = checker.unsigned().or((after > 0).then_some(whole + 1)) {
        let message = "everything from here on is unsigned: a writer was killed, or the log was cut \
                       or added to; the next append marks it";
        let class = if after > 0 { Class::Torn } else { Class::UnsignedTail };
        checker.find(first, class, severity, message);
    }
    machine.lines = whole;
    machine.findings.append(&mut checker.findings);
}

fn check_head(
    checker: &mut Checker<'_>,
    path: &Path,
    head: &Head,
    found: bool,
    last_seq: Option<u64>,
    key: Option<&Did>,
) {
    let lines = checker.lines();
    let end = lines + 1;
    let copy = path.with_file_name(machine::HEAD);
    let about_copy = |severity, message: &str| {
        let (file, message) = (copy.clone(), message.to_owned());
        let class = Class::MissingLog;
        Finding { file, line: None, class, severity, message }
    };
    match head {
        Head::None if lines > 0 => {
            // A writer that is killed at its very first append leaves none.
            let severity = if lines > FIRST_GROUP { Severity::Error } else { Severity::Warning };
            checker.findings.push(about_copy(
                severity,
                "the copy of the last signed line is gone: a cut at a group's end cannot be seen",
            ));
        }
        Head::None => {}
        Head::Bad => checker.findings.push(about_copy(Severity::Error, "is not a signed line")),
        Head::Line(_) if found => {}
        Head::Line(line) => {
            let genuine = line.commit().is_some_and(|(signer, valid)| {
                valid && key.is_none_or(|key| key.as_str() == signer)
            });
            if !genuine {
                checker.findings.push(about_copy(Severity::Error, "is not signed by this machine"));
            } else if last_seq.is_none_or(|last| last < line.seq) {
                let message = format!(
                    "the log ends here, but its last signed line once was number {}",
                    line.seq
                );
                checker.find(end, Class::MissingLine, Severity::Error, &message);
            } else {
                let message = format!(
                    "number {} is not the line that was signed; the copy of it says so",
                    line.seq
                );
                checker.find(end - 1, Class::Edited, Severity::Error, &message);
            }
        }
    }
}

/// Takes in what a signed line says of a run. A second opening or seal of one run is a finding.
fn learn(runs: &mut BTreeMap<RunId, Known>, no: u64, line: &Line) -> Option<(u64, &'static str)> {
    match line.event()? {
        Event::RunOpened { run, key } => {
            let known = runs.entry(run).or_default();
            if known.opened.is_some() {
                return Some((no, "opens a run that was opened before"));
            }
            known.opened = Some((no, key));
        }
        Event::RunSealed { run, lines, head, .. } => {
            let known = runs.entry(run).or_default();
            if known.sealed.is_some() {
                return Some((no, "seals a run that was sealed before"));
            }
            known.sealed = Some((no, lines, head));
        }
        _ => {}
    }
    None
}
