//! `SplitMix64`, the generator for all random choices of a simulation.
//!
//! It is implemented here, in ten lines, so that a seed still reproduces the same run after any
//! update of dependencies. It must not be used for secrets.

use std::time::Duration;

/// A small seeded generator. Generators with the same seed give the same values.
#[derive(Clone, Debug)]
pub struct SeededRng {
    state: u64,
}

impl SeededRng {
    /// Creates a generator whose values depend on `seed` only.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next value, uniform over all 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A value below `bound`, or 0 if `bound` is 0. The bias is under `bound` in 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// An index into a slice of `len` elements, or 0 if it is empty.
    pub fn index(&mut self, len: usize) -> usize {
        let bound = u64::try_from(len).unwrap_or(u64::MAX);
        usize::try_from(self.below(bound)).unwrap_or(0)
    }

    /// One element of `items`, or `None` if there is none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.index(items.len()))
    }

    /// Returns true with a probability of `percent` percent.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// `N` random bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
        bytes
    }

    /// A time from `low` up to, but not including, `high`; `low` if that range is empty.
    pub fn duration_between(&mut self, low: Duration, high: Duration) -> Duration {
        let span = high.saturating_sub(low).as_nanos();
        let span_ns = u64::try_from(span).unwrap_or(u64::MAX);
        low + Duration::from_nanos(self.below(span_ns))
    }

    /// Puts `items` in random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_published_values() {
        // The first outputs of Vigna's splitmix64.c for the seed 1234567.
        let mut rng = SeededRng::new(1_234_567);
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
        assert_eq!(rng.next_u64(), 9_817_491_932_198_370_423);
    }

    #[test]
    fn stays_within_bounds() {
        let mut rng = SeededRng::new(1);
        for bound in 0..100 {
            let value = rng.below(bound);
            assert!(value < bound || bound == 0);
        }
        assert_eq!(rng.pick::<u8>(&[]), None);
        let low = Duration::from_millis(3);
        assert_eq!(rng.duration_between(low, low), low);
    }

    #[test]
    fn shuffles_without_loss() {
        let mut items: Vec<u8> = (0..50).collect();
        SeededRng::new(7).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<u8>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<u8>>());
    }
}
