//! From a specification to a sandbox that waits.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::pipe::PipeFlags;

use super::process::{Init, unexpected};
use super::program::{self, DEFAULT_PATH};
use super::running::Running;
use super::targets::Range;
use super::{Cleanup, cgroup};
use crate::error::{Error, Result, Step};
use crate::ground::guard::Guard;
use crate::ground::ids::Identity;
use crate::ground::journal::Journal;
use crate::ground::placeholder::{self, Ground};
use crate::ground::tree::{self, Held};
use crate::inside::channel::FDS_MAX;
use crate::inside::wire::{Blueprint, Bounds, Order, Reply};
use crate::{Limits, Probe, Rule, Spec, Streams};

/// Bytes of scratch space when no limit is set.
const SCRATCH: u64 = 1 << 30;

/// What the backend sets in an environment that lacks it.
const DEFAULTS: [(&str, &str); 5] = [
    ("HOME", "/home/agent"),
    ("PATH", DEFAULT_PATH),
    ("TMPDIR", "/tmp"),
    ("USER", "agent"),
    ("SHELL", "/bin/sh"),
];

/// A sandbox that is built and waits: its init is in place, nothing of the agent has run. Dropping
/// it takes everything away again.
#[derive(Debug)]
pub struct Prepared {
    // In this order: the processes go before what they stand on is cleaned.
    init: Init,
    cleanup: Cleanup,
    group: cgroup::Group,
    listeners: Vec<TcpListener>,
    streams: Option<(OwnedFd, OwnedFd)>,
    terminal: Option<OwnedFd>,
    range: Range,
    guard: Guard,
}

/// Builds a sandbox. Must be called on the thread that outlives the run: the kernel kills the
/// sandbox when that thread ends. The program must call [`super::init_main`] first thing when
/// [`super::is_init`] says so.
///
/// # Errors
/// [`Error`].
pub fn prepare(spec: &Spec) -> Result<Prepared> {
    let program = check(spec)?;
    allow_many_descriptors();
    let identity = Identity::choose()?;
    let id = random_id()?;
    let project = tree::hold(&spec.project)?;
    if !project.folder {
        return Err(Error::Spec(format!("{}: not a folder", spec.project.display())));
    }
    // Before the init: on a failure it goes last.
    let journal = Journal::new(&spec.run_dir, &id, &spec.project);
    let mut cleanup = Cleanup { journal, ground: Ground::default(), done: false };
    // Early, so that it gets going while we do the rest.
    let init = Init::spawn(identity)?;
    let group = make_group(spec, &id, &init, &mut cleanup.journal)?;
    init.begin()?;

    let owner = identity.is_other().then_some((project.uid, project.gid));
    cleanup.ground =
        placeholder::prepare(&project, &spec.mounts, owner, &id, &mut cleanup.journal)?;
    let guard = Guard::new(&project, &cleanup.ground.rules)?;
    let Opened { stdio, pipes: streams, terminal } = open_streams(spec, identity)?;
    let trees = Trees::collect(spec, program, project, identity)?;
    if identity.is_other() {
        check_host_read_only(&trees.project, &cleanup.ground)?;
    }
    let controlling = terminal.as_ref().map(|(_, which)| *which);
    let terminal = terminal.map(|(ours, _)| ours);
    let mut blueprint = blueprint(spec, &trees, &cleanup.ground, &group, identity)?;
    blueprint.terminal = controlling;
    let fds: Vec<BorrowedFd<'_>> =
        stdio.iter().map(AsFd::as_fd).chain(trees.passed.iter().map(AsFd::as_fd)).collect();
    init.order(&Order::Build(Box::new(blueprint)), &fds)?;
    let range = Range::new(spec)?;
    let listeners = match init.reply()? {
        (Reply::Built, fds) if fds.len() == spec.listen.len() => {
            fds.into_iter().map(TcpListener::from).collect()
        }
        _ => return Err(unexpected()),
    };
    Ok(Prepared { init, cleanup, group, listeners, streams, terminal, range, guard })
}

