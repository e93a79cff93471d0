//! How a rate or a window comes back after it was reduced: as CUBIC's (RFC 9438), or Reno's if that
//! is faster.

use std::time::Duration;

/// What is left after congestion.
pub(super) const DECREASE: f64 = 0.7;

/// CUBIC's constant C, in packets/s³.
const CUBIC: f64 = 0.4;

/// What Reno adds to its window in a round trip so that, with this decrease, it is as fast as TCP
/// (RFC 9438, 4.3), in packets.
const RENO: f64 = 3.0 * (1.0 - DECREASE) / (1.0 + DECREASE);

/// The most by which a level grows beyond the one before the congestion.
const MAX_GROWTH: f64 = 2.0;

/// What is aimed at if the level of the time before was not reached (RFC 9438, 4.7): others need
/// the difference. It was not if less than `EARLY` of the time until then is over.
const EARLY: f64 = 0.95;
const CONVERGENCE: f64 = f64::midpoint(1.0, DECREASE);

/// The growth ends at so many times the time until the level is reached: first, and if it is not
/// the first one. Then others are there, and what they leave for a moment is not all taken.
const END: f64 = 1.2;
const LATER_END: f64 = 2.0;

/// A level over time: 0.7 of the earlier one at first, flat near that one, and steep beyond it.
#[derive(Clone, Copy, Debug)]
pub(super) struct CubicGrowth {
    began: Duration,
    /// The level before the congestion.
    level: f64,
    /// The time until it is reached, in s.
    period: f64,
    /// When it is over, in such times.
    end: f64,
}

impl CubicGrowth {
    /// Begins 0.7 of `level` now. `window` is the level as a window in packets.
    pub(super) fn new(now: Duration, level: f64, window: f64, round_trip: Duration) -> Self {
        let lost = window.max(4.0) * (1.0 - DECREASE);
        let period = (lost / CUBIC).cbrt().min(lost / RENO * round_trip.as_secs_f64());
        Self { began: now, level, period: period.max(1e-6), end: END }
    }

    /// There is congestion again: begins 0.7 of `level` now.
    pub(super) fn restart(
        &self,
        now: Duration,
        level: f64,
        window: f64,
        round_trip: Duration,
    ) -> Self {
        let is_early = self.part(now) < EARLY;
        let part = if is_early { CONVERGENCE } else { 1.0 };
        let mut growth = Self::new(now, part * level, part * window, round_trip);
        let began_at = 1.0 - ((1.0 - DECREASE / part) / (1.0 - DECREASE)).cbrt();
        growth.began = now.saturating_sub(Duration::from_secs_f64(growth.period * began_at));
        growth.end = LATER_END;
        growth
    }

    /// As [`CubicGrowth::new`], but `level` is reached now.
    pub(super) fn at_level(now: Duration, level: f64, window: f64, round_trip: Duration) -> Self {
        let mut growth = Self::new(now, level, window, round_trip);
        growth.began = now.saturating_sub(Duration::from_secs_f64(growth.period));
        growth
    }

    pub(super) fn at(&self, now: Duration) -> f64 {
        let t = self.part(now) - 1.0;
        self.level * (1.0 + (1.0 - DECREASE) * t * t * t).min(MAX_GROWTH)
    }

    pub(super) fn is_over(&self, now: Duration) -> bool {
        self.part(now) > self.end
    }

    /// How much of the time until the earlier level is over; beyond it more than 1.
    pub(super) fn part(&self, now: Duration) -> f64 {
        now.saturating_sub(self.began).as_secs_f64() / self.period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_cubics() {
        // RFC 9438: W(t) = 0.4 (t - K)^3 + W_max with K = cbrt(W_max 0.3 / 0.4).
        let growth = CubicGrowth::new(Duration::ZERO, 1000.0, 1000.0, Duration::from_secs(1));
        let k = (1000.0_f64 * 0.3 / 0.4).cbrt();
        for t in [0.0, 1.0, 5.0, k, 12.0] {
            let cubic = 0.4 * (t - k).powi(3) + 1000.0;
            let ours = growth.at(Duration::from_secs_f64(t));
            assert!((ours - cubic).abs() < 1e-3, "after {t} s {ours}, not {cubic}");
        }
        assert!((growth.at(Duration::ZERO) - 700.0).abs() < 1e-6);
    }

    #[test]
    fn congestion_before_the_level_is_reached_lowers_it() {
        let round_trip = Duration::from_millis(100);
        let first = CubicGrowth::new(Duration::ZERO, 1000.0, 1000.0, round_trip);
        let now = Duration::from_secs_f64(first.period / 2.0);
        let second = first.restart(now, 900.0, 900.0, round_trip);
        assert!((second.at(now) - 630.0).abs() < 1e-6, "{}", second.at(now));
        assert!(second.part(now) > 0.0 && (second.level - 765.0).abs() < 1e-6);
        // Had it been reached, it would be aimed at again.
        let now = Duration::from_secs_f64(first.period * 1.1);
        let second = first.restart(now, 1000.0, 1000.0, round_trip);
        assert!((second.at(now) - 700.0).abs() < 1e-6 && second.part(now) < 1e-6);
        assert!(first.is_over(Duration::from_secs_f64(first.period * 1.3)));
        assert!(!second.is_over(now + Duration::from_secs_f64(second.period * 1.9)));
    }

    #[test]
    fn short_round_trips_are_as_fast_as_reno() {
        let growth = CubicGrowth::new(Duration::ZERO, 10.0, 10.0, Duration::from_millis(10));
        // Three packets at 0.53 packets a round trip.
        let round_trips = 3.0 / (0.9 / 1.7);
        assert!((growth.at(Duration::from_secs_f64(round_trips * 0.01)) - 10.0).abs() < 1e-3);
    }
}
