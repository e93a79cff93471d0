//! What a channel is like, from what is measured of it: loss, delay, rate, and whether it is up.
//!
//! The filters are small and know nothing of each other: [`Sliding`] keeps the last ten seconds,
//! [`Loss`] counts, [`Learner`] finds a rate that nobody configured, and [`Changes`] says when all
//! of it has changed enough for another plan.

mod loss;
mod prober;
mod rate;
mod sliding;

use model::{Channel, ChannelError, DELAYS_MS};

use crate::wire::control::State;
use crate::wire::datagram::FULL_PACKET_BITS;

pub use loss::Loss;
pub use prober::{Phase, Prober, Verdict};
pub use rate::{FIRST_RATE_BPS, Interval, Learner, Source};
pub use sliding::Sliding;

/// The highest loss that a plan is made with. Beyond it a channel is hardly there.
const MOST_LOSS: f64 = 0.99;

/// A delay that differs by less, in milliseconds, is the same.
const SAME_DELAY_MS: f64 = 0.5;

/// A loss that differs by less is the same.
const SAME_LOSS: f64 = 0.001;

/// A rate that differs by a smaller part is the same.
const SAME_RATE: f64 = 0.02;

/// By how many standard deviations a loss must differ to be another.
const SIGNIFICANT: f64 = 3.0;

/// What one direction of a channel is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The proportion of datagrams that are lost, 0 to 1.
    pub loss: f64,
    /// Of how many datagrams the loss was measured.
    pub measured: u64,
    /// How long a datagram takes, in milliseconds. What is faster than the floor-th fastest channel
    /// counts as fast as that: no symbol is complete earlier.
    pub delay_ms: f64,
    /// How many bits of IP packets to plan with for a second: what it carries, or what is to be tried.
    pub rate_bps: u64,
    /// How many it is known to carry, as far as `source` says.
    pub known_bps: u64,
    /// Where that is from.
    pub source: Source,
    /// Whether it can be used.
    pub state: State,
}

impl Estimate {
    /// The channel of the model (III-B), with a `risk` z that cannot be measured. Its rate is in
    /// Mbit/s, and its delay that of a full packet: what was measured was so with short ones, which
    /// take no time to be sent.
    ///
    /// # Errors
    /// If the risk is not within 0 to 1, or the rate is zero.
    #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^53")]
    pub fn channel(&self, risk: f64) -> Result<Channel, ChannelError> {
        let sending_ms = 1e3 * FULL_PACKET_BITS / self.rate_bps as f64;
        let delay_ms = (self.delay_ms + sending_ms).clamp(*DELAYS_MS.start(), *DELAYS_MS.end());
        Channel::new(risk, self.loss.clamp(0.0, MOST_LOSS), delay_ms, self.rate_bps as f64 / 1e6)
    }
}

/// Tells when estimates have changed so much that the plan is to be solved again.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The estimates that the plan was last solved with.
    planned: Vec<Estimate>,
}

impl Changes {
    /// True the first time, and when something is another than the last time this was true: a state,
    /// a rate by a fiftieth, or a loss or delay by a tenth. A difference that is small in itself, or that chance
    /// alone would make, is none.
    pub fn notice(&mut self, now: &[Estimate]) -> bool {
        let same = self.planned.len() == now.len()
            && self.planned.iter().zip(now).all(|(planned, now)| is_same(planned, now));
        if !same {
            self.planned = now.to_vec();
        }
        !same
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates and counts are far below 2^53")]
fn is_same(planned: &Estimate, now: &Estimate) -> bool {
    let differs = |a: f64, b: f64, least: f64| (a - b).abs() > least.max(a.abs() / 10.0);
    // Proportions are fixed: one channel that is given too much holds all others back.
    let (planned_bps, now_bps) = (planned.rate_bps as f64, now.rate_bps as f64);
    let is_same_rate = (planned_bps - now_bps).abs() <= SAME_RATE * planned_bps;
    let loss = planned.loss.max(now.loss);
    // What was planned with may have been measured of few datagrams, or none: now it may be known better.
    let count = now.measured.max(1) as f64;
    let chance = SIGNIFICANT * (loss * (1.0 - loss) / count).sqrt();
    planned.state == now.state
        && !differs(planned.loss, now.loss, chance.max(SAME_LOSS))
        && !differs(planned.delay_ms, now.delay_ms, SAME_DELAY_MS)
        && is_same_rate
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANNED: Estimate = Estimate {
        loss: 0.02,
        measured: 100_000,
        delay_ms: 20.0,
        rate_bps: 50_000_000,
        known_bps: 50_000_000,
        source: Source::Measured,
        state: State::Up,
    };

    fn is_noticed(now: Estimate) -> bool {
        let mut changes = Changes::default();
        assert!(changes.notice(&[PLANNED]), "there is no plan yet");
        changes.notice(&[now])
    }

    #[test]
    fn what_matters_is_noticed_and_less_is_not() {
        assert!(!is_noticed(PLANNED));
        assert!(!is_noticed(Estimate { rate_bps: 50_900_000, ..PLANNED }));
        assert!(is_noticed(Estimate { rate_bps: 51_100_000, ..PLANNED }));
        assert!(is_noticed(Estimate { rate_bps: 48_900_000, ..PLANNED }));
        assert!(!is_noticed(Estimate { delay_ms: 21.9, ..PLANNED }));
        assert!(is_noticed(Estimate { delay_ms: 22.1, ..PLANNED }));
        assert!(!is_noticed(Estimate { loss: 0.0219, ..PLANNED }));
        assert!(is_noticed(Estimate { loss: 0.0221, ..PLANNED }));
        assert!(is_noticed(Estimate { state: State::Down, ..PLANNED }));
    }

    #[test]
    fn chance_and_trifles_are_not_noticed() {
        let few = Estimate { measured: 1_000, ..PLANNED };
        // Three standard deviations of 1,000 datagrams are 1.5 %.
        assert!(!is_noticed(Estimate { loss: 0.030, ..few }));
        assert!(is_noticed(Estimate { loss: 0.040, ..few }));
        let mut changes = Changes::default();
        let fast = Estimate { delay_ms: 0.1, loss: 0.0, ..PLANNED };
        changes.notice(&[fast]);
        assert!(!changes.notice(&[Estimate { delay_ms: 0.5, loss: 0.0005, ..fast }]));
    }

    #[test]
    fn a_loss_that_was_not_known_is_noticed_once_it_is() {
        let mut changes = Changes::default();
        changes.notice(&[Estimate { loss: 0.0, measured: 0, ..PLANNED }]);
        assert!(!changes.notice(&[Estimate { loss: 0.05, measured: 20, ..PLANNED }]));
        assert!(changes.notice(&[Estimate { loss: 0.05, measured: 1_000, ..PLANNED }]));
    }

    #[test]
    fn small_steps_add_up() {
        let mut changes = Changes::default();
        changes.notice(&[PLANNED]);
        let noticed: Vec<bool> = (1..=4)
            .map(|step| changes.notice(&[Estimate { delay_ms: 20.0 + f64::from(step), ..PLANNED }]))
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
        let dead = Estimate { loss: 1.0, ..PLANNED };
        assert!(dead.channel(0.0).unwrap().loss() < 1.0);
        assert!(PLANNED.channel(2.0).is_err());
    }
}
