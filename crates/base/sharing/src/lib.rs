//! Secret sharing of whole buffers, at the speed of memory.
//!
//! [`SharingParameters::split`] turns a secret of any length into `m` shares of the same length.
//! Any `k` of them give it back through [`SharingParameters::join`]; any `k - 1` are uniformly
//! random and say nothing about it. There are two schemes: XOR, where all shares are needed, and
//! Shamir's over GF(2^8).
//!
//! ```
//! use random::RandomGenerator;
//! use sunder_sharing::{SharingParameters, tamper};
//!
//! // Two of three shares are needed, and a changed share is detected.
//! let mut generator = RandomGenerator::seeded()?;
//! let sharing = SharingParameters::shamir(2, 3)?;
//! let sealed = tamper::seal(b"the secret", &mut generator)?;
//! let shares = sharing.split(&sealed, &mut generator)?;
//!
//! let joined = sharing.join(&shares[1..])?;
//! assert_eq!(tamper::open(&joined)?, b"the secret");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! For streams of secrets there are a [`Splitter`] and a [`Joiner`], which work in the caller's
//! buffers: splitting does not allocate, nor does joining a subset seen before. Both ways give the
//! same shares.
//!
//! What is promised, and under which assumption:
//! - Secrecy against an attacker with fewer than `k` shares: see [`random`] for what it rests on.
//! - Nothing about integrity: a changed share gives a changed secret. The [`tamper`] code detects
//!   that, or for ends that have a key the [`keyed`] hash, and [`locate`] finds the wrong shares
//!   when there are more than `k`.
//! - No branch and no memory address depends on a secret; only lengths do, which are public.
//!
//! Implements the schemes of the MICSS paper, III-E (XOR) and the ReMICSS paper, III-A (k-of-m).

mod combination;
pub mod field;
pub mod file;
pub mod kernels;
pub mod keyed;
pub mod locate;
mod scheme;
mod share;
mod split;
pub mod tamper;

pub use combination::LinearCombination;
pub use scheme::{MAX_SHARES, SecretSharingScheme, SharingParameters, SharingParametersError};
pub use share::Share;
pub use split::{Joiner, ShareCoordinatesError, ShareJoinError, ShareSplitError, Splitter};
