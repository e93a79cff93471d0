//! A contained command that runs.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::command::{ContainedCommand, ContainedEnd, ContainmentError};
use crate::supervisor::{self, StopRequest};

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
    /// If the folder is refused, `bwrap` or what a virtual machine needs is missing, or the system
    /// does not allow the sandbox.
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
        if let Ok(means) = started.recv() {
            return Ok(Self { means, request, ended, end: None, supervisor });
        }
        join(&mut supervisor);
        match ended.recv() {
            Ok(Err(error)) => Err(error),
            _ => Err(failed(io::ErrorKind::BrokenPipe.into())),
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

    /// Whether a port has been open in its virtual machine. Without one, its network is that of
    /// the caller's namespace, and this is false.
    pub fn has_opened_port(&self) -> bool {
        self.request.has_opened_port()
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
