//! Growth of a rate or a window after a decrease: as CUBIC's (RFC 9438), or as Reno's if that is
//! faster.

use std::time::Duration;

/// The factor of a decrease.
pub(super) const DECREASE: f64 = 0.7;

/// CUBIC's constant C, in packets/s³.
const CUBIC: f64 = 0.4;

/// What Reno adds to its window in each round trip, in packets, so that with this decrease it is as
/// fast as standard TCP (RFC 9438, 4.3).
const RENO: f64 = 3.0 * (1.0 - DECREASE) / (1.0 + DECREASE);

/// The highest level, as a multiple of the level before the decrease.
const MAX_GROWTH: f64 = 2.0;

/// Fast convergence (RFC 9438, 4.7): if there is congestion before the earlier level was reached,
/// that is, in less than `EARLY` of the period, the next target is lower by the factor
/// `CONVERGENCE`, because other flows need the difference.
const EARLY: f64 = 0.95;
const CONVERGENCE: f64 = f64::midpoint(1.0, DECREASE);

/// The growth ends after this many periods: `END` after a first decrease, `LATER_END` after one
/// that follows another. In the second case there are competing flows, and capacity that they leave
/// for a moment is not taken at once.
const END: f64 = 1.2;
const LATER_END: f64 = 2.0;

/// A level over time: it starts at 0.7 of the earlier level, is flat near that level, and steep
/// beyond it.
#[derive(Clone, Copy, Debug)]
pub(super) struct CubicGrowth {
    began: Duration,
    /// The level before the congestion.
    level: f64,
    /// The time until that level is reached again, in s.
    period: f64,
    /// When the growth ends, in periods.
    end: f64,
}

impl CubicGrowth {
    /// Starts at 0.7 of `level`. `window` is that level as a window in packets.
    pub(super) fn new(now: Duration, level: f64, window: f64, round_trip: Duration) -> Self {
        let lost = window.max(4.0) * (1.0 - DECREASE);
        let period = (lost / CUBIC).cbrt().min(lost / RENO * round_trip.as_secs_f64());
        Self { began: now, level, period: period.max(1e-6), end: END }
    }

    /// Starts again at 0.7 of `level`, after further congestion.
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

    /// The time since the start, in periods: 1 when the earlier level is reached.
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
        // If the level had been reached, it would remain the target.
        let now = Duration::from_secs_f64(first.period * 1.1);
        let second = first.restart(now, 1000.0, 1000.0, round_trip);
        assert!((second.at(now) - 700.0).abs() < 1e-6 && second.part(now) < 1e-6);
        assert!(first.is_over(Duration::from_secs_f64(first.period * 1.3)));
        assert!(!second.is_over(now + Duration::from_secs_f64(second.period * 1.9)));
    }

    #[test]
    fn short_round_trips_are_as_fast_as_reno() {
        let growth = CubicGrowth::new(Duration::ZERO, 10.0, 10.0, Duration::from_millis(10));
        // Three packets, at 0.53 packets each round trip.
        let round_trips = 3.0 / (0.9 / 1.7);
        assert!((growth.at(Duration::from_secs_f64(round_trips * 0.01)) - 10.0).abs() < 1e-3);
    }
}
