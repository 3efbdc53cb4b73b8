//! Keeps a run's Squid: reads its log as it is written, and says when it has died.

use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::timeout;

use super::desk::Desk;
use super::log::Line;
use super::process::Tail;

/// How long Squid has to end once it is asked to.
const ASKED: Duration = Duration::from_secs(3);
/// Longest line of the log.
const LONGEST: usize = 64 * 1024;

/// Ends when Squid has ended and all that it has logged is taken.
pub(crate) async fn keep(
    mut child: Child,
    log: pipe::Receiver,
    tail: Tail,
    desk: Arc<Desk>,
    mut halted: watch::Receiver<bool>,
) {
    let mut lines = Lines { log, desk: Arc::clone(&desk), buffer: Vec::new() };
    let ended = tokio::select! {
        _ = halted.wait_for(|halt| *halt) => None,
        ended = child.wait() => Some(ended),
        never = lines.follow() => match never {},
    };
    match ended {
        Some(status) => desk.fail(died(status, &tail)),
        None => {
            let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
            if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
                // It is our child and not waited for yet, so that the id is its own.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            // The log is read meanwhile: Squid waits for us where the pipe is full.
            let gone = async {
                tokio::select! {
                    _ = child.wait() => {}
                    never = lines.follow() => match never {},
                }
            };
            if timeout(ASKED, gone).await.is_err() {
                let _ = child.kill().await;
            }
            desk.fail("the run is over".to_owned());
        }
    }
    lines.rest();
}

fn died(status: std::io::Result<ExitStatus>, tail: &Tail) -> String {
    let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
    let words = tail.lock().unwrap_or_else(PoisonError::into_inner);
    match words.iter().rev().find(|line| line.contains("FATAL") || line.contains("ERROR")) {
        Some(line) => format!("Squid ended ({how}): {line}"),
        None => format!("Squid ended ({how})"),
    }
}

struct Lines {
    log: pipe::Receiver,
    desk: Arc<Desk>,
    buffer: Vec<u8>,
}

impl Lines {
    /// Takes line after line.
    async fn follow(&mut self) -> std::convert::Infallible {
        loop {
            match self.log.readable().await {
                Ok(()) => self.rest(),
                Err(error) => {
                    self.desk.fail(format!("Squid's log cannot be read: {error}"));
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    /// Takes what is there now.
    fn rest(&mut self) {
        let mut bytes = [0; 4096];
        // We hold the other end too, so that there is no end to see.
        while let Ok(read @ 1..) = self.log.try_read(&mut bytes) {
            self.buffer.extend_from_slice(&bytes[..read]);
            while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                match Line::parse(&String::from_utf8_lossy(&line[..end])) {
                    Ok(line) => self.desk.take(line),
                    Err(error) => self.desk.fail(error.to_string()),
                }
            }
            if self.buffer.len() > LONGEST {
                self.desk.fail("a line of Squid's log does not end".to_owned());
                self.buffer.clear();
            }
        }
    }
}

/// A tail that keeps the last words.
pub(crate) fn remember(tail: &Mutex<std::collections::VecDeque<String>>, line: &str) {
    let mut words = tail.lock().unwrap_or_else(PoisonError::into_inner);
    if words.len() == 20 {
        words.pop_front();
    }
    words.push_back(crate::decide::shown(line));
}
