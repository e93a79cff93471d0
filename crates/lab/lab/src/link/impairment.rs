//! The random impairments of packets and the jitter of the delay, from a seed.

use fastrand::Rng;

use super::conditions::EmulatedLinkConditions;
use crate::clock::MS;

/// What happens to a packet in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Impairment {
    /// Nothing: it arrives in order.
    None,
    /// It is lost.
    Lost,
    /// It arrives after packets that were sent later.
    Reordered,
    /// It arrives twice.
    Duplicated,
}

/// Draws impairments. Equal seeds and conditions give equal impairments to the same sequence of
/// packets.
#[derive(Debug)]
pub(super) struct ImpairmentGenerator {
    rng: Rng,
    /// Whether the last packet was lost.
    losing: bool,
}

impl ImpairmentGenerator {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed), losing: false }
    }

    /// The impairment of the next packet, of `length` bytes.
    pub(super) fn next(
        &mut self,
        conditions: &EmulatedLinkConditions,
        length: usize,
    ) -> Impairment {
        self.losing = self.chance(loss_after(self.losing, conditions));
        if self.losing || conditions.max_len.is_some_and(|max_len| length > max_len) {
            Impairment::Lost
        } else if self.chance(conditions.reorder) {
            Impairment::Reordered
        } else if self.chance(conditions.duplicate) {
            Impairment::Duplicated
        } else {
            Impairment::None
        }
    }

    /// True with the given probability.
    fn chance(&mut self, probability: f64) -> bool {
        // A condition that is off draws no random number.
        probability > 0.0 && self.rng.f64() < probability
    }
}

/// The probability of a loss after the previous packet was lost or not: a Markov chain whose visits
/// to "lost" last `burst` packets on average, and which is there for `loss` of the time (Gilbert
/// 1960).
fn loss_after(
    lost: bool,
    EmulatedLinkConditions { loss, burst, .. }: &EmulatedLinkConditions,
) -> f64 {
    match burst {
        Some(burst) if *loss < 1.0 => {
            if lost {
                1.0 - 1.0 / burst
            } else {
                loss / (burst * (1.0 - loss))
            }
        }
        _ => *loss,
    }
}

/// The jitter of the delay: linear between random values. It falls more slowly than time passes,
/// so no packet overtakes another.
#[derive(Debug)]
pub(super) struct DelayJitter {
    seed: u64,
}

impl DelayJitter {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The deviation from the mean delay, in nanoseconds, of a packet sent `now` nanoseconds after
    /// the creation of the link: within `jitter_ms` to either side.
    pub(super) fn at(&self, now: u64, jitter_ms: f64) -> i64 {
        if jitter_ms == 0.0 {
            return 0;
        }
        // The time between two random values is four times the largest difference between them.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an hour at max"
        )]
        let step = ((8.0 * jitter_ms * MS as f64) as u64).max(1);
        let (index, part) = (now / step, (now % step) as f64 / step as f64);
        let value = self.value_at(index) * (1.0 - part) + self.value_at(index + 1) * part;
        #[expect(clippy::cast_possible_truncation, reason = "an hour at max")]
        let nanos = (value * jitter_ms * MS as f64) as i64;
        nanos
    }

    /// The random value at a corner, from -1 to 1.
    fn value_at(&self, index: u64) -> f64 {
        let mut rng = Rng::with_seed(self.seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        2.0 * rng.f64() - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: u32 = 1_000_000;

    const LENGTH: usize = 1500;

    fn count(conditions: &EmulatedLinkConditions, impairment: Impairment) -> u32 {
        let mut impairments = ImpairmentGenerator::new(7);
        (0..N).map(|_| u32::from(impairments.next(conditions, LENGTH) == impairment)).sum()
    }

    /// Whether a count out of `N` is within five standard deviations of its expectation.
    fn is_near(count: u32, probability: f64, deviations: f64) -> bool {
        let n = f64::from(N);
        let sigma = (n * probability * (1.0 - probability)).sqrt();
        (f64::from(count) - n * probability).abs() < 5.0 * sigma * deviations
    }

    #[test]
    fn impairments_have_the_requested_frequency() {
        for p in [0.001, 0.05, 0.5] {
            let none = EmulatedLinkConditions::default();
            assert!(is_near(
                count(&EmulatedLinkConditions { loss: p, ..none }, Impairment::Lost),
                p,
                1.0
            ));
            assert!(is_near(
                count(&EmulatedLinkConditions { reorder: p, ..none }, Impairment::Reordered),
                p,
                1.0
            ));
            assert!(is_near(
                count(&EmulatedLinkConditions { duplicate: p, ..none }, Impairment::Duplicated),
                p,
                1.0
            ));
        }
        assert_eq!(count(&EmulatedLinkConditions::default(), Impairment::None), N);
        assert_eq!(
            count(
                &EmulatedLinkConditions { loss: 1.0, ..EmulatedLinkConditions::default() },
                Impairment::Lost
            ),
            N
        );
    }

    #[test]
    fn packets_above_the_maximum_length_are_lost() {
        let conditions =
            EmulatedLinkConditions { max_len: Some(1000), ..EmulatedLinkConditions::default() };
        let mut impairments = ImpairmentGenerator::new(7);
        assert_eq!(impairments.next(&conditions, 1000), Impairment::None);
        assert_eq!(impairments.next(&conditions, 1001), Impairment::Lost);
        assert_eq!(impairments.next(&conditions, 1000), Impairment::None);
    }

    #[test]
    fn bursts_have_the_requested_length() {
        for (loss, burst) in [(0.01, 3.0), (0.2, 10.0), (0.5, 1.5)] {
            let conditions = EmulatedLinkConditions {
                loss,
                burst: Some(burst),
                ..EmulatedLinkConditions::default()
            };
            let mut impairments = ImpairmentGenerator::new(3);
            let (mut lost, mut bursts, mut before) = (0, 0, false);
            for _ in 0..N {
                let now = impairments.next(&conditions, LENGTH) == Impairment::Lost;
                lost += u32::from(now);
                bursts += u32::from(now && !before);
                before = now;
            }
            // Bursts increase the standard deviation by about the square root of twice their
            // length.
            assert!(is_near(lost, loss, (2.0 * burst).sqrt()), "{lost} of {N}, {loss}");
            let mean = f64::from(lost) / f64::from(bursts);
            assert!((mean / burst - 1.0).abs() < 0.05, "{mean}, not {burst}");
        }
    }

    #[test]
    fn equal_seeds_give_equal_impairments() {
        let conditions = EmulatedLinkConditions {
            loss: 0.3,
            burst: Some(2.0),
            reorder: 0.1,
            ..EmulatedLinkConditions::default()
        };
        let draw = |seed| {
            let mut impairments = ImpairmentGenerator::new(seed);
            (0..1000).map(|_| impairments.next(&conditions, LENGTH)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn jitter_is_bounded_and_keeps_packets_in_order() {
        let jitter = DelayJitter::new(5);
        let (mut min, mut max, mut before) = (0, 0, i64::MIN);
        for i in 0..200_000 {
            let now = i * MS / 10;
            let jitter = jitter.at(now, 3.0);
            min = jitter.min(min);
            max = jitter.max(max);
            let arrival = i64::try_from(now).unwrap() + jitter;
            assert!(arrival > before);
            before = arrival;
        }
        assert!((-3_000_000..-2_500_000).contains(&min), "{min}");
        assert!((2_500_000..3_000_000).contains(&max), "{max}");
        assert_eq!(jitter.at(12_345, 0.0), 0);
    }
}