impl Prepared {
    /// The listeners made inside, in the order of `Spec::listen`. They accept on this side.
    pub fn listeners(&mut self) -> Vec<TcpListener> {
        std::mem::take(&mut self.listeners)
    }

    /// Its init's process id on the host.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.init.pid().as_raw_nonzero().get().unsigned_abs()
    }

    /// Tries the sandbox from inside, with the confinement the process will have. Call it while
    /// the listeners are being served: the positive control connects to the first of them and
    /// must get an answer. It blocks until all is tried: serve from another thread.
    ///
    /// # Errors
    /// [`Error::Leaky`] with the first attempt that was not as it must be; [`Error::Step`].
    pub fn probe(&mut self) -> Result<Vec<Probe>> {
        self.init.order(&Order::Probe(std::mem::take(&mut self.range.targets)), &[])?;
        let (Reply::Probed(found), _) = self.init.reply()? else { return Err(unexpected()) };
        match found.iter().find(|probe| !probe.ok) {
            Some(leak) => Err(Error::Leaky(leak.clone())),
            None => Ok(found),
        }
    }

    /// Lets the process start.
    ///
    /// # Errors
    /// [`Error::Step`], for example when the program cannot be executed.
    pub fn release(self) -> Result<Running> {
        self.init.order(&Order::Start, &[])?;
        let (Reply::Started, _) = self.init.reply()? else { return Err(unexpected()) };
        let Self { init, cleanup, group, streams, terminal, guard, .. } = self;
        let (exit, out_of_memory, guard) = (None, false, Arc::new(guard));
        Ok(Running { init, cleanup, group, streams, terminal, exit, out_of_memory, guard })
    }
}

/// Each path with a rule is held open while the sandbox lives. Where the limit cannot be raised, a
/// project with too many of them is refused.
fn allow_many_descriptors() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
}

/// Eight random hexadecimal digits.
pub(crate) fn random_id() -> Result<String> {
    let number =
        getrandom::u32().map_err(|e| io::Error::other(e.to_string())).step("get random bytes")?;
    Ok(format!("{number:08x}"))
}

/// Checks what can be checked before anything is made; resolves the program.
fn check(spec: &Spec) -> Result<program::Program> {
    let wrong = |path: &Path, what: &str| Err(Error::Spec(format!("{}: {what}", path.display())));
    let Some(command) = spec.command.first().map(Path::new) else {
        return Err(Error::Spec("no command".into()));
    };
    for path in spec.read.iter().map(PathBuf::as_path).chain([command, &spec.project]) {
        if !path.is_absolute() {
            return wrong(path, "not an absolute path");
        }
    }
    if spec.streams == Streams::Piped && spec.stderr.is_none() {
        return Err(Error::Spec("piped streams need a file for stderr".into()));
    }
    // Three streams, the project and the program travel with them.
    if spec.read.len() + 8 > FDS_MAX {
        return Err(Error::Spec(format!("more than {} granted paths", FDS_MAX - 8)));
    }
    let search =
        spec.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let search = search.unwrap_or(OsStr::new(DEFAULT_PATH));
    let granted: Vec<&Path> =
        spec.read.iter().map(PathBuf::as_path).chain([spec.project.as_path()]).collect();
    program::resolve(command, &granted, search)
}

/// Makes the cgroup, after writing down that it will be, and puts the init into it.
fn make_group(spec: &Spec, id: &str, init: &Init, journal: &mut Journal) -> Result<cgroup::Group> {
    let run = spec.run_dir.file_name().unwrap_or_default().to_string_lossy();
    let run: String = run.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
    let plan = cgroup::Plan::new(&format!("{}{run}-{id}", cgroup::PREFIX), &spec.limits);
    let planned = plan.folders();
    if planned.is_empty() {
        return Ok(cgroup::Group::default());
    }
    journal.entries.groups = planned;
    journal.write()?;
    let group = plan.make(&spec.limits);
    let folders = group.folders.iter().cloned().map(PathBuf::into_os_string).collect();
    if group.add(init.pid().as_raw_nonzero().get().unsigned_abs()).is_err() {
        // Not ours to use after all: the limits are watched.
        journal.entries.groups = cgroup::remove(folders);
        journal.settle();
        return Ok(cgroup::Group::default());
    }
    journal.entries.groups = folders;
    journal.settle();
    Ok(group)
}

