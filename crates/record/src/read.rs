//! Reading evidence back, for reports. Says what is there; only [`crate::verify`] says whether to
//! believe it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::line::{Line, MAX_LINE};
use crate::writer::MAX_QUEUED;
use crate::{Error, Event, Kind, RunId, paths};

/// How many runs are listed; a home with more needs pruning.
const MAX_RUNS: usize = 1 << 20;

/// How many lines a group has at most.
const MAX_GROUP: usize = MAX_QUEUED + 2;

/// How many lines of a file are looked at for its start.
const START_LINES: usize = 64;

/// One event of a file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// Number in the file, from 0.
    pub seq: u64,
    /// When, RFC 3339 UTC with microseconds.
    pub at: String,
    /// What.
    pub event: Event,
}

/// The entries of a file, in order, commit lines included. Only whole groups count: lines behind the
/// last commit line are a write that is under way or was cut off, and are left out. Ends with an
/// error at the first group that holds a line that does not parse.
#[derive(Debug)]
pub struct Entries {
    reader: BufReader<File>,
    path: PathBuf,
    line: u64,
    buffer: Vec<u8>,
    group: VecDeque<Entry>,
    ended: bool,
    /// The end of the last whole group: bytes and lines before it.
    whole: (u64, u64),
}

/// What a listing says of a run, without checking anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunInfo {
    /// The run.
    pub run: RunId,
    /// What it is.
    pub kind: Kind,
    /// Whether its recorder is at work now.
    pub live: bool,
    /// Time of its first event, RFC 3339 UTC; `None` when nothing is recorded yet.
    pub started: Option<String>,
    /// Supervisor's process id, once the run has started.
    pub pid: Option<u32>,
    /// Supervisor's start time in clock ticks since boot.
    pub pid_started: Option<u64>,
    /// Project folder.
    pub project: Option<String>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Name of the backend that was chosen, once the run has started.
    pub backend: Option<String>,
    /// Mode label: once the probe has passed and the agent was released.
    pub mode: Option<String>,
}

/// Reads a run's events.
///
/// # Errors
/// [`Error::NoSuchRun`], [`Error::Read`].
pub fn read_run(home: &Path, run: &RunId) -> Result<Entries, Error> {
    match Entries::open(paths::run_file(home, run)) {
        Err(Error::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::NoSuchRun(format!(
                "no run {run} on this machine; `ringfence ps --all` lists them"
            )))
        }
        other => other,
    }
}

/// Whether a recorder is at work on this run now. Once it is not, nothing is added to the record any more.
///
/// # Errors
/// [`Error::Read`].
pub fn is_recording(home: &Path, run: &RunId) -> Result<bool, Error> {
    let path = paths::run_file(home, run);
    paths::is_held(&paths::open(&path)?).map_err(|source| Error::Read { path, source })
}

/// Waits until no recorder is at work on this run: its record is sealed, has failed, or was cut off.
///
/// # Errors
/// [`Error::Read`].
pub fn wait_recorded(home: &Path, run: &RunId) -> Result<(), Error> {
    let path = paths::run_file(home, run);
    let file = paths::open(&path)?;
    paths::wait_free(&file).map_err(|source| Error::Read { path, source })
}

