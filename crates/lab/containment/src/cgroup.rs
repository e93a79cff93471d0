//! Control groups: the kernel's own limits of memory, processes and processor time, for all
//! processes of a command together.
//!
//! A command gets a group of its own below the group of this process. This works with version 1,
//! where each controller has a tree of its own, and with version 2, where all share one. The
//! directory of a group is locked while it is used. What an interrupted run has left is not locked,
//! and the next run removes it.

mod hierarchy;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::limits::{ContainmentLimit, ContainmentLimits};
use hierarchy::{ControllerTree, TreeVersion};

/// The controllers that a command needs.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

/// The beginning of the names of groups of commands.
const PREFIX: &str = "sunder-contained-";

/// Processes of `bwrap` itself: the one that waits, and the first one of the sandbox.
const OWN_PROCESSES: u32 = 2;

/// The part of a second for which processor time is given.
const CPU_PERIOD_US: f64 = 100_000.0;

/// The time within which ended processes leave their group.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The groups of a command: none, one, or one in each tree of version 1. They are removed when this
/// is dropped.
#[derive(Debug, Default)]
pub(crate) struct CommandGroups {
    groups: Vec<CommandGroup>,
}

/// A group of a command.
#[derive(Debug)]
struct CommandGroup {
    directory: PathBuf,
    version: TreeVersion,
    controllers: Vec<&'static str>,
    /// The list to which a process is added.
    processes: File,
    /// The open directory, which is locked.
    _lock: File,
}

impl CommandGroups {
    /// Makes the groups that can be made here, with the limits.
    pub(crate) fn new(limits: &ContainmentLimits) -> Self {
        let trees = hierarchy::trees(&CONTROLLERS);
        let groups = trees.iter().filter_map(|tree| CommandGroup::new(tree, limits).ok());
        Self { groups: groups.collect() }
    }

    /// Whether memory is limited by a group.
    pub(crate) fn limit_memory(&self) -> bool {
        self.with("memory").is_some()
    }

    /// Whether processes are limited by a group.
    pub(crate) fn limit_processes(&self) -> bool {
        self.with("pids").is_some()
    }

    /// Whether processor time is limited by a group.
    pub(crate) fn limit_processors(&self) -> bool {
        self.with("cpu").is_some()
    }

    /// The files to which a process writes `0` to enter the groups.
    pub(crate) fn entrances(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.groups.iter().map(|group| group.processes.as_fd())
    }

    /// The limit that was reached, if one was.
    pub(crate) fn reached(&self) -> Option<ContainmentLimit> {
        let killed = |group: &CommandGroup| {
            let events = match group.version {
                TreeVersion::One => "memory.oom_control",
                TreeVersion::Two => "memory.events",
            };
            count(&group.directory.join(events), "oom_kill")
        };
        if self.with("memory").is_some_and(|group| killed(group) > 0) {
            return Some(ContainmentLimit::Memory);
        }
        let refused = |group: &CommandGroup| count(&group.directory.join("pids.events"), "max");
        let reached = self.with("pids").is_some_and(|group| refused(group) > 0);
        reached.then_some(ContainmentLimit::Processes)
    }

    fn with(&self, controller: &str) -> Option<&CommandGroup> {
        self.groups.iter().find(|group| group.controllers.contains(&controller))
    }
}

impl CommandGroup {
    fn new(tree: &ControllerTree, limits: &ContainmentLimits) -> io::Result<Self> {
        remove_stale(&tree.directory);
        let (directory, lock) = locked_directory(&tree.directory)?;
        let set_up = || {
            for controller in &tree.controllers {
                limit(&directory, controller, tree.version, limits)?;
            }
            File::options().write(true).open(directory.join("cgroup.procs"))
        };
        match set_up() {
            Ok(processes) => Ok(Self {
                directory,
                version: tree.version,
                controllers: tree.controllers.clone(),
                processes,
                _lock: lock,
            }),
            Err(error) => {
                let _ = fs::remove_dir(&directory);
                Err(error)
            }
        }
    }
}

