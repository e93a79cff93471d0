//! Garbled circuits: gates are garbled and evaluated in batches, by one of several schemes, and
//! the parts of a circuit by several threads.
//!
//! ```
//! use blocks::Block;
//! use circuit::{CircuitSchedule, CircuitSource, generate};
//! use sunder_garble::{Evaluator, Garbler, PartLabelBuffer, GarblingScheme};
//!
//! let circuit = CircuitSchedule::new(&generate::aes128());
//! // Both come from the system's random source.
//! let (seed, offset) = (Block::from(1), Block::from(2));
//! let garbler = Garbler::new(GarblingScheme::HalfGates, seed, offset, circuit.shape());
//! let mut evaluator =
//!     Evaluator::new(GarblingScheme::HalfGates, garbler.public(), circuit.shape());
//! // All inputs are 0 here. The evaluator gets the labels of its own by oblivious transfer.
//! let inputs = circuit.shape().inputs();
//! for (input, [zero, _one]) in (0..).zip(garbler.input_pairs(0..inputs)) {
//!     evaluator.set_input(input, zero);
//! }
//! let (mut here, mut there) = (PartLabelBuffer::default(), PartLabelBuffer::default());
//! for index in 0..circuit.parts() {
//!     let mut tables = Vec::new();
//!     garbler.garble(&mut here, &circuit.part(index), &mut tables);
//!     evaluator.evaluate(&mut there, &circuit.part(index), &tables)?;
//! }
//! let output = evaluator.decode(&garbler.decoding())?;
//! assert_eq!(circuit::bits::to_bytes(&output)[..4], [0x66, 0xE9, 0x4B, 0xD4]);
//! # Ok::<(), sunder_garble::Error>(())
//! ```
//!
//! Guarantee: an evaluator with one label of each input learns the outputs that it can decode and
//! nothing else, if the assumption of the [`GarblingScheme`] holds. There is no guarantee against a
//! deviating garbler: tables that compute something else are not detected.
//!
//! The crate does no I/O and uses no clock. Threads are in [`workers`]. A garbler stores one label
//! per place of the circuit's arena, and a thread one per place of a part's arena, whatever the
//! number of gates. Running time and memory accesses depend only on the circuit.
//! `docs/protocols/garbling.md` describes each scheme.
//!
//! # Map
//!
//! - `garbler`, `evaluator`: the two ends. `arena`: labels in memory.
//! - `scheme`: the schemes; their code is in `half_gates`, `three_halves` and `glnp15`.
//! - [`workers`]: threads that process jobs in order. The other modules are pure.

mod arena;
mod evaluator;
mod garbler;
mod glnp15;
mod half_gates;
mod scheme;
mod three_halves;
pub mod workers;

pub use arena::PartLabelBuffer;
pub use evaluator::Evaluator;
pub use garbler::Garbler;
pub use scheme::{GarblingScheme, UnknownGarblingScheme};

/// Why a garbled circuit cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The tables are not those of the part.
    #[error("the tables of a part have {needed} bytes, {available} were given")]
    TablesLen {
        /// The length of the part's tables in bytes.
        needed: usize,
        /// The length of the given tables in bytes.
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
