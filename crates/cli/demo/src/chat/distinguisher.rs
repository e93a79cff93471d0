//! What can be told from what the proxy has: statistical tests of it.

use std::time::{Duration, Instant};

use crate::histogram::{chi_squared, to_f64};

/// What the proxy has had of a member while it did one thing.
#[derive(Default)]
pub(super) struct ObservedUpdates {
    /// What the member has handed in for each round: its own slots.
    pub(super) updates: Vec<Vec<u8>>,
    /// The different lengths of its messages.
    pub(super) lengths: Vec<usize>,
    /// When its messages came.
    pub(super) times: Vec<Instant>,
}

/// Below this a test says that there is something to tell: once in a million times it is wrong.
pub(super) const LEAST_P: f64 = 1e-6;

impl ObservedUpdates {
    /// All bytes of the updates.
    pub(super) fn len(&self) -> usize {
        self.updates.iter().map(Vec::len).sum()
    }

    /// The mean time between two messages.
    pub(super) fn interval(&self) -> Duration {
        let (Some(first), Some(last)) = (self.times.first(), self.times.last()) else {
            return Duration::ZERO;
        };
        let count = u32::try_from(self.times.len() - 1).unwrap_or(u32::MAX).max(1);
        last.duration_since(*first) / count
    }

    /// The probability that random bytes have values as uneven as those of the updates.
    pub(super) fn bytes_p(&self) -> f64 {
        p_value(chi_squared(&self.byte_counts()), 255)
    }

    /// The probability that random bytes are as different among the places of an update: of how
    /// many bits are set in each place, in all updates.
    pub(super) fn places_p(&self) -> f64 {
        let places = self.updates.iter().map(Vec::len).min().unwrap_or(0);
        let bits = to_f64(self.updates.len() as u64 * 8);
        let deviations = (0..places).map(|place| {
            let ones = self.updates.iter().map(|update| u64::from(update[place].count_ones()));
            (to_f64(ones.sum()) - bits / 2.0).powi(2) / (bits / 4.0)
        });
        p_value(deviations.sum(), places.max(1))
    }

    fn byte_counts(&self) -> [u64; 256] {
        let mut counts = [0; 256];
        for byte in self.updates.iter().flatten() {
            counts[usize::from(*byte)] += 1;
        }
        counts
    }
}

/// The probability that bytes of one source are as differently distributed as those of all these.
pub(super) fn difference_p(all: &[&ObservedUpdates]) -> f64 {
    let counts: Vec<[u64; 256]> = all.iter().map(|updates| updates.byte_counts()).collect();
    let totals: Vec<f64> = counts.iter().map(|counts| to_f64(counts.iter().sum())).collect();
    let total: f64 = totals.iter().sum();
    let mut deviations = 0.0;
    for value in 0..256 {
        let of_value: f64 = counts.iter().map(|counts| to_f64(counts[value])).sum();
        for (counts, of_class) in counts.iter().zip(&totals) {
            let expected = of_value * of_class / total;
            deviations += (to_f64(counts[value]) - expected).powi(2) / expected.max(1e-9);
        }
    }
    p_value(deviations, 255 * (all.len() - 1))
}

/// The probability that chi-squared with so many degrees of freedom is this great or greater, by
/// the approximation of Wilson and Hilferty (1931), good to a thousandth from 30 degrees on.
fn p_value(chi_squared: f64, degrees: usize) -> f64 {
    let spread = 2.0 / (9.0 * to_f64(degrees as u64));
    let z = ((chi_squared / to_f64(degrees as u64)).cbrt() - (1.0 - spread)) / spread.sqrt();
    libm::erfc(z / std::f64::consts::SQRT_2) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Updates of random bytes; `change` makes each into what a broken program sends.
    fn updates(seed: u64, change: impl Fn(&mut [u8])) -> ObservedUpdates {
        let mut random = fastrand::Rng::with_seed(seed);
        let update = |_| {
            let mut update = vec![0; 256];
            random.fill(&mut update);
            change(&mut update);
            update
        };
        ObservedUpdates { updates: (0..40).map(update).collect(), ..ObservedUpdates::default() }
    }

    #[test]
    fn quantiles_are_those_of_tables() {
        // Of chi-squared with 255 and 50 degrees of freedom.
        for (chi_squared, degrees, p) in
            [(293.248, 255, 0.05), (310.457, 255, 0.01), (254.334, 255, 0.5), (67.505, 50, 0.05)]
        {
            assert!((p_value(chi_squared, degrees) - p).abs() < 1e-3, "{chi_squared}");
        }
    }

    #[test]
    fn random_slots_are_not_distinguished() {
        let classes = [1, 2, 3].map(|seed| updates(seed, |_| {}));
        for class in &classes {
            assert!(class.bytes_p() > LEAST_P && class.places_p() > LEAST_P);
        }
        assert!(difference_p(&classes.each_ref()) > LEAST_P);
    }

    #[test]
    fn slots_that_are_not_random_are_distinguished() {
        // An empty slot, a text that is not encrypted, a header before it, and bytes of which a
        // bit is always set.
        let idle = updates(1, |_| {});
        let empty = updates(2, |update| update.fill(0));
        let plain = updates(3, |update| update.fill(b' '));
        let header = updates(4, |update| update[0] = 1);
        let biased = updates(5, |update| update.iter_mut().for_each(|byte| *byte |= 1));
        for broken in [&empty, &plain, &header, &biased] {
            assert!(broken.places_p() < LEAST_P);
        }
        for broken in [&empty, &plain, &biased] {
            assert!(difference_p(&[&idle, broken]) < LEAST_P && broken.bytes_p() < LEAST_P);
        }
    }
}
