//! The paper's dynamic scheduler (V): k and m are drawn, and the first m channels that are ready
//! are used.

use std::time::Duration;

use model::{ChannelSubset, ShareSelection};
use thiserror::Error;

use super::scheduler::{ChannelReadiness, SymbolScheduler};
use crate::protocol::wire::datagram::MAX_CHANNELS;

/// The fractional part of the golden ratio, times 2^64. Its multiples are as evenly distributed as
/// those of any number. It is odd, so they take each 64-bit value once before they repeat.
const GOLDEN_RATIO_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Thresholds with given means, over the channels that became ready first.
///
/// A symbol's k is kappa rounded down or up, and its m is mu rounded down or up. *One* number u
/// from 0 to 1 decides both: k is rounded up where u is below the fraction of kappa, and m where it
/// is below that of mu. So both means are exact. And k <= m: where kappa and mu lie between the
/// same two whole numbers, the fraction of kappa is not above that of mu, so m is rounded up
/// whenever k is; and elsewhere kappa rounded up is not above mu rounded down. The numbers u are a
/// low-discrepancy sequence, so even a short sequence of symbols has the means.
///
/// If fewer channels than m or k are up, their number is used instead.
#[derive(Clone, Debug)]
pub struct DynamicScheduler {
    k: IntegerMean,
    m: IntegerMean,
    /// u, times 2^64.
    position: u64,
    /// All channels in the order in which they became ready, those used most recently last.
    order: [usize; MAX_CHANNELS],
}

/// Invalid means.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error("not 1 <= kappa <= mu <= {MAX_CHANNELS}: kappa = {kappa}, mu = {mu}")]
pub struct MeanThresholdError {
    kappa: f64,
    mu: f64,
}

impl DynamicScheduler {
    /// Symbols whose k is `kappa` on average and whose m is `mu`.
    ///
    /// # Errors
    /// Unless 1 <= kappa <= mu <= [`MAX_CHANNELS`].
    #[expect(clippy::cast_precision_loss, reason = "16")]
    pub fn new(kappa: f64, mu: f64) -> Result<Self, MeanThresholdError> {
        if !(1.0 <= kappa && kappa <= mu && mu <= MAX_CHANNELS as f64) {
            return Err(MeanThresholdError { kappa, mu });
        }
        let order = std::array::from_fn(|channel| channel);
        Ok(Self { k: IntegerMean::new(kappa), m: IntegerMean::new(mu), position: 0, order })
    }

    /// The same, starting at a random position of the sequence: see
    /// [`super::planned::PlannedScheduler::with_random_start`].
    #[must_use]
    pub fn with_random_start(self, random: u64) -> Self {
        Self { position: random, ..self }
    }
}

impl SymbolScheduler for DynamicScheduler {
    fn next_threshold(
        &mut self,
        up: ChannelSubset,
        channels: &dyn ChannelReadiness,
    ) -> Option<ShareSelection> {
        self.position = self.position.wrapping_add(GOLDEN_RATIO_STEP);
        let (k, m) = (self.k.rounded(self.position), self.m.rounded(self.position));
        let mut ready = [Duration::ZERO; MAX_CHANNELS];
        up.iter().for_each(|channel| ready[channel] = channels.ready_at(channel));
        // The sort is stable: of channels that are ready since the same time, the one that has
        // waited longest is first.
        self.order.sort_by_key(|channel| ready[*channel]);
        let first = self.order.iter().copied().filter(|channel| up.contains(*channel));
        let chosen: ChannelSubset = first.take(m).collect();
        self.order.sort_by_key(|channel| chosen.contains(*channel));
        ShareSelection::new(k.min(chosen.len()), chosen).ok()
    }

    fn min_k(&self) -> usize {
        self.k.whole
    }

    fn max_k(&self) -> usize {
        self.k.whole + usize::from(self.k.fraction > 0)
    }
}

/// A mean of whole numbers.
#[derive(Clone, Copy, Debug)]
struct IntegerMean {
    /// The mean, rounded down.
    whole: usize,
    /// Its fractional part, times 2^64.
    fraction: u64,
}

