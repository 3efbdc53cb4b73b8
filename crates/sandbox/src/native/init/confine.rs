//! What the agent cannot do even if a mount were wrong: no capability, Landlock, seccomp, bounds.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::root::{Built, HOME};
use crate::error::{Result, Step};
use crate::inside::wire::Bounds;
use crate::inside::{Confinement, no_landlock};
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope,
};
use rustix::fs::{FileType, OFlags};

/// Devices that may be written to.
const DEVICES: [&str; 7] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts"];

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
    Confinement::new(bounds, Some(ruleset), !signals_scoped)
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
