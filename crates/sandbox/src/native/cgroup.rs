//! A cgroup for one sandbox, where we may make one: version 1 or 2. For memory and CPU alone:
//! processes are bound by `RLIMIT_NPROC`, which the kernel counts per user namespace, and moving a
//! process into a group of version 1 waits for all CPUs.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Limits, Usage};

/// Microseconds of the period in which a CPU quota is counted.
const PERIOD: u64 = 100_000;

/// How often the removal of a cgroup is tried again while its last process leaves it.
const TRIES: u32 = 50;

/// A cgroup, in as many hierarchies as it takes.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Its folders.
    pub(crate) folders: Vec<PathBuf>,
    memory: Option<PathBuf>,
    cpu: Option<PathBuf>,
    version_2: bool,
}

/// The folders that a group of this name would have, one for each limit that is set, before
/// anything is made.
#[derive(Debug)]
pub(crate) struct Plan {
    candidates: Vec<Candidate>,
}

#[derive(Debug)]
struct Candidate {
    controllers: Vec<String>,
    folder: PathBuf,
    version_2: bool,
}

impl Plan {
    /// Where a group of this name would be.
    pub(crate) fn new(name: &str, limits: &Limits) -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let mounts = read("/proc/self/mountinfo");
        let ours = read("/proc/self/cgroup");
        Self { candidates: candidates(&mounts, &ours, name, &wanted(limits)) }
    }

    /// All folders that may be made.
    pub(crate) fn folders(&self) -> Vec<OsString> {
        self.candidates.iter().map(|c| c.folder.clone().into_os_string()).collect()
    }

    /// Removes groups that were made to try whether that works, and whose maker was killed before it
    /// could remove them. They are empty, and no try lasts this long.
    pub(crate) fn remove_old_tries(&self) {
        for parent in self.candidates.iter().filter_map(|candidate| candidate.folder.parent()) {
            for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
                let ours = entry.file_name().to_str().is_some_and(|n| n.starts_with(TRY_PREFIX));
                let made = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
                if ours && made().is_some_and(|age| age > TRY_MAX) {
                    let _ = fs::remove_dir(entry.path());
                }
            }
        }
    }

    /// Makes it, and sets the limits that it can keep.
    pub(crate) fn make(self, limits: &Limits) -> Group {
        let mut group = Group::default();
        for candidate in self.candidates {
            group.add_folder(candidate, limits);
        }
        group
    }
}

fn wanted(limits: &Limits) -> Vec<&'static str> {
    let set = [(limits.memory.is_some(), "memory"), (limits.cpus.is_some(), "cpu")];
    set.into_iter().filter(|(set, _)| *set).map(|(_, name)| name).collect()
}

impl Group {
    fn add_folder(&mut self, candidate: Candidate, limits: &Limits) {
        let Candidate { controllers, folder, version_2 } = candidate;
        let lacking = |name: &&str| match *name {
            "memory" => self.memory.is_none(),
            _ => self.cpu.is_none(),
        };
        let names: Vec<_> = wanted(limits)
            .into_iter()
            .filter(|name| controllers.iter().any(|c| c == name))
            .filter(lacking)
            .collect();
        // In version 2 a process is moved with the right to the ancestor of both places.
        let may_move = !version_2
            || folder.parent().is_some_and(|parent| {
                let list = parent.join("cgroup.procs");
                rustix::fs::access(list, rustix::fs::Access::WRITE_OK).is_ok()
            });
        if names.is_empty() || !may_move || fs::create_dir(&folder).is_err() {
            return;
        }
        let mut kept = false;
        for name in names {
            if set_limit(&folder, name, limits, version_2).is_err() {
                continue;
            }
            kept = true;
            let place = match name {
                "memory" => &mut self.memory,
                _ => &mut self.cpu,
            };
            *place = Some(folder.clone());
        }
        if kept {
            self.version_2 |= version_2;
            self.folders.push(folder);
        } else {
            let _ = fs::remove_dir(&folder);
        }
    }

