//! Boolean circuits with the inputs of two parties, for garbling and evaluation.
//!
//! A [`Circuit`] is a list of gates in memory. A [`CircuitSource`] supplies the gates of a circuit
//! in parts, which several threads can process at once, and each part in batches, with wires mapped
//! to reused places of arenas, so that a circuit of 10^9 gates is processed in bounded memory. A
//! [`CircuitSchedule`] is a circuit in memory as such a source, once or repeated without end.
//!
//! ```
//! use sunder_circuit::{Circuit, CircuitSchedule, FIRST_INPUT, evaluate_64};
//!
//! // One bit of the garbler, one of the evaluator, and their AND.
//! let mut circuit = Circuit::new(&[1, 1]);
//! let both = circuit.and(FIRST_INPUT, FIRST_INPUT + 1);
//! circuit.output(&[both]);
//! assert_eq!(circuit.evaluate(&[true, true]), [true]);
//!
//! // All four instances at once.
//! let schedule = CircuitSchedule::new(&circuit);
//! assert_eq!(evaluate_64(&schedule, &[0b1100, 0b1010]), [0b1000]);
//! ```
//!
//! # Map
//!
//! All modules are pure.
//!
//! - `circuit`: a circuit in memory. `builder`: builds one: `integers`, `signed`, `sorting`,
//!   `tables`. [`generate`]: generators of circuits, one file for each.
//! - `batch`: batches of gates, and the interface of what supplies them. `schedule`: a circuit as
//!   batches: `part_boundaries`, the `order` in a `part`, `places` in the arena, and `rounds` of a
//!   circuit that is repeated.
//! - [`bristol`]: both text formats. [`netlist`]: netlists of yosys: the `document`, its `cells`,
//!   and the `order` in which they are added to a circuit. [`blif`]: netlists in BLIF: the `model`,
//!   the `order` of its functions, and the gates of a `cover`. [`mod@file`]: all these formats.
//!   `evaluate`: plain evaluation. [`bits`]: bits and bytes.

mod batch;
pub mod bits;
pub mod blif;
pub mod bristol;
mod builder;
mod circuit;
mod evaluate;
pub mod file;
pub mod generate;
pub mod netlist;
mod schedule;

pub use batch::{
    AndGate, ArenaCopy, CircuitPart, CircuitShape, CircuitSource, FIRST_INPUT, GarblingGateCounts,
    GateBatch, LinearGate, MAX_ANDS, MAX_LINEAR, MAX_UNDER_WAY, ONE, Wire, ZERO,
};
pub use builder::{CircuitBuilder, constant, sign_extended};
pub use circuit::{Circuit, CircuitCounts, Gate, GateKind};
pub use evaluate::evaluate_64;
pub use schedule::CircuitSchedule;
