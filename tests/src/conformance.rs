//! The MCP conformance suites, run against a server, and the server of ours that they pass against.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::house::repository;
use crate::program::built;

/// One suite in one of its choices of scenarios.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suite {
    version: &'static str,
    choice: [&'static str; 2],
}

impl Suite {
    /// 0.1.16, everything that is not pending: the revisions up to 2025-11-25.
    pub const ACTIVE: Self = Self { version: "0.1.16", choice: ["--suite", "active"] };
    /// 0.2.0-alpha.12, what 2025-11-25 requires.
    pub const REQUIRED_2025_11_25: Self =
        Self { version: "0.2.0-alpha.12", choice: ["--requirements", "2025-11-25"] };
    /// 0.2.0-alpha.12, what 2026-07-28 requires.
    pub const REQUIRED_2026_07_28: Self =
        Self { version: "0.2.0-alpha.12", choice: ["--requirements", "2026-07-28"] };
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ACTIVE, Self::REQUIRED_2025_11_25, Self::REQUIRED_2026_07_28];

    /// Its version, as in the registry.
    #[must_use]
    pub fn version(self) -> &'static str {
        self.version
    }

    /// The newest revision that its clients speak.
    #[must_use]
    pub fn revision(self) -> &'static str {
        match self.choice {
            ["--requirements", revision] => revision,
            _ => "2025-11-25",
        }
    }

    /// The scenarios that it counts, from the suite's own list: the older version has none, and counts
    /// what the newer one does of 2025-11-25.
    ///
    /// # Panics
    /// When the list is not there.
    #[must_use]
    pub fn scenarios(self) -> BTreeSet<String> {
        let folder = package(Self::REQUIRED_2025_11_25.version).join("requirements");
        let file = folder.join(format!("{}.yaml", self.revision()));
        let text = fs::read_to_string(&file);
        let text = text.unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let lines = text.lines().skip_while(|line| *line != "server:").skip(1);
        let named = lines.map_while(|line| line.strip_prefix("  - "));
        named.map(str::to_owned).collect()
    }
}

/// What a suite found, scenario by scenario.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// What counts: each scenario's checks with their outcome, in order. What only informs is left
    /// out.
    pub scored: BTreeMap<String, Vec<(String, String)>>,
    /// The same of what the suite runs beside that.
    pub not_scored: BTreeMap<String, Vec<(String, String)>>,
}

impl Summary {
    /// The scenarios that count.
    #[must_use]
    pub fn scenarios(&self) -> BTreeSet<String> {
        self.scored.keys().cloned().collect()
    }

    /// How many scenarios that count passed whole.
    #[must_use]
    pub fn passed(&self) -> usize {
        let whole = |checks: &&Vec<(String, String)>| checks.iter().all(|(_, o)| o == "SUCCESS");
        self.scored.values().filter(whole).count()
    }

    /// The checks that count and did not succeed, as `scenario: check: outcome`.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let failed = self.scored.iter().flat_map(|(scenario, checks)| {
            let failed = checks.iter().filter(|(_, outcome)| outcome != "SUCCESS");
            failed.map(move |(check, outcome)| format!("{scenario}: {check}: {outcome}"))
        });
        failed.collect()
    }
}

/// The folder of what `cargo xtask install` installs.
fn tools() -> PathBuf {
    repository().join("target/tools")
}

/// Where a version of the suite is installed.
fn package(version: &str) -> PathBuf {
    let below = format!("conformance-{version}/node_modules/@modelcontextprotocol/conformance");
    tools().join(below)
}

/// Node of the version that the suites need.
fn node(version: &str) -> Command {
    let node = tools().join("node22/bin/node");
    let suite = package(version).join("dist/index.js");
    for path in [&node, &suite] {
        assert!(path.exists(), "{} is missing: run `cargo xtask install`", path.display());
    }
    let mut command = Command::new(node);
    command.arg(suite).env_remove("NODE_OPTIONS");
    command
}

