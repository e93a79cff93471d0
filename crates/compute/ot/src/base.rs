//! Base transfers: random messages, from public-key cryptography. The sender gets two uniform
//! blocks for each transfer, the receiver the one that it chose.
//!
//! There are three. [`ristretto`] is the one to use. [`naor_pinkas`] and [`two_lock`] are the
//! transfers of the `MIPNet` paper (section 5), to compare with: historical baselines. All are
//! secure against an adversary that follows the protocol; `docs/protocols/ot.md` says what one gets
//! that does not.
//!
//! Choices are packed: the choice of transfer i is bit i mod 8 of byte i / 8.

pub mod naor_pinkas;
mod points;
pub mod ristretto;
pub mod two_lock;
