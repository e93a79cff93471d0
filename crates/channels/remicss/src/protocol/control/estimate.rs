//! Estimates of a channel: loss, delay, rate and state.
//!
//! The estimators are independent of each other: [`SlidingWindow`] keeps the values of the last ten
//! seconds, [`LossEstimator`] counts, [`RateEstimator`] learns a rate that is not configured, and
//! [`EstimateChangeDetector`] says when estimates have changed enough for a new plan.

mod interval;
mod loss;
mod loss_test;
mod probe_cycle;
mod random_loss;
mod rate;
mod sliding_window;
mod sustained_rate;

use model::{ChannelModel, ChannelModelError, DELAYS_MS};

use crate::protocol::wire::control::TunnelChannelState;
use crate::protocol::wire::datagram::FULL_PACKET_BITS;

pub use interval::MeasurementInterval;
pub use loss::LossEstimator;
pub use probe_cycle::{ProbeCycle, ProbePhase, ProbeResult};
pub use rate::{INITIAL_RATE_BPS, RateEstimator, RateSource};
pub use sliding_window::SlidingWindow;

/// The maximum loss in a plan.
const MAX_LOSS: f64 = 0.99;

/// Delays that differ by less, in milliseconds, are equal.
const DELAY_TOLERANCE_MS: f64 = 0.5;

/// Losses that differ by less are equal.
const LOSS_TOLERANCE: f64 = 0.001;

/// Rates that differ by a smaller part are equal.
const RATE_TOLERANCE: f64 = 0.02;

/// Losses that differ by fewer standard deviations are equal.
const SIGNIFICANT_DEVIATIONS: f64 = 3.0;

/// The estimates of one direction of a channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelEstimate {
    /// The proportion of datagrams that are lost, 0 to 1.
    pub loss: f64,
    /// The number of datagrams by which the loss was measured.
    pub measured: u64,
    /// The delay of a datagram, in milliseconds. A channel that is faster than the floor-th fastest
    /// counts as fast as that one: no symbol is complete earlier.
    pub delay_ms: f64,
    /// The rate to plan with, in bit/s of IP packets: the rate that the channel carries, or the one
    /// to try.
    pub rate_bps: u64,
    /// The known rate, in bit/s of IP packets: see `source`.
    pub known_bps: u64,
    /// The source of the known rate.
    pub source: RateSource,
    /// The state.
    pub state: TunnelChannelState,
}

impl ChannelEstimate {
    /// The channel of the model (III-B), with a `risk` z, which cannot be measured. Its rate is in
    /// Mbit/s, and its delay is that of a full packet: the measured delay is that of short ones,
    /// whose sending time is negligible.
    ///
    /// # Errors
    /// If the risk is not within 0 to 1, or the rate is zero.
    #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^53")]
    pub fn channel(&self, risk: f64) -> Result<ChannelModel, ChannelModelError> {
        let sending_ms = 1e3 * FULL_PACKET_BITS / self.rate_bps as f64;
        let delay_ms = (self.delay_ms + sending_ms).clamp(*DELAYS_MS.start(), *DELAYS_MS.end());
        ChannelModel::new(
            model::RiskProbability(risk),
            model::LossProbability(self.loss.clamp(0.0, MAX_LOSS)),
            delay_ms,
            self.rate_bps as f64 / 1e6,
        )
    }
}

/// Detects when estimates have changed so much that a new plan is needed.
#[derive(Clone, Debug, Default)]
pub struct EstimateChangeDetector {
    /// The estimates of the last plan.
    planned: Vec<ChannelEstimate>,
}

