//! The round-trip time (RFC 6298).

use std::time::Duration;

/// The round-trip time assumed before the first measurement.
const INITIAL: Duration = Duration::from_millis(500);

/// The longest time that a peer may delay an acknowledgement.
pub(in crate::protocol) const MAX_ACK_DELAY: Duration = Duration::from_millis(25);

/// The longest retransmission timeout.
const MAX_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(in crate::protocol) struct BurstRttEstimator {
    smoothed: Option<Duration>,
    variation: Duration,
    latest: Duration,
}

impl BurstRttEstimator {
    pub(in crate::protocol) fn add(&mut self, round_trip: Duration) {
        self.latest = round_trip;
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(round_trip);
            self.variation = round_trip / 2;
            return;
        };
        self.variation = (self.variation * 3 + smoothed.abs_diff(round_trip)) / 4;
        self.smoothed = Some((smoothed * 7 + round_trip) / 8);
    }

    /// The smoothed round-trip time, once it is known.
    pub(in crate::protocol) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The smoothed round-trip time, or the initial one.
    pub(in crate::protocol) fn expected(&self) -> Duration {
        self.smoothed.unwrap_or(INITIAL)
    }

    /// The larger of the smoothed round-trip time and the last measurement.
    pub(in crate::protocol) fn longest(&self) -> Duration {
        self.expected().max(self.latest)
    }

    /// The retransmission timeout, doubled for each of `repeats` consecutive timeouts.
    pub(in crate::protocol) fn timeout(&self, repeats: u32) -> Duration {
        let variation = (self.variation * 4).max(Duration::from_millis(1));
        let late = self.expected() + variation + MAX_ACK_DELAY;
        (late * (1 << repeats.min(8))).min(MAX_TIMEOUT.max(late))
    }
}
