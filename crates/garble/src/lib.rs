//! Garbled circuits: gates are garbled and evaluated in batches, by one of several schemes.
//!
//! ```
//! use blocks::Block;
//! use circuit::{Schedule, Source, generate};
//! use sunder_garble::{Evaluator, Garbler, Scheme};
//!
//! let schedule = Schedule::new(&generate::aes128());
//! let mut source = schedule.source();
//! // Both come from the system's random source.
//! let (seed, offset) = (Block::from(1), Block::from(2));
//! let mut garbler = Garbler::new(Scheme::HalfGates, seed, offset, source.shape());
//! let mut evaluator = Evaluator::new(Scheme::HalfGates, garbler.public(), source.shape());
//! // All inputs are 0 here. The evaluator gets the labels of its own by oblivious transfer.
//! let inputs = source.shape().inputs();
//! for (input, [zero, _one]) in (0..).zip(garbler.input_pairs(0..inputs)) {
//!     evaluator.set_input(input, zero);
//! }
//! while let Some(batch) = source.next_batch() {
//!     let mut tables = Vec::new();
//!     garbler.garble(batch, &mut tables);
//!     evaluator.evaluate(batch, &tables)?;
//! }
//! let output = evaluator.decode(&garbler.decoding())?;
//! assert_eq!(circuit::bits::to_bytes(&output)[..4], [0x66, 0xE9, 0x4B, 0xD4]);
//! # Ok::<(), sunder_garble::Error>(())
//! ```
//!
//! What is promised: an evaluator that has one label of each input learns the outputs that it can
//! decode and nothing else, if the [`Scheme`]'s assumption holds. Nothing is promised of a garbler
//! that deviates: tables that compute something else are not detected.
//!
//! Pure: no input or output, no clock. A garbler holds as many labels as the circuit's arena has
//! places, whatever the number of gates. Time and memory accesses depend on the circuit only.
//! `docs/protocols/garbling.md` describes each scheme.

mod evaluator;
mod garbler;
mod glnp15;
mod half_gates;
mod scheme;
mod three_halves;

pub use evaluator::Evaluator;
pub use garbler::Garbler;
pub use scheme::{Scheme, UnknownScheme};

/// Why a garbled circuit cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The tables end before the batch's last one.
    #[error("the tables of a batch have {needed} bytes, {available} were given")]
    TablesTooShort {
        /// How many bytes the batch's tables have.
        needed: usize,
        /// How many there are.
        available: usize,
    },
    /// The decoding bits are not those of this circuit.
    #[error("there are {needed} outputs, but decoding bits for {available}")]
    Decoding {
        /// How many outputs there are.
        needed: usize,
        /// How many decoding bits there are.
        available: usize,
    },
}

#[cfg(test)]
mod tests;
