//! As whom the agent runs: which host ids, and how they are mapped.

use std::fs;
use std::io;

use rustix::process::Pid;

use crate::error::{Error, Result, Step};

/// The uid and gid that the agent sees itself as.
pub(crate) const INSIDE: u32 = 1000;

/// Host ids for agents that root starts: a range that no distribution hands out.
const RANGE: std::ops::RangeInclusive<u32> = 0x7000_0000..=0x7000_ffff;

/// The overflow id: what unmapped ids look like.
const NOBODY: u32 = 65534;

/// The host ids of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Our own: we are an ordinary user, and the agent is the same one without any capability.
    Own { uid: u32, gid: u32 },
    /// Other ones, since we are root and the agent must not be.
    Other { uid: u32, gid: u32 },
}

impl Identity {
    /// Chooses by who we are.
    ///
    /// # Errors
    /// [`Error::Step`] when we are root in a user namespace with no other id to give.
    pub(crate) fn choose() -> Result<Self> {
        let map = |path| fs::read_to_string(path).step("read our own id mapping");
        let random = getrandom::u32()
            .map_err(|e| io::Error::other(e.to_string()))
            .step("get random bytes")?;
        choose(
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
            &parse_map(&map("/proc/self/uid_map")?),
            &parse_map(&map("/proc/self/gid_map")?),
            random,
        )
    }

    /// Whether root gives its ids away, so that mounts must be id-mapped.
    pub(crate) fn is_other(self) -> bool {
        matches!(self, Self::Other { .. })
    }

    /// Maps this identity to [`INSIDE`] in the user namespace of the process.
    ///
    /// # Errors
    /// [`Error::Step`]: a write to the map was refused.
    pub(crate) fn map(self, process: Pid) -> Result<()> {
        let (uid, gid) = match self {
            Self::Own { uid, gid } => {
                write_proc(process, "setgroups", "deny")?;
                (uid, gid)
            }
            Self::Other { uid, gid } => (uid, gid),
        };
        write_proc(process, "gid_map", &format!("{INSIDE} {gid} 1"))?;
        write_proc(process, "uid_map", &format!("{INSIDE} {uid} 1"))
    }
}

/// Writes a file of a process's `/proc` folder: an id map, or whether groups may be set.
pub(crate) fn write_proc(process: Pid, file: &'static str, text: &str) -> Result<()> {
    let path = format!("/proc/{}/{file}", process.as_raw_nonzero());
    fs::write(path, text).step_hint(format!("write {file} of the sandbox"), |error| {
        crate::hints::user_namespaces(error)
    })
}

/// One line of an id map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    inside: u32,
    outside: u32,
    count: u32,
}

fn parse_map(text: &str) -> Vec<Extent> {
    let line = |line: &str| {
        let mut numbers = line.split_ascii_whitespace().map(|n| n.parse::<u32>().ok());
        Some(Extent {
            inside: numbers.next()??,
            outside: numbers.next()??,
            count: numbers.next()??,
        })
    };
    text.lines().filter_map(line).collect()
}

fn choose(euid: u32, egid: u32, uids: &[Extent], gids: &[Extent], random: u32) -> Result<Identity> {
    let single = match uids {
        [one] if one.count == 1 => Some(one.outside),
        _ => None,
    };
    match (euid, single) {
        (0, Some(0)) => Err(Error::Step {
            step: "choose an unprivileged id for the agent".into(),
            source: io::Error::from_raw_os_error(libc::EPERM),
            hint: Some(
                "this process is root in a user namespace that maps root alone: start ringfence \
                 outside of it, or as an ordinary user"
                    .into(),
            ),
        }),
        (0, None) => {
            let none =
                || Error::Spec("no unprivileged id is mapped in our own user namespace".into());
            let uid = pick(uids, random).ok_or_else(none)?;
            let gid = pick(gids, random).ok_or_else(none)?;
            Ok(Identity::Other { uid, gid })
        }
        _ => Ok(Identity::Own { uid: euid, gid: egid }),
    }
}

/// A mapped id that is nobody's: random within [`RANGE`], or else the last of the largest extent.
fn pick(map: &[Extent], random: u32) -> Option<u32> {
    let last = |extent: &Extent| extent.inside.saturating_add(extent.count.saturating_sub(1));
    if map.iter().any(|e| e.inside <= *RANGE.start() && last(e) >= *RANGE.end()) {
        return Some(RANGE.start() + (random & 0xffff));
    }
    let largest = map.iter().max_by_key(|extent| extent.count)?;
    let id = last(largest);
    let id = if id == NOBODY { id - 1 } else { id };
    (id != 0 && id >= largest.inside).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::{Extent, Identity, choose, parse_map, pick};

    fn map(text: &str) -> Vec<Extent> {
        parse_map(text)
    }

    #[test]
    fn root_of_the_host_gets_an_id_of_the_range() {
        let all = map("         0          0 4294967295\n");
        let identity = choose(0, 0, &all, &all, 0xabcd_1234).unwrap();
        assert_eq!(identity, Identity::Other { uid: 0x7000_1234, gid: 0x7000_1234 });
    }

    #[test]
    fn an_ordinary_user_keeps_its_own() {
        let all = map("0 0 4294967295");
        assert_eq!(choose(7, 8, &all, &all, 1).unwrap(), Identity::Own { uid: 7, gid: 8 });
    }

    #[test]
    fn root_in_a_single_id_namespace_is_refused_when_it_is_root_outside() {
        let root = map("0 0 1");
        assert!(choose(0, 0, &root, &root, 1).is_err());
        let user = map("0 1000 1");
        assert_eq!(choose(0, 0, &user, &user, 1).unwrap(), Identity::Own { uid: 0, gid: 0 });
    }

    #[test]
    fn a_small_map_gives_its_last_id_but_not_nobody() {
        assert_eq!(pick(&map("0 1000 1\n1 100000 65536"), 9), Some(65536));
        assert_eq!(pick(&map("0 100000 65535"), 9), Some(65533));
        assert_eq!(pick(&map(""), 9), None);
    }
}
