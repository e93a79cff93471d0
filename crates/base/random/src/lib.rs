//! Uniformly random bytes for secrets.
//!
//! A [`RandomGenerator`] is owned by one thread or task and is not shared. It is either *seeded*,
//! that is, the keystream of AES-128 in counter mode under a key and a starting counter from the
//! operating system; or it is the *operating system's* source itself, called for every byte.
//!
//! ```
//! let mut generator = sunder_random::RandomGenerator::seeded()?;
//! let key: [u8; 32] = generator.array()?;
//! # let _ = key;
//! # Ok::<(), sunder_random::RandomError>(())
//! ```
//!
//! The generator replaces its key after [`MAX_BYTES_PER_KEY`] bytes, whenever the system's clock
//! has ticked (1 to 10 ms), and in the child after the C library's `fork`. This prevents repeated
//! bytes: two secrets under the same random shares reveal how they differ. A virtual machine that
//! is copied or restored while it runs has the same key in each copy, so each copy may repeat the
//! bytes of another, but only until its clock ticks again. Then each copy draws a key of its own,
//! if its kernel has noticed the copy (`docs/sharing.md` says when it does). The same is true of
//! the child of a fork that bypasses the C library.
//!
//! What this means for secrecy: with the seeded generator, fewer shares than the threshold say
//! nothing about the secret to an attacker who cannot tell AES-128's output from random. That is a
//! computational claim. With the operating system's source the claim is information-theoretic, as
//! far as that source is truly random. There is no way to give a generator a seed. A caller can
//! draw a [`SharingSeed`] from it, from which the shares of one secret can be made again.
//!
//! [`wipe_stack`] overwrites what calls that handle keys leave on the stack.
//!
//! # Map
//!
//! - This file: the generator, and when it replaces its key.
//! - `keystream`: AES-128 in counter mode. `seed`: makes the shares of one secret again.
//! - `wipe`: overwrites the stack.

mod keystream;
mod seed;
mod wipe;

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use zeroize::Zeroizing;

pub use seed::SharingSeed;
pub use wipe::wipe_stack;

use keystream::{AesKeystream, SEED_LEN};

/// How many bytes a seeded generator makes under one key: 16 MiB, in blocks of 16 bytes. A
/// distinguisher's advantage over 2^20 blocks of a 128-bit permutation is below 2^-88.
pub const MAX_BYTES_PER_KEY: u64 = 1 << 24;

/// The operating system provides no random bytes. Without them nothing can be shared.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the operating system gives no random bytes: {0}")]
pub struct RandomError(#[from] getrandom::Error);

/// The source of random bytes that a configuration selects with `rng`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RandomSource {
    /// [`RandomGenerator::seeded`].
    #[default]
    Seeded,
    /// [`RandomGenerator::system`].
    Os,
}

impl RandomSource {
    /// Creates a generator of this kind.
    ///
    /// # Errors
    /// If the operating system provides no random bytes.
    pub fn generator(self) -> Result<RandomGenerator, RandomError> {
        match self {
            Self::Seeded => RandomGenerator::seeded(),
            Self::Os => Ok(RandomGenerator::system()),
        }
    }
}

/// A source of uniformly random bytes, owned by one thread or task.
#[derive(Debug)]
pub struct RandomGenerator(GeneratorSource);

#[derive(Debug)]
enum GeneratorSource {
    Seeded(Box<SeededGenerator>),
    System,
}

impl RandomGenerator {
    /// A fast generator, keyed from the operating system.
    ///
    /// # Errors
    /// If the operating system provides no random bytes.
    pub fn seeded() -> Result<Self, RandomError> {
        let mut seeded = Box::new(SeededGenerator::unkeyed());
        seeded.rekey()?;
        Ok(Self(GeneratorSource::Seeded(seeded)))
    }

    /// The operating system's own source, called for every byte: slow, but the claim of secrecy
    /// depends on no cipher.
    pub fn system() -> Self {
        Self(GeneratorSource::System)
    }

