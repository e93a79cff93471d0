//! Yao's millionaires' problem: a comparison of two numbers.

use crate::builder::CircuitBuilder;
use crate::circuit::Circuit;

/// Whether the garbler's number of `bits` bits is greater than the evaluator's.
///
/// # Panics
/// If there are 2^30 bits or more.
pub fn millionaires(bits: u32) -> Circuit {
    let mut builder = CircuitBuilder::new(&[bits, bits]);
    let [garbler, evaluator] = [builder.input(0), builder.input(1)];
    let is_greater = builder.less(&evaluator, &garbler);
    builder.finish(&[&[is_greater]])
}
