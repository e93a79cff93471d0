//! Limits the work for datagrams that anyone can send or replay.

use std::time::Duration;

/// The maximum burst, as time.
const MAX_BURST: Duration = Duration::from_millis(10);

/// A rate limiter that allows work at regular intervals. With a number for each tenth of a second,
/// an attacker could use up each tenth at its start, and a client that repeats at the same interval
/// would always be too late.
#[derive(Debug, Default)]
pub(crate) struct DatagramRateLimiter {
    spent: Duration,
}

impl DatagramRateLimiter {
    /// Whether work to which the rate gives this much time may be done now.
    pub(crate) fn take(&mut self, cost: Duration, now: Duration) -> bool {
        let spent = self.spent.max(now.saturating_sub(MAX_BURST));
        let is_enough = spent <= now;
        self.spent = if is_enough { spent.saturating_add(cost) } else { spent };
        is_enough
    }
}
