//! A thread that is waited for, with a limit.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::Error;

/// A thread. Dropped, it goes on if it has not ended.
pub(crate) struct TimedJoinHandle<T> {
    /// Loses its sender when the work ends.
    ended: Receiver<()>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> TimedJoinHandle<T> {
    /// Starts it.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn spawn(
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Self, Error> {
        let (working, ended) = channel();
        let work = move || {
            // Dropped at the end, also if the work panics.
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

    /// Waits for a limited time. Whether it has ended: then nothing of it is left.
    pub(crate) fn end_within(&mut self, limit: Duration) -> bool {
        if self.ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            return false;
        }
        self.end();
        true
    }
}