/// Whether the machine log has this run's seal. Only [`crate::verify`] says whether it holds.
///
/// # Errors
/// [`Error::Read`], [`Error::Damaged`].
pub fn is_sealed(home: &Path, run: &RunId) -> Result<bool, Error> {
    for entry in read_machine(home)?.into_iter().flatten() {
        if matches!(entry?.event, Event::RunSealed { run: sealed, .. } if sealed == *run) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads the machine log's events; none when there is no log yet.
///
/// # Errors
/// [`Error::Read`].
pub fn read_machine(home: &Path) -> Result<Option<Entries>, Error> {
    match Entries::open(paths::machine_file(home)) {
        Err(Error::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// What was typed, as it can be shown.
fn shown(prefix: &str) -> String {
    prefix.chars().take(80).flat_map(char::escape_debug).collect()
}

/// How many runs are named where several are meant.
const NAMED: usize = 20;

/// That several runs' ids begin so: the newest of them, a line each.
pub fn several(prefix: &str, lines: impl ExactSizeIterator<Item = String>) -> String {
    let (all, shown) = (lines.len(), shown(prefix));
    let mut text = format!("`{shown}` begins the ids of {all} runs; give more of one:");
    if let Some(more) = all.checked_sub(NAMED).filter(|more| *more > 0) {
        text += &format!("\n({more} older ones)");
    }
    for line in lines.skip(all.saturating_sub(NAMED)) {
        text += "\n";
        text += &line;
    }
    text
}

/// The one run whose id begins so.
///
/// # Errors
/// [`Error::NoSuchRun`] when none does, [`Error::Ambiguous`] when several do, [`Error::Read`].
pub fn find_run(home: &Path, prefix: &str) -> Result<RunId, Error> {
    let shown = shown(prefix);
    let mut found = run_ids(home)?;
    found.retain(|run| run.as_str().starts_with(prefix));
    if found.len() > 1 {
        return Err(Error::Ambiguous { prefix: prefix.to_owned(), runs: found });
    }
    found.pop().ok_or_else(|| Error::NoSuchRun(format!("no run begins with `{shown}`")))
}

/// All runs of this machine, oldest first. Opens each file and reads its first lines.
///
/// # Errors
/// [`Error::Read`] when the folder cannot be read; a file that cannot be read is listed without
/// details.
pub fn list_runs(home: &Path) -> Result<Vec<RunInfo>, Error> {
    Ok(run_ids(home)?.into_iter().map(|run| info(home, run)).collect())
}

/// The ids of all runs, sorted.
pub(crate) fn run_ids(home: &Path) -> Result<Vec<RunId>, Error> {
    let folder = paths::runs(home);
    let fail = |source| Error::Read { path: folder.clone(), source };
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(fail(error)),
    };
    let mut runs = Vec::new();
    for entry in entries.take(MAX_RUNS) {
        let name = entry.map_err(fail)?.file_name();
        runs.extend(name.to_str().and_then(|name| RunId::parse(name).ok()));
    }
    runs.sort();
    Ok(runs)
}

fn info(home: &Path, run: RunId) -> RunInfo {
    let mut info = RunInfo {
        run,
        kind: Kind::default(),
        live: false,
        started: None,
        pid: None,
        pid_started: None,
        project: None,
        command: Vec::new(),
        backend: None,
        mode: None,
    };
    let Ok(entries) = Entries::open(paths::run_file(home, &info.run)) else { return info };
    info.live = paths::is_held(entries.reader.get_ref()).unwrap_or(false);
    for entry in entries.take(START_LINES).map_while(Result::ok) {
        info.started.get_or_insert(entry.at);
        match entry.event {
            Event::RunStarted {
                kind, project, command, pid, pid_started, backend, mode, ..
            } => {
                info.kind = kind;
                info.project = Some(project);
                info.command = command;
                info.pid = Some(pid);
                info.pid_started = Some(pid_started);
                info.backend = Some(backend);
                info.mode = mode;
                if kind != Kind::Run {
                    break;
                }
            }
            Event::SandboxStarted { principal, mode } if principal == "agent" => {
                info.mode = mode.or(info.mode);
                break;
            }
            _ => {}
        }
    }
    info
}

impl Entries {
    fn open(path: PathBuf) -> Result<Self, Error> {
        let reader = BufReader::with_capacity(32 << 10, paths::open(&path)?);
        Ok(Self {
            reader,
            path,
            line: 0,
            buffer: Vec::new(),
            group: VecDeque::new(),
            ended: false,
            whole: (0, 0),
        })
    }

    /// Goes back to the end of the last whole group, so that what has been written since comes next.
    /// Call it when the entries have come to their end.
    ///
    /// # Errors
    /// [`Error::Read`].
    pub fn again(&mut self) -> Result<(), Error> {
        let (at, line) = self.whole;
        let moved = self.reader.seek(SeekFrom::Start(at));
        moved.map_err(|source| Error::Read { path: self.path.clone(), source })?;
        (self.line, self.ended) = (line, false);
        self.group.clear();
        Ok(())
    }

    /// Reads up to the next commit line. False when there is none.
    fn fill(&mut self) -> Result<bool, Error> {
        let mut damage = None;
        let mut damaged = 0;
        loop {
            let entry = match self.read() {
                Ok(Some(entry)) => entry,
                Ok(None) => return Ok(false),
                Err(error @ Error::Damaged { .. }) => {
                    let first = damage.take().unwrap_or(error);
                    damaged += 1;
                    // No write that was cut off leaves so much.
                    if damaged > MAX_GROUP {
                        return Err(first);
                    }
                    damage = Some(first);
                    continue;
                }
                Err(error) => return Err(error),
            };
            match entry.event {
                // The writer says that what came before is no evidence; `verify` checks that.
                Event::TornLine { .. } => {
                    damage = None;
                    self.group.clear();
                }
                Event::Commit { .. } => {
                    self.group.push_back(entry);
                    let at = self.reader.stream_position();
                    let at =
                        at.map_err(|source| Error::Read { path: self.path.clone(), source })?;
                    self.whole = (at, self.line);
                    return damage.map_or(Ok(true), Err);
                }
                _ => {}
            }
            if self.group.len() > MAX_GROUP {
                return Err(self.damaged("no commit line for too long"));
            }
            self.group.push_back(entry);
        }
    }

    fn read(&mut self) -> Result<Option<Entry>, Error> {
        self.buffer.clear();
        self.line += 1;
        let limit = MAX_LINE as u64 + 1;
        (&mut self.reader)
            .take(limit)
            .read_until(b'\n', &mut self.buffer)
            .map_err(|source| Error::Read { path: self.path.clone(), source })?;
        let Some(bytes) = self.buffer.strip_suffix(b"\n") else {
            if self.buffer.len() > MAX_LINE {
                let error = self.damaged("longer than 1 MiB");
                self.reader
                    .skip_until(b'\n')
                    .map_err(|source| Error::Read { path: self.path.clone(), source })?;
                return Err(error);
            }
            return Ok(None);
        };
        let line = Line::parse(bytes).map_err(|_| self.damaged("not a line of evidence"))?;
        let event = line.event();
        let event = event.ok_or_else(|| self.damaged("an event without its parts"))?;
        Ok(Some(Entry { seq: line.seq, at: line.at, event }))
    }

    fn damaged(&self, reason: &str) -> Error {
        let (path, line, reason) = (self.path.clone(), self.line, reason.to_owned());
        Error::Damaged { path, line, reason }
    }
}

impl Iterator for Entries {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(entry) = self.group.pop_front() {
            return Some(Ok(entry));
        }
        if self.ended {
            return None;
        }
        match self.fill() {
            Ok(true) => self.group.pop_front().map(Ok),
            Ok(false) => {
                self.ended = true;
                self.group.clear();
                None
            }
            Err(error) => {
                self.ended = true;
                self.group.clear();
                Some(Err(error))
            }
        }
    }
}