impl Drop for CommandGroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + REMOVE_TIMEOUT;
        // A process that has ended leaves its group a moment later. A group that remains is
        // removed by the next run.
        while fs::remove_dir(&self.directory).is_err_and(|it| it.kind() != io::ErrorKind::NotFound)
            && Instant::now() < deadline
        {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Makes a directory of a group and locks it.
fn locked_directory(parent: &Path) -> io::Result<(PathBuf, File)> {
    loop {
        let made = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let directory = made.keep();
        let lock = File::open(&directory)?;
        // Another run may take it for one that is left, before it is locked.
        let is_locked = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        if is_locked && directory.exists() {
            return Ok((directory, lock));
        }
    }
}

/// Removes the groups that interrupted runs have left.
fn remove_stale(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let is_command = |name: &OsStr| name.to_string_lossy().starts_with(PREFIX);
    for entry in entries.filter(|entry| is_command(&entry.file_name())) {
        let Ok(directory) = File::open(entry.path()) else { continue };
        if flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // It is not empty while a process in it has not ended.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Sets the limits of a controller.
fn limit(
    group: &Path,
    controller: &str,
    version: TreeVersion,
    limits: &ContainmentLimits,
) -> io::Result<()> {
    let write = |file: &str, value: String| fs::write(group.join(file), value);
    let memory = (limits.memory_mib << 20).to_string();
    let quota = (limits.processors * CPU_PERIOD_US).max(1000.0).round();
    match (controller, version) {
        ("memory", TreeVersion::One) => {
            write("memory.limit_in_bytes", memory.clone())?;
            // Not there without accounting of swap.
            let _ = write("memory.memsw.limit_in_bytes", memory);
            Ok(())
        }
        ("memory", TreeVersion::Two) => {
            write("memory.max", memory)?;
            let _ = write("memory.swap.max", "0".into());
            Ok(())
        }
        ("pids", _) => {
            write("pids.max", limits.processes.saturating_add(OWN_PROCESSES).to_string())
        }
        ("cpu", TreeVersion::One) => {
            write("cpu.cfs_period_us", CPU_PERIOD_US.to_string())?;
            write("cpu.cfs_quota_us", quota.to_string())
        }
        ("cpu", TreeVersion::Two) => write("cpu.max", format!("{quota} {CPU_PERIOD_US}")),
        _ => Ok(()),
    }
}

/// A count in a file of lines `NAME COUNT`; 0 if it is not there.
fn count(file: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let count = |line: &str| line.split_once(' ').filter(|(it, _)| *it == name)?.1.parse().ok();
    text.lines().find_map(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_interrupted_run_has_left_is_removed_and_what_is_used_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let used = locked_directory(parent.path()).unwrap();
        let left = locked_directory(parent.path()).unwrap().0;
        let other = parent.path().join("other");
        fs::create_dir(&other).unwrap();
        remove_stale(parent.path());
        assert!(used.0.exists() && other.exists() && !left.exists());
    }

    #[test]
    fn the_limits_are_written_as_each_version_has_them() {
        let limits = ContainmentLimits {
            memory_mib: 64,
            processes: 20,
            processors: 0.5,
            ..ContainmentLimits::default()
        };
        for (version, expected) in [
            (
                TreeVersion::One,
                [
                    ("memory.limit_in_bytes", "67108864"),
                    ("pids.max", "22"),
                    ("cpu.cfs_quota_us", "50000"),
                ],
            ),
            (
                TreeVersion::Two,
                [("memory.max", "67108864"), ("pids.max", "22"), ("cpu.max", "50000 100000")],
            ),
        ] {
            let group = tempfile::tempdir().unwrap();
            for controller in CONTROLLERS {
                limit(group.path(), controller, version, &limits).unwrap();
            }
            for (file, value) in expected {
                assert_eq!(fs::read_to_string(group.path().join(file)).unwrap(), value, "{file}");
            }
        }
    }

    #[test]
    fn counts_are_read_by_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "low 0\noom 3\noom_kill 2\n").unwrap();
        assert_eq!(count(file.path(), "oom_kill"), 2);
        assert_eq!(count(file.path(), "max"), 0);
        assert_eq!(count(Path::new("/nowhere"), "max"), 0);
    }
}
