//! The example from end to end, in a scratch copy with a machine state of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sh::{Result, command, heading, programs, repository, run};

/// The value that the example's agent must not find. It is set here, on the host.
const UNGIVEN: (&str, &str) = ("RINGFENCE_EXAMPLE_TOKEN", "the-agent-was-never-given-this");

struct Scratch {
    program: PathBuf,
    project: PathBuf,
    home: PathBuf,
}

/// What a shown command said.
struct Said {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Builds the program and runs the example.
pub(crate) fn run_example() -> Result {
    heading("build");
    run(&mut command("cargo", &["build", "--locked", "--release", "-p", "ringfence-cli"]))?;
    let scratch = Scratch::new()?;
    println!("project {}", scratch.project.display());
    println!("machine {}   (RINGFENCE_HOME)", scratch.home.display());

    heading("1. what is declared");
    scratch.must(&["validate"])?;
    heading("2. what is pinned");
    scratch.must(&["lock", "--check"])?;
    heading("3. nothing runs before a person says yes");
    let refused = scratch.show(&["run"])?;
    expect(refused.status == Some(3), "an untrusted bundle must be refused with status 3")?;
    scratch.must(&["trust", "--preview"])?;
    let json = scratch.hidden(&["trust", "--preview", "--json"])?;
    let json: serde_json::Value =
        serde_json::from_str(&json).map_err(|e| format!("trust --preview --json: {e}"))?;
    let digest =
        json["review_digest"].as_str().ok_or("trust --preview --json names no review_digest")?;
    println!("\nThe next command stands for the person's yes, to exactly the bytes shown above.");
    scratch.must(&["trust", "--yes", "--consented", digest])?;

    heading("4. the run");
    let said = scratch.must(&["run"])?;
    let all = format!("{}{}", said.stdout, said.stderr);
    let told = [
        ("allowed", "greet"),
        ("refused", "delete_everything"),
        ("refused", "not-listed.example"),
        ("refused", "1.1.1.1:443"),
    ];
    for (verdict, what) in told {
        let line = all.lines().any(|l| l.trim_start().starts_with(verdict) && l.contains(what));
        expect(line, &format!("the summary must say that {what} was {verdict}"))?;
    }
    expect(!all.contains(UNGIVEN.1), "a secret that was not given must not be seen")?;

    heading("5. the evidence");
    scratch.must(&["audit", "verify"])?;
    scratch.tamper()
}

fn expect(holds: bool, otherwise: &str) -> Result {
    if holds { Ok(()) } else { Err(format!("surprise: {otherwise}")) }
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    // Last, since a folder may be read-only: other users have no business in a machine's state.
    fs::set_permissions(to, fs::metadata(from)?.permissions())
}

impl Scratch {
    fn new() -> Result<Self> {
        let root = repository().join("target/first-run");
        let _ = fs::remove_dir_all(&root);
        let (project, home) = (root.join("project"), root.join("home"));
        copy(&repository().join("examples/first-run"), &project)
            .map_err(|e| format!("copy examples/first-run: {e}"))?;
        // The person's own folder and the machine's state: no other user has business there.
        fs::create_dir_all(&home).map_err(|e| format!("{}: {e}", home.display()))?;
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).map_err(|e| e.to_string())?;
        Ok(Self { program: programs("release")?.join("ringfence"), project, home })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(&self.program.display().to_string(), &["-C"]);
        command
            .arg(&self.project)
            .args(args)
            .env("RINGFENCE_HOME", &self.home)
            .env(UNGIVEN.0, UNGIVEN.1);
        // The example's own server and agent are subcommands of the program: found by its name.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folder = self.program.parent().map(Path::to_owned);
        let all: Vec<PathBuf> = folder.into_iter().chain(std::env::split_paths(&path)).collect();
        if let Ok(joined) = std::env::join_paths(all) {
            command.env("PATH", joined);
        }
        command
    }

    /// Shows a command and what it says, and gives that back.
    fn show(&self, args: &[&str]) -> Result<Said> {
        println!("$ ringfence {}", args.join(" "));
        let output =
            self.command(args).output().map_err(|e| format!("{}: {e}", self.program.display()))?;
        let said = Said {
            status: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        print!("{}", said.stdout);
        eprint!("{}", said.stderr);
        Ok(said)
    }

    fn must(&self, args: &[&str]) -> Result<Said> {
        let said = self.show(args)?;
        expect(
            said.status == Some(0),
            &format!("`ringfence {}` ended with {:?}", args.join(" "), said.status),
        )?;
        Ok(said)
    }

    fn hidden(&self, args: &[&str]) -> Result<String> {
        let output = self.command(args).output().map_err(|e| e.to_string())?;
        expect(output.status.success(), &format!("`ringfence {}` failed", args.join(" ")))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Changes one byte in a copy of the record and shows that it is found.
    fn tamper(&self) -> Result {
        heading("6. one changed byte is found");
        let copied = Self {
            program: self.program.clone(),
            project: self.project.clone(),
            home: self.home.with_file_name("home-changed"),
        };
        copy(&self.home, &copied.home).map_err(|e| format!("copy the record: {e}"))?;
        let runs = fs::read_dir(copied.home.join("runs")).map_err(|e| format!("runs: {e}"))?;
        let record = runs
            .flatten()
            .map(|e| e.path().join("events.jsonl"))
            .find(|p| p.exists())
            .ok_or("there is no events.jsonl")?;
        let mut bytes = fs::read(&record).map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let word = text.find("\"refused\"").ok_or("the record holds no refusal")? + 1;
        let line = text[..word].matches('\n').count() + 1;
        bytes[word] = b'R';
        fs::write(&record, bytes).map_err(|e| e.to_string())?;
        println!("(in a copy: line {line} of events.jsonl now says \"Refused\")");
        let said = copied.show(&["audit", "verify"])?;
        let all = format!("{}{}", said.stdout, said.stderr);
        expect(said.status == Some(1), "a changed record must not verify")?;
        let named = [format!("events.jsonl:{line}"), format!("line {line}")];
        expect(
            named.iter().any(|n| all.contains(n)),
            &format!("the message must name line {line}"),
        )?;
        println!("\nAll of it went as it must.");
        Ok(())
    }
}
