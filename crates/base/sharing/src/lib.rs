//! Secret sharing of whole buffers, at memory speed.
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
//! For sequences of secrets there are [`Splitter`] and [`Joiner`], which use the caller's buffers:
//! neither splitting nor joining a subset again allocates memory. Both interfaces give the same
//! shares.
//!
//! The crate promises, under these assumptions:
//! - Secrecy against an attacker with fewer than `k` shares; see [`random`] for its assumptions.
//! - No integrity: a changed share yields a changed secret. The [`tamper`] code detects that, as
//!   does the [`keyed`] hash for ends that share a key, and [`locate`] finds the wrong shares if
//!   there are more than `k`.
//! - No branch and no memory address depends on a secret, only on lengths, which are public.
//!
//! It implements the schemes of the MICSS paper, III-E (XOR) and the ReMICSS paper, III-A (k-of-m).
//!
//! # Map
//!
//! All modules are pure.
//!
//! - `scheme`: the scheme, the threshold and the number of shares. `split`: splits and joins in
//!   buffers of the caller. `share`: shares that own their bytes. [`file`](mod@file): the share
//!   file. [`paper`]: a share file as lines of text that a person can type.
//! - [`tamper`], [`keyed`]: the codes that detect changes. [`locate`]: finds wrong shares. `basis`
//!   has the shares that are trusted, `decoder` a Reed-Solomon code.
//! - `combination`: linear combinations of buffers. Splitting and joining are such combinations
//!   over [`field`], and [`kernels`] computes them: `vector` is one loop, which is compiled for
//!   each instruction set and selected at run time.

mod combination;
pub mod field;
pub mod file;
pub mod kernels;
pub mod keyed;
pub mod locate;
pub mod paper;
mod scheme;
mod share;
mod split;
pub mod tamper;

pub use combination::LinearCombination;
pub use scheme::{MAX_SHARES, SecretSharingScheme, SharingParameters, SharingParametersError};
pub use share::Share;
pub use split::{Joiner, ShareCoordinatesError, ShareJoinError, ShareSplitError, Splitter};
