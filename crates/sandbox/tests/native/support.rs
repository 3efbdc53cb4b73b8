//! A project of its own for each test, and a supervisor under either user.

use std::fmt;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use ringfence_sandbox::Rule;
use tempfile::TempDir;

pub use crate::supervisor::{Placeholder, REFUSED, Report, Wish};

/// As whom the supervisor runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    Root,
    Ordinary,
}

/// The ordinary user, when the tests themselves are root.
pub const NOBODY: u32 = 65534;

impl User {
    /// Both where we are root; else the one that we are.
    pub fn all() -> Vec<Self> {
        if rustix::process::geteuid().is_root() {
            vec![Self::Root, Self::Ordinary]
        } else {
            vec![Self::Ordinary]
        }
    }

    fn owner(self) -> u32 {
        match self {
            Self::Ordinary if rustix::process::geteuid().is_root() => NOBODY,
            _ => rustix::process::geteuid().as_raw(),
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Root => "root",
            Self::Ordinary => "user",
        })
    }
}

/// One project and what is wanted of its sandbox.
pub struct Case {
    pub user: User,
    pub wish: Wish,
    folder: TempDir,
}

impl Case {
    /// An empty project that the user owns.
    pub fn new(user: User) -> Self {
        let folder = tempfile::Builder::new().prefix("ringfence-test-").tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        let name = root.file_name().unwrap().to_str().unwrap().rsplit('-').next().unwrap();
        let (project, run_dir) = (root.join("project"), root.join(format!("run{name}")));
        for path in [&project, &run_dir] {
            fs::create_dir(path).unwrap();
            chown(path, Some(user.owner()), Some(user.owner())).unwrap();
        }
        let wish = Wish { project, run_dir, ..Wish::default() };
        Self { user, wish, folder }
    }

    pub fn project(&self) -> &Path {
        &self.wish.project
    }

    /// A folder beside the project, outside of the sandbox.
    pub fn outside(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    /// A file of the project, with its folders, owned by the user.
    pub fn file(&self, path: &str, text: &str) -> PathBuf {
        let full = self.project().join(path);
        self.dirs(Path::new(path).parent().unwrap());
        fs::write(&full, text).unwrap();
        self.own(&full);
        full
    }

    /// Folders of the project, owned by the user.
    pub fn dirs(&self, path: &Path) {
        let mut at = self.project().to_path_buf();
        for name in path {
            at.push(name);
            if !at.exists() {
                fs::create_dir(&at).unwrap();
                self.own(&at);
            }
        }
    }

    pub fn own(&self, path: &Path) {
        chown(path, Some(self.user.owner()), Some(self.user.owner())).unwrap();
    }

    pub fn rule(&mut self, path: &str, rule: Rule) -> &mut Self {
        self.wish.mounts.push((path.into(), rule, None));
        self
    }

    pub fn missing(&mut self, path: &str, rule: Rule, placeholder: Placeholder) -> &mut Self {
        self.wish.mounts.push((path.into(), rule, Some(placeholder)));
        self
    }

    /// The supervisor, ready to be started.
    pub fn supervisor(&self) -> Command {
        let program = std::env::current_exe().unwrap();
        let mut command = match self.user {
            User::Ordinary if rustix::process::geteuid().is_root() => {
                let mut command = Command::new("setpriv");
                let id = NOBODY.to_string();
                command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).arg(program);
                command
            }
            _ => Command::new(program),
        };
        command.arg("supervise").arg(serde_json::to_string(&self.wish).unwrap());
        command.stdin(Stdio::null());
        command
    }

    pub fn run(&mut self, command: &[&str]) -> Ran {
        self.wish.command = command.iter().map(|word| (*word).to_owned()).collect();
        Ran(self.supervisor().output().unwrap())
    }

    /// Runs a shell script in the sandbox.
    pub fn sh(&mut self, script: &str) -> Ran {
        self.run(&["/bin/sh", "-c", script])
    }

    /// Starts it, with its standard output as a pipe.
    pub fn start(&mut self, script: &str) -> Child {
        self.wish.command = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        self.supervisor().stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap()
    }

    pub fn report(&self) -> Report {
        let text = fs::read(self.wish.run_dir.join("report.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    /// The cgroups of this run.
    pub fn groups(&self) -> Vec<PathBuf> {
        let run = self.wish.run_dir.file_name().unwrap().to_str().unwrap();
        folders_named(Path::new("/sys/fs/cgroup"), &format!("ringfence-{run}-"))
    }

    /// What is left in the run's folder for cleaning.
    pub fn journals(&self) -> usize {
        let names = fs::read_dir(&self.wish.run_dir).unwrap().map(|e| e.unwrap().file_name());
        names.filter(|name| name.to_str().unwrap().starts_with("sandbox-")).count()
    }
}

fn folders_named(at: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(at).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)) {
                found.push(entry.path());
            }
            found.extend(folders_named(&entry.path(), prefix));
        }
    }
    found
}

/// How a run ended, and what it said.
pub struct Ran(Output);

impl Ran {
    pub fn code(&self) -> i32 {
        self.0.status.code().unwrap()
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    /// Fails the test unless the status was 0. Returns what it said.
    #[track_caller]
    pub fn fine(&self) -> String {
        self.ends(0)
    }

    /// Fails the test unless the status was this. Returns what it said.
    #[track_caller]
    pub fn ends(&self, code: i32) -> String {
        assert_eq!(self.code(), code, "stdout: {}\nstderr: {}", self.stdout(), self.stderr());
        self.stdout()
    }
}
