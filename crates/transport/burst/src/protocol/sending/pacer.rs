//! Pacing in trains: each train is sent back to back, followed by a pause until the next one is
//! due.

use std::time::Duration;

/// A late train is longer, by at most what the rate allows in this time.
const MAX_CATCH_UP_S: f64 = 0.004;

#[derive(Debug, Default)]
pub(in crate::protocol) struct TrainPacer {
    /// The bytes that the rate allows; negative after a packet that exceeded them.
    tokens: f64,
    at: Duration,
    is_in_train: bool,
    /// Whether the next packet is the first of a train.
    is_first: bool,
}

impl TrainPacer {
    /// Whether a packet may be sent now, at a rate in bytes/s and with trains of `train` bytes.
    pub(in crate::protocol) fn may_send(&mut self, now: Duration, rate: f64, train: f64) -> bool {
        let most = (rate * MAX_CATCH_UP_S).max(2.0 * train);
        self.tokens = (self.tokens + now.saturating_sub(self.at).as_secs_f64() * rate).min(most);
        self.at = self.at.max(now);
        let was_in_train = self.is_in_train;
        self.is_in_train = if was_in_train { self.tokens > 0.0 } else { self.tokens >= train };
        self.is_first |= self.is_in_train && !was_in_train;
        self.is_in_train
    }

    /// Whether the next packet is the first of a train; resets the flag.
    pub(in crate::protocol) fn take_first(&mut self) -> bool {
        std::mem::take(&mut self.is_first)
    }

    /// A packet is sent.
    pub(in crate::protocol) fn on_sent(&mut self, bytes: usize) {
        self.tokens -= bytes_f64(bytes);
    }

    /// When the next packet may be sent.
    pub(in crate::protocol) fn ready_at(&self, rate: f64, train: f64) -> Duration {
        let missing = if self.is_in_train { -self.tokens } else { train - self.tokens };
        if missing < 0.0 {
            return self.at;
        }
        // One nanosecond more, so that rounding does not make it too short.
        let wait = Duration::try_from_secs_f64(missing / rate).unwrap_or(Duration::from_secs(1));
        self.at + wait + Duration::from_nanos(1)
    }
}

#[allow(clippy::cast_precision_loss, reason = "a number of bytes")]
pub(in crate::protocol) fn bytes_f64(bytes: usize) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate is kept exactly, in trains.
    #[test]
    fn the_rate_is_kept() {
        for rate in [1e5_f64, 1.25e7, 1.25e8, 1.25e9] {
            let train = (rate * 0.5e-3).clamp(1500.0, 64_000.0);
            let mut pacer = TrainPacer::default();
            let (mut now, mut sent, mut trains) = (Duration::ZERO, 0, 0);
            while now < Duration::from_secs(1) {
                let before = sent;
                while pacer.may_send(now, rate, train) {
                    pacer.on_sent(1500);
                    sent += 1500;
                }
                trains += usize::from(sent > before);
                let next = pacer.ready_at(rate, train);
                assert!(next > now);
                now = next;
            }
            let error = (bytes_f64(sent) / rate - 1.0).abs();
            assert!(error < 0.02, "{rate}: {sent}");
            assert!(bytes_f64(sent / trains) < 1.1 * train + 1500.0, "{trains}");
        }
    }

    #[test]
    fn a_late_train_is_longer_but_not_by_much() {
        let mut pacer = TrainPacer::default();
        pacer.may_send(Duration::from_secs(1), 1e6, 1500.0);
        let mut sent = 0;
        while pacer.may_send(Duration::from_secs(10), 1e6, 1500.0) {
            pacer.on_sent(500);
            sent += 500;
        }
        assert_eq!(sent, 4000);
    }
}
