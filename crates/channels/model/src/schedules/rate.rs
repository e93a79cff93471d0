//! The optimal rate (IV-C): Theorems 1 to 4, computed in O(n log n) instead of over all subsets.
//!
//! A rate is a number of source symbols in a unit of time. The mean multiplicity mu is the mean
//! number of shares for each symbol.

use crate::channels::{ChannelModel, ChannelSet, ChannelSubset};
use crate::double_double::DoubleDouble;

impl ChannelSet {
    /// `R_C` for a mean multiplicity `mu`: the highest rate at which symbols can be sent (Theorem
    /// 4). `None` unless 1 <= mu <= n.
    ///
    /// Among the sets S of one size, the slowest channels give the theorem's minimum, so only n
    /// sets are examined.
    pub fn best_rate(&self, mu: f64) -> Option<f64> {
        if !self.multiplicities().contains(&mu) {
            return None;
        }
        Some(self.best_rate_exactly(mu).to_f64())
    }

    /// The same for a valid `mu`, not rounded to `f64`.
    pub(crate) fn best_rate_exactly(&self, mu: f64) -> DoubleDouble {
        let surplus = DoubleDouble::from(mu) - self.count().into();
        let (mut sum, mut size, mut best) =
            (DoubleDouble::ZERO, DoubleDouble::ZERO, f64::INFINITY.into());
        for rate in self.ascending_rates() {
            (sum, size) = (sum + rate.into(), size + DoubleDouble::ONE);
            if surplus + size > DoubleDouble::ZERO {
                best = DoubleDouble::min(best, sum / (surplus + size));
            }
        }
        best
    }

    /// The largest mean multiplicity at which `rate` symbols can be sent in a unit of time (Theorem
    /// 3). `None` if `rate` is not positive, or exceeds the sum of the channels' rates.
    pub fn multiplicity_at(&self, rate: f64) -> Option<f64> {
        // The sum is at most n, and only rounding makes it less than 1.
        let sum: f64 = self.channels().iter().map(|channel| (channel.rate() / rate).min(1.0)).sum();
        (rate > 0.0 && rate <= self.total_rate()).then(|| sum.max(1.0))
    }

    /// A rate that is always possible at a mean multiplicity `mu`: that of the ceil(mu)-th fastest
    /// channel (Theorem 1). `None` unless 1 <= mu <= n.
    pub fn assured_rate(&self, mu: f64) -> Option<f64> {
        if !self.multiplicities().contains(&mu) {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to n")]
        let rank = mu.ceil() as usize;
        self.ascending_rates().into_iter().rev().nth(rank - 1)
    }

    /// The largest mean multiplicity at which every channel can be used to the full (Theorem 2).
    pub fn full_use_limit(&self) -> f64 {
        let fastest = self.channels().iter().map(ChannelModel::rate).fold(0.0, f64::max);
        (self.total_rate() / fastest).clamp(1.0, self.count())
    }

    /// A, the channels that are used to the full at the optimal rate for `mu` (Definition 1): more
    /// than n - mu of them (Corollary 2). `None` unless 1 <= mu <= n.
    pub fn fully_used(&self, mu: f64) -> Option<ChannelSubset> {
        let best = self.best_rate(mu)?;
        // Rounding must not exclude a channel whose rate is R_C.
        let limit = best * (1.0 + 4.0 * f64::EPSILON);
        let channels = self.channels().iter().enumerate();
        Some(channels.filter(|(_, channel)| channel.rate() <= limit).map(|(i, _)| i).collect())
    }

    /// r'_i, the number of shares that each channel carries in a unit of time at the optimal rate
    /// for `mu` (Equation 4), in the channels' order. `None` unless 1 <= mu <= n.
    pub fn used_rates(&self, mu: f64) -> Option<Vec<f64>> {
        let best = self.best_rate(mu)?;
        Some(self.channels().iter().map(|channel| channel.rate().min(best)).collect())
    }

    /// The rate of all channels together: `R_C` at mu = 1.
    pub fn total_rate(&self) -> f64 {
        self.channels().iter().map(ChannelModel::rate).sum()
    }

    /// The valid mean multiplicities: 1 to n.
    pub fn multiplicities(&self) -> std::ops::RangeInclusive<f64> {
        1.0..=self.count()
    }

    #[expect(clippy::cast_precision_loss, reason = "there are few channels")]
    fn count(&self) -> f64 {
        self.len() as f64
    }

    fn ascending_rates(&self) -> Vec<f64> {
        let mut rates: Vec<f64> = self.channels().iter().map(ChannelModel::rate).collect();
        rates.sort_by(f64::total_cmp);
        rates
    }
}
