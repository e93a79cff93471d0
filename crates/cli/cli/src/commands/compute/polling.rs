//! Threads that follow a session.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A thread that looks at regular times, and once more when this is dropped.
pub(super) struct PollingThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl PollingThread {
    /// Starts to call `look`. Without a thread nothing is looked at.
    pub(super) fn start(
        name: &str,
        interval: Duration,
        mut look: impl FnMut() + Send + 'static,
    ) -> Self {
        let (stop, stopped) = channel();
        let follow = move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                look();
            }
            look();
        };
        let thread = thread::Builder::new().name(name.into()).spawn(follow).ok();
        Self { stop: Some(stop), thread }
    }
}

impl Drop for PollingThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
