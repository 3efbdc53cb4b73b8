//! A PostgreSQL server of a test's own, from Debian's package, on a Unix socket in a temporary folder.

use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::Who;

/// `nobody`: the server wants a user that has a name, and refuses root.
const NOBODY: u32 = 65_534;

/// The server. It ends, and its folder goes, when this is dropped.
pub struct Postgres {
    folder: tempfile::TempDir,
    bin: PathBuf,
    server: Option<Child>,
    settings: Vec<String>,
}

impl Postgres {
    /// A new, empty server, as an unprivileged user: PostgreSQL refuses root.
    ///
    /// # Panics
    /// When the server's programs are not installed (`cargo xtask test` does), or do not start.
    #[must_use]
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// As [`Postgres::start`], with settings: `name=value`.
    ///
    /// # Panics
    /// As [`Postgres::start`].
    #[must_use]
    pub fn with(settings: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("rf-pg").tempdir().expect("a folder");
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755))
            .expect("its mode");
        give(folder.path());
        let settings = settings.iter().map(|&s| s.to_owned()).collect();
        let mut postgres = Self { folder, bin: programs(), server: None, settings };
        let made = postgres
            .command("initdb")
            .args(["--auth=trust", "--username=ringfence", "--no-sync", "--encoding=UTF8"])
            .args(["--locale=C", "-D"])
            .arg(postgres.folder.path().join("data"))
            .output()
            .expect("initdb runs");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        postgres.resume();
        postgres
    }

    /// The address, by socket.
    #[must_use]
    pub fn url(&self) -> String {
        let folder = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://ringfence@{folder}/postgres")
    }

    /// A folder that the server's user can read.
    #[must_use]
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Gives a file to the server's user.
    pub fn own(&self, path: &std::path::Path) {
        give(path);
    }

    /// Ends the server at once, as a crash does: what was committed is kept, nothing else is.
    ///
    /// # Panics
    /// When it runs no more.
    pub fn stop(&mut self) {
        // SIGQUIT: immediate shutdown, without so much as a checkpoint.
        self.end(Signal::QUIT);
    }

    /// Starts it again, and returns when it takes connections.
    ///
    /// # Panics
    /// When it does not start.
    pub fn resume(&mut self) {
        let folder = self.folder.path().to_owned();
        let mut command = self.command("postgres");
        command.arg("-D").arg(folder.join("data")).arg("-k").arg(&folder);
        for setting in ["listen_addresses=", "max_connections=300", "shared_buffers=16MB"] {
            command.args(["-c", setting]);
        }
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        let mut server = command.stderr(Stdio::piped()).spawn().expect("postgres starts");
        let mut lines = BufReader::new(server.stderr.take().expect("its log")).lines();
        let mut said = Vec::new();
        let ready = lines.by_ref().map_while(Result::ok).any(|line| {
            let ready = line.contains("database system is ready to accept connections");
            said.push(line);
            ready
        });
        self.server = Some(server);
        assert!(ready, "postgres: {}", said.join("\n"));
        // So that it never waits for somebody who reads its log.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    }

    /// Adds a setting, `name=value`, for the next start.
    pub fn set(&mut self, setting: &str) {
        self.settings.push(setting.to_owned());
    }

    /// Runs SQL in a transaction that stays open until what comes back is dropped.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    pub fn hold(&self, sql: &str) -> Session {
        let mut command = self.command("psql");
        command.args(["-X", "-q", "-A", "-t", "-U", "ringfence", "-d", "postgres", "-h"]);
        let mut psql =
            command.arg(self.folder.path()).stdin(Stdio::piped()).spawn().expect("psql runs");
        let mut input = psql.stdin.take().expect("its input");
        writeln!(input, "BEGIN;\n{sql};\n\\echo held").expect("psql reads");
        let lines = BufReader::new(psql.stdout.take().expect("its output")).lines();
        let held = lines.map_while(Result::ok).any(|line| line == "held");
        assert!(held, "{sql}");
        Session { psql, input: Some(input) }
    }

    /// Runs SQL as its owner, and gives what psql prints.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    pub fn sql(&self, sql: &str) -> String {
        let output = self
            .command("psql")
            .args(["-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "ringfence", "-d", "postgres"])
            .arg("-h")
            .arg(self.folder.path())
            .args(["-c", sql])
            .output()
            .expect("psql runs");
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// A program of the server, as its user; it ends with the suite.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.arg("--pdeathsig=QUIT");
        if Who::suite_is_root() {
            command.arg(format!("--reuid={NOBODY}")).arg(format!("--regid={NOBODY}"));
            command.arg("--clear-groups");
        }
        command.arg("--").arg(self.bin.join(program));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.current_dir("/").env_clear().env("LC_ALL", "C");
        command
    }

    fn end(&mut self, signal: Signal) {
        let mut server = self.server.take().expect("it runs");
        let pid = Pid::from_child(&server);
        kill_process(pid, signal).expect("a child of ours takes signals");
        server.wait().expect("it ends");
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.end(Signal::INT);
        }
    }
}

/// An open transaction; dropped, it is rolled back.
pub struct Session {
    psql: Child,
    input: Option<ChildStdin>,
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.psql.wait();
    }
}

/// Gives a file to the server's user.
fn give(path: &std::path::Path) {
    if Who::suite_is_root() {
        std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY)).expect("root gives it away");
    }
}

/// Debian's folder of the newest version.
fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql");
    let versions = versions.expect("Debian's postgresql is installed: `cargo xtask test` does");
    let newest = versions.flatten().map(|entry| entry.path().join("bin"));
    let newest = newest.filter(|bin| bin.join("postgres").exists()).max();
    newest.expect("Debian's postgresql is installed: `cargo xtask test` does")
}
