//! A thread that can be joined with a time limit.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::Error;

/// A handle to a thread. If it is dropped, the thread continues.
pub(crate) struct TimedJoinHandle<T> {
    /// Its sender is dropped when the work ends.
    ended: Receiver<()>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> TimedJoinHandle<T> {
    /// Starts it.
    ///
    /// # Errors
    /// If the system cannot create a thread.
    pub(crate) fn spawn(
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Self, Error> {
        let (working, ended) = channel();
        let work = move || {
            // Dropped at the end, even if the work panics.
            let _working = working;
            work()
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
        Ok(Self { ended, thread: Some(thread.map_err(Error::system)?) })
    }

    /// Waits until it has ended. `None` if it has panicked, or its result was taken before.
    pub(crate) fn end(&mut self) -> Option<T> {
        self.thread.take()?.join().ok()
    }

    /// Waits for a limited time. Returns whether the thread has ended.
    pub(crate) fn end_within(&mut self, limit: Duration) -> bool {
        if self.ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            return false;
        }
        self.end();
        true
    }
}
