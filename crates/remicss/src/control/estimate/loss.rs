//! How much of what was sent is lost.

use std::time::Duration;

/// The loss is that of so many datagrams at least, and of so long a time, once there were.
const DATAGRAMS: u64 = 1_000;
const SPAN: Duration = Duration::from_secs(5);

/// Counts of what was sent and arrived, between one and two windows of at least 1,000 datagrams and
/// 5 s back.
#[derive(Clone, Debug, Default)]
pub struct Loss {
    older: Window,
    newer: Window,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    began: Duration,
    sent: u64,
    received: u64,
}

impl Loss {
    /// Nothing was measured yet.
    pub fn new(now: Duration) -> Self {
        let window = Window { began: now, ..Window::default() };
        Self { older: window, newer: window }
    }

    /// Of `sent` datagrams more, `received` arrived. Where datagrams overtake one another the second
    /// may be the larger one now and then.
    pub fn add(&mut self, now: Duration, sent: u64, received: u64) {
        self.newer.sent = self.newer.sent.saturating_add(sent);
        self.newer.received = self.newer.received.saturating_add(received);
        if self.newer.sent >= DATAGRAMS && now.saturating_sub(self.newer.began) >= SPAN {
            self.older = self.newer;
            self.newer = Window { began: now, ..Window::default() };
        }
    }

    /// The proportion that was lost, 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub fn value(&self) -> f64 {
        let sent = self.measured();
        let received = self.older.received.saturating_add(self.newer.received);
        sent.saturating_sub(received) as f64 / sent.max(1) as f64
    }

    /// Of how many datagrams.
    pub fn measured(&self) -> u64 {
        self.older.sent.saturating_add(self.newer.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_is_that_of_the_last_windows() {
        let mut loss = Loss::new(Duration::ZERO);
        assert_eq!(loss.measured(), 0);
        assert!(loss.value() < 1e-12);
        let mut second = 0;
        let mut run = |loss: &mut Loss, seconds: u64, received: u64| {
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
        let mut loss = Loss::new(Duration::ZERO);
        for second in 1..=1_000 {
            loss.add(Duration::from_secs(second), 10, if second % 2 == 0 { 9 } else { 10 });
        }
        assert!((loss.value() - 0.05).abs() < 0.001);
        assert!((1_000..=2_000).contains(&loss.measured()));
    }

    #[test]
    fn more_arrivals_than_datagrams_are_no_gain() {
        let mut loss = Loss::new(Duration::ZERO);
        loss.add(Duration::ZERO, 10, 12);
        assert!(loss.value() < 1e-12);
        loss.add(Duration::ZERO, u64::MAX, u64::MAX);
        loss.add(Duration::ZERO, u64::MAX, 0);
        assert!((0.0..=1.0).contains(&loss.value()));
    }
}
