//! Starting varlock: a program of this machine, in a clean environment, for a short time.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use zeroize::Zeroizing;

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// Bytes of its answer.
const MOST: usize = 1 << 20;

/// What varlock prints about a project.
pub(super) async fn ask(
    project: &Path,
    path: Option<&OsStr>,
) -> Result<Zeroizing<Vec<u8>>, String> {
    let (program, path) = program(project, path)?;
    // With its slash it is a folder to varlock, whatever lies in it.
    let mut folder = project.as_os_str().to_owned();
    folder.push("/");
    let mut child = Command::new(&program)
        .args(["load", "--format", "json-full", "--skip-cache", "--path"])
        .arg(folder)
        .env_clear()
        .env("PATH", path)
        .env("HOME", "/nonexistent")
        .env("LANG", "C.UTF-8")
        .env("VARLOCK_TELEMETRY_DISABLED", "1")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // It names values in what it says there.
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("{} cannot be started: {error}", program.display()))?;
    let group = Group(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
    let mut out = Zeroizing::new(Vec::with_capacity(MOST + 1));
    let mut pipe = child.stdout.take().ok_or("its answer cannot be read")?.take(MOST as u64 + 1);
    let ended = tokio::time::timeout(PATIENCE, async {
        pipe.read_to_end(&mut out).await?;
        // The group is ended while its leader is not yet waited for: its number is still its own.
        drop(group);
        child.wait().await
    });
    let status = match ended.await {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => return Err(format!("its answer cannot be read: {error}")),
        Err(_) => return Err(format!("it gave no answer in {} s", PATIENCE.as_secs())),
    };
    if out.len() > MOST {
        return Err("its answer is larger than 1 MiB".to_owned());
    }
    // 1 says that some value is missing or wrong; which one is in the answer.
    match status.code() {
        Some(0 | 1) if !out.is_empty() => Ok(out),
        Some(code) => Err(format!("it ended with status {code}: `varlock load` says why")),
        None => Err("it was killed".to_owned()),
    }
}

/// Ends what is left of a process group when dropped.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Nothing may be left of it.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// The first `varlock` on PATH that lies outside the project, and the PATH that is left without what
/// lies in it.
fn program(project: &Path, path: Option<&OsStr>) -> Result<(PathBuf, std::ffi::OsString), String> {
    let inside = |path: &Path| path.canonicalize().is_ok_and(|real| real.starts_with(project));
    let mut folders: Vec<PathBuf> = std::env::split_paths(path.unwrap_or_default()).collect();
    folders.retain(|folder| folder.is_absolute() && folder.is_dir() && !inside(folder));
    let found = folders.iter().map(|folder| folder.join("varlock")).find(|file| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.mode() & 0o111 != 0)
            && !inside(file)
    });
    let found = found.ok_or(
        "the project has a `.env.schema`, but there is no `varlock` on PATH outside the project \
         (`npm install --global varlock`)",
    )?;
    if found.metadata().is_ok_and(|meta| meta.mode() & 0o002 != 0) {
        return Err(format!("{} may be written by everybody", found.display()));
    }
    let path = std::env::join_paths(&folders).map_err(|error| error.to_string())?;
    Ok((found, path))
}
