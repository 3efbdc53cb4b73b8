//! Which system calls the agent may make.
//!
//! Three filters, the kernel runs all of them and takes the strictest answer: what is not on the
//! list does not exist (`ENOSYS`, so that a C library falls back); what is dangerous on a call that
//! is on the list is `EPERM`; socket families other than Unix and internet are `EAFNOSUPPORT`.
//! A foreign ABI (i386) kills the process; x32 calls are not on the list.

mod allowed;
mod refused;

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use crate::error::{Result, Step};

/// What is refused only in some sandboxes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Restrictions {
    /// Whether processes may choose their CPUs: not where a CPU limit is kept by affinity.
    pub(super) own_affinity: bool,
    /// Whether `kill(0, …)` is refused, since the process group reaches out of the sandbox and
    /// Landlock does not keep signals within it (before Linux 6.12).
    pub(super) own_group_only: bool,
}

/// An old way to open packet sockets.
const SOCK_PACKET: i32 = 10;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The filters, in the order in which they are installed.
///
/// # Errors
/// [`crate::Error::Step`] on an architecture that seccompiler does not know.
pub(super) fn filters(restrictions: Restrictions) -> Result<Vec<BpfProgram>> {
    let allowed =
        allowed::ALLOWED.iter().copied().flatten().map(|call| (*call, Vec::new())).collect();
    // The last filter's error wins over those of earlier ones.
    [
        (allowed, errno(libc::ENOSYS), SeccompAction::Allow),
        (refused(restrictions)?, SeccompAction::Allow, errno(libc::EPERM)),
        (families()?, SeccompAction::Allow, errno(libc::EAFNOSUPPORT)),
    ]
    .into_iter()
    .map(|(rules, mismatch, matched)| compile(rules, mismatch, matched))
    .collect()
}

fn errno(number: i32) -> SeccompAction {
    SeccompAction::Errno(number.unsigned_abs())
}

fn compile(rules: Rules, mismatch: SeccompAction, matched: SeccompAction) -> Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH);
    let build = || -> std::result::Result<BpfProgram, seccompiler::BackendError> {
        SeccompFilter::new(rules, mismatch, matched, arch?)?.try_into()
    };
    build().map_err(io::Error::other).step("compile the seccomp filter")
}

/// Socket families that reach outside of the network namespace, or into rarely tested kernel code.
fn families() -> Result<Rules> {
    let other = || {
        rule(&[
            (0, SeccompCmpOp::Ne, libc::AF_UNIX),
            (0, SeccompCmpOp::Ne, libc::AF_INET),
            (0, SeccompCmpOp::Ne, libc::AF_INET6),
        ])
    };
    Ok([(libc::SYS_socket, vec![other()?]), (libc::SYS_socketpair, vec![other()?])].into())
}

