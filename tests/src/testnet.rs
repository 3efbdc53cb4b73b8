//! A small internet of our own: a supervisor's side and a public side, in network namespaces that
//! end with the test. See `bin/testnet.rs` for what is on the public side.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{built, reachable};
use crate::{Project, Who};

/// One thing that the public side saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// `dns`, `tls`, `http`, `udp`.
    pub kind: String,
    /// The name asked for, the SNI, or the Host header.
    pub name: String,
    /// The address at which it arrived.
    pub at: String,
}

/// The network. Everything in it ends when this is dropped, or when the test dies.
#[derive(Debug)]
pub struct TestNet {
    who: Who,
    folder: TempDir,
    holder: Child,
    inside: u32,
    _stdin: ChildStdin,
}

impl TestNet {
    /// Supervisor's address.
    pub const SIDE: &str = "11.22.33.1";
    /// A public host: TLS on 443, HTTP on 80, UDP echo on 443.
    pub const PUBLIC: &str = "11.22.33.44";
    /// The same host's IPv6 address.
    pub const PUBLIC6: &str = "2a00:1234::44";
    /// Another public host with the same services.
    pub const OTHER: &str = "11.22.33.45";
    /// A private host with the same services.
    pub const PRIVATE: &str = "10.66.0.44";
    /// The metadata address, with the same services.
    pub const METADATA: &str = "169.254.169.254";
    /// The name server.
    pub const DNS: &str = "11.22.33.53";

    /// Builds it. `zone` maps a name to its answers: a list of addresses, or a list of such lists
    /// that are given one after the other (the last is repeated). A missing name is NXDOMAIN.
    ///
    /// # Panics
    /// When namespaces cannot be made here.
    #[must_use]
    pub fn new(who: Who, zone: &[(&str, Value)]) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("ringfence-net-")
            .tempdir()
            .expect("a temporary folder");
        let map: serde_json::Map<String, Value> =
            zone.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect();
        fs::write(folder.path().join("zone.json"), json!(map).to_string()).expect("our own file");
        // The search domain is a trap: a refused short name must not become an allowed long one.
        let resolv =
            format!("nameserver {}\nsearch example.com\noptions timeout:1 attempts:1\n", Self::DNS);
        fs::write(folder.path().join("resolv.conf"), resolv).expect("our own file");

        let helper = reachable(built().join("ringfence-testnet"), folder.path());
        let mut command = Command::new("unshare");
        // An ordinary user keeps its own id, and gets capabilities over its own namespaces only.
        if !Who::suite_is_root() {
            command.args(["--user", "--map-current-user", "--keep-caps"]);
        }
        command
            .args(["--net", "--mount", "--propagation", "private"])
            .arg(&helper)
            .arg("hold")
            .arg(folder.path());
        let mut holder = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare is installed (cargo xtask test does it)");
        let stdin = holder.stdin.take().expect("stdin is a pipe");
        let mut line = String::new();
        let _ =
            BufReader::new(holder.stdout.take().expect("stdout is a pipe")).read_line(&mut line);
        assert_eq!(line.trim(), "ready", "the test network could not be built");
        let inside = holder.id();
        let who_readable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.path(), who_readable).expect("our own folder");
        Self { who, folder, holder, inside, _stdin: stdin }
    }

    /// What stands before a command so that it runs on the supervisor's side.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let mut words = vec!["nsenter".to_owned(), format!("--target={}", self.inside)];
        if !Who::suite_is_root() {
            words.extend(["--user".into(), "--preserve-credentials".into()]);
        }
        words.extend(["--net".into(), "--mount".into(), "--".into()]);
        words
    }

    /// Lets every command of this project run on the supervisor's side.
    pub fn host(&self, project: &mut Project) {
        debug_assert_eq!(project.who(), self.who);
        project.inside(self.words());
    }

    /// Lets an authorization server and an MCP server speak at every host, in this way.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn authority(&self, script: &Value) {
        let file = self.folder.path().join("authority.new");
        fs::write(&file, script.to_string()).expect("our own file");
        fs::rename(file, self.folder.path().join("authority.json")).expect("our own file");
    }

    /// Its log file.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.folder.path().join("log.jsonl")
    }

    /// The certificate of every TLS server in it.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    /// What the public side has seen so far.
    #[must_use]
    pub fn sightings(&self) -> Vec<Sighting> {
        let text = |v: &Value, k: &str| v[k].as_str().unwrap_or("").to_owned();
        read(&self.log())
            .iter()
            .map(|v| Sighting { kind: text(v, "kind"), name: text(v, "name"), at: text(v, "at") })
            .collect()
    }

    /// Panics unless there was such a sighting.
    #[track_caller]
    pub fn saw(&self, kind: &str, name: &str) {
        let all = self.sightings();
        assert!(
            all.iter().any(|s| s.kind == kind && s.name == name),
            "no {kind} {name:?} in {all:#?}"
        );
    }

    /// Panics unless there was a sighting of this kind whose name begins so.
    #[track_caller]
    pub fn saw_some(&self, kind: &str, start: &str) {
        let all = self.sightings();
        assert!(
            all.iter().any(|s| s.kind == kind && s.name.starts_with(start)),
            "no {kind} {start:?}… in {all:#?}"
        );
    }

    /// Panics if there was a sighting of this kind with this text in its name.
    #[track_caller]
    pub fn saw_no(&self, kind: &str, part: &str) {
        let found: Vec<_> = self
            .sightings()
            .into_iter()
            .filter(|s| s.kind == kind && s.name.contains(part))
            .collect();
        assert!(found.is_empty(), "the public side saw {found:#?}");
    }
}

fn read(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

impl Drop for TestNet {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
