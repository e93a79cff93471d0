//! Where the uniformly random bytes of a sharing come from.
//!
//! A [`Generator`] is owned by one thread or task; no two share one. It is either *seeded*: the
//! keystream of AES-128 in counter mode under a key and a starting counter from the operating
//! system, replaced after every [`KEY_BUDGET`] bytes and in the child after the C library's `fork`
//! (a system call that goes past the library is not noticed); or it is the *operating system's*
//! source itself, asked for every byte.
//!
//! What this means for secrecy: with the seeded generator, shares fewer than the threshold say
//! nothing about the secret to whoever cannot tell AES-128's output from random. That is a
//! computational claim. With the operating system's source the claim is information-theoretic, as
//! far as that source is truly random. There is no way to hand a generator a seed.

mod keystream;

use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use zeroize::Zeroizing;

use keystream::Keystream;

/// How many bytes a seeded generator makes under one key, in blocks of 16: 16 MiB. A distinguisher's
/// advantage over 2^20 blocks of a 128-bit permutation is below 2^-88.
pub const KEY_BUDGET: u64 = 1 << 24;

/// The operating system gave no random bytes. Nothing can be shared without them.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the operating system gives no random bytes: {0}")]
pub struct RandomError(#[from] getrandom::Error);

/// Which source of random bytes a configuration asks for, as its `rng`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rng {
    /// [`Generator::seeded`].
    #[default]
    Seeded,
    /// [`Generator::system`].
    Os,
}

impl Rng {
    /// A generator of this kind.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn generator(self) -> Result<Generator, RandomError> {
        match self {
            Self::Seeded => Generator::seeded(),
            Self::Os => Ok(Generator::system()),
        }
    }
}

/// A source of uniformly random bytes, owned by one thread or task.
#[derive(Debug)]
pub struct Generator(Source);

#[derive(Debug)]
enum Source {
    Seeded(Box<Seeded>),
    System,
}

impl Generator {
    /// A fast generator, keyed from the operating system.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn seeded() -> Result<Self, RandomError> {
        Ok(Self(Source::Seeded(Box::new(Seeded::new()?))))
    }

    /// The operating system's own source, asked for every byte: slow, and without a cipher in
    /// the claim of secrecy.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// Overwrites `bytes` with uniformly random ones.
    ///
    /// # Errors
    /// When the operating system gives no random bytes; `bytes` then hold nothing of use.
    pub fn fill(&mut self, bytes: &mut [u8]) -> Result<(), RandomError> {
        match &mut self.0 {
            Source::Seeded(seeded) => seeded.fill(bytes),
            Source::System => Ok(getrandom::fill(bytes)?),
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

/// A keystream, and when it must be replaced.
struct Seeded {
    keystream: Keystream,
    /// How many bytes may still be made with the key.
    remaining: u64,
    /// The value of [`FORKS`] when the key was drawn.
    forks: u64,
}

impl Seeded {
    fn new() -> Result<Self, RandomError> {
        count_forks();
        // Read first: a fork between the two then replaces a key too many, never one too few.
        let forks = FORKS.load(Ordering::Relaxed);
        let mut seed = Zeroizing::new([0u8; 32]);
        getrandom::fill(&mut *seed)?;
        let (key, counter) = seed.split_at(16);
        let keystream = Keystream::new(
            key.try_into().expect("16 bytes"),
            counter.try_into().expect("16 bytes"),
        );
        Ok(Self { keystream, remaining: KEY_BUDGET, forks })
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), RandomError> {
        for chunk in bytes.chunks_mut(1 << 20) {
            // Whole blocks are used up, be they given out or not.
            let len = chunk.len().next_multiple_of(16) as u64;
            if self.remaining < len || self.forks != FORKS.load(Ordering::Relaxed) {
                *self = Self::new()?;
            }
            self.remaining -= len;
            self.keystream.fill(chunk);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Seeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seeded").finish_non_exhaustive()
    }
}

/// How often this process and its ancestors forked since [`count_forks`] was first called.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Has every child of a `fork` count it, so that no generator goes on with its parent's key.
#[cfg(unix)]
#[allow(unsafe_code)]
fn count_forks() {
    extern "C" fn count() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handler only adds to an atomic, which is safe in a child of a fork.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(count)) };
        // It fails only for want of memory, and then going on would not be safe.
        assert_eq!(failed, 0, "no memory to watch for forks");
    });
}

#[cfg(not(unix))]
fn count_forks() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_its_key_by_budget() {
        let mut seeded = Seeded::new().unwrap();
        let budget = usize::try_from(KEY_BUDGET).unwrap();
        let mut bytes = vec![0; budget];
        seeded.fill(&mut bytes).unwrap();
        assert_eq!(seeded.remaining, 0, "the whole budget is one key's");
        seeded.fill(&mut [0; 100]).unwrap();
        assert_eq!(seeded.remaining, KEY_BUDGET - 112, "the next byte is another's");
        for _ in 0..2 {
            seeded.fill(&mut [0]).unwrap();
        }
        assert_eq!(seeded.remaining, KEY_BUDGET - 112 - 32, "a byte takes a block");
    }

    #[test]
    fn two_generators_differ_and_none_repeats() {
        let mut first = Generator::seeded().unwrap();
        let mut second = Generator::seeded().unwrap();
        let blocks: Vec<[u8; 32]> =
            (0..100).flat_map(|_| [first.array().unwrap(), second.array().unwrap()]).collect();
        for (i, block) in blocks.iter().enumerate() {
            assert!(!blocks[..i].contains(block), "block {i} came before");
        }
    }

    #[test]
    fn every_byte_value_is_as_likely() {
        // 255 degrees of freedom: above 400 happens once in 10^8 runs.
        for mut generator in [Generator::seeded().unwrap(), Generator::system()] {
            let mut bytes = vec![0; 1 << 20];
            generator.fill(&mut bytes).unwrap();
            let mut counts = [0f64; 256];
            for &byte in &bytes {
                counts[usize::from(byte)] += 1.0;
            }
            let expected = 4096.0;
            let chi: f64 = counts.iter().map(|c| (c - expected).powi(2) / expected).sum();
            assert!(chi < 400.0, "chi-squared {chi}");
        }
    }
}
