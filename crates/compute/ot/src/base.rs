//! Base transfers: random messages, from public-key cryptography. For each transfer, the sender
//! gets two uniform blocks, and the receiver gets the one that it chose.
//!
//! There are three protocols. Use [`ristretto`]. `naor_pinkas`, the same modulo a prime
//! (`naor_pinkas_modp`), and `two_lock` are the transfers of the `MIPNet` paper (section 5), for
//! comparison, with the Cargo feature `lab`. All are secure against an adversary that follows the
//! protocol. `docs/protocols/ot.md` says what a deviating adversary can learn.
//!
//! Choices are packed: the choice of transfer i is bit i mod 8 of byte i / 8.

mod key_derivation;
#[cfg(feature = "lab")]
mod modular;
#[cfg(feature = "lab")]
pub mod naor_pinkas;
#[cfg(feature = "lab")]
pub mod naor_pinkas_modp;
mod points;
pub mod ristretto;
#[cfg(feature = "lab")]
pub mod two_lock;

#[cfg(feature = "lab")]
pub use modular::ModulusLen;
