//! Running programs, and the folders that chores work in.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a chore ends with; the error is for people.
pub(crate) type Result<T = ()> = std::result::Result<T, String>;

/// The repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask/ is in the repository").to_owned()
}

/// Where pinned tools go.
pub(crate) fn tools() -> PathBuf {
    repository().join("target/tools")
}

/// Says what comes next.
pub(crate) fn heading(words: &str) {
    println!("\n== {words}");
}

/// A command in the repository, with the pinned Cargo tools first on the path.
pub(crate) fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(repository()).stdin(Stdio::null());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = vec![tools().join("cargo/bin")];
    all.extend(std::env::split_paths(&path));
    // A system administrator's folders are not always on an ordinary user's path.
    all.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    if let Ok(joined) = std::env::join_paths(all) {
        command.env("PATH", joined);
    }
    command
}

/// Shows a command, runs it, and fails unless it ends with 0.
pub(crate) fn run(command: &mut Command) -> Result {
    println!("$ {}", words(command));
    let status = command.status().map_err(|e| format!("{}: {e}", words(command)))?;
    if status.success() { Ok(()) } else { Err(format!("`{}` failed ({status})", words(command))) }
}

/// Runs a command quietly; its standard output when it ends with 0.
pub(crate) fn quiet(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn words(command: &Command) -> String {
    let mut all = vec![command.get_program().to_string_lossy().into_owned()];
    all.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    let root = format!("{}/", repository().display());
    all.join(" ").replace(&root, "")
}

/// The folder with a profile's programs, after `cargo build`.
pub(crate) fn programs(profile: &str) -> Result<PathBuf> {
    let metadata = quiet(&mut command("cargo", &["metadata", "--format-version=1", "--no-deps"]))
        .ok_or("cargo metadata failed")?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata).map_err(|e| e.to_string())?;
    let target =
        metadata["target_directory"].as_str().ok_or("cargo metadata names no target folder")?;
    let version = quiet(&mut command("rustc", &["-vV"])).ok_or("rustc is missing")?;
    let host =
        version.lines().find_map(|l| l.strip_prefix("host: ")).ok_or("rustc names no host")?;
    Ok(Path::new(target).join(host).join(profile))
}
