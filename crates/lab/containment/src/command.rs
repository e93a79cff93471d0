//! What is asked of a sandbox, and how it ends.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use crate::limits::{ContainmentLimit, ContainmentLimits};
use crate::machine::GuestMachine;
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
    /// The virtual machine did not start. What it printed is in the output.
    #[error("the virtual machine does not start")]
    NotBooted,
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
