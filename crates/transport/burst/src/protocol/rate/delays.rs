//! The distribution of the queueing delay, and the delay from which the queue counts as nearly
//! full.

use std::time::Duration;

/// Four bins for each doubling of the delay, starting at 16 µs.
const BINS: usize = 64;
const FIRST_BIN_S: f64 = 16e-6;
const BINS_PER_DOUBLING: f64 = 4.0;

/// The fraction of the time in which the queue is longer than the length that counts as its
/// longest. A maximum instead would reflect single pauses of a busy host.
const ABOVE: f64 = 0.005;

/// A queue is nearly full if its delay is at most this many bins below the longest: at least 0.6 to
/// 0.7 of it.
const NEAR_BINS: usize = 2;

/// A shorter longest delay is not used: it cannot be told from the effect of batching in hosts.
const MIN_LONGEST: Duration = Duration::from_millis(1);

/// A histogram of the delays of the current period and of the one before.
#[derive(Debug)]
pub(super) struct QueueDelayHistogram {
    counts: [[u32; BINS]; 2],
    /// The bin of the longest delay.
    longest: usize,
}

impl Default for QueueDelayHistogram {
    fn default() -> Self {
        Self { counts: [[0; BINS]; 2], longest: 0 }
    }
}

impl QueueDelayHistogram {
    /// Begins the next period.
    pub(super) fn begin(&mut self) {
        self.counts = [[0; BINS], self.counts[0]];
    }

    /// Counts a delay. Delays are to be added at roughly equal intervals.
    pub(super) fn add(&mut self, delay: Duration) {
        let count = &mut self.counts[0][bin(delay)];
        *count = count.saturating_add(1);
        let of_bin = |bin: usize| f64::from(self.counts[0][bin]) + f64::from(self.counts[1][bin]);
        let total: f64 = (0..BINS).map(of_bin).sum();
        let mut above = 0.0;
        let is_in = |&bin: &usize| {
            above += of_bin(bin);
            above > ABOVE * total
        };
        self.longest = (0..BINS).rev().find(is_in).unwrap_or(0);
    }

    /// Whether a delay is nearly the longest one. Never if the longest one is at most `short`.
    pub(super) fn is_long(&self, delay: Duration, short: Duration) -> bool {
        self.longest >= bin(short.max(MIN_LONGEST)) && bin(delay) + NEAR_BINS >= self.longest
    }
}

fn bin(delay: Duration) -> usize {
    let octaves = (delay.as_secs_f64() / FIRST_BIN_S).max(1.0).log2();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 63")]
    let bin = (octaves * BINS_PER_DOUBLING).min((BINS - 1) as f64) as usize;
    bin
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_few_late_packets_do_not_make_the_queue_longer() {
        let mut delays = QueueDelayHistogram::default();
        for i in 0..1000 {
            delays.add(ms(if i % 250 == 0 { 50 } else { i % 6 }));
        }
        assert!(delays.is_long(ms(4), ms(1)) && delays.is_long(ms(50), ms(1)));
        assert!(!delays.is_long(ms(2), ms(1)));
    }

    #[test]
    fn a_short_queue_is_never_long() {
        let mut delays = QueueDelayHistogram::default();
        assert!(!delays.is_long(ms(5), ms(0)));
        for i in 0..1000 {
            delays.add(ms(i % 4));
        }
        assert!(!delays.is_long(ms(3), ms(5)) && delays.is_long(ms(3), ms(2)));
    }

    #[test]
    fn earlier_periods_are_forgotten() {
        let mut delays = QueueDelayHistogram::default();
        delays.add(ms(100));
        delays.begin();
        delays.add(ms(10));
        assert!(!delays.is_long(ms(10), ms(1)));
        delays.begin();
        delays.add(ms(10));
        assert!(delays.is_long(ms(10), ms(1)));
    }
}
