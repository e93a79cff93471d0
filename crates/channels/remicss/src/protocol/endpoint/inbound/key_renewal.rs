//! When an association is replaced by a new one while the tunnel runs, so that an attacker that has
//! found one of its points can use it for a limited time only.

use std::time::Duration;

use crate::protocol::endpoint::settings::KeyRenewalLimits;

/// Whether the current keys must be replaced.
#[derive(Debug)]
pub(super) struct KeyRenewal {
    limits: KeyRenewalLimits,
    at: Duration,
    is_wanted: bool,
}

impl KeyRenewal {
    /// Without keys no renewal is due.
    pub(super) fn new(limits: KeyRenewalLimits) -> Self {
        Self { limits, at: Duration::MAX, is_wanted: false }
    }

    /// There are new keys.
    pub(super) fn begin(&mut self, now: Duration) {
        (self.at, self.is_wanted) = (now.saturating_add(self.limits.age), false);
    }

    /// Whether so many joins have failed under the keys that they must be replaced.
    pub(super) fn exceeds_failure_limit(&self, failures: u64) -> bool {
        failures >= self.limits.failures
    }

    /// One of the ends requests new keys.
    pub(super) fn request(&mut self) {
        self.is_wanted = true;
    }

    /// Whether the keys must be replaced now.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.is_wanted || self.at <= now
    }

    /// When they must be replaced.
    pub(super) fn poll_timeout(&self) -> Duration {
        if self.is_wanted { Duration::ZERO } else { self.at }
    }
}
