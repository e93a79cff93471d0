//! RSA for groups of servers: secret integers, powers modulo N, and keys of safe primes.
//!
//! Operations on secrets take a time that depends on public bounds only, and secrets are wiped.
//! On x86-64 processors with AVX-512 IFMA, powers take a third of the time.
//!
//! # Map
//!
//! - [`integer`]: secret integers of public width. [`modulus`]: numbers modulo N, with `ifma`.
//!   [`comb`]: many powers of one base.
//! - [`key`]: the public part of a group's key. [`dealer`]: a whole key, before it is split.

pub mod comb;
pub mod dealer;
#[cfg(any(test, fuzzing, feature = "fixture"))]
#[doc(hidden)]
pub mod fixture;
#[cfg(target_arch = "x86_64")]
mod ifma;
pub mod integer;
pub mod key;
pub mod modulus;

pub use comb::BaseComb;
pub use dealer::{CeremonyError, DealerKey, PrimeSearchProgress};
pub use integer::SecretInteger;
pub use key::{GroupPublicKey, GroupPublicKeyError};
pub use modulus::{FixedBase, RsaElement, RsaModulus, RsaModulusError};
