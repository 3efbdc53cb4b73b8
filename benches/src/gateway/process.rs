//! Processes of a benchmark, which end with it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::Result;

/// How long a program may take to listen: Python programs take seconds.
const READY: Duration = Duration::from_secs(60);

/// Returns when standard input has ended: whoever started this process is gone.
pub(crate) async fn ended() {
    let _ = tokio::task::spawn_blocking(|| {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    })
    .await;
}

/// A program that runs until it is dropped.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(name: &str, command: &mut Command) -> Result<Self> {
        // Held open: programs of ours end when it closes.
        command.stdin(Stdio::piped());
        command.spawn().map(Self).map_err(|e| format!("{name}: {e}"))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Its first line.
    pub(crate) fn line(&mut self) -> Result<String> {
        let stdout = self.0.stdout.take().ok_or("stdout is no pipe")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).map_err(|e| e.to_string())?;
        Ok(line.trim().to_owned())
    }

    /// Waits until something listens on a port.
    pub(crate) fn listens(&mut self, name: &str, port: u16) -> Result {
        let start = Instant::now();
        while start.elapsed() < READY {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(());
            }
            if let Ok(Some(status)) = self.0.try_wait() {
                return Err(format!("{name} ended ({status})"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("{name} does not listen"))
    }

    /// KiB of memory that it holds now, without what it shares with others.
    pub(crate) fn memory(&self) -> Result<f64> {
        memory(self.id(), "Rss:")
    }
}

/// KiB of a process's memory, by the name of a line of its `smaps_rollup`.
pub(crate) fn memory(process: u32, line: &str) -> Result<f64> {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    let found = text.lines().find_map(|l| l.strip_prefix(line)).ok_or(format!("no {line}"))?;
    found.trim().trim_end_matches(" kB").trim().parse().map_err(|e| format!("{line} {e}"))
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            if matches!(self.0.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
    Ok(listener.local_addr().map_err(|e| e.to_string())?.port())
}

/// A process that does one order after the other, a line each.
pub(crate) struct Worker {
    child: Running,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Worker {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let mut child = Running::start("the load generator", command.stdout(Stdio::piped()))?;
        let stdin = child.0.stdin.take().ok_or("stdin is no pipe")?;
        let stdout = BufReader::new(child.0.stdout.take().ok_or("stdout is no pipe")?);
        Ok(Self { child, stdin, stdout })
    }

    /// The process that was started.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order and waits for what became of it.
    pub(crate) fn order(&mut self, order: &Value) -> Result<Value> {
        writeln!(self.stdin, "{order}").map_err(|e| format!("the load generator: {e}"))?;
        let mut line = String::new();
        self.stdout.read_line(&mut line).map_err(|e| e.to_string())?;
        let reply: Value =
            serde_json::from_str(&line).map_err(|_| format!("the load generator ended: {line}"))?;
        match reply["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(reply),
        }
    }
}
