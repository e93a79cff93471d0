//! What is asked of a sandbox, and how it ends.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::limits::{ContainmentLimit, ContainmentLimits};
use crate::machine::{BOOT_PROCESSOR_TIME, BOOT_TIMEOUT, GuestMachine};
use crate::upload::{UploadError, UploadedFolder};

/// A command to run in a sandbox.
#[derive(Debug)]
pub struct ContainedCommand {
    /// The program, which is in the sandbox's `PATH` or its folder, and its arguments.
    pub run: Vec<String>,
    /// The folder of which it gets a copy, `/folder`.
    pub folder: UploadedFolder,
    /// Its working directory, relative to the folder.
    pub directory: PathBuf,
    /// A program of the host that it gets as `/dev/shm/sunder`, if it is there.
    pub program: Option<PathBuf>,
    /// The network namespace in which it runs.
    pub network: OwnedFd,
    /// The virtual machine in which it runs; `None` if it runs in the sandbox itself.
    pub machine: Option<GuestMachine>,
    /// What it may use.
    pub limits: ContainmentLimits,
    /// The file to which its standard output and standard error are copied.
    pub output: File,
    /// An existing directory, in which a mount point is made and removed.
    pub scratch: PathBuf,
}

/// Why a command could not be started in a sandbox, in one line.
#[derive(Debug, Error)]
pub enum ContainmentError {
    /// `bwrap` is missing.
    #[error("bwrap is not installed; install it (Debian: apt install bubblewrap)")]
    NotInstalled,
    /// What a virtual machine needs is missing.
    #[error("{0}")]
    NoMachine(String),
    /// The virtual machine ended instead of starting. What it printed is in the output.
    #[error("the virtual machine does not start")]
    NotBooted,
    /// The virtual machine was not ready in time.
    #[error("{}", describe_late_boot(*processor_time))]
    NotBootedInTime {
        /// The processor time that QEMU got meanwhile.
        processor_time: Duration,
    },
    /// The folder cannot be copied.
    #[error(transparent)]
    Upload(#[from] UploadError),
    /// The system refused a step.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
    /// `bwrap` did not make the sandbox. What it printed is in the output.
    #[error("bwrap cannot make a sandbox here")]
    NotMade,
}

/// Says what was waited for, how long, and why it probably did not come.
fn describe_late_boot(processor_time: Duration) -> String {
    let (waited, used) = (BOOT_TIMEOUT.as_secs(), processor_time.as_secs_f64());
    let cause = if processor_time < BOOT_PROCESSOR_TIME {
        "this host is probably busy: repeat it with less other work"
    } else {
        "its kernel probably hangs: repeat it"
    };
    format!(
        "the virtual machine was not ready after {waited} s, in which QEMU ran for {used:.1} s of \
         processor time; {cause}"
    )
}

/// How a contained command has ended. Nothing of it is left then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainedEnd {
    /// What ended it.
    pub exit: ContainedExit,
    /// The time from its start.
    pub time: Duration,
}

/// What ended a contained command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainedExit {
    /// It ended by itself, with this exit code; 128 and the signal's number after a signal.
    Code(i32),
    /// It reached this limit, and was killed.
    Limit(ContainmentLimit),
    /// The caller killed it.
    Killed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_boot_is_described_in_one_line_with_its_probable_cause() {
        let described = |seconds| {
            let processor_time = Duration::from_secs(seconds);
            ContainmentError::NotBootedInTime { processor_time }.to_string()
        };
        let of_busy_host = "the virtual machine was not ready after 180 s, in which QEMU ran for \
                            3.0 s of processor time; this host is probably busy: repeat it with \
                            less other work";
        assert_eq!(described(3), of_busy_host);
        assert!(
            described(100)
                .ends_with("100.0 s of processor time; its kernel probably hangs: repeat it")
        );
    }
}
