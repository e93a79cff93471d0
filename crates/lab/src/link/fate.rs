//! The random fate of each packet, and the jitter of the delay, from a seed.

use fastrand::Rng;

use super::conditions::Conditions;
use crate::clock::MS;

/// What becomes of a packet on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It arrives.
    Arrives,
    /// It is lost.
    Lost,
    /// It arrives later than those sent after it.
    Late,
    /// It arrives twice.
    Twice,
}

/// Draws fates. The same seed and conditions give the same fates to the same number of packets.
#[derive(Debug)]
pub(super) struct Fates {
    rng: Rng,
    /// Whether the last packet was lost.
    losing: bool,
}

impl Fates {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed), losing: false }
    }

    /// The fate of the next packet.
    pub(super) fn next(&mut self, conditions: &Conditions) -> Fate {
        self.losing = self.chance(loss_after(self.losing, conditions));
        if self.losing {
            Fate::Lost
        } else if self.chance(conditions.reorder) {
            Fate::Late
        } else if self.chance(conditions.duplicate) {
            Fate::Twice
        } else {
            Fate::Arrives
        }
    }

    /// True with a probability.
    fn chance(&mut self, probability: f64) -> bool {
        // Nothing is drawn where nothing can differ: a lossless link costs no randomness.
        probability > 0.0 && self.rng.f64() < probability
    }
}

/// How probable it is to lose a packet, after the one before was lost or not: a Markov chain whose
/// visits to "lost" last `burst` packets on average, and which is there for `loss` of the time
/// (Gilbert 1960).
fn loss_after(lost: bool, Conditions { loss, burst, .. }: &Conditions) -> f64 {
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

/// The jitter of the delay: linear between random heights. It never falls as fast as time passes,
/// so no packet overtakes another.
#[derive(Debug)]
pub(super) struct Jitter {
    seed: u64,
}

impl Jitter {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// How much longer (or shorter) than the mean a packet travels that is sent so long after the
    /// link was made, in nanoseconds: within `jitter_ms` to either side.
    pub(super) fn at(&self, now: u64, jitter_ms: f64) -> i64 {
        if jitter_ms == 0.0 {
            return 0;
        }
        // From one end to the other in the time of four such ways.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an hour at most"
        )]
        let step = ((8.0 * jitter_ms * MS as f64) as u64).max(1);
        let (index, part) = (now / step, (now % step) as f64 / step as f64);
        let height = self.height(index) * (1.0 - part) + self.height(index + 1) * part;
        #[expect(clippy::cast_possible_truncation, reason = "an hour at most")]
        let nanos = (height * jitter_ms * MS as f64) as i64;
        nanos
    }

    /// The height at a corner, from -1 to 1.
    fn height(&self, index: u64) -> f64 {
        let mut rng = Rng::with_seed(self.seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        2.0 * rng.f64() - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: u32 = 1_000_000;

    fn count(conditions: &Conditions, fate: Fate) -> u32 {
        let mut fates = Fates::new(7);
        (0..N).map(|_| u32::from(fates.next(conditions) == fate)).sum()
    }

    /// Whether a count of `N` is within five standard deviations of what is expected.
    fn is_near(count: u32, probability: f64, deviations: f64) -> bool {
        let n = f64::from(N);
        let sigma = (n * probability * (1.0 - probability)).sqrt();
        (f64::from(count) - n * probability).abs() < 5.0 * sigma * deviations
    }

    #[test]
    fn fates_are_as_frequent_as_asked_for() {
        for p in [0.001, 0.05, 0.5] {
            let none = Conditions::default();
            assert!(is_near(count(&Conditions { loss: p, ..none }, Fate::Lost), p, 1.0));
            assert!(is_near(count(&Conditions { reorder: p, ..none }, Fate::Late), p, 1.0));
            assert!(is_near(count(&Conditions { duplicate: p, ..none }, Fate::Twice), p, 1.0));
        }
        assert_eq!(count(&Conditions::default(), Fate::Arrives), N);
        assert_eq!(count(&Conditions { loss: 1.0, ..Conditions::default() }, Fate::Lost), N);
    }

    #[test]
    fn bursts_are_as_long_as_asked_for() {
        for (loss, burst) in [(0.01, 3.0), (0.2, 10.0), (0.5, 1.5)] {
            let conditions = Conditions { loss, burst: Some(burst), ..Conditions::default() };
            let mut fates = Fates::new(3);
            let (mut lost, mut bursts, mut before) = (0, 0, false);
            for _ in 0..N {
                let now = fates.next(&conditions) == Fate::Lost;
                lost += u32::from(now);
                bursts += u32::from(now && !before);
                before = now;
            }
            // Bursts make the count vary more, by about the square root of twice their length.
            assert!(is_near(lost, loss, (2.0 * burst).sqrt()), "{lost} of {N}, {loss}");
            let mean = f64::from(lost) / f64::from(bursts);
            assert!((mean / burst - 1.0).abs() < 0.05, "{mean}, not {burst}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_fates() {
        let conditions =
            Conditions { loss: 0.3, burst: Some(2.0), reorder: 0.1, ..Conditions::default() };
        let draw = |seed| {
            let mut fates = Fates::new(seed);
            (0..1000).map(|_| fates.next(&conditions)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn the_delay_wanders_within_its_bounds_and_nothing_overtakes() {
        let jitter = Jitter::new(5);
        let (mut least, mut most, mut before) = (0, 0, i64::MIN);
        for i in 0..200_000 {
            let now = i * MS / 10;
            let jitter = jitter.at(now, 3.0);
            least = jitter.min(least);
            most = jitter.max(most);
            let arrival = i64::try_from(now).unwrap() + jitter;
            assert!(arrival > before);
            before = arrival;
        }
        assert!((-3_000_000..-2_500_000).contains(&least), "{least}");
        assert!((2_500_000..3_000_000).contains(&most), "{most}");
        assert_eq!(jitter.at(12_345, 0.0), 0);
    }
}
