//! The loss estimator.

use std::time::Duration;

/// The minimum number of datagrams, and the minimum time, of a window.
const MIN_DATAGRAMS: u64 = 1_000;
const MIN_WINDOW: Duration = Duration::from_secs(5);

/// The recent window becomes part of the others after this number of datagrams and this time, or
/// after the longer time: ten control shares take a second if there are no other datagrams.
const MAX_RECENT: u64 = 200;
const MIN_RECENT_TIME: Duration = Duration::from_secs(1);
const MAX_RECENT_TIME: Duration = Duration::from_secs(5);

/// The loss has changed if the recent window differs by this many standard deviations, by this
/// fraction of the datagrams sent, and by the number of datagrams sent in this time: with jitter,
/// datagrams arrive before or after the control share that counts them.
const SIGNIFICANT_DEVIATIONS: f64 = 3.3;
const SIGNIFICANT_COUNT: f64 = 4.0;
const SIGNIFICANT_FRACTION: f64 = 0.03;
const MAX_JITTER: Duration = Duration::from_millis(100);

/// It has also changed if none of this many datagrams is lost although this many losses were
/// expected. This takes more than a second only if no packets are sent: then control shares would
/// have to be counted for a long time.
const MIN_LOSSLESS: u64 = 15;
const MIN_EXPECTED_LOSSES: f64 = 5.0;

/// Counts sent and received datagrams over the last one to two windows, each of at least 1,000
/// datagrams and 5 s, or since the loss has changed significantly.
#[derive(Clone, Debug, Default)]
pub struct LossEstimator {
    older: LossWindow,
    newer: LossWindow,
    /// What is part of neither yet.
    recent: LossWindow,
    /// Since the last loss.
    lossless: LossWindow,
}

#[derive(Clone, Copy, Debug, Default)]
struct LossWindow {
    began: Duration,
    sent: u64,
    received: u64,
}

impl LossEstimator {
    /// An estimator without measurements.
    pub fn new(now: Duration) -> Self {
        let window = LossWindow { began: now, ..LossWindow::default() };
        Self { older: window, newer: window, recent: window, lossless: window }
    }

    /// Adds `sent` datagrams, of which `received` arrived. With reordering, `received` may
    /// sometimes be larger.
    pub fn add(&mut self, now: Duration, sent: u64, received: u64) {
        self.recent = self.recent.followed_by(LossWindow { began: now, sent, received });
        let recent = self.recent;
        let empty = LossWindow { began: now, ..LossWindow::default() };
        self.lossless = if received < sent {
            empty
        } else {
            self.lossless.followed_by(LossWindow { began: now, sent, received })
        };
        if self.lossless.shows_no_loss(self.value(), now) {
            let older = LossWindow { began: self.lossless.began, ..LossWindow::default() };
            (self.older, self.newer, self.recent) = (older, self.lossless, empty);
            return;
        }
        let time = now.saturating_sub(recent.began);
        if self.settled().differs_from(recent, time) {
            self.older = LossWindow { began: recent.began, ..LossWindow::default() };
            (self.newer, self.recent) = (recent, empty);
            return;
        }
        let is_long = recent.sent >= MAX_RECENT && time >= MIN_RECENT_TIME;
        if !is_long && time < MAX_RECENT_TIME {
            return;
        }
        self.recent = empty;
        self.newer = self.newer.followed_by(recent);
        let newer = self.newer;
        if newer.sent >= MIN_DATAGRAMS && now.saturating_sub(newer.began) >= MIN_WINDOW {
            (self.older, self.newer) = (newer, empty);
        }
    }

    /// The proportion of lost datagrams, 0 to 1.
    pub fn value(&self) -> f64 {
        self.settled().followed_by(self.recent).loss()
    }

    /// The number of datagrams that were measured.
    pub fn measured(&self) -> u64 {
        self.settled().followed_by(self.recent).sent
    }

    /// Both windows.
    fn settled(&self) -> LossWindow {
        self.older.followed_by(self.newer)
    }
}

impl LossWindow {
    /// This window and the next one, as one.
    fn followed_by(self, next: Self) -> Self {
        Self {
            began: self.began,
            sent: self.sent.saturating_add(next.sent),
            received: self.received.saturating_add(next.received),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    fn loss(self) -> f64 {
        self.sent.saturating_sub(self.received) as f64 / self.sent.max(1) as f64
    }

    /// Whether this window without losses shows that the loss is no longer as high as this.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    fn shows_no_loss(self, loss: f64, now: Duration) -> bool {
        now.saturating_sub(self.began) >= MIN_RECENT_TIME
            && self.sent >= MIN_LOSSLESS
            && loss * self.sent as f64 >= MIN_EXPECTED_LOSSES
    }

    /// Whether the loss of a later window, of this duration, differs from that of this one by more
    /// than chance.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    fn differs_from(self, recent: Self, time: Duration) -> bool {
        let (loss, sent) = (self.loss(), recent.sent as f64);
        let parts = 1.0 / sent.max(1.0) + 1.0 / self.sent.max(1) as f64;
        let deviation = (loss * (1.0 - loss) * parts).sqrt();
        let jitter = MAX_JITTER.as_secs_f64() / time.as_secs_f64().max(f64::EPSILON);
        let least = SIGNIFICANT_FRACTION.max(SIGNIFICANT_DEVIATIONS * deviation).max(jitter);
        let difference = (loss - recent.loss()).abs();
        self.sent > 0 && difference > least && difference * sent >= SIGNIFICANT_COUNT
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

    /// Even if only control shares are sent, ten a second.
    #[test]
    fn a_loss_that_changes_is_noticed_in_seconds() {
        for (datagrams, seconds) in [(1_000, 1), (100, 1), (10, 2)] {
            let mut loss = LossEstimator::new(Duration::ZERO);
            let mut tenth = 0;
            let mut run = |loss: &mut LossEstimator, seconds: u64, received: u64| {
                for _ in 0..10 * seconds {
                    tenth += 1;
                    loss.add(Duration::from_millis(100 * tenth), datagrams / 10, received);
                }
            };
            run(&mut loss, 60, datagrams / 10);
            run(&mut loss, seconds, 0);
            assert!(loss.value() > 0.9, "{datagrams}: {}", loss.value());
            run(&mut loss, seconds, datagrams / 10);
            assert!(loss.value() < 0.1, "{datagrams}: {}", loss.value());
        }
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