/// Runs a suite against the server at this URL, and reads what it found.
///
/// # Panics
/// When the suite is not installed, or leaves no results.
#[must_use]
pub fn server(url: &str, suite: Suite) -> Summary {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut command = node(suite.version);
    command.args(["server", "--url", url]).args(suite.choice).arg("-o").arg(folder.path());
    let output = command.stdin(Stdio::null()).output().expect("node can be started");
    let said = String::from_utf8_lossy(&output.stdout);
    let summary = read(folder.path(), &beside(&said));
    assert!(
        !summary.scored.is_empty(),
        "the suite left no results\n{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    summary
}

/// The scenarios that the suite says do not count: `  ✗ name (reason)` under a heading.
fn beside(said: &str) -> BTreeSet<String> {
    let lines = said.lines().skip_while(|line| !line.starts_with("Not scored for "));
    let named = |line: &str| Some(line.trim().strip_prefix(['✓', '✗'])?.trim().to_owned());
    let names = lines.filter_map(named);
    names.filter_map(|line| Some(line.split_once(" (")?.0.to_owned())).collect()
}

/// Reads `<folder>/server-<scenario>-<time>/checks.json` of each scenario.
fn read(folder: &Path, beside: &BTreeSet<String>) -> Summary {
    let mut summary = Summary::default();
    for entry in fs::read_dir(folder).expect("the results can be read").flatten() {
        let name = entry.file_name().into_string().expect("a name of ASCII");
        // `2026-11-30T17-47-03-874Z`, and a dash before it.
        let name = name.strip_prefix("server-").and_then(|name| name.get(..name.len() - 25));
        let name = name.expect("a scenario's folder").to_owned();
        // A scenario that broke off leaves nothing.
        let broken = || r#"[{"id":"checks.json","status":"MISSING"}]"#.to_owned();
        let text =
            fs::read_to_string(entry.path().join("checks.json")).unwrap_or_else(|_| broken());
        let checks: Vec<Value> = serde_json::from_str(&text).expect("checks.json is JSON");
        let text = |check: &Value, key: &str| check[key].as_str().unwrap_or_default().to_owned();
        let found = checks.iter().filter(|check| check["status"] != "INFO");
        let found = found.map(|check| (text(check, "id"), text(check, "status"))).collect();
        let scored = !beside.contains(&name);
        let of = if scored { &mut summary.scored } else { &mut summary.not_scored };
        assert!(of.insert(name.clone(), found).is_none(), "{name} has two results");
    }
    summary
}

/// A table of `docs/conformance.md`, cell by cell.
#[derive(Debug)]
pub struct Table(Vec<Vec<String>>);

impl Table {
    /// Reads the one whose header begins so.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn read(header: &str) -> Self {
        let page = fs::read_to_string(repository().join("docs/conformance.md"));
        let page = page.expect("docs/conformance.md can be read");
        let mut lines = page.lines().skip_while(|line| !line.starts_with(header));
        assert!(lines.next().is_some(), "no table {header:?}");
        let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
        let cells =
            |row: &str| row.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect();
        Self(rows.map(cells).collect())
    }

    /// What stands in the row that begins with these cells, after them.
    ///
    /// # Panics
    /// When there is none, or more than one.
    #[must_use]
    pub fn of(&self, key: &[String]) -> Vec<String> {
        let found: Vec<_> = self.0.iter().filter(|row| row.starts_with(key)).collect();
        match found.as_slice() {
            [row] => row[key.len()..].to_vec(),
            rows => panic!("{} rows begin with {key:?}", rows.len()),
        }
    }

    /// The first cells of all rows.
    ///
    /// # Panics
    /// When a row has fewer, or two begin with the same.
    #[must_use]
    pub fn keys(&self, cells: usize) -> BTreeSet<Vec<String>> {
        let keys: BTreeSet<_> = self.0.iter().map(|row| row[..cells].to_vec()).collect();
        assert_eq!(keys.len(), self.0.len(), "two rows begin with the same");
        keys
    }
}

/// The server that the suites pass against, over HTTP on loopback. It ends when this is dropped.
#[derive(Debug)]
pub struct Fixture {
    child: Child,
    url: String,
}

impl Fixture {
    /// The program, for a manifest that starts it with `--stdio`.
    ///
    /// # Panics
    /// When it is not built.
    #[must_use]
    pub fn program() -> PathBuf {
        let path = built().join("ringfence-conformance-server");
        assert!(path.exists(), "{} is not built", path.display());
        path
    }

    /// Starts it, with these flags.
    ///
    /// # Panics
    /// When it does not say where it listens.
    #[must_use]
    pub fn start(flags: &[&str]) -> Self {
        let mut command = Command::new(Self::program());
        let mut child = command
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the fixture can be started");
        let output = child.stdout.take().expect("its output is a pipe");
        let mut url = String::new();
        BufReader::new(output).read_line(&mut url).expect("it says something");
        assert!(url.starts_with("http://127.0.0.1:"), "not a URL: {url:?}");
        Self { child, url: url.trim().to_owned() }
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
