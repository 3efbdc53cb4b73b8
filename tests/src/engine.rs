//! A Docker engine of a test's own: in a test network, with folders, a socket and cgroups of its own.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::TestNet;
use crate::behind::tools;

/// A running `dockerd` with its `containerd`. All of it ends when this is dropped.
#[derive(Debug)]
pub struct Engine {
    folder: TempDir,
    words: Vec<String>,
    daemon: Option<Child>,
}

impl Engine {
    /// Python, git, curl and what else an agent in a case uses.
    pub const AGENT: &str = "agent:1";
    /// Busybox alone.
    pub const BUSYBOX: &str = "busybox:1";

    /// Starts one in a network, with both images.
    ///
    /// # Panics
    /// When the suite is not root's, or what it needs is not installed (`cargo xtask test` does it).
    #[must_use]
    pub fn start(net: &TestNet) -> Self {
        Self::with(net, "{}", &[Self::AGENT, Self::BUSYBOX])
    }

    /// Starts one with this `daemon.json` and these images.
    ///
    /// # Panics
    /// As [`Engine::start`].
    #[must_use]
    pub fn with(net: &TestNet, settings: &str, images: &[&str]) -> Self {
        let folder =
            tempfile::Builder::new().prefix("rf-engine-").tempdir().expect("a temporary folder");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("our own");
        fs::write(folder.path().join("daemon.json"), settings).expect("our own file");
        let mut engine = Self { folder, words: net.words(), daemon: None };
        engine.up();
        for image in images {
            let (name, _) = image.split_once(':').expect("an image has a tag");
            let tar = tools().join("image").join(format!("{name}.tar"));
            engine.docker(&["import", &tar.display().to_string(), image]);
        }
        engine
    }