    /// Whether it bounds memory.
    pub(crate) fn keeps_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Whether the kernel has ended a process in it that asked for more memory than it may have.
    pub(crate) fn out_of_memory(&self) -> bool {
        let read = |file| fs::read_to_string(self.memory.as_ref()?.join(file)).ok();
        // Version 2, then version 1.
        let text = read("memory.events").or_else(|| read("memory.oom_control")).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse::<u64>().ok()).is_some_and(|count| count > 0)
    }

    /// Whether it bounds CPU time.
    pub(crate) fn keeps_cpu(&self) -> bool {
        self.cpu.is_some()
    }

    /// Puts a process, and what it starts from now on, into it.
    ///
    /// # Errors
    /// What the kernel says; then the group keeps nothing.
    pub(crate) fn add(&self, pid: u32) -> io::Result<()> {
        for folder in &self.folders {
            fs::write(folder.join("cgroup.procs"), pid.to_string())?;
        }
        Ok(())
    }

    /// Overwrites the parts of `usage` that it knows.
    pub(crate) fn usage(&self, usage: &mut Usage) {
        let number = |folder: &Option<PathBuf>, file: &str| {
            let text = fs::read_to_string(folder.as_ref()?.join(file)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let memory = if self.version_2 { "memory.current" } else { "memory.usage_in_bytes" };
        if let Some(bytes) = number(&self.memory, memory) {
            usage.memory = bytes;
        }
        let stat = self.cpu.as_ref().and_then(|f| fs::read_to_string(f.join("cpu.stat")).ok());
        let micros = stat.as_deref().and_then(|text| {
            text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok())
        });
        if let Some(micros) = micros {
            usage.cpu = Duration::from_micros(micros);
        }
    }
}

/// Removes the folders of a group. Whatever still runs in them is killed. Returns those that stay.
pub(crate) fn remove(folders: Vec<OsString>) -> Vec<OsString> {
    folders.into_iter().filter(|folder| !remove_one(Path::new(folder))).collect()
}

