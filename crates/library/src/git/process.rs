//! One git process: bounded in time, in what it says and in what it writes.

use std::io::{Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, kill_process_group, pidfd_open, prlimit,
};

use super::failed;
use crate::Error;

/// Most bytes that a fetched repository may have on disk.
const MAX_FOLDER: u64 = 1 << 30;
/// Most bytes of memory that git may map where it reads what was fetched. Where a host is contacted,
/// a person's credential helper may reserve more than it uses.
const MAX_MEMORY: u64 = 6 << 30;
/// Most bytes of an error message that are kept.
const MAX_WORDS: u64 = 16 << 10;
/// How long after its end the words of a process are waited for: something that it left behind may
/// hold its streams open.
const LINGER: Duration = Duration::from_secs(5);
/// How often the size of what it writes is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// What one process may take.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    /// Most time.
    pub(super) time: Duration,
    /// Most bytes on its standard output.
    pub(super) output: u64,
    /// The folder whose size is watched.
    pub(super) folder: Option<PathBuf>,
    /// Most bytes of memory.
    pub(super) memory: Option<u64>,
}

impl Bounds {
    /// For what contacts a host.
    pub(super) const NETWORK: Self =
        Self { time: Duration::from_secs(600), output: 64 << 20, folder: None, memory: None };
    /// For what reads and writes here.
    pub(super) const LOCAL: Self = Self {
        time: Duration::from_secs(300),
        output: 64 << 20,
        folder: None,
        memory: Some(MAX_MEMORY),
    };
}

/// How it ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) success: bool,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
}

impl Ended {
    /// Its own words as an error.
    pub(super) fn error(&self, doing: &str) -> Error {
        let words: Vec<&str> = self
            .stderr
            .lines()
            .filter(|line| !line.trim().is_empty() && !line.starts_with("hint:"))
            .collect();
        let words =
            if words.is_empty() { "git gave no reason".to_owned() } else { words.join("\n") };
        failed(doing, &words)
    }
}

/// Runs it to its end. An error when it could not be started or went past a bound; its group is
/// ended then.
pub(super) fn run(
    mut command: Command,
    input: Vec<u8>,
    bounds: &Bounds,
    doing: &str,
) -> Result<Ended, Error> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let fail = |error: std::io::Error| failed(doing, &format!("git cannot be run: {error}"));
    let mut child = command.spawn().map_err(fail)?;
    let _guard = bounds.memory.is_none().then(|| Guard::of(&child));
    limit(&child, bounds);
    if let Some(mut stdin) = child.stdin.take() {
        // A process that ends early reads no more; how it ended says why.
        std::thread::spawn(move || drop(stdin.write_all(&input)));
    }
    let stdout = child.stdout.take().map(|from| gather(from, bounds.output + 1, false));
    let stderr = child.stderr.take().map(|from| gather(from, MAX_WORDS, true));
    let status = match wait(&mut child, bounds) {
        Ok(status) => status,
        Err(reason) => {
            end(&mut child);
            return Err(failed(doing, &reason));
        }
    };
    let words = |from: Option<Receiver<Vec<u8>>>| from?.recv_timeout(LINGER).ok();
    let stdout = match words(stdout) {
        Some(stdout) => stdout,
        // A helper of the person's may stay, and nothing is read from what contacts a host.
        None if bounds.memory.is_none() => Vec::new(),
        None => {
            end(&mut child);
            return Err(failed(doing, "what git says does not end"));
        }
    };
    if stdout.len() as u64 > bounds.output {
        end(&mut child);
        return Err(failed(doing, "it answers with more than 64 MiB"));
    }
    let stderr = String::from_utf8_lossy(&words(stderr).unwrap_or_default()).into_owned();
    Ok(Ended { success: status.success(), stdout, stderr })
}

/// Ends the group of a process that contacts a host when we end in whatever way: nobody would watch
/// its bounds any more. It waits for the end of a stream that only we hold.
struct Guard(Option<Child>);

impl Guard {
    fn of(child: &Child) -> Self {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "read -r _; kill -9 \"-$1\"", "sh", &child.id().to_string()]);
        command.env_clear().current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Without it, the bounds hold as long as we are there.
        Self(command.spawn().ok())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(guard) = &mut self.0 {
            // Its stream is still open: it ends without ending anything. `wait` would close that.
            let _ = guard.kill();
            let _ = guard.wait();
        }
    }
}

fn wait(child: &mut Child, bounds: &Bounds) -> Result<std::process::ExitStatus, String> {
    let until = Instant::now() + bounds.time;
    let handle =
        pidfd_open(Pid::from_child(child), PidfdFlags::empty()).map_err(|e| e.to_string())?;
    loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            return Ok(status);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("it took longer than {} seconds", bounds.time.as_secs()));
        }
        if bounds.folder.as_deref().is_some_and(|folder| size(folder) > MAX_FOLDER) {
            return Err("the repository is larger than 1 GiB".to_owned());
        }
        let nap = if bounds.folder.is_some() { left.min(LOOK) } else { left };
        let nap = Timespec {
            tv_sec: nap.as_secs().cast_signed(),
            tv_nsec: i64::from(nap.subsec_nanos()),
        };
        // Whatever it gives: what is true is looked at above.
        let _ = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&nap));
    }
}

/// A second bound beside the watch: no single file, and no memory, without end. What git starts
/// inherits it.
fn limit(child: &Child, bounds: &Bounds) {
    let pid = Some(Pid::from_child(child));
    let memory = bounds.memory.map(|most| (Resource::As, most));
    for (resource, most) in [(Resource::Fsize, MAX_FOLDER)].into_iter().chain(memory) {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        // The watch on folder and time holds without it.
        let _ = prlimit(pid, resource, limit);
    }
}

fn end(child: &mut Child) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

/// Reads a stream to its end, or to a bound; what goes past is read and dropped where the process is
/// to end on its own.
fn gather(mut from: impl Read + Send + 'static, most: u64, on: bool) -> Receiver<Vec<u8>> {
    let (to, words) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.by_ref().take(most).read_to_end(&mut bytes);
        if on {
            let _ = std::io::copy(&mut from, &mut std::io::sink());
        }
        drop(from);
        let _ = to.send(bytes);
    });
    words
}

/// Bytes of the files below a folder.
fn size(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => size(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}
