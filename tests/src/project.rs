//! A project with a bundle, and a machine's state of its own, in a folder that goes away.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::program::{program, reachable};
use crate::{Events, Output, Started, Wall, Who};

/// A temporary project, `RINGFENCE_HOME` and `HOME`, owned by the user who is to use them.
#[derive(Debug)]
pub struct Project {
    who: Who,
    root: TempDir,
    program: PathBuf,
    env: BTreeMap<String, String>,
    inside: Vec<String>,
    wall: Wall,
}

impl Project {
    /// An empty project of this user.
    ///
    /// # Panics
    /// When the folders cannot be made.
    #[must_use]
    pub fn new(who: Who) -> Self {
        let root =
            tempfile::Builder::new().prefix("ringfence-").tempdir().expect("a temporary folder");
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755))
            .expect("our own folder");
        for name in ["project", "state", "home"] {
            let path = root.path().join(name);
            fs::create_dir(&path).expect("our own folder");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("our own folder");
            who.own(&path);
        }
        let program =
            if who == Who::Ordinary { reachable(program(), root.path()) } else { program() };
        let mut new = Self {
            who,
            root,
            program,
            env: BTreeMap::new(),
            inside: Vec::new(),
            wall: Wall::Native,
        };
        let home = new.home().display().to_string();
        let state = new.state().display().to_string();
        new.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        new.env("LANG", "C.UTF-8")
            .env("NO_COLOR", "1")
            .env("HOME", &home)
            .env("RINGFENCE_HOME", &state);
        new
    }

    /// A project with this manifest, locked and trusted.
    #[must_use]
    pub fn ready(who: Who, manifest: &str) -> Self {
        let project = Self::new(who);
        project.manifest(manifest);
        project.lock();
        project.trust();
        project
    }

    /// Whose it is.
    #[must_use]
    pub fn who(&self) -> Who {
        self.who
    }

    /// The program, at a path that this user can execute.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The project folder.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.root.path().join("project")
    }

    /// `RINGFENCE_HOME`.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.root.path().join("state")
    }

    /// `HOME`.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// The folder that holds all of these.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Sets a variable of the host environment in which the program runs.
    pub fn env(&mut self, name: &str, value: &str) -> &mut Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Lets the program run inside something: these words stand before every command.
    pub fn inside(&mut self, words: Vec<String>) -> &mut Self {
        self.inside = words;
        self
    }

    /// Puts every run behind this kind of sandbox.
    pub fn behind(&mut self, wall: Wall) -> &mut Self {
        self.wall = wall;
        self
    }

    /// Writes a file of the project, with its folders.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn file(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        self.write(&self.path(), path, bytes.as_ref())
    }

    /// Writes a file under `RINGFENCE_HOME`.
    pub fn state_file(&self, path: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        self.write(&self.state(), path, bytes.as_ref())
    }

    fn write(&self, base: &Path, path: &str, bytes: &[u8]) -> PathBuf {
        let full = base.join(path);
        let folder = full.parent().expect("a file is in a folder");
        let mut missing = folder.ancestors().take_while(|p| !p.exists()).last().map(Path::to_owned);
        fs::create_dir_all(folder).expect("our own folder");
        fs::write(&full, bytes).expect("our own file");
        self.who.own(missing.take().as_deref().unwrap_or(&full));
        full
    }

    /// Writes `.ringfence/ringfence.toml`; for a container with the image of cases.
    pub fn manifest(&self, text: &str) -> PathBuf {
        let image = format!("[sandbox]\nimage = \"{}\"\n", crate::Engine::AGENT);
        let text = match self.wall.is_container() {
            false => text.to_owned(),
            true if text.contains("\n[sandbox]\n") => text.replacen("[sandbox]\n", &image, 1),
            true => format!("{text}\n{image}"),
        };
        self.file(".ringfence/ringfence.toml", text)
    }

    /// Writes the overlay, `.ringfence/ringfence.local.toml`.
    pub fn local(&self, text: &str) -> PathBuf {
        self.file(".ringfence/ringfence.local.toml", text)
    }

    /// Writes the machine's policy.
    pub fn machine(&self, text: &str) -> PathBuf {
        self.state_file("machine.toml", text)
    }

    /// A command in the environment of this project, as its user.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> Command {
        let mut all = self.inside.clone();
        all.extend(self.who.prefix());
        all.extend(words.iter().map(|w| (*w).to_owned()));
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]).env_clear().envs(&self.env).current_dir(self.root.path());
        command
    }

    /// Runs any command in the project folder, as its user, to its end.
    #[track_caller]
    pub fn shell(&self, words: &[&str]) -> Output {
        let mut command = self.command(words);
        command.current_dir(self.path());
        Started::new(command).finish()
    }

    /// Starts `ringfence -C <project>` with these arguments.
    #[must_use]
    pub fn start(&self, args: &[&str]) -> Started {
        let program = self.program.display().to_string();
        let path = self.path().display().to_string();
        let mut words = vec![program.as_str(), "-C", path.as_str()];
        words.extend(args);
        Started::new(self.command(&words))
    }

    /// Runs `ringfence` with these arguments to its end.
    #[track_caller]
    pub fn ringfence(&self, args: &[&str]) -> Output {
        self.start(args).finish()
    }

    /// `ringfence run -- <command>`.
    #[track_caller]
    pub fn run(&self, command: &[&str]) -> Output {
        let mut args = vec!["run", "--sandbox", self.wall.name(), "--"];
        args.extend(command);
        self.ringfence(&args)
    }

    /// `ringfence lock`, which must succeed.
    #[track_caller]
    pub fn lock(&self) {
        self.ringfence(&["lock"]).ok().done();
    }

    /// `ringfence lock --tools`, which must succeed.
    #[track_caller]
    pub fn lock_tools(&self) -> Output {
        self.ringfence(&["lock", "--tools"]).ok()
    }

    /// The review digest that `trust --preview --json` prints.
    #[track_caller]
    #[must_use]
    pub fn preview(&self) -> String {
        let preview = self.ringfence(&["trust", "--preview", "--json"]).ok().json();
        preview["review_digest"].as_str().expect("preview names the digest").to_owned()
    }

    /// A person's yes to what is there now.
    #[track_caller]
    pub fn trust(&self) {
        let digest = self.preview();
        self.ringfence(&["trust", "--yes", "--consented", &digest]).ok().done();
    }

    /// Ids of the runs on this machine, oldest first.
    #[must_use]
    pub fn runs(&self) -> Vec<String> {
        let mut all: Vec<String> = fs::read_dir(self.state().join("runs"))
            .map(|d| d.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
            .unwrap_or_default();
        // Ids of runs that began in the same second sort by chance: their first line says when.
        all.sort_by_cached_key(|id| {
            let record = self.state().join("runs").join(id).join("events.jsonl");
            let text = fs::read_to_string(record).unwrap_or_default();
            let first: Value =
                serde_json::from_str(text.lines().next().unwrap_or("")).unwrap_or_default();
            (first["at"].as_str().unwrap_or("").to_owned(), id.clone())
        });
        all
    }

    /// The folder of the newest run.
    ///
    /// # Panics
    /// When there was none.
    #[track_caller]
    #[must_use]
    pub fn last_run(&self) -> PathBuf {
        let id = self.runs().pop().expect("there was a run");
        self.state().join("runs").join(id)
    }

    /// What the newest run recorded.
    #[track_caller]
    #[must_use]
    pub fn events(&self) -> Events {
        let path = self.last_run().join("events.jsonl");
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Events::from_lines(&text)
    }

    /// The record of the newest run as it is now, as text; empty while there is none.
    #[must_use]
    pub fn events_text(&self) -> String {
        let path = self.last_run().join("events.jsonl");
        fs::read_to_string(path).unwrap_or_default()
    }

    /// The report of the newest run.
    #[track_caller]
    #[must_use]
    pub fn report(&self) -> Value {
        let id = self.runs().pop().expect("there was a run");
        self.ringfence(&["report", &id, "--json"]).ok().json()
    }

    /// Every file below a folder, with its bytes (links as their target): to show that nothing
    /// changed on disk.
    #[must_use]
    pub fn picture(&self, of: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut all = BTreeMap::new();
        let mut folders = vec![of.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                let kind = entry.file_type().expect("our own file");
                let bytes = if kind.is_dir() {
                    folders.push(path.clone());
                    b"folder".to_vec()
                } else if kind.is_symlink() {
                    fs::read_link(&path)
                        .expect("our own link")
                        .into_os_string()
                        .into_encoded_bytes()
                } else if kind.is_file() {
                    fs::read(&path).unwrap_or_default()
                } else {
                    b"special".to_vec()
                };
                all.insert(path, bytes);
            }
        }
        all
    }
}