fn remove_one(folder: &Path) -> bool {
    let ours = folder.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(PREFIX));
    if !ours {
        return true;
    }
    for _ in 0..TRIES {
        match fs::remove_dir(folder) {
            Ok(()) => return true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return true,
            Err(_) => {}
        }
        let inside = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        for pid in inside.lines().filter_map(|line| line.parse().ok()) {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

/// Names of groups begin with this.
pub(crate) const PREFIX: &str = "ringfence-";

/// Names of groups that are only tried.
pub(crate) const TRY_PREFIX: &str = "ringfence-try-";

/// Age at which a tried group is nobody's any more.
const TRY_MAX: Duration = Duration::from_secs(60);

fn set_limit(folder: &Path, name: &str, limits: &Limits, version_2: bool) -> io::Result<()> {
    let write = |file: &str, value: String| fs::write(folder.join(file), value);
    match (name, version_2) {
        ("memory", false) => {
            let bytes = limits.memory.unwrap_or(u64::MAX).to_string();
            write("memory.limit_in_bytes", bytes.clone())?;
            // Only there when swap is accounted for.
            match write("memory.memsw.limit_in_bytes", bytes) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
                other => other,
            }
        }
        ("memory", true) => {
            write("memory.max", limits.memory.unwrap_or(u64::MAX).to_string())?;
            let _ = write("memory.swap.max", "0".into());
            Ok(())
        }
        (_, false) => {
            write("cpu.cfs_period_us", PERIOD.to_string())?;
            write("cpu.cfs_quota_us", quota(limits).to_string())
        }
        (_, true) => write("cpu.max", format!("{} {PERIOD}", quota(limits))),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "clamped to what the kernel takes"
)]
fn quota(limits: &Limits) -> u64 {
    (limits.cpus.unwrap_or(1.0) * PERIOD as f64).clamp(1_000.0, 1e12) as u64
}

/// Where each hierarchy would have our group. In version 2 a group that holds processes can have
/// no children with controllers, so its ancestors are candidates too.
fn candidates(mounts: &str, ours: &str, name: &str, wanted: &[&str]) -> Vec<Candidate> {
    let mut list = Vec::new();
    for line in mounts.lines() {
        let Some((head, tail)) = line.split_once(" - ") else { continue };
        let fields: Vec<_> = head.split(' ').collect();
        let (Some(root), Some(point)) = (fields.get(3), fields.get(4)) else { continue };
        let mut tail = tail.split(' ');
        let (kind, options) = (tail.next().unwrap_or_default(), tail.nth(1).unwrap_or_default());
        match kind {
            "cgroup" => {
                let holds = |options: &str| {
                    let has = |name: &&&str| options.split(',').any(|option| option == **name);
                    wanted.iter().filter(has).map(|n| (*n).to_owned()).collect::<Vec<_>>()
                };
                let controllers = holds(options);
                let mut lines = ours
                    .lines()
                    .filter_map(|line| line.splitn(3, ':').collect::<Vec<_>>().try_into().ok());
                let path = lines.find_map(|[_, names, path]: [&str; 3]| {
                    (!controllers.is_empty()
                        && controllers.iter().all(|c| names.split(',').any(|n| n == c)))
                    .then_some(path)
                });
                if let Some(folder) = path.and_then(|path| place(point, root, path)) {
                    let folder = folder.join(name);
                    list.push(Candidate { controllers, folder, version_2: false });
                }
            }
            "cgroup2" => {
                let path = ours.lines().find_map(|line| line.strip_prefix("0::"));
                let Some(own) = path.and_then(|path| place(point, root, path)) else { continue };
                for folder in own.ancestors().take_while(|f| f.starts_with(point)).take(4) {
                    let enabled = fs::read_to_string(folder.join("cgroup.subtree_control"))
                        .unwrap_or_default();
                    let controllers = enabled.split_whitespace().map(str::to_owned).collect();
                    let folder = folder.join(name);
                    list.push(Candidate { controllers, folder, version_2: true });
                }
            }
            _ => {}
        }
    }
    list.retain(|c| c.controllers.iter().any(|name| wanted.contains(&name.as_str())));
    list
}

fn place(point: &str, root: &str, path: &str) -> Option<PathBuf> {
    let beneath = Path::new(path).strip_prefix(root).ok()?;
    Some(Path::new(point).join(beneath))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Candidate, Plan, TRY_MAX, TRY_PREFIX, candidates};

    const MOUNTS: &str = "\
30 20 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
31 20 0:27 / /sys/fs/cgroup/memory rw,relatime shared:3 - cgroup cgroup rw,memory
32 20 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
33 20 0:29 / /proc rw - proc proc rw
";

    #[test]
    fn version_1_hierarchies_are_found_by_their_controllers() {
        let ours = "4:memory:/a/b\n1:cpu,cpuacct:/\n9:name=systemd:/x\n0::/\n";
        let found = candidates(MOUNTS, ours, "g", &["memory", "pids", "cpu"]);
        let folders: Vec<_> = found.iter().map(|c| c.folder.as_path()).collect();
        assert_eq!(
            folders,
            [Path::new("/sys/fs/cgroup/cpu,cpuacct/g"), Path::new("/sys/fs/cgroup/memory/a/b/g")]
        );
        assert!(candidates(MOUNTS, ours, "g", &["pids"]).is_empty());
    }

    #[test]
    fn a_group_outside_of_what_is_mounted_gives_none() {
        let mounts = "31 20 0:27 /docker/x /cg rw - cgroup cgroup rw,memory\n";
        assert!(candidates(mounts, "4:memory:/other\n", "g", &["memory"]).is_empty());
        let found = candidates(mounts, "4:memory:/docker/x/y\n", "g", &["memory"]);
        assert_eq!(found[0].folder, Path::new("/cg/y/g"));
    }

    #[test]
    fn tries_of_killed_programs_go_with_the_next_try() {
        let dir = tempfile::tempdir().unwrap();
        let name = |name: &str| dir.path().join(format!("{TRY_PREFIX}{name}"));
        let (old, young, other) = (name("old"), name("young"), dir.path().join("other"));
        let long_ago = std::time::SystemTime::now() - TRY_MAX * 2;
        for folder in [&old, &young, &other] {
            std::fs::create_dir(folder).unwrap();
            if *folder != young {
                std::fs::File::open(folder).unwrap().set_modified(long_ago).unwrap();
            }
        }
        let folder = dir.path().join("new");
        let candidate = Candidate { controllers: Vec::new(), folder, version_2: false };
        Plan { candidates: vec![candidate] }.remove_old_tries();
        assert_eq!((old.exists(), young.exists(), other.exists()), (false, true, true));
    }
}
