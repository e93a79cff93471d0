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
mod scheme;
mod split;
pub mod tamper;
mod wipe;

pub use random::{Generator, RandomError, RandomSource};
pub use scheme::{MAX_SHARES, Scheme, Sharing, SharingError};
pub use split::{CoordinatesError, JoinError, Joiner, SplitError, Splitter};
pub use wipe::wipe_stack;
