//! Which runs are alive: one locked file each, so that a dead one is known for sure.

mod leases;

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ringfence_record::{Event, Kind, Recorder, RunId};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::Error;

pub(crate) use leases::Book;
pub use leases::{Leased, leases};

/// What is known of a run while it lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live {
    /// Its id.
    pub run: RunId,
    /// What it is.
    #[serde(default)]
    pub kind: Kind,
    /// The supervisor's process id.
    pub pid: u32,
    /// The supervisor's start, clock ticks since boot.
    pub pid_started: u64,
    /// When it began, RFC 3339 UTC.
    pub started: String,
    /// Project folder.
    pub project: PathBuf,
    /// Backend's name.
    pub backend: String,
    /// Mode label, once it is known: the probe has passed, or there is nothing to probe.
    #[serde(default)]
    pub mode: Option<String>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// How many clients it serves now, where it serves some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
}

/// Held by a supervisor: the kernel lets go of it when the process dies, however it dies.
#[derive(Debug)]
pub(crate) struct Lease {
    file: PathBuf,
    _locked: File,
}

impl Lease {
    /// Ends it, but leaves its file for the next sweep to find.
    pub(crate) fn leave(mut self) {
        self.file = PathBuf::new();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The lock goes with the descriptor; a file left behind is swept by the next run.
        if !self.file.as_os_str().is_empty() {
            forget(&self.file);
            let _ = std::fs::remove_file(&self.file);
        }
    }
}

fn folder(home: &Path) -> PathBuf {
    home.join("live")
}

/// The extension of what is said of a run.
const LIVE: &str = "json";
/// The extension of what changes while it lives: the number of its clients.
const NOW: &str = "now";
/// The extension of its mode label, once that is known.
const MODE: &str = "mode";

/// Says how many clients a run serves now. Only `ps` reads it: where it cannot be written, it is not
/// said.
pub(crate) fn tell(home: &Path, run: &RunId, connections: u64) {
    say(home, run, NOW, &connections.to_string());
}

/// Says what a run's mode is, now that it is known. As [`tell`].
pub(crate) fn tell_mode(home: &Path, run: &RunId, mode: &str) {
    say(home, run, MODE, mode);
}

fn say(home: &Path, run: &RunId, what: &str, text: &str) {
    let file = folder(home).join(format!("{run}.{what}"));
    let new = file.with_extension(format!("{what}.new"));
    let mut options = OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&new);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
    if written.and_then(|()| std::fs::rename(&new, &file)).is_err() {
        let _ = std::fs::remove_file(&new);
    }
    // It may have ended meanwhile.
    if !file.with_extension(LIVE).exists() {
        let _ = std::fs::remove_file(&file);
    }
}

/// Takes away what was said of a run that is dead, but for its file itself.
pub(crate) fn forget(file: &Path) {
    for what in [NOW, MODE] {
        let _ = std::fs::remove_file(file.with_extension(what));
    }
}

fn told(file: &Path, what: &str) -> Option<String> {
    std::fs::read_to_string(file.with_extension(what)).ok()
}

