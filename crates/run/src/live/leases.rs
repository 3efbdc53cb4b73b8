//! Which toolsets are leased: one file each, which names the process that holds it.

use std::collections::HashMap;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringfence_record::RunId;
use serde::{Deserialize, Serialize};

use super::{folder, started_at};
use crate::Error;

/// The extension of a lease.
const LEASE: &str = "lease";
/// The extension of one that is being written.
const PART: &str = "part";
/// Bytes of a lease that are read.
const MOST: u64 = 64 << 10;

/// A toolset that one connection has for a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leased {
    /// The session in which it is leased.
    pub run: RunId,
    /// Which toolset.
    pub toolset: String,
    /// Its number within its process.
    pub id: u64,
    /// What for, in an agent's words: hostile text.
    pub task: String,
    /// Whose connection it is, as in the record.
    pub holder: String,
    /// The process that holds it.
    pub pid: u32,
    /// That process's start, clock ticks since boot: another process with its number is told apart.
    pub pid_started: u64,
    /// Since when, RFC 3339 UTC.
    pub since: String,
}

/// A lease that this process holds: ends when dropped.
#[derive(Debug)]
struct Holding(PathBuf);

impl Drop for Holding {
    fn drop(&mut self) {
        // One that stays behind is no lease any more once this process is gone.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The leases that this process holds in one session.
pub(crate) struct Book {
    home: PathBuf,
    run: RunId,
    held: Mutex<HashMap<u64, Holding>>,
}

impl Book {
    pub(crate) fn new(home: &Path, run: &RunId) -> Self {
        Self { home: home.to_owned(), run: run.clone(), held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<u64, Holding>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn began(
        &self,
        id: u64,
        toolset: &str,
        task: &str,
        holder: &str,
    ) -> Result<(), Error> {
        let pid = std::process::id();
        let leased = Leased {
            run: self.run.clone(),
            toolset: toolset.to_owned(),
            id,
            task: task.to_owned(),
            holder: holder.to_owned(),
            pid,
            // A lease whose holder cannot be told from another would have no end.
            pid_started: started_at(pid).ok_or_else(|| Error::Io {
                path: format!("/proc/{pid}/stat").into(),
                source: std::io::ErrorKind::NotFound.into(),
            })?,
            since: jiff::Timestamp::now().to_string(),
        };
        let holding = write(&self.home, &leased)?;
        self.held().insert(id, holding);
        Ok(())
    }

    pub(crate) fn ended(&self, id: u64) {
        self.held().remove(&id);
    }
}

fn write(home: &Path, leased: &Leased) -> Result<Holding, Error> {
    let folder = folder(home);
    let name = format!("{}.{}", leased.run, leased.id);
    let file = folder.join(format!("{name}.{LEASE}"));
    // Whole or not at all: what could not be written does not stay behind.
    let part = Holding(folder.join(format!("{name}.{PART}")));
    let io = |source| Error::Io { path: file.clone(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(io)?;
    let text = serde_json::to_vec(leased).map_err(|e| io(e.into()))?;
    let mut options = OpenOptions::new();
    let mut open =
        options.write(true).create(true).truncate(true).mode(0o600).open(&part.0).map_err(io)?;
    open.write_all(&text).map_err(io)?;
    std::fs::rename(&part.0, &file).map_err(io)?;
    Ok(Holding(file))
}

/// The leases whose holders live, by session and number. What a dead one left is taken away.
///
/// # Errors
/// [`Error::Io`].
pub fn leases(home: &Path) -> Result<Vec<Leased>, Error> {
    let folder = folder(home);
    let io = |source| Error::Io { path: folder.clone(), source };
    let listing = match std::fs::read_dir(&folder) {
        Ok(listing) => listing,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(io(e)),
    };
    let mut found = Vec::new();
    for entry in listing {
        let file = entry.map_err(io)?.path();
        if file.extension().is_none_or(|extension| extension != LEASE) {
            continue;
        }
        // One that ends while we look is not there any more.
        let Some(text) = read(&file) else { continue };
        // What is none was not written here.
        let Ok(leased) = serde_json::from_str::<Leased>(&text) else { continue };
        if lives(leased.pid, leased.pid_started) {
            found.push(leased);
        } else {
            let _ = std::fs::remove_file(&file);
        }
    }
    found.sort_by(|a, b| (&a.run, a.id).cmp(&(&b.run, b.id)));
    Ok(found)
}

/// Whether this process is there and has not ended: one that nobody has waited for yet is in the table
/// of processes still (`proc(5)`, field 3 of `stat`).
fn lives(pid: u32, started: u64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X' | 'x')) && started_at(pid) == Some(started)
}

fn read(file: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(file).ok()?.take(MOST).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use ringfence_record::RunId;

    use super::{Book, Leased, leases, write};

    #[test]
    fn a_lease_that_cannot_be_written_leaves_nothing_behind() {
        let home = tempfile::tempdir().unwrap();
        let run = RunId::fresh();
        let book = Book::new(home.path(), &run);
        book.began(1, "review", "control", "agent").unwrap();
        // A disk that is full.
        let folder = home.path().join("live");
        let part = folder.join(format!("{run}.2.{}", super::PART));
        std::os::unix::fs::symlink("/dev/full", &part).unwrap();
        assert!(book.began(2, "review", "no room", "agent").is_err());
        assert_eq!(leases(home.path()).unwrap().len(), 1);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn a_lease_lasts_as_long_as_its_holder_and_no_other_process_takes_it_over() {
        let home = tempfile::tempdir().unwrap();
        let run = RunId::fresh();
        assert!(leases(home.path()).unwrap().is_empty());
        let book = Book::new(home.path(), &run);
        book.began(1, "review", "to review", "agent").unwrap();
        let mine = leases(home.path()).unwrap().pop().unwrap();
        assert_eq!((mine.toolset.as_str(), mine.pid), ("review", std::process::id()));
        // A process of this number that started at another time, and one that is gone.
        for (id, pid, pid_started) in [(2, mine.pid, mine.pid_started + 1), (3, u32::MAX, 1)] {
            let other = Leased { id, pid, pid_started, ..mine.clone() };
            let file = write(home.path(), &other).unwrap();
            assert!(file.0.exists());
            assert_eq!(leases(home.path()).unwrap(), vec![mine.clone()]);
            assert!(!file.0.exists(), "what a dead holder left is gone");
        }
        // And one that has ended, though nobody has waited for it yet.
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id();
        let pid_started = super::started_at(pid).unwrap();
        let other = Leased { id: 4, pid, pid_started, ..mine.clone() };
        let file = write(home.path(), &other).unwrap();
        assert_eq!(leases(home.path()).unwrap(), vec![mine.clone(), other], "the control");
        drop(child.stdin.take());
        while super::lives(pid, pid_started) {
            std::thread::yield_now();
        }
        assert_eq!(super::started_at(pid), Some(pid_started), "it is in the table still");
        assert_eq!(leases(home.path()).unwrap(), vec![mine.clone()]);
        assert!(!file.0.exists());
        child.wait().unwrap();
        book.ended(1);
        assert!(leases(home.path()).unwrap().is_empty());
        assert_eq!(std::fs::read_dir(home.path().join("live")).unwrap().count(), 0);
    }
}
