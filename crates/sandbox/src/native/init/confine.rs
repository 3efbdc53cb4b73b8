//! What the agent cannot do even if a mount were wrong: no capability, Landlock, seccomp, bounds.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::fs::{FileType, OFlags};
use rustix::process::{Resource, Rlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, CpuSet, sched_getaffinity,
    sched_setaffinity,
};
use seccompiler::BpfProgram;

use super::root::{Built, HOME};
use super::seccomp;
use crate::error::{Error, Result, Step};
use crate::native::wire::Bounds;

/// Descriptors that a process may have open.
const FILES_MAX: u64 = 65_536;

/// Bytes of a core dump. With 0 the kernel still starts the host's crash handler, as the host's root;
/// 1 is the value by which it starts none (`core(5)`), and too little for a file.
const CORE_MAX: u64 = 1;

/// Bytes that a process may lock in memory.
const LOCKED_MAX: u64 = 8 << 20;

/// Devices that may be written to.
const DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts"];

/// What is put on a process right before it becomes the agent.
#[derive(Debug)]
pub(crate) struct Confinement {
    ruleset: RulesetCreated,
    filters: Vec<BpfProgram>,
    limits: Vec<(Resource, u64)>,
    cpus: Option<CpuSet>,
}

/// Makes it ready, while files can still be opened for it.
///
/// # Errors
/// [`Error::Step`]: no Landlock, most likely.
pub(super) fn prepare(
    bounds: &Bounds,
    built: &Built,
    stdio: &[&OwnedFd; 3],
) -> Result<Confinement> {
    let (ruleset, signals_scoped) = landlock_rules(built, stdio)?;
    let restrictions = seccomp::Restrictions {
        own_affinity: bounds.cpus.is_none(),
        own_group_only: !signals_scoped,
    };
    let filters = seccomp::filters(restrictions)?;
    let mut limits = vec![
        (Resource::Core, CORE_MAX),
        (Resource::Memlock, LOCKED_MAX),
        (Resource::Nofile, FILES_MAX),
        // Nothing runs before its supervisor does.
        (Resource::Rtprio, 0),
        (Resource::Nice, 0),
    ];
    // The kernel counts per user namespace and uid, so these are the sandbox's own processes
    // alone; the init is one of them.
    limits.extend(bounds.pids.map(|pids| (Resource::Nproc, pids.saturating_add(1))));
    limits.extend(bounds.file_size.map(|bytes| (Resource::Fsize, bytes)));
    let cpus = bounds.cpus.map(first_cpus).transpose()?;
    Ok(Confinement { ruleset, filters, limits, cpus })
}

impl Confinement {
    /// Puts it on this process, for good. Everything after it is under it.
    ///
    /// # Errors
    /// [`Error::Step`]; then the process must not go on.
    pub(super) fn apply(self) -> Result<()> {
        for (resource, most) in self.limits {
            limit(resource, most)?;
        }
        if let Some(cpus) = self.cpus {
            sched_setaffinity(None, &cpus).step("bind the agent to its CPUs")?;
        }
        let status = self.ruleset.restrict_self().map_err(io::Error::other).step("use Landlock")?;
        if status.ruleset == RulesetStatus::NotEnforced || !status.no_new_privs {
            return Err(no_landlock());
        }
        for filter in &self.filters {
            seccompiler::apply_filter(filter).map_err(io::Error::other).step("use seccomp")?;
        }
        Ok(())
    }
}

/// Tries whether there is Landlock at all.
///
/// # Errors
/// [`Error::Step`] when there is none.
pub(super) fn attempt() -> Result<()> {
    let hard = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let made = hard.handle_access(AccessFs::from_all(ABI::V1)).and_then(Ruleset::create);
    made.map(drop).map_err(|_| no_landlock())
}

/// Gives up every capability in every set, for this process and all that it starts.
///
/// # Errors
/// [`Error::Step`].
pub(super) fn drop_privileges() -> Result<()> {
    let step = "drop capabilities";
    for bit in 0..CapabilitySet::all().bits().count_ones().min(64) {
        let Some(one) = 1u64.checked_shl(bit) else { break };
        let one = CapabilitySet::from_bits_retain(one);
        match rustix::thread::capability_is_in_bounding_set(one) {
            Ok(true) => rustix::thread::remove_capability_from_bounding_set(one).step(step)?,
            Ok(false) => {}
            // Past the last capability that this kernel knows.
            Err(_) => break,
        }
    }
    rustix::thread::clear_ambient_capability_set().step(step)?;
    let locked = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(locked).step("lock the secure bits")?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).step(step)?;
    rustix::thread::set_no_new_privs(true).step("forbid new privileges")
}

