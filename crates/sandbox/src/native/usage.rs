//! What a sandbox uses, read from `/proc` where no cgroup tells.

use std::fs;
use std::time::Duration;

use rustix::process::Pid;

use crate::Usage;

/// Processes that are looked at.
const PROCESSES_MAX: usize = 4096;

/// Everything that descends from the init. Memory is what cannot be dropped without swapping:
/// anonymous and shared pages, and not the program files that are mapped.
pub(crate) fn of(init: Pid) -> Usage {
    let mut usage = Usage::default();
    let mut todo = vec![init.as_raw_nonzero().get()];
    let mut seen = 0;
    while let Some(pid) = todo.pop() {
        seen += 1;
        if seen > PROCESSES_MAX {
            break;
        }
        todo.extend(children(pid));
        usage.cpu += cpu(pid);
        if pid != init.as_raw_nonzero().get() {
            usage.pids += 1;
            usage.memory += memory(pid);
        }
    }
    usage
}

fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let lists = threads
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| numbers(&list)).collect()
}

fn numbers(list: &str) -> Vec<i32> {
    list.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

fn memory(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kilobytes = |line: &str| {
        let value = line.strip_prefix("RssAnon:").or_else(|| line.strip_prefix("RssShmem:"))?;
        value.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
    };
    status.lines().filter_map(kilobytes).sum::<u64>() * 1024
}

/// Its own time and that of the children that it has collected.
fn cpu(pid: i32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ticks: u64 = ticks(&stat);
    let hertz = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_millis(ticks.saturating_mul(1000) / hertz)
}

/// Fields 14 to 17, counted after the name, which may hold anything.
fn ticks(stat: &str) -> u64 {
    let Some((_, rest)) = stat.rsplit_once(')') else { return 0 };
    rest.split_whitespace().skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::ticks;

    #[test]
    fn the_name_may_hold_anything() {
        let stat = "7 (a) 1 2) S 1 7 7 0 -1 4194560 100 0 0 0 11 12 13 14 20 0 1 0";
        assert_eq!(ticks(stat), 50);
        assert_eq!(ticks(""), 0);
    }
}
