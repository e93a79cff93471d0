//! A contained command that runs.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use thiserror::Error;

use crate::limits::{ContainmentLimit, ContainmentLimits};
use crate::supervisor::{self, StopRequest};
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

/// A contained command that runs. It is killed when this is dropped, with all that it started.
#[derive(Debug)]
pub struct ContainedProcess {
    means: String,
    request: Arc<StopRequest>,
    ended: Receiver<Result<ContainedEnd, ContainmentError>>,
    end: Option<ContainedEnd>,
    supervisor: Option<JoinHandle<()>>,
}

impl ContainedProcess {
    /// Makes the sandbox, copies the folder into it, and starts the command.
    ///
    /// # Errors
    /// If the folder is refused, `bwrap` is missing, or the system does not allow the sandbox.
    pub fn start(command: ContainedCommand) -> Result<Self, ContainmentError> {
        let failed = |error| ContainmentError::System("start a thread", error);
        let request = Arc::new(StopRequest::default());
        let (has_started, started) = channel();
        let (has_ended, ended) = channel();
        let asked = Arc::clone(&request);
        let supervise = move || {
            let report = |means| drop(has_started.send(means));
            // Nobody waits any more if this is dropped.
            let _ = has_ended.send(supervisor::run(command, &asked, report));
        };
        let supervisor = thread::Builder::new().name("contained".into()).spawn(supervise);
        let mut supervisor = Some(supervisor.map_err(failed)?);
        match started.recv() {
            Ok(means) => Ok(Self { means, request, ended, end: None, supervisor }),
            Err(_) => {
                join(&mut supervisor);
                match ended.recv() {
                    Ok(Err(error)) => Err(error),
                    _ => Err(failed(io::ErrorKind::BrokenPipe.into())),
                }
            }
        }
    }

    /// By what its limits are enforced, in words.
    pub fn means(&self) -> &str {
        &self.means
    }

    /// Waits until it ends, but no longer than `timeout`: `None` if it still runs.
    ///
    /// # Errors
    /// If the system does not let it be watched. It is killed then.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<ContainedEnd>, ContainmentError> {
        if self.end.is_none() {
            match self.ended.recv_timeout(timeout) {
                Ok(end) => self.end = Some(end?),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let gone = io::ErrorKind::BrokenPipe.into();
                    return Err(ContainmentError::System("watch a contained command", gone));
                }
            }
        }
        Ok(self.end)
    }

    /// Asks all its processes to end (SIGTERM). They may ignore that.
    pub fn terminate(&self) {
        self.request.terminate();
    }

    /// Kills all its processes.
    pub fn kill(&self) {
        self.request.kill();
    }
}

impl Drop for ContainedProcess {
    fn drop(&mut self) {
        self.kill();
        join(&mut self.supervisor);
    }
}

fn join(thread: &mut Option<JoinHandle<()>>) {
    if let Some(thread) = thread.take() {
        // A panic of it was printed; the sandbox has ended with the thread.
        let _ = thread.join();
    }
}
