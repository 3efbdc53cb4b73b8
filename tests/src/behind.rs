//! The gateway in front of one server, serving over HTTP to a suite that can send no token.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};

use crate::relay::{Relay, free_port, wait_for};
use crate::{Project, Who, repository};

/// The folder of what `cargo xtask install` installs.
///
/// # Panics
/// When it is not there.
#[must_use]
pub fn tools() -> PathBuf {
    let folder = repository().join("target/tools");
    folder.canonicalize().expect("`cargo xtask install` makes it")
}

/// A file of an installed tool.
///
/// # Panics
/// When it is not there.
#[must_use]
pub fn path(below: &str) -> String {
    let path = tools().join(below);
    assert!(path.exists(), "{} is missing: run `cargo xtask install`", path.display());
    path.display().to_string()
}

/// A process and all that it started, ended when dropped.
#[derive(Debug)]
pub struct Group(Child);

impl Group {
    /// Starts it, and waits until it listens on a port of loopback.
    ///
    /// # Panics
    /// When it cannot be started, or ends before it listens.
    #[must_use]
    pub fn start(words: &[String], port: u16) -> Self {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        let mut group = Self(command.spawn().unwrap_or_else(|e| panic!("{}: {e}", words[0])));
        wait_for(port, &mut group.0);
        group
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// How a server is reached without the gateway.
#[derive(Debug, Clone)]
pub enum Speaks {
    /// These words start it; `{project}` is a folder.
    Stdio(Vec<String>),
    /// These words start it; `{port}` is where it is to listen.
    Http(Vec<String>),
    /// It listens at this URL.
    There(String),
}

/// The gateway in front of one server, serving.
#[derive(Debug)]
pub struct Gateway {
    child: Child,
    project: Project,
    _relay: Relay,
    _behind: Option<Group>,
    url: String,
}

impl Gateway {
    /// Starts it, with whatever the server needs, pinned and trusted.
    ///
    /// # Panics
    /// When any of it does not stand.
    #[must_use]
    pub fn start(speaks: &Speaks) -> Self {
        let (server, behind) = match speaks {
            Speaks::There(url) => (format!("type = \"http\"\nurl = {url:?}\n"), None),
            Speaks::Stdio(words) => {
                let args = serde_json::to_string(&words[1..]).expect("words");
                (format!("type = \"stdio\"\ncommand = {:?}\nargs = {args}\n", words[0]), None)
            }
            Speaks::Http(words) => {
                let port = free_port();
                let with = |word: &String| word.replace("{port}", &port.to_string());
                let group = Group::start(&words.iter().map(with).collect::<Vec<_>>(), port);
                (format!("type = \"http\"\nurl = \"http://127.0.0.1:{port}/mcp\"\n"), Some(group))
            }
        };
        let project = Project::new(Who::Itself);
        project.file("seen.txt", "seen through the gateway\n");
        let git = |args: &[&str]| {
            let done = Command::new("git").arg("-C").arg(project.path()).args(args).output();
            assert!(done.is_ok_and(|done| done.status.success()), "git {args:?}");
        };
        git(&["init", "--quiet", "--initial-branch=main"]);
        project.manifest(&format!(
            "version = 1\n\n[agent]\nname = \"case\"\n\n[servers.real]\n{}methods = [\n{}]\n\n\
             [policy.filesystem]\nread = [\"**\", \"{}/**\"]\n",
            server.replace("{project}", &project.path().display().to_string()),
            METHODS.map(|method| format!("  {method:?},\n")).concat(),
            tools().display(),
        ));
        project.lock();
        project.trust();
        // Pinned: what the suite finds is found through the pins too.
        project.lock_tools();
        project.trust();
        let token = project.ringfence(&["gateway", "token", "create", "suite"]).ok().stdout;
        let port = free_port();
        let host = format!("127.0.0.1:{port}");
        let serve = ["gateway", "serve", "--json", "--listen", "127.0.0.1:0", "--host", &host];
        let program = project.program().display().to_string();
        let folder = project.path().display().to_string();
        let mut child = project
            .command(&[&[program.as_str(), "-C", &folder], &serve[..]].concat())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the gateway can be started");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("it says where it listens");
        let told: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{line}: {e}"));
        let address = told["listening"]["address"].as_str().expect("its address").to_owned();
        let gateway = address.rsplit(':').next().and_then(|port| port.parse().ok());
        let relay = Relay::start(port, gateway.expect("a port"), token.trim());
        let url = format!("http://{host}/real/mcp");
        Self { child, project, _relay: relay, _behind: behind, url }
    }

    /// Where a suite finds the server.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The project's folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.project.path()
    }

    /// Calls one tool in a session of its own; the reply.
    ///
    /// # Panics
    /// When there is no session.
    #[must_use]
    pub fn call(&self, tool: &str, arguments: &Value) -> String {
        let post = |session: Option<&str>, body: &Value| {
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--show-error", "--include", "--max-time", "60", "--data"]);
            curl.arg(body.to_string()).args(["-H", "Content-Type: application/json"]);
            curl.args(["-H", "Accept: application/json, text/event-stream"]);
            if let Some(session) = session {
                curl.args(["-H", "MCP-Protocol-Version: 2025-11-25", "-H", session]);
            }
            let output = curl.arg(&self.url).output().expect("curl is there");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let hello = json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "case", "version": "1" },
        });
        let greeted = post(
            None,
            &json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello }),
        );
        let session = greeted
            .lines()
            .find(|line| line.to_ascii_lowercase().starts_with("mcp-session-id:"))
            .unwrap_or_else(|| panic!("no session: {greeted}"))
            .trim();
        post(Some(session), &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        let params = json!({ "name": tool, "arguments": arguments });
        let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
        post(Some(session), &call)
    }

    /// Ends it as a person would; the record is whole.
    ///
    /// # Panics
    /// When it is not.
    pub fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it is alive");
        assert!(self.child.wait().expect("it is our child").success());
        self.project.ringfence(&["audit", "verify"]).ok().done();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Where a test broke off: it has ended otherwise.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Everything that the suite asks for beside tools.
const METHODS: [&str; 9] = [
    "resources/list",
    "resources/read",
    "resources/templates/list",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "logging/setLevel",
];