impl IntegerMean {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the mean is from 1 to 16"
    )]
    fn new(mean: f64) -> Self {
        Self { whole: mean as usize, fraction: (mean.fract() * 2_f64.powi(64)) as u64 }
    }

    /// The mean rounded up if `position` is below the fraction, else down.
    fn rounded(self, position: u64) -> usize {
        self.whole + usize::from(position < self.fraction)
    }
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss, reason = "counts are small")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::send::schedule::scheduler::FixedReadiness;

    const READY: [FixedReadiness; MAX_CHANNELS] = [ready(0); MAX_CHANNELS];

    const fn ready(ms: u64) -> FixedReadiness {
        FixedReadiness { ready_at: Duration::from_millis(ms), busy_for: Duration::ZERO }
    }

    fn means() -> impl Strategy<Value = (f64, f64)> {
        let near = (1..=15_u8, 0.0..=1.0, 0.0..=1.0).prop_map(|(whole, a, b): (u8, f64, f64)| {
            (f64::from(whole) + a.min(b), f64::from(whole) + a.max(b))
        });
        let any = (1.0..=16.0, 1.0..=16.0).prop_map(|(a, b): (f64, f64)| (a.min(b), a.max(b)));
        prop_oneof![near, any]
    }

    #[test]
    fn invalid_means_are_rejected() {
        for (kappa, mu) in [
            (0.9, 2.0),
            (2.1, 2.0),
            (1.0, 16.1),
            (f64::NAN, 2.0),
            (1.0, f64::NAN),
            (1.0, f64::INFINITY),
        ] {
            assert!(DynamicScheduler::new(kappa, mu).is_err(), "{kappa}, {mu}");
        }
    }

    #[test]
    fn the_first_that_are_ready_are_used() {
        let mut dynamic = DynamicScheduler::new(1.0, 2.0).unwrap();
        let ready = [40, 10, 30, 20].map(ready);
        let mut next = |up: ChannelSubset| dynamic.next_threshold(up, &ready).unwrap().channels();
        assert_eq!(next(ChannelSubset::first(4)), [1, 3].into_iter().collect());
        assert_eq!(
            next(ChannelSubset::EMPTY.with(0).with(2).with(3)),
            [3, 2].into_iter().collect()
        );
        assert_eq!(next(ChannelSubset::EMPTY.with(0)), ChannelSubset::EMPTY.with(0));
        assert_eq!(dynamic.next_threshold(ChannelSubset::EMPTY, &ready), None);
    }

    #[test]
    fn channels_that_are_always_ready_are_used_equally() {
        let mut dynamic = DynamicScheduler::new(1.0, 2.0).unwrap();
        let mut uses = [0; 5];
        for _ in 0..100 {
            let threshold = dynamic.next_threshold(ChannelSubset::first(5), &READY).unwrap();
            threshold.channels().iter().for_each(|channel| uses[channel] += 1);
        }
        assert_eq!(uses, [40; 5]);
    }

    proptest! {
        #[test]
        fn both_means_are_kept((kappa, mu) in means(), symbols in 1..3000_u32) {
            let mut dynamic = DynamicScheduler::new(kappa, mu).unwrap();
            let (mut k, mut m) = (0, 0);
            for _ in 0..symbols {
                let all = ChannelSubset::first(MAX_CHANNELS);
                let threshold = dynamic.next_threshold(all, &READY).unwrap();
                prop_assert!(threshold.k() >= dynamic.min_k());
                prop_assert!((kappa.floor()..=kappa.ceil()).contains(&(threshold.k() as f64)));
                prop_assert!((mu.floor()..=mu.ceil()).contains(&(threshold.m() as f64)));
                k += threshold.k();
                m += threshold.m();
            }
            prop_assert!((k as f64 - kappa * f64::from(symbols)).abs() < 3.0);
            prop_assert!((m as f64 - mu * f64::from(symbols)).abs() < 3.0);
        }

        #[test]
        fn fewer_channels_mean_fewer_shares((kappa, mu) in means(), up in 1..1_u32 << 16) {
            let up: ChannelSubset = (0..16).filter(|c| up >> c & 1 == 1).collect();
            let mut dynamic = DynamicScheduler::new(kappa, mu).unwrap();
            for _ in 0..20 {
                let threshold = dynamic.next_threshold(up, &READY).unwrap();
                prop_assert!(up.includes(threshold.channels()));
                prop_assert!(threshold.m() as f64 >= mu.floor().min(up.len() as f64));
                prop_assert!(threshold.k() as f64 >= kappa.floor().min(up.len() as f64));
            }
        }
    }
}