/// Announces a run.
pub(crate) fn announce(home: &Path, live: &Live) -> Result<Lease, Error> {
    let folder = folder(home);
    let file = folder.join(format!("{}.json", live.run));
    let io = |source| Error::Io { path: file.clone(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(io)?;
    // Waits only for someone who is just looking.
    let mut open =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file).map_err(io)?;
    flock(&open, FlockOperation::LockExclusive).map_err(|e| io(e.into()))?;
    let text = serde_json::to_vec(live).map_err(|e| io(e.into()))?;
    open.write_all(&text).map_err(io)?;
    Ok(Lease { file, _locked: open })
}

/// The runs that live now, by id.
///
/// # Errors
/// [`Error::Io`].
pub fn list(home: &Path) -> Result<Vec<Live>, Error> {
    let mut all: Vec<Live> =
        entries(home)?.into_iter().filter_map(|e| e.alive.then_some(e.live)).collect();
    all.sort_by(|a, b| a.run.cmp(&b.run));
    Ok(all)
}

/// How many runs died before they had put away what is theirs. `ringfence clean` does it for them.
///
/// # Errors
/// [`Error::Io`].
pub fn crashed(home: &Path) -> Result<usize, Error> {
    Ok(dead(home)?.len())
}

/// Runs whose supervisor died without ending them: their folders, with the file that says so.
pub(crate) fn dead(home: &Path) -> Result<Vec<(Live, PathBuf)>, Error> {
    Ok(entries(home)?.into_iter().filter(|e| !e.alive).map(|e| (e.live, e.file)).collect())
}

struct Entry {
    live: Live,
    file: PathBuf,
    alive: bool,
}

fn entries(home: &Path) -> Result<Vec<Entry>, Error> {
    let folder = folder(home);
    let io = |source| Error::Io { path: folder.clone(), source };
    let listing = match std::fs::read_dir(&folder) {
        Ok(listing) => listing,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(io(e)),
    };
    let mut entries = Vec::new();
    for entry in listing {
        let file = entry.map_err(io)?.path();
        if file.extension().is_none_or(|extension| extension != LIVE) {
            continue;
        }
        // One that ends while we look is not there any more.
        let Ok(mut open) = File::open(&file) else { continue };
        let alive = flock(&open, FlockOperation::NonBlockingLockShared).is_err();
        let mut text = String::new();
        if open.read_to_string(&mut text).is_err() {
            continue;
        }
        if let Ok(mut live) = serde_json::from_str::<Live>(&text) {
            live.connections = told(&file, NOW).and_then(|number| number.parse().ok());
            live.mode = told(&file, MODE).or(live.mode);
            entries.push(Entry { live, file, alive });
        }
    }
    Ok(entries)
}

/// When this process started, in clock ticks since boot (`proc(5)`, field 22 of `stat`).
pub(crate) fn started_at(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so count from its end.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// In a run's folder: who asked for its stop.
const STOP: &str = "stop";

/// Who asked for the stop of a run, if somebody did by [`stop`]; told once.
pub(crate) fn stop_asked(run_dir: &Path) -> Option<String> {
    let text = std::fs::read_to_string(run_dir.join(STOP)).ok()?;
    let _ = std::fs::remove_file(run_dir.join(STOP));
    Some(text.chars().take(100).collect())
}

/// Records who asked for the stop of this run by [`stop`]; it is durable when this returns, so that what is
/// ended next has its reason in the record, whatever becomes of the supervisor. Nothing where nobody did:
/// a signal alone does not say who sent it.
///
/// # Errors
/// As [`Recorder::commit`].
pub(crate) async fn record_stop(recorder: &Recorder) -> Result<(), Error> {
    if let Some(by) = recorder.path().parent().and_then(stop_asked) {
        let _ = recorder.commit(Event::StopRequested { by }).await?;
    }
    Ok(())
}

/// Asks a run to stop and waits until its evidence is sealed and its lease is gone.
///
/// # Errors
/// [`Error::Io`] when the signal cannot be sent.
pub fn stop(home: &Path, live: &Live) -> Result<(), Error> {
    let file = folder(home).join(format!("{}.json", live.run));
    let io = |source| Error::Io { path: file.clone(), source };
    let held = match File::open(&file) {
        Ok(held) => held,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(io(e)),
    };
    // A signal does not say who sent it.
    let note = crate::execute::run_dir(home, &live.run).join(STOP);
    let by = format!("uid {}", rustix::process::getuid().as_raw());
    let mut options = OpenOptions::new();
    let noted = options.write(true).create(true).truncate(true).mode(0o600).open(&note);
    // A run without a folder has no record to say it in.
    match noted.and_then(|mut file| file.write_all(by.as_bytes())) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(error)),
        _ => {}
    }
    let pid = i32::try_from(live.pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid.filter(|_| started_at(live.pid) == Some(live.pid_started)) {
        // Opened before the check below, so that a reused id is never signalled.
        let handle = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
        if let Ok(handle) = handle
            && started_at(live.pid) == Some(live.pid_started)
        {
            rustix::process::pidfd_send_signal(&handle, rustix::process::Signal::TERM)
                .map_err(|e| io(e.into()))?;
        }
    }
    wait_free(&held).map_err(io)
}

/// Waits until a run is over: its supervisor is gone, or has let go of it. At once when it is.
///
/// # Errors
/// [`Error::Io`].
pub fn wait_over(home: &Path, run: &RunId) -> Result<(), Error> {
    let file = folder(home).join(format!("{run}.json"));
    match File::open(&file).and_then(|held| wait_free(&held)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::Io { path: file, source: e })
        }
        _ => Ok(()),
    }
}

/// Waits for a lease to end. Its lock goes with `held`.
fn wait_free(held: &File) -> std::io::Result<()> {
    loop {
        match flock(held, FlockOperation::LockShared) {
            Err(rustix::io::Errno::INTR) => {}
            taken => return Ok(taken?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Live, announce, dead, list, started_at, stop};
    use ringfence_record::RunId;

    fn live(run: &str, pid: u32) -> Live {
        Live {
            run: serde_json::from_value::<RunId>(run.into()).unwrap(),
            kind: ringfence_record::Kind::Run,
            mode: None,
            connections: None,
            pid,
            pid_started: started_at(pid).unwrap_or(0),
            started: "2026-01-01T00:00:00Z".into(),
            project: "/p".into(),
            backend: "native".into(),
            command: vec!["true".into()],
        }
    }

    #[test]
    fn it_says_how_many_it_serves_as_long_as_it_lives() {
        let home = tempfile::tempdir().unwrap();
        let me = live("20260101-000000-00000001", std::process::id());
        let lease = announce(home.path(), &me).unwrap();
        for connections in [0, 7] {
            super::tell(home.path(), &me.run, connections);
            assert_eq!(list(home.path()).unwrap()[0].connections, Some(connections));
        }
        assert_eq!(list(home.path()).unwrap()[0].mode, None);
        super::tell_mode(home.path(), &me.run, "NATIVE / ENFORCED");
        assert_eq!(list(home.path()).unwrap()[0].mode.as_deref(), Some("NATIVE / ENFORCED"));
        drop(lease);
        assert_eq!(std::fs::read_dir(home.path().join("live")).unwrap().count(), 0);
    }

    #[test]
    fn a_lease_says_who_lives_and_who_died() {
        let home = tempfile::tempdir().unwrap();
        let me = live("20260101-000000-00000001", std::process::id());
        assert!(me.pid_started > 0);
        let lease = announce(home.path(), &me).unwrap();
        assert_eq!(list(home.path()).unwrap(), vec![me.clone()]);
        assert!(dead(home.path()).unwrap().is_empty());
        // A crash: the lock is gone, the file is not.
        let gone = live("20260101-000000-00000002", u32::MAX);
        let file = home.path().join("live").join(format!("{}.json", gone.run));
        std::fs::write(&file, serde_json::to_vec(&gone).unwrap()).unwrap();
        assert_eq!(dead(home.path()).unwrap(), vec![(gone.clone(), file)]);
        assert_eq!(list(home.path()).unwrap(), vec![me]);
        stop(home.path(), &gone).unwrap();
        super::tell(home.path(), &gone.run, 1);
        assert!(home.path().join("live").join(format!("{}.now", gone.run)).exists());
        drop(lease);
        assert!(list(home.path()).unwrap().is_empty());
    }
}