    /// Starts the daemon, also after [`Engine::kill`].
    ///
    /// A daemon that is killed while it makes a network can leave a list of networks over which it then falls
    /// itself at each start (20.10): it starts without that list, as its administrator would have it.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn up(&mut self) {
        let Err(said) = self.start_daemon() else { return };
        assert!(said.contains("panic:"), "dockerd ended:\n{said}");
        fs::remove_dir_all(self.folder.path().join("data/network")).expect("its list is there");
        if let Err(said) = self.start_daemon() {
            panic!("dockerd ended:\n{said}");
        }
    }

    /// What it said, if it ended.
    fn start_daemon(&mut self) -> Result<(), String> {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        // What a killed one left.
        for name in ["pid", "s", "exec/containerd/containerd.pid"] {
            let _ = fs::remove_file(self.folder.path().join(name));
        }
        let bin = tools().join("debian/bin").display().to_string();
        let mut daemon = Command::new(&self.words[0]);
        daemon
            .args(&self.words[1..])
            // A test that is killed takes the daemon with it, and the daemon its containerd.
            .args(["setpriv", "--pdeathsig", "KILL", "--"])
            .args([
                "dockerd",
                "--exec-opt",
                "native.cgroupdriver=cgroupfs",
                "--config-file",
                &at("daemon.json"),
            ])
            .args(["--data-root", &at("data"), "--exec-root", &at("exec"), "--pidfile", &at("pid")])
            .args(["--host", &self.host(), "--cgroup-parent", &self.group()])
            .env("PATH", format!("{bin}:/usr/sbin:/usr/bin:/sbin:/bin"))
            // What it says of itself when its engine is killed goes with the rest of it.
            .env("TMPDIR", self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut daemon = daemon.spawn().expect("nsenter is there");
        let mut said = BufReader::new(daemon.stderr.take().expect("it is a pipe"));
        let mut all = String::new();
        loop {
            let before = all.len();
            let read = said.read_line(&mut all).expect("its words are text");
            if read == 0 {
                let _ = daemon.wait();
                return Err(all);
            }
            if all[before..].contains("API listen on") {
                break;
            }
        }
        // Nobody reads the rest, and it must not wait for that.
        thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        let open = fs::Permissions::from_mode(0o666);
        fs::set_permissions(self.socket(), open).expect("its socket is there");
        self.daemon = Some(daemon);
        Ok(())
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    fn group(&self) -> String {
        let name = self.folder.path().file_name().expect("it has a name").to_string_lossy();
        format!("/{name}")
    }

    /// `DOCKER_HOST`.
    #[must_use]
    pub fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// The daemon's process id.
    ///
    /// # Panics
    /// When it is down.
    #[must_use]
    pub fn pid(&self) -> u32 {
        let text = fs::read_to_string(self.folder.path().join("pid")).expect("it is up");
        text.trim().parse().expect("a number")
    }

    /// Kills the daemon, with its `containerd` and everything else of it that is not a container.
    ///
    /// # Panics
    /// When it was down.
    pub fn kill(&mut self) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, Signal::KILL).expect("it is up");
        let mut daemon = self.daemon.take().expect("it was started");
        daemon.wait().expect("it is ours");
    }

    /// Runs the `docker` client. Its output.
    ///
    /// # Panics
    /// When it fails.
    #[track_caller]
    pub fn docker(&self, args: &[&str]) -> String {
        let docker = tools().join("debian/bin/docker");
        let output = Command::new(docker).args(["--host", &self.host()]).args(args).output();
        let output = output.expect("the client is installed (cargo xtask test does it)");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "docker {args:?}: {words}");
        text
    }

    /// Whether a process is one of its containers'.
    #[must_use]
    pub fn holds(&self, pid: i32) -> bool {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        groups.contains(self.group().as_str())
    }

    /// What of a run is in it: containers, then networks.
    #[must_use]
    pub fn left(&self) -> Vec<String> {
        let label = "--filter=label=dev.ringfence.run";
        let containers = self.docker(&["ps", "--all", "--format={{.Names}}", label]);
        let networks = self.docker(&["network", "ls", "--format={{.Name}}", label]);
        containers.lines().chain(networks.lines()).map(str::to_owned).collect()
    }

    /// How many processes there are in agents' containers.
    #[must_use]
    pub fn agents(&self) -> usize {
        let is_sidecar = |pid: &Pid| {
            let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()));
            line.unwrap_or_default().starts_with(b"/ringfence-sidecar")
        };
        self.members().iter().filter(|pid| !is_sidecar(pid)).count()
    }

    /// The processes of its containers.
    fn members(&self) -> Vec<Pid> {
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        numbers.filter(|pid| self.holds(*pid)).filter_map(Pid::from_raw).collect()
    }

    /// Its processes: those whose command line names its folder, which no other has.
    fn processes(folder: &Path) -> Vec<Pid> {
        let name = folder.display().to_string();
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let own = numbers.filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&name)
        });
        own.filter_map(Pid::from_raw).collect()
    }
}

#[expect(clippy::print_stderr, reason = "a person is to know of what is left")]
impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let pid = i32::try_from(daemon.id()).ok().and_then(Pid::from_raw);
            // It was started by nsenter, which became it.
            let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
            let _ = daemon.wait();
        }
        // What a killed daemon left behind: containerd, and containers with their shims. A cgroup whose
        // last process has just ended is busy for a moment.
        let end = Instant::now() + Duration::from_secs(20);
        while !self.cleared() {
            if Instant::now() > end {
                // Said, and no panic: the case may be in one already.
                eprintln!("an engine left something in {}", self.folder.path().display());
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Engine {
    /// Ends what is left of it. Whether nothing is.
    fn cleared(&self) -> bool {
        let mut left = Self::processes(self.folder.path());
        left.extend(self.members());
        for pid in &left {
            let _ = kill_process(*pid, Signal::KILL);
        }
        let all = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
        let groups: Vec<PathBuf> =
            all.map(|it| it.path().join(self.group().trim_start_matches('/'))).collect();
        groups.iter().for_each(|group| remove_groups(group));
        left.is_empty() && !groups.iter().any(|group| group.exists())
    }
}

fn remove_groups(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove_groups(&entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}
