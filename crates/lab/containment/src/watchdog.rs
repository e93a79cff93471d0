//! What the processes of a command use, where no control group counts it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

/// What a process and all that it has started use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessTreeUse {
    /// Memory that belongs to the processes, in bytes. Memory that several share counts for each.
    pub(crate) memory: u64,
    /// Processes and threads.
    pub(crate) threads: u32,
}

/// The processes below one, without it. They are in a process namespace, so that none leaves it.
pub(crate) fn descendants(root: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for number in numbers {
        if let Some(parent) = parent(number) {
            children.entry(parent).or_default().push(number);
        }
    }
    let (mut found, mut left) = (BTreeSet::new(), vec![root]);
    while let Some(next) = left.pop() {
        let below = children.remove(&next).unwrap_or_default();
        left.extend(&below);
        found.extend(below);
    }
    found.into_iter().collect()
}

/// What a process and those below it use.
pub(crate) fn use_of_tree(root: u32) -> ProcessTreeUse {
    let mut sum = ProcessTreeUse::default();
    for number in descendants(root) {
        let status = fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
        sum.memory += (field(&status, "RssAnon:") + field(&status, "RssShmem:")) << 10;
        sum.threads += u32::try_from(field(&status, "Threads:")).unwrap_or(u32::MAX);
    }
    sum
}

/// The processor time of the processes below one that have not ended.
pub(crate) fn processor_time_of_tree(root: u32) -> Duration {
    let ticks = |number| {
        let fields = stat_fields(number)?;
        let of = |place: usize| fields.get(place)?.parse::<u64>().ok();
        Some(of(USER_TIME)? + of(SYSTEM_TIME)?)
    };
    let sum: u64 = descendants(root).into_iter().filter_map(ticks).sum();
    Duration::from_millis(sum * TICK_MS)
}

/// The unit of times in `stat`, which is the same for all processors but a few old ones.
const TICK_MS: u64 = 10;

/// Fields of `stat` after the name.
const PARENT: usize = 1;
const USER_TIME: usize = 11;
const SYSTEM_TIME: usize = 12;

/// The fields of a process's `stat` after its name, which is in brackets.
fn stat_fields(number: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

/// The parent of a process.
fn parent(number: u32) -> Option<u32> {
    stat_fields(number)?.get(PARENT)?.parse().ok()
}

/// A number of a process's `status`; 0 if it is not there.
fn field(status: &str, name: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::process::{self, Command, Stdio};

    use super::*;

    #[test]
    fn what_a_process_has_started_counts() {
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        assert!(descendants(process::id()).contains(&child.id()));
        let used = use_of_tree(process::id());
        assert!(used.threads >= 1 && used.memory > 0, "{used:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!descendants(process::id()).contains(&child.id()));
    }

    #[test]
    fn processor_time_is_what_processes_have_used() {
        let work = "while :; do :; done";
        let mut child = Command::new("sh").args(["-c", work]).stdin(Stdio::null()).spawn().unwrap();
        let mut before = Duration::ZERO;
        while before < Duration::from_millis(50) {
            let now = processor_time_of_tree(process::id());
            assert!(now >= before, "{now:?} after {before:?}");
            before = now;
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
