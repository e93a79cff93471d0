//! When to resend what has had no effect yet.

use std::collections::BTreeMap;
use std::time::Duration;

/// The largest factor by which the interval between two attempts grows.
const MAX_BACKOFF: u32 = 32;

/// The next attempt for each purpose. The interval doubles with each attempt.
pub(crate) struct RetrySchedule<K> {
    interval: Duration,
    /// Counts the passes over all purposes.
    pass: u64,
    attempts: BTreeMap<K, ScheduledRetry>,
}

struct ScheduledRetry {
    next_at: Duration,
    backoff: u32,
    /// The last pass that asked about the purpose.
    pass: u64,
}

impl<K: Ord> RetrySchedule<K> {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { interval, pass: 0, attempts: BTreeMap::new() }
    }

    /// Begins a pass over all purposes. A purpose about which the last pass did not ask is removed.
    pub(crate) fn begin_pass(&mut self) {
        self.attempts.retain(|_, attempt| attempt.pass == self.pass);
        self.pass += 1;
    }

    /// Whether to try now. The first attempt is immediate.
    pub(crate) fn is_due(&mut self, purpose: K, now: Duration) -> bool {
        self.is_due_after(purpose, now, Duration::ZERO)
    }

    /// Whether to try now. The first attempt is after a delay.
    pub(crate) fn is_due_after(&mut self, purpose: K, now: Duration, delay: Duration) -> bool {
        let first = ScheduledRetry { next_at: now + delay, backoff: 1, pass: self.pass };
        let attempt = self.attempts.entry(purpose).or_insert(first);
        attempt.pass = self.pass;
        let is_due = attempt.next_at <= now;
        if is_due {
            attempt.next_at = now + self.interval * attempt.backoff;
            attempt.backoff = (attempt.backoff * 2).min(MAX_BACKOFF);
        }
        is_due
    }

    /// The time of the next attempt.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let current = self.attempts.values().filter(|attempt| attempt.pass == self.pass);
        current.map(|attempt| attempt.next_at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_double_and_what_is_done_has_no_deadline() {
        let second = Duration::from_secs(1);
        let mut retries = RetrySchedule::new(second);
        retries.begin_pass();
        assert!(retries.is_due('a', second));
        assert!(!retries.is_due('a', second));
        assert!(!retries.is_due_after('b', second, 4 * second));
        assert_eq!(retries.deadline(), Some(2 * second));
        retries.begin_pass();
        assert!(retries.is_due('a', 2 * second));
        assert_eq!(retries.deadline(), Some(4 * second));
        retries.begin_pass();
        assert_eq!(retries.deadline(), None);
        retries.begin_pass();
        assert!(retries.is_due('a', 2 * second));
    }
}
