//! Secret sharing of whole buffers, at the speed of memory.
//!
//! A [`Splitter`] turns a secret of any length into `m` shares of the same length, any `k` of
//! which give it back through a [`Joiner`], while any `k - 1` are uniformly random and say nothing
//! about it. Two schemes: XOR, where all shares are needed, and Shamir's over GF(2^8). Buffers
//! are the caller's; splitting does not allocate, nor does joining a subset seen before.
//!
//! What is promised, and under which assumption:
//! - Secrecy against whoever has fewer than `k` shares: see [`random`] for what it rests on.
//! - Nothing about integrity: a changed share gives a changed secret. The [`tamper`] code detects
//!   that, or for ends that have a key the [`keyed`] hash, and [`locate`] finds the wrong shares when
//!   there are more than `k`.
//! - No branch and no memory address depends on a secret; only lengths do, which are public.
//!
//! Implements the schemes of paper 001, III-E (XOR) and paper 000, III-A (k-of-m).

mod field;
pub mod file;
pub mod kernels;
pub mod keyed;
pub mod locate;
pub mod random;
mod split;
pub mod tamper;
mod wipe;

pub use random::{Generator, RandomError, RandomSource};
pub use split::{CoordinatesError, JoinError, Joiner, SplitError, Splitter};
pub use wipe::wipe_stack;

/// The largest number of shares, `m`: the field has 255 points besides the secret's own.
pub const MAX_SHARES: usize = 255;

/// How a secret is turned into shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// All but one share are random, and the last is their exclusive or with the secret. All are
    /// needed. Needs no field arithmetic, so every implementation is fast.
    Xor,
    /// Shamir's polynomials over GF(2^8) modulo 0x11B. Share `x` is the value at `x`, and the
    /// secret the value at 0.
    Shamir,
}

/// A valid choice of scheme, threshold and number of shares. `1 <= k <= m <= 255`, and `k = m`
/// for XOR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sharing {
    scheme: Scheme,
    k: u8,
    m: u8,
}

/// These numbers make no sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SharingError {
    /// `k` is zero: a secret that needs no share is none.
    #[error("the threshold k must be at least 1")]
    ZeroThreshold,
    /// `k` is above `m`: the secret could never be put together again.
    #[error("the threshold k = {k} is above the number of shares m = {m}")]
    ThresholdAboveShares {
        /// The threshold asked for.
        k: u8,
        /// The number of shares asked for.
        m: u8,
    },
    /// XOR needs all shares.
    #[error("the xor scheme needs every share: k = {k} must equal m = {m}")]
    XorNeedsAll {
        /// The threshold asked for.
        k: u8,
        /// The number of shares asked for.
        m: u8,
    },
}

impl Sharing {
    /// Shares of which `k` of `m` are needed, by the given scheme.
    ///
    /// # Errors
    /// Unless `1 <= k <= m`, with `k = m` for [`Scheme::Xor`].
    pub fn new(scheme: Scheme, k: u8, m: u8) -> Result<Self, SharingError> {
        match scheme {
            _ if k == 0 => Err(SharingError::ZeroThreshold),
            _ if k > m => Err(SharingError::ThresholdAboveShares { k, m }),
            Scheme::Xor if k != m => Err(SharingError::XorNeedsAll { k, m }),
            _ => Ok(Self { scheme, k, m }),
        }
    }

    /// XOR over `n` shares, all of which are needed.
    ///
    /// # Errors
    /// When `n` is zero.
    pub fn xor(n: u8) -> Result<Self, SharingError> {
        Self::new(Scheme::Xor, n, n)
    }

    /// Shamir's scheme: `k` of `m` shares are needed.
    ///
    /// # Errors
    /// Unless `1 <= k <= m`.
    pub fn shamir(k: u8, m: u8) -> Result<Self, SharingError> {
        Self::new(Scheme::Shamir, k, m)
    }

    /// The scheme.
    pub fn scheme(self) -> Scheme {
        self.scheme
    }

    /// `k`: how many shares are needed.
    pub fn threshold(self) -> u8 {
        self.k
    }

    /// `m`: how many shares there are. Their coordinates are `1..=m`, but for a splitter
    /// [at others](Splitter::at).
    pub fn shares(self) -> u8 {
        self.m
    }
}
