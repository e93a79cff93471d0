//! Blocks of 128 bits, and AES on many blocks at a time: the building blocks of garbled circuits
//! and oblivious transfer.
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
//! Running times depend only on lengths. A [`Block`] is `Copy` and does not wipe itself: the owner
//! of a collection of secret blocks must wipe it.
//!
//! # Map
//!
//! All modules are pure.
//!
//! - `block`: a block of 128 bits. [`prg`]: pseudorandom blocks from a seed. [`hash`]: a
//!   correlation robust hash. [`transpose`]: bit matrices of 128 rows.
//! - [`aes`]: AES-128 under one key and under many. [`aes::AesKernel`] is the code for one
//!   instruction set: VAES with AVX-512, VAES with AVX2, AES-NI, or portable code. The fastest is
//!   chosen at run time. All give the same results.
//! - [`lanes`]: vectors of blocks, with which other crates can write code that is compiled for each
//!   kernel. `isa` and `x86` are for x86-64, `portable` for every processor.

pub mod aes;
mod block;
pub mod hash;
pub mod lanes;
pub mod prg;
pub mod transpose;

pub use block::Block;

#[cfg(test)]
mod tests;