    /// Overwrites `bytes` with uniformly random ones.
    ///
    /// # Errors
    /// If the operating system provides no random bytes; the content of `bytes` is then useless.
    pub fn fill(&mut self, bytes: &mut [u8]) -> Result<(), RandomError> {
        match &mut self.0 {
            GeneratorSource::Seeded(seeded) => seeded.fill(bytes),
            GeneratorSource::System => Ok(getrandom::fill(bytes)?),
        }
    }

    /// Draws the seed of one secret's shares; `None` with the operating system's source, whose
    /// claim of secrecy depends on no cipher.
    ///
    /// # Errors
    /// As [`Self::fill`].
    pub fn seed(&mut self) -> Result<Option<SharingSeed>, RandomError> {
        match &mut self.0 {
            GeneratorSource::Seeded(seeded) => SharingSeed::draw(seeded).map(Some),
            GeneratorSource::System => Ok(None),
        }
    }

    /// Returns `N` uniformly random bytes.
    ///
    /// # Errors
    /// As [`Self::fill`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], RandomError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }
}

/// A keystream, and when its key must be replaced.
struct SeededGenerator {
    keystream: AesKeystream,
    /// How many more bytes may be made with the key.
    remaining: u64,
    /// The value of [`FORK_COUNT`] when the key was drawn.
    forks: u64,
    /// The time when the key was drawn.
    drawn_at: CoarseTime,
}

impl SeededGenerator {
    /// Creates a generator that draws its key before its first byte.
    fn unkeyed() -> Self {
        count_forks();
        Self {
            keystream: AesKeystream::unkeyed(),
            remaining: 0,
            forks: 0,
            drawn_at: CoarseTime::now(),
        }
    }

    /// Draws another key in place, as moving it would leave a copy behind.
    fn rekey(&mut self) -> Result<(), RandomError> {
        // Read before the key is drawn: a fork or a tick in between then causes one replacement too
        // many, never one too few.
        (self.forks, self.drawn_at) = (FORK_COUNT.load(Ordering::Relaxed), CoarseTime::now());
        let mut seed = Zeroizing::new([0u8; SEED_LEN]);
        getrandom::fill(&mut *seed)?;
        self.keystream.rekey(&seed);
        self.remaining = MAX_BYTES_PER_KEY;
        Ok(())
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), RandomError> {
        for chunk in bytes.chunks_mut(1 << 16) {
            // Whole blocks are used up, even if not all of their bytes are returned.
            let len = chunk.len().next_multiple_of(16) as u64;
            if self.remaining < len
                || self.forks != FORK_COUNT.load(Ordering::Relaxed)
                || self.drawn_at != CoarseTime::now()
            {
                // If drawing a key fails, the old one is not used any more.
                self.remaining = 0;
                self.rekey()?;
            }
            self.remaining -= len;
            self.keystream.fill(chunk);
        }
        Ok(())
    }
}

/// A time of the system's coarse clock, which is cheap to read and changes every 1 to 10 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CoarseTime(i64, i64);

impl CoarseTime {
    /// Takes 6 ns; reading the exact time takes 25 ns.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[allow(unsafe_code)]
    #[allow(clippy::useless_conversion)] // Not where these are 32 bits.
    fn now() -> Self {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the time is written to a variable of its type.
        let failed = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut now) };
        debug_assert_eq!(failed, 0, "every Linux has this clock");
        Self(now.tv_sec.into(), now.tv_nsec.into())
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn now() -> Self {
        use std::sync::OnceLock;
        use std::time::Instant;
        static BEGINNING: OnceLock<Instant> = OnceLock::new();
        let ticks = BEGINNING.get_or_init(Instant::now).elapsed().as_millis() / 10;
        Self(0, i64::try_from(ticks).unwrap_or(i64::MAX))
    }
}

