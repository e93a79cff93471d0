//! The fate of one symbol: subset risk, loss and delay (IV-A).
//!
//! The number of shares that are seen, lost or arrive is a sum of independent draws with different
//! probabilities: a Poisson binomial distribution. It is computed channel by channel as sums of
//! products of probabilities, without subtraction, so that a risk of 1e-15 is as exact as one of
//! 0.5.

use crate::channels::{ChannelSet, MAX_CHANNELS, ShareSelection};

/// Risk, loss and delay of one symbol sent with a given k and M.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SelectionProperties {
    /// The probability that an adversary sees at least k shares: z(k, M).
    pub risk: f64,
    /// The probability that fewer than k shares arrive: l(k, M).
    pub loss: f64,
    /// The expected time until the kth share arrives, in milliseconds, if it does: d(k, M).
    pub delay_ms: f64,
    /// The probability that at least k shares arrive: 1 - l(k, M), exact even if it is small.
    pub delivered: f64,
}

impl SelectionProperties {
    /// The delay times the probability of arrival: (1 - l) d, in milliseconds.
    pub fn delivered_delay_ms(&self) -> f64 {
        self.delivered * self.delay_ms
    }
}

impl ChannelSet {
    /// Risk, loss and delay of a symbol that any k of the shares on M reconstruct. O(|M| k).
    ///
    /// Channels of M that are not in this set have no risk and deliver nothing.
    pub fn properties(&self, selection: ShareSelection) -> SelectionProperties {
        let (delivered, delay_ms) = self.delivery(selection);
        SelectionProperties {
            risk: self.subset_risk(selection),
            loss: self.subset_loss(selection),
            delay_ms,
            delivered,
        }
    }

    /// z(k, M): the probability that an adversary sees at least k of the shares.
    pub fn subset_risk(&self, selection: ShareSelection) -> f64 {
        let scenarios = self.risk_scenarios().iter();
        let risk = scenarios.map(|scenario| {
            scenario.probability
                * at_least(selection.k(), chosen(&scenario.channel_probabilities, selection))
        });
        risk.sum::<f64>().min(1.0)
    }

    /// l(k, M): the probability that fewer than k of the shares arrive.
    pub fn subset_loss(&self, selection: ShareSelection) -> f64 {
        // Fewer than k of m arrive when more than m - k are lost.
        let fatal = selection.m() - selection.k() + 1;
        let scenarios = self.loss_scenarios().iter();
        let loss = scenarios.map(|scenario| {
            scenario.probability
                * at_least(fatal, chosen(&scenario.channel_probabilities, selection))
        });
        loss.sum::<f64>().min(1.0)
    }

    /// d(k, M): the expected time until the kth share arrives, in milliseconds, if it does.
    pub fn subset_delay_ms(&self, selection: ShareSelection) -> f64 {
        self.delivery(selection).1
    }

    /// The probability that k shares arrive, and the expected time until the kth arrives if it
    /// does.
    fn delivery(&self, selection: ShareSelection) -> (f64, f64) {
        let k = selection.k();
        let (mut delivered, mut weighted, mut slowest) = (0.0, 0.0, 0.0);
        for scenario in self.loss_scenarios() {
            // A channel brings the kth share if k - 1 of the faster channels delivered.
            let mut arrived = [0.0; MAX_CHANNELS + 1];
            arrived[0] = scenario.probability;
            let members = self.by_delay().iter().filter(|i| selection.channels().contains(**i));
            for (before, &channel) in members.enumerate() {
                let lost = scenario.channel_probabilities[channel];
                slowest = self.channels()[channel].delay_ms();
                let last = arrived[k - 1] * (1.0 - lost);
                delivered += last;
                weighted += last * slowest;
                add_draw(&mut arrived[..k.min(before + 2)], 1.0 - lost, lost);
            }
        }
        (delivered.min(1.0), mean_delay(delivered, weighted, slowest))
    }
}

/// The probabilities of the channels that the selection uses.
fn chosen(hit: &[f64], selection: ShareSelection) -> impl Iterator<Item = f64> {
    let used = hit.iter().enumerate().filter(move |(i, _)| selection.channels().contains(*i));
    used.map(|(_, probability)| *probability)
}

/// The probability that at least `k` (at least 1) of the draws succeed: the upper tail, which the
/// paper's text calls a cdf.
fn at_least(k: usize, draws: impl Iterator<Item = f64>) -> f64 {
    let mut count = [0.0; MAX_CHANNELS + 1];
    count[0] = 1.0;
    let mut enough = 0.0;
    for (before, hit) in draws.enumerate() {
        enough += count[k - 1] * hit;
        add_draw(&mut count[..k.min(before + 2)], hit, 1.0 - hit);
    }
    enough
}

/// The mean delay of delivered symbols. If delivery is so unlikely that its probability underflows,
/// the delay is that of the slowest channel.
pub(crate) fn mean_delay(delivered: f64, weighted_ms: f64, slowest_ms: f64) -> f64 {
    if delivered > f64::MIN_POSITIVE { weighted_ms / delivered } else { slowest_ms }
}

/// Adds a draw to the distribution of a count: `count[j]` is the probability of j successes. Counts
/// beyond the end of the slice are dropped.
fn add_draw(count: &mut [f64], success: f64, failure: f64) {
    for j in (1..count.len()).rev() {
        count[j] = count[j] * failure + count[j - 1] * success;
    }
    count[0] *= failure;
}
