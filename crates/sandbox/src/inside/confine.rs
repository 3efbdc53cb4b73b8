//! What every process of the agent is under, whichever wall is around it: no capability, seccomp, bounds.

use std::io;

use landlock::{RulesetCreated, RulesetStatus};
use rustix::process::{Resource, Rlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, CpuSet, sched_getaffinity,
    sched_setaffinity,
};
use seccompiler::BpfProgram;

use super::seccomp;
use super::wire::Bounds;
use crate::error::{Error, Result, Step};

/// Descriptors that a process may have open.
const FILES_MAX: u64 = 65_536;

/// Bytes of a core dump. With 0 the kernel still starts the host's crash handler, as the host's root;
/// 1 is the value by which it starts none (`core(5)`), and too little for a file.
const CORE_MAX: u64 = 1;

/// Bytes that a process may lock in memory.
const LOCKED_MAX: u64 = 8 << 20;

/// By how much the agent gives way to the init, and to everything else, where all want the CPUs: the init
/// ends the sandbox, and must not wait for as many turns as there are processes.
const NICE: i32 = 5;

/// What is put on a process right before it becomes the agent.
#[derive(Debug)]
pub(crate) struct Confinement {
    /// Where the mounts alone do not hold what may be written.
    landlock: Option<RulesetCreated>,
    filters: Vec<BpfProgram>,
    limits: Vec<(Resource, u64)>,
    cpus: Option<CpuSet>,
}

impl Confinement {
    /// Makes it ready. `own_group_only`: see [`seccomp::Restrictions`].
    ///
    /// # Errors
    /// [`Error::Step`]: an architecture without seccomp.
    pub(crate) fn new(
        bounds: &Bounds,
        landlock: Option<RulesetCreated>,
        own_group_only: bool,
    ) -> Result<Self> {
        let restrictions =
            seccomp::Restrictions { own_affinity: bounds.cpus.is_none(), own_group_only };
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
        Ok(Self { landlock, filters, limits, cpus })
    }

    /// Puts it on this process, for good. Everything after it is under it.
    ///
    /// # Errors
    /// [`Error::Step`]; then the process must not go on.
    pub(crate) fn apply(self) -> Result<()> {
        for (resource, most) in self.limits {
            limit(resource, most)?;
        }
        rustix::process::setpriority_process(None, NICE).step("let the init go first")?;
        if let Some(cpus) = self.cpus {
            sched_setaffinity(None, &cpus).step("bind the agent to its CPUs")?;
        }
        if let Some(rules) = self.landlock {
            let status = rules.restrict_self().map_err(io::Error::other).step("use Landlock")?;
            if status.ruleset == RulesetStatus::NotEnforced || !status.no_new_privs {
                return Err(no_landlock());
            }
        }
        for filter in &self.filters {
            seccompiler::apply_filter(filter).map_err(io::Error::other).step("use seccomp")?;
        }
        Ok(())
    }
}

/// Gives up every capability in every set, for this process and all that it starts.
///
/// # Errors
/// [`Error::Step`].
pub(crate) fn drop_privileges() -> Result<()> {
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

pub(crate) fn no_landlock() -> Error {
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