/// What is mounted from the host besides the system.
#[derive(Debug)]
struct Trees {
    project: Held,
    read: Vec<(PathBuf, Held)>,
    links: Vec<(PathBuf, OsString)>,
    /// Detached mounts made here, since the agent's own ids may not get there: the granted paths
    /// in order, then the project.
    passed: Vec<OwnedFd>,
}

impl Trees {
    fn collect(
        spec: &Spec,
        program: program::Program,
        project: Held,
        identity: Identity,
    ) -> Result<Self> {
        let mut read = Vec::new();
        for path in spec.read.iter().chain(&program.file) {
            read.push((path.clone(), tree::hold(path)?));
        }
        let mut passed = Vec::new();
        if identity.is_other() {
            for (_, held) in &read {
                passed.push(held.detach()?);
            }
            let mapped = project.detach()?;
            tree::map_owner(&mapped, &project, identity)?;
            passed.push(mapped);
        }
        Ok(Self { project, read, links: program.links, passed })
    }
}

fn blueprint(
    spec: &Spec,
    trees: &Trees,
    ground: &Ground,
    group: &cgroup::Group,
    identity: Identity,
) -> Result<Blueprint> {
    let passed = identity.is_other();
    let mut argv = spec.command.clone();
    if let Some(first) = argv.first_mut() {
        first.clone_from(&spec.arg0);
    }
    let program = spec.command.first().cloned().unwrap_or_default();
    let rules = ground.rules.iter().map(|(path, rule)| (path.clone().into_os_string(), *rule));
    let links = trees.links.iter().map(|(path, to)| (path.clone().into_os_string(), to.clone()));
    Ok(Blueprint {
        program,
        argv,
        env: environment(spec),
        project: trees.project.describe(&spec.project, passed),
        rules: rules.collect(),
        read: trees.read.iter().map(|(path, held)| held.describe(path, passed)).collect(),
        links: links.collect(),
        own_session: spec.streams != Streams::Inherit,
        terminal: None,
        listen: spec.listen.clone(),
        take_identity: passed,
        bounds: bounds(&spec.limits, group)?,
        expected: Vec::new(),
        mounted_program: true,
    })
}

fn environment(spec: &Spec) -> Vec<(OsString, OsString)> {
    let mut env = spec.env.clone();
    for (name, value) in DEFAULTS {
        if !env.iter().any(|(set, _)| set == name) {
            env.push((name.into(), value.into()));
        }
    }
    env
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what the kernel takes"
)]
fn bounds(limits: &Limits, group: &cgroup::Group) -> Result<Bounds> {
    let cpus = match limits.cpus {
        Some(cpus) if !cpus.is_finite() || cpus <= 0.0 => {
            return Err(Error::Spec(format!("{cpus}: not a number of CPUs")));
        }
        Some(cpus) if !group.keeps_cpu() => Some(cpus.ceil().clamp(1.0, 65536.0) as u32),
        _ => None,
    };
    Ok(Bounds {
        scratch: limits.disk.unwrap_or(SCRATCH),
        file_size: limits.disk,
        pids: limits.pids,
        cpus,
    })
}

