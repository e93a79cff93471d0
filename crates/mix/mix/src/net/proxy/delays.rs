//! How late rounds begin: what grows first when a proxy has more groups than it can serve.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::status::RoundDelayStatus;

/// The upper bounds of the histogram's buckets, in ms. One more bucket has all longer delays.
pub const ROUND_DELAY_BOUNDS_MS: [u32; 10] = [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000];

/// A histogram of delays, each of one member in one round.
#[derive(Debug, Default)]
pub(super) struct RoundDelays {
    counts: [AtomicU64; ROUND_DELAY_BOUNDS_MS.len() + 1],
    sum_us: AtomicU64,
}

impl RoundDelays {
    pub(super) fn observe(&self, delay: Duration) {
        let is_above = |bound: &u32| delay > Duration::from_millis(u64::from(*bound));
        let bucket = ROUND_DELAY_BOUNDS_MS.partition_point(is_above);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let us = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    pub(super) fn status(&self) -> RoundDelayStatus {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let sum_s = Duration::from_micros(self.sum_us.load(Ordering::Relaxed)).as_secs_f64();
        RoundDelayStatus { counts, sum_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_delays_are_counted_up_to_their_bound() {
        let delays = RoundDelays::default();
        for ms in [0, 5, 6, 100, 5_000, 5_001, 60_000] {
            delays.observe(Duration::from_millis(ms));
        }
        let RoundDelayStatus { counts, sum_s } = delays.status();
        assert_eq!(counts, [2, 1, 0, 0, 1, 0, 0, 0, 0, 1, 2]);
        assert!((sum_s - 70.112).abs() < 1e-6, "{sum_s}");
    }
}