fn no_landlock() -> Error {
    Error::Step {
        step: "use Landlock".into(),
        source: io::Error::from_raw_os_error(libc::EOPNOTSUPP),
        hint: Some(
            "this kernel has no Landlock, or it is off: add `landlock` to the `lsm=` list on the \
             kernel's command line (Linux 5.13 or later)"
                .into(),
        ),
    }
}

/// Reading and executing everywhere in the root, writing in the scratch folders and in what the
/// rules say. Also whether the kernel keeps signals within the sandbox.
fn landlock_rules(built: &Built, stdio: &[&OwnedFd; 3]) -> Result<(RulesetCreated, bool)> {
    const NEWEST: ABI = ABI::V9;
    let step = "prepare Landlock";
    let error = |error: landlock::RulesetError| io::Error::other(error);
    let hard = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let Ok(ruleset) = hard.handle_access(AccessFs::from_all(ABI::V1)) else {
        return Err(no_landlock());
    };
    let signals_scoped = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::Signal)
        .is_ok();
    let ruleset = ruleset.set_compatibility(CompatLevel::BestEffort);
    let ruleset = ruleset.handle_access(AccessFs::from_all(NEWEST)).map_err(error).step(step)?;
    let ruleset = ruleset.scope(Scope::from_all(NEWEST)).map_err(error).step(step)?;
    let mut ruleset = ruleset.create().map_err(error).step(step)?;

    let read = AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir;
    let all = AccessFs::from_all(NEWEST);
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let mut allow = |ruleset: RulesetCreated, at: &dyn AsFd, access: BitFlags<AccessFs>| {
        let fd = at.as_fd();
        let stat = rustix::fs::fstat(fd).step(step)?;
        let folder = FileType::from_raw_mode(stat.st_mode).is_dir();
        let access = if folder { access } else { access & AccessFs::from_file(NEWEST) };
        ruleset.add_rule(PathBeneath::new(fd, access)).map_err(error).step(step)
    };
    let mut paths: Vec<(&str, BitFlags<AccessFs>)> =
        vec![("/", read), (HOME, all), ("/tmp", all), ("/dev/shm", all)];
    let there = DEVICES.into_iter().filter(|path| std::path::Path::new(path).exists());
    paths.extend(there.map(|path| (path, device)));
    for (path, access) in paths {
        let fd = PathFd::new(path).map_err(io::Error::other).step(step)?;
        ruleset = allow(ruleset, &fd, access)?;
    }
    // A process may always change its own name, limits and the like.
    let own = PathFd::new("/proc").map_err(io::Error::other).step(step)?;
    ruleset = allow(ruleset, &own, read | AccessFs::WriteFile | AccessFs::Truncate)?;
    for tree in &built.writable {
        ruleset = allow(ruleset, tree, all)?;
    }
    for fd in stdio {
        ruleset = allow_stream(ruleset, fd, &mut allow)?;
    }
    Ok((ruleset, signals_scoped))
}

/// Lets `/dev/stdout` and its like be opened again, in the direction in which they are open.
fn allow_stream(
    ruleset: RulesetCreated,
    fd: &OwnedFd,
    allow: &mut impl FnMut(RulesetCreated, &dyn AsFd, BitFlags<AccessFs>) -> Result<RulesetCreated>,
) -> Result<RulesetCreated> {
    let stat = rustix::fs::fstat(fd).step("look at a standard stream")?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if !kind.is_file() && !kind.is_char_device() {
        // Pipes and sockets have no path for Landlock to judge.
        return Ok(ruleset);
    }
    let flags = rustix::fs::fcntl_getfl(fd).step("look at a standard stream")?;
    let (read, write) =
        (BitFlags::from(AccessFs::ReadFile), AccessFs::WriteFile | AccessFs::Truncate);
    let access = match flags & OFlags::RWMODE {
        mode if mode == OFlags::RDONLY => read,
        mode if mode == OFlags::WRONLY => write,
        _ => read | write,
    };
    let access = if kind.is_char_device() { access | AccessFs::IoctlDev } else { access };
    allow(ruleset, fd, access)
}

/// Sets a soft and a hard limit, never above what is already the hard one.
fn limit(resource: Resource, most: u64) -> Result<()> {
    let hard = rustix::process::getrlimit(resource).maximum;
    let most = hard.map_or(most, |hard| hard.min(most));
    let both = Rlimit { current: Some(most), maximum: Some(most) };
    rustix::process::setrlimit(resource, both).step("set a resource limit")
}

/// The first so many of the CPUs that we may use.
fn first_cpus(count: u32) -> Result<CpuSet> {
    let ours = sched_getaffinity(None).step("read our CPUs")?;
    let mut some = CpuSet::new();
    let usable = (0..CpuSet::MAX_CPU).filter(|cpu| ours.is_set(*cpu));
    usable.take(count.max(1) as usize).for_each(|cpu| some.set(cpu));
    Ok(some)
}
