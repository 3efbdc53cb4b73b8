//! Processes that spend from one ledger.

use std::io::{BufRead as _, BufReader, Lines};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::program::{built, reachable};
use crate::{Postgres, Project, Who};

/// A ledger: SQLite in a folder of a user's own, or a PostgreSQL server.
pub struct Ledger {
    /// The machine's folder.
    pub home: PathBuf,
    who: Who,
    url: Option<String>,
    program: PathBuf,
    _folder: tempfile::TempDir,
}

/// A process that spends.
pub struct Budgeted {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    said: Vec<String>,
}

/// What is in a ledger, in units of 1e-8 USD.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spent {
    /// Charged, by the day's sum.
    pub spent: u64,
    /// Set aside, by the day's sum.
    pub aside: u64,
    /// Charged, by single calls.
    pub charged: u64,
    /// Set aside, by single calls.
    pub open: u64,
    /// How many calls are in it.
    pub calls: usize,
    /// The runs of those that are open.
    pub open_runs: Vec<String>,
}

impl Ledger {
    /// In a folder of this user's.
    ///
    /// # Panics
    /// When there is no room for a folder.
    #[must_use]
    pub fn new(who: Who, server: Option<&Postgres>) -> Self {
        let folder = tempfile::Builder::new().prefix("rf-spend").tempdir().expect("a folder");
        std::fs::set_permissions(folder.path(), mode(0o755)).expect("its mode");
        let home = folder.path().join("home");
        std::fs::create_dir(&home).expect("a folder in it");
        std::fs::set_permissions(&home, mode(0o700)).expect("its mode");
        who.own(&home);
        Self::beside(who, server, home, folder)
    }

    /// In the machine's folder of a project.
    ///
    /// # Panics
    /// When there is no room for a folder.
    #[must_use]
    pub fn of(project: &Project, server: Option<&Postgres>) -> Self {
        let folder = tempfile::Builder::new().prefix("rf-spend").tempdir().expect("a folder");
        std::fs::set_permissions(folder.path(), mode(0o755)).expect("its mode");
        Self::beside(project.who(), server, project.state(), folder)
    }

    fn beside(
        who: Who,
        server: Option<&Postgres>,
        home: PathBuf,
        folder: tempfile::TempDir,
    ) -> Self {
        let program = reachable(built().join("ringfence-spender"), folder.path());
        Self { home, who, url: server.map(Postgres::url), program, _folder: folder }
    }

    /// Takes another address of the same server.
    pub fn at(&mut self, url: &str) {
        self.url = Some(url.to_owned());
    }

    /// Begins a process: see `ringfence-spender`.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn spend(&self, run: &str, caps: &str, max: &str, cost: &str, calls: usize) -> Budgeted {
        self.within(&[], run, caps, max, cost, calls)
    }

    /// As [`Ledger::spend`], within another program.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn within(
        &self,
        around: &[&str],
        run: &str,
        caps: &str,
        max: &str,
        cost: &str,
        calls: usize,
    ) -> Budgeted {
        let calls = calls.to_string();
        let mut command = self.command(around);
        command.args(["spend", "did:key:zA", run, caps, max, cost, &calls]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the spender starts");
        let lines = BufReader::new(child.stdout.take().expect("its words")).lines();
        Budgeted { child, lines, said: Vec::new() }
    }

    /// What the ledger holds now.
    ///
    /// # Panics
    /// When it cannot be read.
    #[must_use]
    pub fn spent(&self) -> Spent {
        let report = self.report();
        let sums = report["sums"].as_array().unwrap_or_else(|| panic!("{report}"));
        let mut spent = Spent::default();
        for sum in sums.iter().filter(|sum| sum["kind"] == "day") {
            spent.spent += units(&sum["spent_usd"]);
            spent.aside += units(&sum["reserved_usd"]);
        }
        for call in report["calls"].as_array().expect("calls") {
            spent.calls += 1;
            if call["result"] == "open" {
                spent.open += units(&call["reserved_usd"]);
                spent.open_runs.push(call["run"].as_str().expect("a run").to_owned());
            } else {
                spent.charged += units(&call["cost_usd"]);
            }
        }
        spent
    }

    /// The ledger as JSON, or `error`.
    ///
    /// # Panics
    /// When the program says nothing.
    #[must_use]
    pub fn report(&self) -> Value {
        let output = self.command(&[]).arg("report").output().expect("the spender runs");
        serde_json::from_slice(&output.stdout).expect("a report is JSON")
    }

    fn command(&self, around: &[&str]) -> Command {
        let mut words = self.who.prefix();
        words.extend(around.iter().map(|&word| word.to_owned()));
        words.push(self.program.display().to_string());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).env_clear().env("RINGFENCE_HOME", &self.home);
        if let Some(url) = &self.url {
            command.env("LEDGER_URL", url);
        }
        command.env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
        command
    }
}

impl Budgeted {
    /// Its next line, `None` at its end.
    pub fn line(&mut self) -> Option<String> {
        let line = self.lines.next()?.ok()?;
        self.said.push(line.clone());
        Some(line)
    }

    /// Kills it, at once.
    ///
    /// # Panics
    /// When it is no child of ours any more.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child of ours can be killed");
    }

    /// Waits for its end: every line that it said.
    ///
    /// # Panics
    /// When it is no child of ours any more.
    #[must_use]
    pub fn said(mut self) -> Vec<String> {
        while self.line().is_some() {}
        self.child.wait().expect("it ends");
        self.said
    }
}

/// An amount of a report in units of 1e-8 USD.
fn units(value: &Value) -> u64 {
    let text = value.as_str().unwrap_or_else(|| panic!("an amount: {value}"));
    ringfence_spend::Usd::parse(text).unwrap_or_else(|| panic!("an amount: {text}")).units()
}

fn mode(bits: u32) -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(bits)
}
