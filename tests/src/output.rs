//! A started program: its words, its end, and no hanging.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;

/// How long a command may take before it counts as hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// What a program left: how it ended and what it said.
#[derive(Debug)]
pub struct Output {
    /// The command, for messages.
    pub command: String,
    /// Exit status as a shell gives it: 128 plus the signal when it was killed.
    pub status: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// Panics with everything it said unless it ended with this status.
    #[track_caller]
    #[must_use = "or call `.done()`"]
    pub fn expect(self, status: i32) -> Self {
        assert_eq!(
            self.status, status,
            "\n$ {}\n--- stdout\n{}\n--- stderr\n{}",
            self.command, self.stdout, self.stderr
        );
        self
    }

    /// Panics unless it ended with 0.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.expect(0)
    }

    /// Says that only the end mattered.
    pub fn done(self) {}

    /// Panics unless standard error has each of these words.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Self {
        for word in words {
            assert!(
                self.stderr.contains(word),
                "`{}` does not say {word:?}\n--- stdout\n{}\n--- stderr\n{}",
                self.command,
                self.stdout,
                self.stderr
            );
        }
        self
    }

    /// Standard output as one JSON value.
    #[track_caller]
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| {
            panic!("`{}` printed no JSON ({e}):\n{}\n{}", self.command, self.stdout, self.stderr)
        })
    }

    /// The last line of standard output as a JSON value (`run --json` ends with one).
    #[track_caller]
    #[must_use]
    pub fn last_json(&self) -> Value {
        let start = self.stdout.rfind("\n{").map_or(0, |at| at + 1);
        serde_json::from_str(&self.stdout[start..]).unwrap_or_else(|e| {
            panic!("`{}` did not end with JSON ({e}):\n{}", self.command, self.stdout)
        })
    }
}

/// A program that runs. Killed when dropped.
#[derive(Debug)]
pub struct Started {
    command: String,
    child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

fn drain(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Started {
    /// Starts a command with no stdin and both streams gathered.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn new(mut command: Command) -> Self {
        let words = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("start {words}: {e}"));
        let stdout = child.stdout.take().map(drain);
        let stderr = child.stderr.take().map(drain);
        Self { command: words, child, stdout, stderr }
    }

    /// Its process id. The wrappers (`setpriv`, `nsenter`) replace themselves, so it is the
    /// program's own.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(self.raw_pid(), signal);
    }

    fn raw_pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Whether it ends within this time.
    #[must_use]
    pub fn ends_within(&mut self, time: Duration) -> bool {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return true;
        }
        let Ok(fd) = pidfd_open(self.raw_pid(), PidfdFlags::empty()) else {
            return matches!(self.child.try_wait(), Ok(Some(_)));
        };
        let limit = Timespec {
            tv_sec: time.as_secs().cast_signed(),
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)).is_ok_and(|n| n > 0)
    }

    /// Waits for its end and gathers what it said.
    ///
    /// # Panics
    /// When it has not ended after a minute and a half.
    #[track_caller]
    pub fn finish(mut self) -> Output {
        use std::os::unix::process::ExitStatusExt;
        let ended = self.ends_within(PATIENCE);
        if !ended {
            let _ = self.child.kill();
        }
        let status = self.child.wait().expect("a child can be waited for");
        let text = |t: Option<JoinHandle<String>>| {
            t.map_or_else(String::new, |t| t.join().unwrap_or_default())
        };
        let output = Output {
            command: std::mem::take(&mut self.command),
            status: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            stdout: text(self.stdout.take()),
            stderr: text(self.stderr.take()),
        };
        assert!(
            ended,
            "hung: {}\n--- stdout\n{}\n--- stderr\n{}",
            output.command, output.stdout, output.stderr
        );
        output
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
