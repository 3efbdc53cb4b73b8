//! What a run in a container costs over `docker run` of the same image with the same isolation flags.
//! Starts an engine of its own, in a network namespace of its own: only root can.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::bundle::Bundle;
use crate::{Figure, Result};

const MANIFEST: &str = "version = 1\n[agent]\nname = \"bench\"\n[sandbox]\nimage = \"busybox:1\"\n";

/// Milliseconds that a run may cost over the engine's own.
const TARGET: f64 = 150.0;

/// The daemon; it ends with this.
struct Daemon {
    child: Child,
    folder: tempfile::TempDir,
    docker: std::path::PathBuf,
}

impl Daemon {
    fn start(tools: &Path) -> Result<Self> {
        let text = |e: std::io::Error| e.to_string();
        let folder = tempfile::Builder::new().prefix("rf-bench-").tempdir().map_err(text)?;
        let at = |name: &str| folder.path().join(name).display().to_string();
        let bin = tools.join("debian/bin");
        let mut daemon = Command::new("unshare");
        let up = "ip link set lo up && exec dockerd \"$@\"";
        daemon
            .args(["--net", "sh", "-c", up, "dockerd"])
            .args(["--data-root", &at("data"), "--exec-root", &at("exec"), "--pidfile", &at("pid")])
            .args(["--host", &format!("unix://{}", at("s"))])
            .env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bin.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = daemon.spawn().map_err(text)?;
        let mut words = BufReader::new(child.stderr.take().ok_or("no pipe")?);
        let mut all = String::new();
        loop {
            let before = all.len();
            if words.read_line(&mut all).map_err(text)? == 0 {
                return Err(format!("dockerd ended (only root can start it): {all}"));
            }
            if all[before..].contains("API listen on") {
                break;
            }
        }
        std::thread::spawn(move || std::io::copy(&mut words, &mut std::io::sink()));
        let daemon = Self { child, folder, docker: bin.join("docker") };
        let image = tools.join("image/busybox.tar").display().to_string();
        daemon.must(&["import", &image, "busybox:1"])?;
        daemon.must(&["network", "create", "--internal", "bench"])?;
        Ok(daemon)
    }

    fn host(&self) -> String {
        format!("unix://{}", self.folder.path().join("s").display())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.docker);
        command.args(["--host", &self.host()]).args(args);
        command
    }

    fn must(&self, args: &[&str]) -> Result {
        let output = self.command(args).output().map_err(|e| e.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("docker {args:?}: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let end = rustix::process::Signal::TERM;
        let _ = pid.map(|pid| rustix::process::kill_process(pid, end));
        let _ = self.child.wait();
    }
}

/// Runs both in turn, round after round.
pub(crate) fn measure(program: &Path, tools: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let daemon = Daemon::start(tools)?;
    let bundle = Bundle::new(program, MANIFEST)?;
    let project = format!("type=bind,src={0},dst={0},readonly", bundle.project().display());
    let theirs = || {
        daemon.command(&[
            "run",
            "--rm",
            "--network=bench",
            "--read-only",
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges",
            "--user=65534:65534",
            "--pids-limit=1024",
            "--ipc=private",
            "--cgroupns=private",
            "--dns=127.0.0.1",
            "--log-driver=none",
            "--tmpfs=/tmp:size=400m",
            "--tmpfs=/home/agent:size=400m",
            "--mount",
            &project,
            "busybox:1",
            "true",
        ])
    };
    let ours = || {
        let mut command = bundle.command(&["run", "--sandbox", "docker", "--", "true"]);
        command.env("DOCKER_HOST", daemon.host());
        command
    };
    let contestants: [(&str, &dyn Fn() -> Command); 2] =
        [("docker run", &theirs), ("ringfence", &ours)];
    let mut times = [const { Vec::<Duration>::new() }; 2];
    // The first round only warms up: it makes the sidecar's image too.
    for round in 0..=rounds {
        for (slot, (name, command)) in contestants.iter().enumerate() {
            let mut command = command();
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            let start = Instant::now();
            let output = command.output().map_err(|e| format!("{name}: {e}"))?;
            if !output.status.success() {
                return Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr)));
            }
            if round > 0 {
                times[slot].push(start.elapsed());
            }
        }
    }
    println!("\n{rounds} rounds, one after the other in each; milliseconds");
    println!("| command | median | fastest | slowest |\n|---|---|---|---|");
    let mut medians = Vec::new();
    for ((name, _), all) in contestants.iter().zip(&mut times) {
        all.sort();
        let ms = |d: &Duration| d.as_secs_f64() * 1000.0;
        let median = ms(&all[all.len() / 2]);
        println!("| {name} | {median:.0} | {:.0} | {:.0} |", ms(&all[0]), ms(&all[all.len() - 1]));
        medians.push(median);
    }
    let (theirs, ours) = (medians[0], medians[1]);
    Ok(vec![Figure {
        name: "a run in a container over docker run",
        measured: format!("{:.0} ms more ({ours:.0} ms to {theirs:.0} ms)", ours - theirs),
        target: "at most 150 ms",
        met: ours - theirs <= TARGET,
    }])
}
