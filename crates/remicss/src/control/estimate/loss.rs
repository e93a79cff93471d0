//! The loss estimator.

use std::time::Duration;

/// The minimum number of datagrams, and the minimum time, of a window.
const MIN_DATAGRAMS: u64 = 1_000;
const MIN_WINDOW: Duration = Duration::from_secs(5);

/// Counts sent and received datagrams over the last one to two windows, each of at least 1,000
/// datagrams and 5 s.
#[derive(Clone, Debug, Default)]
pub struct LossEstimator {
    older: Window,
    newer: Window,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    began: Duration,
    sent: u64,
    received: u64,
}

impl LossEstimator {
    /// An estimator without measurements.
    pub fn new(now: Duration) -> Self {
        let window = Window { began: now, ..Window::default() };
        Self { older: window, newer: window }
    }

    /// Adds `sent` datagrams, of which `received` arrived. With reordering, `received` may
    /// sometimes be larger.
    pub fn add(&mut self, now: Duration, sent: u64, received: u64) {
        self.newer.sent = self.newer.sent.saturating_add(sent);
        self.newer.received = self.newer.received.saturating_add(received);
        if self.newer.sent >= MIN_DATAGRAMS && now.saturating_sub(self.newer.began) >= MIN_WINDOW {
            self.older = self.newer;
            self.newer = Window { began: now, ..Window::default() };
        }
    }

    /// The proportion of lost datagrams, 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub fn value(&self) -> f64 {
        let sent = self.measured();
        let received = self.older.received.saturating_add(self.newer.received);
        sent.saturating_sub(received) as f64 / sent.max(1) as f64
    }

    /// The number of datagrams that were measured.
    pub fn measured(&self) -> u64 {
        self.older.sent.saturating_add(self.newer.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_is_that_of_the_last_windows() {
        let mut loss = LossEstimator::new(Duration::ZERO);
        assert_eq!(loss.measured(), 0);
        assert!(loss.value() < 1e-12);
        let mut second = 0;
        let mut run = |loss: &mut LossEstimator, seconds: u64, received: u64| {
            for _ in 0..seconds {
                second += 1;
                loss.add(Duration::from_secs(second), 1_000, received);
            }
        };
        run(&mut loss, 20, 900);
        assert!((loss.value() - 0.1).abs() < 1e-12);
        assert!((5_000..=10_000).contains(&loss.measured()));
        // After two windows nothing of the old loss is left.
        run(&mut loss, 10, 1_000);
        assert!(loss.value() < 1e-12);
    }

    #[test]
    fn slow_channels_are_measured_for_longer() {
        let mut loss = LossEstimator::new(Duration::ZERO);
        for second in 1..=1_000 {
            loss.add(Duration::from_secs(second), 10, if second % 2 == 0 { 9 } else { 10 });
        }
        assert!((loss.value() - 0.05).abs() < 0.001);
        assert!((1_000..=2_000).contains(&loss.measured()));
    }

    #[test]
    fn more_arrivals_than_datagrams_count_as_no_loss() {
        let mut loss = LossEstimator::new(Duration::ZERO);
        loss.add(Duration::ZERO, 10, 12);
        assert!(loss.value() < 1e-12);
        loss.add(Duration::ZERO, u64::MAX, u64::MAX);
        loss.add(Duration::ZERO, u64::MAX, 0);
        assert!((0.0..=1.0).contains(&loss.value()));
    }
}