/// Root could clear a read-only flag that the host has set: it must not.
fn check_host_read_only(project: &Held, ground: &Ground) -> Result<()> {
    for (path, rule) in &ground.rules {
        if !matches!(rule, Rule::Writable | Rule::Pinned) {
            continue;
        }
        let fd = placeholder::open(project, path).step(format!("open {}", path.display()))?;
        let flags = rustix::fs::fstatvfs(&fd).step("look at the project's mount")?.f_flag;
        if flags.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
            return Err(Error::Spec(format!(
                "{}: to be written, but the host has it mounted read-only",
                path.display()
            )));
        }
    }
    Ok(())
}

/// The agent's three standard streams, and our ends of what we made for them.
struct Opened {
    stdio: [OwnedFd; 3],
    pipes: Option<(OwnedFd, OwnedFd)>,
    /// And which of the three is its other end.
    terminal: Option<(OwnedFd, u8)>,
}

fn open_streams(spec: &Spec, identity: Identity) -> Result<Opened> {
    let step = "open the standard streams";
    if spec.streams != Streams::Piped {
        let own = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
        let mut stdio = Vec::new();
        for fd in own {
            let fd = match rustix::io::fcntl_dupfd_cloexec(fd, 3) {
                Ok(fd) => fd,
                // Closed: then the agent has nothing there either.
                Err(_) => OwnedFd::from(
                    fs::File::options().read(true).write(true).open("/dev/null").step(step)?,
                ),
            };
            if is_pipe(&fd) {
                let _ = give(&fd, identity);
            }
            stdio.push(fd);
        }
        let mut stdio: [OwnedFd; 3] = stdio.try_into().expect("three in, three out");
        let terminal = match spec.streams {
            Streams::Terminal => own_terminal(&mut stdio, identity).step(step)?,
            _ => None,
        };
        return Ok(Opened { stdio, pipes: None, terminal });
    }
    let (stdin, our_stdin) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).step(step)?;
    let (our_stdout, stdout) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).step(step)?;
    give(&stdin, identity).step(step)?;
    give(&stdout, identity).step(step)?;
    let path = spec.stderr.as_deref().unwrap_or(Path::new("/dev/null"));
    let stderr = fs::File::options().append(true).create(true).mode(0o600).open(path);
    let stderr = stderr.step(format!("open {}", path.display()))?;
    let stdio = [stdin, stdout, stderr.into()];
    Ok(Opened { stdio, pipes: Some((our_stdin, our_stdout)), terminal: None })
}

/// Puts one new terminal in the place of every stream that is a terminal.
fn own_terminal(
    stdio: &mut [OwnedFd; 3],
    identity: Identity,
) -> rustix::io::Result<Option<(OwnedFd, u8)>> {
    use rustix::pty::OpenptFlags;
    if !stdio.iter().any(rustix::termios::isatty) {
        return Ok(None);
    }
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = rustix::pty::openpt(flags)?;
    rustix::pty::grantpt(&ours)?;
    rustix::pty::unlockpt(&ours)?;
    let theirs = rustix::pty::ioctl_tiocgptpeer(&ours, flags)?;
    give(&theirs, identity)?;
    let mut first = None;
    for (number, fd) in (0_u8..).zip(stdio.iter_mut()) {
        if rustix::termios::isatty(&*fd) {
            *fd = rustix::io::fcntl_dupfd_cloexec(&theirs, 3)?;
            first.get_or_insert(number);
        }
    }
    Ok(first.map(|number| (ours, number)))
}

/// An agent under other ids could not open its own `/dev/stdout` again otherwise.
fn give(pipe: &OwnedFd, identity: Identity) -> rustix::io::Result<()> {
    match identity {
        Identity::Own { .. } => Ok(()),
        Identity::Other { uid, gid } => rustix::fs::fchown(
            pipe,
            Some(rustix::fs::Uid::from_raw(uid)),
            Some(rustix::fs::Gid::from_raw(gid)),
        ),
    }
}

/// Whether it is a pipe without a name: those belong to nobody but its ends.
fn is_pipe(fd: &OwnedFd) -> bool {
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(fd));
    fs::read_link(path).is_ok_and(|name| name.as_os_str().as_encoded_bytes().starts_with(b"pipe:["))
}
