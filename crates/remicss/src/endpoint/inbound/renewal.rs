//! When an association has had its time: another takes its place while the tunnel runs, so that whoever has
//! found one of its points has it for a while only.

use std::time::Duration;

use crate::endpoint::settings::KeyLimits;

/// Whether the keys of now are to be replaced.
#[derive(Debug)]
pub(super) struct Renewal {
    limits: KeyLimits,
    at: Duration,
    is_wanted: bool,
}

impl Renewal {
    /// Without keys nothing is due.
    pub(super) fn new(limits: KeyLimits) -> Self {
        Self { limits, at: Duration::MAX, is_wanted: false }
    }

    /// There are new keys.
    pub(super) fn begin(&mut self, now: Duration) {
        (self.at, self.is_wanted) = (now.saturating_add(self.limits.age), false);
    }

    /// Whether so many joins have failed under the keys that they are to be replaced.
    pub(super) fn are_too_many(&self, failures: u64) -> bool {
        failures >= self.limits.failures
    }

    /// One of the ends wants new keys.
    pub(super) fn want(&mut self) {
        self.is_wanted = true;
    }

    /// Whether the keys are to be replaced now.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.is_wanted || self.at <= now
    }

    /// When they will be.
    pub(super) fn poll_timeout(&self) -> Duration {
        if self.is_wanted { Duration::ZERO } else { self.at }
    }
}