impl std::fmt::Debug for SeededGenerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeededGenerator").finish_non_exhaustive()
    }
}

/// The number of forks of this process and its ancestors since [`count_forks`] was first called.
static FORK_COUNT: AtomicU64 = AtomicU64::new(0);

/// Makes every child of a `fork` increase the count, so that no generator continues with its
/// parent's key.
#[cfg(unix)]
#[allow(unsafe_code)]
fn count_forks() {
    extern "C" fn count() {
        FORK_COUNT.fetch_add(1, Ordering::Relaxed);
    }
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handler only adds to an atomic, which is safe in a child of a fork.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(count)) };
        // This fails only without memory, and continuing would not be safe.
        assert_eq!(failed, 0, "no memory to watch for forks");
    });
}

#[cfg(not(unix))]
fn count_forks() {}

#[cfg(test)]
mod tests {
    use sim::statistics::{ChiSquared, byte_counts};

    use super::*;

    /// Runs `test` with a generator that keeps its key meanwhile; `None` if the clock ticked.
    fn within_a_tick<T>(
        seeded: &mut SeededGenerator,
        test: impl FnOnce(&mut SeededGenerator) -> T,
    ) -> Option<T> {
        seeded.rekey().unwrap();
        let before = seeded.drawn_at;
        let result = test(seeded);
        (before == CoarseTime::now()).then_some(result)
    }

    #[test]
    fn replaces_its_key_by_budget() {
        let (left, mut bytes) = (4096, [0; 4096]);
        let mut seeded = SeededGenerator::unkeyed();
        let mut remaining = |lengths: &[usize]| loop {
            let remaining = within_a_tick(&mut seeded, |seeded| {
                assert_eq!(seeded.remaining, MAX_BYTES_PER_KEY);
                seeded.remaining = left;
                for len in lengths {
                    seeded.fill(&mut bytes[..*len]).unwrap();
                }
                seeded.remaining
            });
            if let Some(remaining) = remaining {
                return remaining;
            }
        };
        assert_eq!(remaining(&[4096]), 0, "all that is left is the key's");
        assert_eq!(remaining(&[4096, 100]), MAX_BYTES_PER_KEY - 112, "the next byte is another's");
        assert_eq!(remaining(&[100, 1, 1]), left - 112 - 32, "a byte takes a block");
    }

    /// A copy of a virtual machine continues with the same memory. After its clock has ticked, it
    /// makes other bytes.
    #[test]
    fn two_with_the_same_memory_differ_after_a_tick() {
        let seed = [7; SEED_LEN];
        let copy = || {
            let mut seeded = SeededGenerator::unkeyed();
            seeded.rekey().unwrap();
            seeded.keystream.rekey(&seed);
            let drawn = seeded.drawn_at;
            while CoarseTime::now() == drawn {
                std::thread::yield_now();
            }
            let mut bytes = [0; 32];
            seeded.fill(&mut bytes).unwrap();
            bytes
        };
        assert_ne!(copy(), copy());
    }

    #[test]
    fn two_generators_differ_and_none_repeats() {
        let mut first = RandomGenerator::seeded().unwrap();
        let mut second = RandomGenerator::seeded().unwrap();
        let blocks: Vec<[u8; 32]> =
            (0..100).flat_map(|_| [first.array().unwrap(), second.array().unwrap()]).collect();
        for (i, block) in blocks.iter().enumerate() {
            assert!(!blocks[..i].contains(block), "block {i} came before");
        }
    }

    #[test]
    fn every_byte_value_is_as_likely() {
        // By chance, each of the two fails once in 10^7 runs.
        for mut generator in [RandomGenerator::seeded().unwrap(), RandomGenerator::system()] {
            let mut bytes = vec![0; 1 << 20];
            generator.fill(&mut bytes).unwrap();
            let uniform = ChiSquared::of_uniform(&byte_counts(bytes));
            assert!(uniform.passes(1e-7), "{uniform:?}");
        }
    }
}
