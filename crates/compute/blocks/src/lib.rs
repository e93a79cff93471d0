//! Blocks of 128 bits, and AES on many of them at a time: what garbled circuits and oblivious
//! transfer are made of.
//!
//! ```
//! use sunder_blocks::{Block, hash::MiTccr, prg::Prg};
//!
//! // A real seed comes from the system's random source.
//! let mut labels = [[Block::ZERO; 2]; 100];
//! Prg::new(Block::from(42)).fill(labels.as_flattened_mut());
//!
//! // Both blocks of a pair have the same tweak.
//! MiTccr::new(Block::from(1)).hash(0, &mut labels);
//! ```
//!
//! - [`prg`] pseudorandom blocks from a seed, [`hash`] a correlation robust hash, [`transpose`] for
//!   bit matrices of 128 rows, [`aes`] AES-128 under one key and under many.
//! - [`aes::AesKernel`] is the code for one instruction set: VAES with AVX-512, VAES with AVX2,
//!   AES-NI, or any processor. The fastest is chosen at run time; all give the same results.
//!   [`lanes`] lets other crates write code that is compiled for each.
//!
//! Everything takes time that depends on lengths only. A [`Block`] is `Copy` and not wiped by
//! itself: collections of secret blocks are wiped by whoever has them.

pub mod aes;
mod block;
pub mod hash;
pub mod lanes;
pub mod prg;
pub mod transpose;

pub use block::Block;

#[cfg(test)]
mod tests;