impl EstimateChangeDetector {
    /// Returns true the first time, and when something has changed since it last returned true: a
    /// state, a rate by a fiftieth, or a loss or delay by a tenth. Differences that are small or
    /// not significant do not count.
    pub fn has_changed(&mut self, now: &[ChannelEstimate]) -> bool {
        let same = self.planned.len() == now.len()
            && self.planned.iter().zip(now).all(|(planned, now)| is_same(planned, now));
        if !same {
            self.planned = now.to_vec();
        }
        !same
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates and counts are far below 2^53")]
fn is_same(planned: &ChannelEstimate, now: &ChannelEstimate) -> bool {
    let differs = |a: f64, b: f64, least: f64| (a - b).abs() > least.max(a.abs() / 10.0);
    // Proportions are fixed: a channel that is given too much limits all others.
    let (planned_bps, now_bps) = (planned.rate_bps as f64, now.rate_bps as f64);
    let is_same_rate = (planned_bps - now_bps).abs() <= RATE_TOLERANCE * planned_bps;
    // The estimate may be based on few datagrams or none: one more that is lost, and one that is
    // not, give the loss a variance even if none was lost.
    let count = now.measured as f64;
    let loss = (now.loss * count + 1.0) / (count + 2.0);
    let chance = SIGNIFICANT_DEVIATIONS * (loss * (1.0 - loss) / count.max(1.0)).sqrt();
    planned.state == now.state
        && !differs(planned.loss, now.loss, chance.max(LOSS_TOLERANCE))
        && !differs(planned.delay_ms, now.delay_ms, DELAY_TOLERANCE_MS)
        && is_same_rate
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANNED: ChannelEstimate = ChannelEstimate {
        loss: 0.02,
        measured: 100_000,
        delay_ms: 20.0,
        rate_bps: 50_000_000,
        known_bps: 50_000_000,
        source: RateSource::Measured,
        state: TunnelChannelState::Up,
    };

    fn is_noticed(now: ChannelEstimate) -> bool {
        let mut changes = EstimateChangeDetector::default();
        assert!(changes.has_changed(&[PLANNED]), "there is no plan yet");
        changes.has_changed(&[now])
    }

    #[test]
    fn significant_changes_are_detected_and_others_are_not() {
        assert!(!is_noticed(PLANNED));
        assert!(!is_noticed(ChannelEstimate { rate_bps: 50_900_000, ..PLANNED }));
        assert!(is_noticed(ChannelEstimate { rate_bps: 51_100_000, ..PLANNED }));
        assert!(is_noticed(ChannelEstimate { rate_bps: 48_900_000, ..PLANNED }));
        assert!(!is_noticed(ChannelEstimate { delay_ms: 21.9, ..PLANNED }));
        assert!(is_noticed(ChannelEstimate { delay_ms: 22.1, ..PLANNED }));
        assert!(!is_noticed(ChannelEstimate { loss: 0.0219, ..PLANNED }));
        assert!(is_noticed(ChannelEstimate { loss: 0.0221, ..PLANNED }));
        assert!(is_noticed(ChannelEstimate { state: TunnelChannelState::Down, ..PLANNED }));
    }

    #[test]
    fn small_and_insignificant_differences_are_no_changes() {
        let few = ChannelEstimate { measured: 1_000, ..PLANNED };
        // Three standard deviations of 1,000 datagrams are 1.5 %.
        assert!(!is_noticed(ChannelEstimate { loss: 0.030, ..few }));
        assert!(is_noticed(ChannelEstimate { loss: 0.040, ..few }));
        let mut changes = EstimateChangeDetector::default();
        let fast = ChannelEstimate { delay_ms: 0.1, loss: 0.0, ..PLANNED };
        changes.has_changed(&[fast]);
        assert!(!changes.has_changed(&[ChannelEstimate { delay_ms: 0.5, loss: 0.0005, ..fast }]));
    }

    #[test]
    fn a_first_loss_measurement_is_a_change() {
        let mut changes = EstimateChangeDetector::default();
        changes.has_changed(&[ChannelEstimate { loss: 0.0, measured: 0, ..PLANNED }]);
        assert!(!changes.has_changed(&[ChannelEstimate { loss: 0.05, measured: 20, ..PLANNED }]));
        assert!(changes.has_changed(&[ChannelEstimate { loss: 0.05, measured: 1_000, ..PLANNED }]));
    }

    #[test]
    fn small_steps_add_up() {
        let mut changes = EstimateChangeDetector::default();
        changes.has_changed(&[PLANNED]);
        let noticed: Vec<bool> = (1..=4)
            .map(|step| {
                changes
                    .has_changed(&[ChannelEstimate { delay_ms: 20.0 + f64::from(step), ..PLANNED }])
            })
            .collect();
        assert_eq!(noticed, [false, false, true, false]);
    }

    #[test]
    fn estimates_are_channels_of_the_model() {
        let channel = PLANNED.channel(0.25).unwrap();
        assert_eq!((channel.risk(), channel.loss()), (0.25, 0.02));
        // At 50 Mbit/s a full packet takes 0.24 ms more than a short one.
        assert!((channel.delay_ms() - 20.24).abs() < 1e-9);
        assert!((channel.rate() - 50.0).abs() < 1e-9);
        let dead = ChannelEstimate { loss: 1.0, ..PLANNED };
        assert!(dead.channel(0.0).unwrap().loss() < 1.0);
        assert!(PLANNED.channel(2.0).is_err());
    }
}
