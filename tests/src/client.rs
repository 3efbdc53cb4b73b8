//! An MCP client over the stdio of a started program: JSON lines, in any revision.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::{Value, json};

use crate::output::PATIENCE;

/// The client. Its program is killed when it is dropped.
#[derive(Debug)]
pub struct StdioClient {
    words: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Option<std::thread::JoinHandle<String>>,
    /// Messages that came and were not asked for yet.
    came: VecDeque<Value>,
    /// What the client answers to `roots/list`; without it it has none to say.
    roots: Option<Value>,
    last: i64,
}

impl StdioClient {
    /// Starts a program.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        let words = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("start {words}: {e}"));
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("it is piped");
        let mut err = child.stderr.take().expect("it is piped");
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let stderr = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = err.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let came = VecDeque::new();
        Self { words, child, stdin, lines, stderr: Some(stderr), came, roots: None, last: 0 }
    }

    /// Says these folders when it is asked for its roots.
    pub fn with_roots(&mut self, uris: &[String]) -> &mut Self {
        let roots: Vec<_> = uris.iter().map(|uri| json!({ "uri": uri })).collect();
        self.roots = Some(json!({ "roots": roots }));
        self
    }

    /// Its process id. Wrappers replace themselves, so it is the program's own.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Sends one message.
    pub fn send(&mut self, message: &Value) {
        // A program that is gone is found out by whoever waits for its answer.
        if let Some(stdin) = &mut self.stdin {
            let _ = stdin.write_all(format!("{message}\n").as_bytes());
            let _ = stdin.flush();
        }
    }

    /// Sends a request; gives its id.
    pub fn ask(&mut self, method: &str, params: Value) -> i64 {
        self.last += 1;
        let id = self.last;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// The next message that this takes; others are kept. Answers `roots/list` meanwhile.
    ///
    /// # Panics
    /// When it does not come.
    #[track_caller]
    pub fn next(&mut self, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        if let Some(at) = self.came.iter().position(&mut wanted) {
            return self.came.remove(at).expect("it is there");
        }
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = match self.lines.recv_timeout(left) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => panic!("no answer from {}", self.words),
                Err(RecvTimeoutError::Disconnected) => {
                    let _ = self.child.kill();
                    let said = self.stderr.take().and_then(|said| said.join().ok());
                    panic!("{} ended:\n{}", self.words, said.unwrap_or_default());
                }
            };
            let message: Value = serde_json::from_str(&line)
                .unwrap_or_else(|e| panic!("stdout is the protocol's alone ({e}): {line:?}"));
            if message["method"] == "roots/list"
                && let Some(roots) = self.roots.clone()
            {
                let id = message["id"].clone();
                self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": roots }));
            }
            if wanted(&message) {
                return message;
            }
            self.came.push_back(message);
        }
    }

    /// The answer to a request.
    #[track_caller]
    pub fn answer(&mut self, id: i64) -> Value {
        self.next(|message| message["id"] == id && message.get("method").is_none())
    }

    /// Asks, and waits for the answer.
    #[track_caller]
    pub fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.answer(id)
    }

    /// The handshake of the revisions that have one; gives what the server says of itself.
    #[track_caller]
    pub fn handshake(&mut self, revision: &str) -> Value {
        let capabilities = match &self.roots {
            Some(_) => json!({ "roots": { "listChanged": true } }),
            None => json!({}),
        };
        let hello = self.request(
            "initialize",
            json!({
                "protocolVersion": revision, "capabilities": capabilities,
                "clientInfo": { "name": "case", "version": "0" },
            }),
        );
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        assert_eq!(hello["result"]["protocolVersion"], revision, "{hello}");
        hello["result"].clone()
    }

    /// A request of the stateless revision.
    #[track_caller]
    pub fn stateless(&mut self, method: &str, params: Value) -> Value {
        self.request(method, stateless(params))
    }

    /// The names of the tools that are listed.
    #[track_caller]
    pub fn tools(&mut self) -> Vec<String> {
        names(&self.request("tools/list", json!({})))
    }

    /// Calls a tool.
    #[track_caller]
    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// Closes its stdin.
    pub fn close(&mut self) {
        self.stdin = None;
    }

    /// Closes its stdin and waits for its end.
    ///
    /// # Panics
    /// When it does not end.
    #[track_caller]
    pub fn finish(mut self) -> (i32, String) {
        self.close();
        self.ended()
    }

    /// Waits for its end; gives its status as a shell does, and what it said on stderr.
    ///
    /// # Panics
    /// When it does not end.
    #[track_caller]
    pub fn ended(mut self) -> (i32, String) {
        use std::os::unix::process::ExitStatusExt;
        let pid = Pid::from_child(&self.child);
        if let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) {
            let limit = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
            let ended = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit));
            assert!(ended.is_ok_and(|n| n > 0), "hung: {}", self.words);
        }
        let status = self.child.wait().expect("a child can be waited for");
        let said = self.stderr.take().and_then(|said| said.join().ok()).unwrap_or_default();
        (status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)), said)
    }
}

impl Drop for StdioClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Parameters of a request of the stateless revision.
#[must_use]
pub fn stateless(mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "case", "version": "0" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    params
}

/// The names in an answer to `tools/list`.
///
/// # Panics
/// When it is none.
#[track_caller]
#[must_use]
pub fn names(answer: &Value) -> Vec<String> {
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("no list: {answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Waits for something that happens by itself, and looks at it every few milliseconds.
///
/// # Panics
/// When it does not happen within a minute and a half.
#[track_caller]
pub fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < end, "{what} does not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}
