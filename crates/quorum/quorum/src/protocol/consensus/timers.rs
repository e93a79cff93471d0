//! The timers of a height.

use std::time::Duration;

use arc_malachitebft_core_types::Timeout;

/// The running timers, a handful at most. Times are relative to an arbitrary fixed moment.
#[derive(Debug, Default)]
pub(super) struct ConsensusTimers(Vec<(Duration, Timeout)>);

impl ConsensusTimers {
    /// Starts a timer, or restarts it if it is running.
    pub(super) fn start(&mut self, timeout: Timeout, at: Duration) {
        self.cancel(timeout);
        self.0.push((at, timeout));
    }

    pub(super) fn cancel(&mut self, timeout: Timeout) {
        self.0.retain(|(_, running)| *running != timeout);
    }

    pub(super) fn cancel_all(&mut self) {
        self.0.clear();
    }

    /// When the first timer elapses.
    pub(super) fn next(&self) -> Option<Duration> {
        self.0.iter().map(|(at, _)| *at).min()
    }

    /// Removes and returns the first timer that has elapsed.
    pub(super) fn elapsed(&mut self, now: Duration) -> Option<Timeout> {
        let (at, timeout) = *self.0.iter().min_by_key(|(at, _)| *at)?;
        (at <= now).then(|| {
            self.cancel(timeout);
            timeout
        })
    }
}