fn refused(restrictions: Restrictions) -> Result<Rules> {
    let mut rules: Rules =
        refused::REFUSED.iter().copied().flatten().map(|call| (*call, Vec::new())).collect();

    // New namespaces. clone3 hides its flags from us and is not on the list at all.
    let clone = refused::NAMESPACE_FLAGS
        .iter()
        .map(|flag| {
            let flag = u64::from(flag.cast_unsigned());
            condition(0, SeccompCmpOp::MaskedEq(flag), flag).and_then(|c| one(vec![c]))
        })
        .collect::<Result<_>>()?;
    rules.insert(libc::SYS_clone, clone);

    // Input pushed into a terminal, selections of a console, line disciplines. The kernel looks at
    // the lower half of the number only, and so do we.
    let ioctl = refused::TERMINAL_REQUESTS
        .iter()
        .map(|request| condition(1, SeccompCmpOp::Eq, *request).and_then(|c| one(vec![c])))
        .collect::<Result<_>>()?;
    rules.insert(libc::SYS_ioctl, ioctl);

    // Raw and packet sockets of the families that are left. The upper bits of the type are flags.
    let socket = [libc::SOCK_RAW, libc::SOCK_RDM, libc::SOCK_DCCP, SOCK_PACKET]
        .into_iter()
        .map(|kind| {
            let kind = u64::from(kind.cast_unsigned());
            condition(1, SeccompCmpOp::MaskedEq(0xf), kind).and_then(|c| one(vec![c]))
        })
        .chain([libc::AF_INET, libc::AF_INET6].map(protocols))
        .chain([libc::AF_INET, libc::AF_INET6].map(packets))
        .collect::<Result<Vec<_>>>()?;
    rules.insert(libc::SYS_socket, socket);

    // The core limit keeps the host's crash handler out: it stays.
    let core = || condition(0, SeccompCmpOp::Eq, refused::RLIMIT_CORE);
    rules.insert(libc::SYS_setrlimit, vec![one(vec![core()?])?]);
    let core = condition(1, SeccompCmpOp::Eq, refused::RLIMIT_CORE)?;
    let set = || {
        let set = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0);
        set.map_err(io::Error::other).step("compile the seccomp filter")
    };
    let other = condition(0, SeccompCmpOp::Ne, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![one(vec![core, set()?])?, one(vec![other, set()?])?]);

    // When and where others run. The init has the same ids, and everything ends with it: it must get its
    // turn. Whoever asks about itself says 0.
    for call in refused::SCHEDULING {
        rules.insert(*call, vec![rule(&[(0, SeccompCmpOp::Ne, 0)])?]);
    }
    for (call, process) in refused::PRIORITIES {
        let whose = rule(&[(0, SeccompCmpOp::Ne, *process)])?;
        rules.insert(*call, vec![whose, rule(&[(1, SeccompCmpOp::Ne, 0)])?]);
    }

    // Execution domains: only to ask, and the harmless ones.
    let personality = refused::PERSONALITIES
        .iter()
        .map(|value| condition(0, SeccompCmpOp::Ne, *value))
        .collect::<Result<_>>()
        .and_then(one)?;
    rules.insert(libc::SYS_personality, vec![personality]);

    for (call, flags, mode) in refused::MODES.iter().copied().flatten() {
        rules.insert(*call, set_id(*flags, *mode)?);
    }

    if !restrictions.own_affinity {
        rules.insert(libc::SYS_sched_setaffinity, Vec::new());
    }
    if restrictions.own_group_only {
        rules.insert(libc::SYS_kill, vec![rule(&[(0, SeccompCmpOp::Eq, 0)])?]);
        // Input on the terminal would send the chosen signal to whoever is in its foreground.
        rules.insert(libc::SYS_fcntl, vec![rule(&[(1, SeccompCmpOp::Eq, refused::F_SETSIG)])?]);
    }
    Ok(rules)
}

/// Any protocol of an internet family but the common ones: SCTP, DCCP, SMC and their like load modules
/// that are rarely tested.
fn protocols(family: i32) -> Result<SeccompRule> {
    let family = condition(0, SeccompCmpOp::Eq, u64::from(family.cast_unsigned()));
    let others = refused::PROTOCOLS.iter().map(|number| condition(2, SeccompCmpOp::Ne, *number));
    std::iter::once(family).chain(others).collect::<Result<_>>().and_then(one)
}

/// Sequenced packets of an internet family: SCTP by its other name.
fn packets(family: i32) -> Result<SeccompRule> {
    let kind = u64::from(libc::SOCK_SEQPACKET.cast_unsigned());
    one(vec![
        condition(0, SeccompCmpOp::Eq, u64::from(family.cast_unsigned()))?,
        condition(1, SeccompCmpOp::MaskedEq(0xf), kind)?,
    ])
}

/// A mode with a set-id bit, on a call that takes it as this argument; with `flags`, only where those
/// say that a file is made.
fn set_id(flags: Option<u8>, mode: u8) -> Result<Vec<SeccompRule>> {
    let bit =
        |index: u8, bit: u32| condition(index, SeccompCmpOp::MaskedEq(bit.into()), bit.into());
    let mut rules = Vec::new();
    for set in [libc::S_ISUID, libc::S_ISGID] {
        let Some(flags) = flags else {
            rules.push(one(vec![bit(mode, set)?])?);
            continue;
        };
        for made in refused::MAKING_FLAGS {
            rules.push(one(vec![bit(flags, made.cast_unsigned())?, bit(mode, set)?])?);
        }
    }
    Ok(rules)
}

fn rule(conditions: &[(u8, SeccompCmpOp, i32)]) -> Result<SeccompRule> {
    conditions
        .iter()
        .map(|(index, op, value)| condition(*index, op.clone(), u64::from(value.cast_unsigned())))
        .collect::<Result<_>>()
        .and_then(one)
}

fn one(conditions: Vec<SeccompCondition>) -> Result<SeccompRule> {
    SeccompRule::new(conditions).map_err(io::Error::other).step("compile the seccomp filter")
}

fn condition(index: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompCondition> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, op, value)
        .map_err(io::Error::other)
        .step("compile the seccomp filter")
}

#[cfg(test)]
mod tests;
