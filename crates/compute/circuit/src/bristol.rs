//! Circuits as text, in both of Bristol's formats. docs/formats/circuit.md describes them.

mod lines;
mod read;
mod write;

pub use read::{BristolReadError, BristolReadReason, MAX_INPUTS, read};
pub use write::{BristolWriteError, write};

/// A version of the Bristol format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BristolFormat {
    /// The older one: two input values, one output value, and AND, XOR and INV.
    Old,
    /// "Bristol Fashion": any number of values, and also EQ, EQW and MAND.
    Fashion,
}
