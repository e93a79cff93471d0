//! The rate that a channel usually carries.

use std::time::Duration;

/// A rate that is carried for this time is usual.
const USUAL_AFTER: Duration = Duration::from_secs(3);

/// For this time it stays usual.
const USUAL_FOR: Duration = Duration::from_secs(600);

/// Rates that differ by a smaller part are equal.
const TOLERANCE: f64 = 0.1;

/// A rate has fallen if it is below this fraction of the usual one.
const FALLEN_FRACTION: f64 = 0.8;

/// The highest rate that a channel has carried for seconds, within minutes, in bit/s.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SustainedRate {
    rate: f64,
    /// When it was last carried.
    at: Duration,
    /// A rate that was not fallen below since a time.
    candidate: f64,
    since: Duration,
}

impl SustainedRate {
    /// The channel carries this rate.
    pub(super) fn update(&mut self, now: Duration, rate: f64) {
        if rate < (1.0 - TOLERANCE) * self.candidate || self.candidate <= 0.0 {
            (self.candidate, self.since) = (rate, now);
        } else if now >= self.since + USUAL_AFTER {
            let is_forgotten = now >= self.at + USUAL_FOR;
            if self.candidate >= (1.0 - TOLERANCE) * self.rate || is_forgotten {
                let before = if is_forgotten { 0.0 } else { self.rate };
                (self.rate, self.at) = (self.candidate.max(before), now);
            }
            (self.candidate, self.since) = (rate, now);
        }
    }

    /// The rate in bit/s; 0 if it is not known yet.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// Whether this rate has fallen: the channel usually carries clearly more.
    pub(super) fn is_above(&self, rate: f64) -> bool {
        rate < FALLEN_FRACTION * self.rate
    }
}
