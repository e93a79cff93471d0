//! What a contained command may use.

use std::time::Duration;

/// What a contained command may use, in all its processes together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContainmentLimits {
    /// Memory, in MiB, with the files that it has written.
    pub memory_mib: u64,
    /// Processes and threads.
    pub processes: u32,
    /// Files in its folder, in `/tmp` and in `/dev/shm`, in MiB.
    pub disk_mib: u64,
    /// The number of these files and directories.
    pub files: u32,
    /// What it prints, in MiB.
    pub output_mib: u64,
    /// Processor time for each second. More is not given.
    pub processors: f64,
    /// The time from its start to its end.
    pub time: Duration,
}

impl Default for ContainmentLimits {
    fn default() -> Self {
        Self {
            memory_mib: 512,
            processes: 128,
            disk_mib: 256,
            files: 16_384,
            output_mib: 64,
            processors: 1.0,
            time: Duration::from_secs(60),
        }
    }
}

impl ContainmentLimits {
    /// What a command was stopped for, in words.
    pub fn describe(&self, limit: ContainmentLimit) -> String {
        match limit {
            ContainmentLimit::Memory => format!("more than {} MiB of memory", self.memory_mib),
            ContainmentLimit::Processes => format!("more than {} processes", self.processes),
            ContainmentLimit::Disk => {
                format!("more than {} MiB or {} files", self.disk_mib, self.files)
            }
            ContainmentLimit::Output => format!("more than {} MiB of output", self.output_mib),
            ContainmentLimit::Time => format!("more than {} s", self.time.as_secs_f64()),
        }
    }
}

/// A limit that ends a contained command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainmentLimit {
    /// [`ContainmentLimits::memory_mib`].
    Memory,
    /// [`ContainmentLimits::processes`].
    Processes,
    /// [`ContainmentLimits::disk_mib`] or [`ContainmentLimits::files`].
    Disk,
    /// [`ContainmentLimits::output_mib`].
    Output,
    /// [`ContainmentLimits::time`].
    Time,
}

impl ContainmentLimit {
    /// Its name: `memory`, `processes`, `disk`, `output` or `time`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Processes => "processes",
            Self::Disk => "disk",
            Self::Output => "output",
            Self::Time => "time",
        }
    }
}
