//! What can be told from what the proxy has: statistical tests of it.

use std::time::{Duration, Instant};

use mix::Mailbox;

use crate::histogram::{chi_squared, to_f64};

/// What the proxy has had of a member while it did one thing.
#[derive(Default)]
pub(super) struct ObservedUpdates {
    /// The updates: what the member has added to the slots.
    pub(super) mailboxes: Vec<Mailbox>,
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
        self.mailboxes.iter().map(|update| update.as_bytes().len()).sum()
    }

    /// How many slots an update changes: the least, and the most.
    pub(super) fn changed_slots(&self, slot_len: usize) -> (usize, usize) {
        let changed = self.mailboxes.iter().map(|update| {
            let slots = update.as_bytes().chunks(slot_len);
            slots.filter(|slot| slot.iter().any(|byte| *byte != 0)).count()
        });
        (changed.clone().min().unwrap_or(0), changed.max().unwrap_or(0))
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

    /// The probability that random changes are as different among the slots: of how many bits of
    /// each slot the updates change.
    pub(super) fn slots_p(&self, slot_len: usize) -> f64 {
        let Some(first) = self.mailboxes.first() else { return 1.0 };
        let slots = first.as_bytes().len() / slot_len;
        let bits = to_f64((self.mailboxes.len() * slot_len * 8) as u64);
        let deviations = (0..slots).map(|slot| {
            let ones = self.mailboxes.iter().flat_map(|update| update.slot(slot));
            let ones: u64 = ones.map(|byte| u64::from(byte.count_ones())).sum();
            (to_f64(ones) - bits / 2.0).powi(2) / (bits / 4.0)
        });
        p_value(deviations.sum(), slots)
    }

    fn byte_counts(&self) -> [u64; 256] {
        let mut counts = [0; 256];
        for byte in self.mailboxes.iter().flat_map(Mailbox::as_bytes) {
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
    use mix::MailboxShape;

    use super::*;

    /// Updates of random bytes; `change` makes each into what a broken engine sends.
    fn updates(seed: u64, change: impl Fn(&mut Mailbox)) -> ObservedUpdates {
        let shape = MailboxShape::new(8, 2, 1, 7, 256).unwrap();
        let mut random = fastrand::Rng::with_seed(seed);
        let update = |_| {
            let mut update = Mailbox::new(&shape);
            random.fill(update.as_bytes_mut());
            change(&mut update);
            update
        };
        ObservedUpdates { mailboxes: (0..40).map(update).collect(), ..ObservedUpdates::default() }
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
    fn random_changes_are_not_distinguished() {
        let classes = [1, 2, 3].map(|seed| updates(seed, |_| {}));
        for class in &classes {
            assert!(class.bytes_p() > LEAST_P && class.slots_p(256) > LEAST_P);
            assert_eq!(class.changed_slots(256), (17, 17));
        }
        assert!(difference_p(&classes.each_ref()) > LEAST_P);
    }

    #[test]
    fn broken_engines_are_found() {
        // A slot that is left alone; one that is written without a mask, in text; a mask with a
        // few bits that are not uniform.
        let idle = updates(1, |_| {});
        let untouched = updates(2, |update| update.slot_mut(5).fill(0));
        let plain = updates(3, |update| update.slot_mut(5).fill(b' '));
        let biased = updates(4, |update| update.slot_mut(5).iter_mut().for_each(|byte| *byte |= 1));
        assert_eq!(untouched.changed_slots(256), (16, 16));
        for broken in [&untouched, &plain, &biased] {
            assert!(broken.slots_p(256) < LEAST_P);
        }
        assert!(difference_p(&[&idle, &plain]) < LEAST_P && plain.bytes_p() < LEAST_P);
    }
}
