//! Says of every line of evidence whether it is the one that was written.
//!
//! A run's file is chained and signed in groups; the machine log says which runs there are, who
//! signs each, and how each ended. What no file on this machine can show: an unsealed run whose end
//! was cut off exactly at a group, and a machine log that was put back, with its copy of the last
//! line, to an earlier state together with every run since.

mod chain;
mod file;
mod finding;
mod machine;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use ringfence_identity::{Did, machine_did};

pub use finding::{Class, Finding, Report, RunReport, RunState, Severity};

use crate::{Error, RunId, line, paths, read};
use chain::Checker;
use machine::Known;

/// What to check, and whose signatures to expect.
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// Only this run, and the machine log. All runs when absent.
    pub run: Option<RunId>,
    /// Who must have signed: the run, when one is named, else the machine log. When absent, this
    /// machine's key signs the log, and the log says who signs each run.
    pub did: Option<Did>,
}

/// Checks the machine log and every run, or one. Reads only; a run whose recorder is at work is
/// checked up to its last signed group and reported as live.
///
/// # Errors
/// [`Error::Read`] when the folder of runs cannot be listed, [`Error::NoSuchRun`] when the run that
/// was asked for is known to nobody, [`Error::Folder`] when this machine's key file is not safe.
/// What is wrong with the evidence itself is no error but a finding.
pub fn verify(home: &Path, options: &VerifyOptions) -> Result<Report, Error> {
    // Looked at before the machine log: a run that is over by now has its seal there already.
    let mut targets: Vec<Target> = read::run_ids(home)?
        .into_iter()
        .filter(|run| options.run.as_ref().is_none_or(|only| only == run))
        .map(|run| Target::new(home, run))
        .collect();

    let own = match machine_did(home) {
        Ok(did) => Some(did),
        Err(ringfence_identity::Error::NoKey(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let pinned = options.did.clone();
    let key = if options.run.is_some() { own.or_else(|| pinned.clone()) } else { pinned.or(own) };
    let machine = machine::check(home, key.as_ref(), !targets.is_empty());
    if let Some(only) = &options.run
        && !machine.runs.contains_key(only)
        && targets.is_empty()
    {
        return Err(Error::NoSuchRun(format!("no run {only} on this machine")));
    }

    let mut findings = machine.findings;
    for (run, known) in &machine.runs {
        let asked = options.run.as_ref().is_none_or(|only| only == run);
        if asked && targets.iter().all(|target| target.run != *run) {
            // It may have begun since the runs were listed.
            if paths::run_file(home, run).symlink_metadata().is_ok() {
                targets.push(Target::new(home, run.clone()));
            } else {
                findings.push(missing_run(home, run, known));
            }
        }
    }
    targets.sort_by(|a, b| a.run.cmp(&b.run));

    let pinned_run = options.run.as_ref().and(options.did.as_ref());
    let checks = in_parallel(targets, |target| {
        let known = machine.runs.get(&target.run).cloned().unwrap_or_default();
        check_run(home, target, &known, pinned_run)
    });
    let mut runs = Vec::with_capacity(checks.len());
    for (run, mut found) in checks {
        runs.extend(run);
        findings.append(&mut found);
    }
    findings.sort_by(|a, b| (&a.file, a.line, a.class).cmp(&(&b.file, b.line, b.class)));
    findings.dedup();
    Ok(Report { machine_lines: machine.lines, runs, findings })
}

struct Target {
    run: RunId,
    /// Whether a recorder held the file when this was made.
    held: bool,
    /// Whether the file held nothing then.
    empty: bool,
}

impl Target {
    fn new(home: &Path, run: RunId) -> Self {
        let file = paths::open(&paths::run_file(home, &run)).ok();
        let held = file.as_ref().and_then(|file| paths::is_held(file).ok()).unwrap_or(false);
        let empty = file.and_then(|file| file.metadata().ok()).is_some_and(|it| it.len() == 0);
        Self { run, held, empty }
    }
}

fn missing_run(home: &Path, run: &RunId, known: &Known) -> Finding {
    let no = known.opened.as_ref().map(|(no, _)| *no);
    Finding {
        file: paths::machine_file(home),
        line: no.or(known.sealed.as_ref().map(|(no, ..)| *no)),
        class: Class::MissingRun,
        severity: Severity::Error,
        message: format!("names run {run}, but {} is gone", paths::run_file(home, run).display()),
    }
}

fn check_run(
    home: &Path,
    target: Target,
    known: &Known,
    pinned: Option<&Did>,
) -> (Option<RunReport>, Vec<Finding>) {
    let path = paths::run_file(home, &target.run);
    let Target { run, held, empty } = target;
    let opened = paths::open(&path).and_then(|file| match file.metadata() {
        Ok(metadata) => Ok((file, metadata.len())),
        Err(source) => Err(Error::Read { path: path.clone(), source }),
    });
    let (file, length) = match opened {
        Ok(opened) => opened,
        Err(Error::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            let mut finding = missing_run(home, &run, known);
            if finding.line.is_none() {
                "the run's folder is there, but its file is gone".clone_into(&mut finding.message);
                finding.file = path;
            }
            return (None, vec![finding]);
        }
        Err(error) => {
            let (class, severity) = (Class::Unreadable, Severity::Error);
            let message = error.to_string();
            return (None, vec![Finding { file: path, line: None, class, severity, message }]);
        }
    };
    let state = match (&known.sealed, held) {
        (Some(_), _) => RunState::Sealed,
        (None, true) => RunState::Live,
        (None, false) => RunState::Unsealed,
    };
    let announced = known.opened.as_ref().map(|(_, key)| key.clone());
    let key = pinned.map(ToString::to_string).or_else(|| announced.clone());
    let mut checker = Checker::new(&path, run.as_str(), key.as_deref());
    // A run is announced just after its file is there and before anything is in it; this may be in
    // between, or a crash was.
    if announced.is_none() && !empty {
        let message = "the machine log does not name this run: its file was put here, or the log \
                       was changed";
        checker.find(1, Class::Unannounced, Severity::Error, message);
    }
    let after = match file::feed(file, length, &mut checker, |_, _| {}) {
        Ok(after) => after,
        Err(error) => {
            let no = checker.lines() + 1;
            checker.find(no, Class::Unreadable, Severity::Error, &error.to_string());
            0
        }
    };
    finish(&mut checker, state, known, after);
    let (lines, signed_lines) = (checker.lines(), checker.signed);
    let findings = std::mem::take(&mut checker.findings);
    (Some(RunReport { run, state, lines, signed_lines, key: announced }), findings)
}

/// Judges how the file ends.
fn finish(checker: &mut Checker<'_>, state: RunState, known: &Known, after: u64) {
    let lines = checker.lines();
    let torn = format!("ends in {after} bytes without a line end");
    match (state, &known.sealed) {
        (RunState::Sealed, Some((_, sealed, head))) => {
            let same = lines == *sealed && line::text(&checker.head()) == *head;
            checker.end(same);
            if after > 0 {
                checker.find(lines + 1, Class::Torn, Severity::Error, &torn);
            }
            if lines < *sealed {
                let message = format!("the seal counts {sealed} lines, and {lines} are left");
                checker.find(lines + 1, Class::MissingLine, Severity::Error, &message);
            } else if lines > *sealed {
                let message =
                    format!("the seal counts {sealed} lines; this and more came after it");
                checker.find(sealed + 1, Class::SealMismatch, Severity::Error, &message);
            } else if !same {
                let message = "the last line is not the one that was sealed";
                checker.find(lines.max(1), Class::SealMismatch, Severity::Error, message);
            }
            if let Some(first) = checker.unsigned() {
                let message = "no signature covers the lines from here on";
                checker.find(first, Class::UnsignedTail, Severity::Error, message);
            }
        }
        (RunState::Live, _) | (RunState::Sealed, None) => checker.end(false),
        (RunState::Unsealed, _) => {
            checker.end(false);
            let message = format!(
                "ended without a seal: its supervisor was killed, or its end was cut off; signed up \
                 to line {}",
                checker.signed
            );
            checker.find(lines.max(1), Class::Unsealed, Severity::Warning, &message);
            // One write holds a whole group: only a torn one leaves lines without their signature.
            let severity = if after > 0 { Severity::Warning } else { Severity::Error };
            if after > 0 {
                checker.find(lines + 1, Class::Torn, severity, &torn);
            }
            if let Some(first) = checker.unsigned() {
                let message = "no signature covers the lines from here on; they are no evidence";
                checker.find(first, Class::UnsignedTail, severity, message);
            }
        }
    }
}

/// One thread a file, up to the number of cores.
fn in_parallel<T: Send, R: Send>(items: Vec<T>, check: impl Fn(T) -> R + Sync) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = cores.min(items.len());
    let items: Vec<_> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    let lock = |at: usize| items[at].lock().unwrap_or_else(PoisonError::into_inner).take();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let at = next.fetch_add(1, Ordering::Relaxed)
                    && at < items.len()
                {
                    if let Some(item) = lock(at) {
                        let result = check(item);
                        results.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
                    }
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests;
