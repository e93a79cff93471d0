//! The edit distance of two strings.

use crate::batch::{ONE, Wire, ZERO};
use crate::builder::{CircuitBuilder, constant};
use crate::circuit::Circuit;

/// The edit distance (Levenshtein's: insertions, deletions and substitutions) of a string of
/// `garbler` symbols and one of `evaluator` symbols, of `bits` bits each.
///
/// The output has enough bits for the greatest distance. The circuit computes not the table of
/// distances but the differences between neighbours in it, which are -1, 0 or 1 (Myers 1999). This
/// takes 4 ANDs for each pair of symbols, plus those of their comparison.
///
/// # Panics
/// If `bits` is 0, or the inputs have 2^31 bits or more.
pub fn edit_distance(garbler: u32, evaluator: u32, bits: u32) -> Circuit {
    let all = |symbols: u32| symbols.checked_mul(bits).expect("fewer than 2^32 bits");
    let mut builder = CircuitBuilder::new(&[all(garbler), all(evaluator)]);
    let [rows, columns] = [builder.input(0), builder.input(1)];
    let symbols = bits as usize;
    // In the first row and the first column, the distance grows by 1.
    let mut down = vec![EditDistanceStep::UP; columns.len() / symbols];
    // The steps of the last column are not needed, only those of the last row.
    for row in rows.chunks(symbols) {
        let mut right = EditDistanceStep::UP;
        for (column, step) in columns.chunks(symbols).zip(&mut down) {
            let is_equal = builder.equal(row, column);
            (right, *step) = cell(&mut builder, is_equal, right, *step);
        }
    }
    let distance = sum(&mut builder, garbler, &down);
    builder.finish(&[&distance])
}

/// The difference of two neighbours in the table.
#[derive(Clone, Copy)]
struct EditDistanceStep {
    /// It is 1.
    up: Wire,
    /// It is -1.
    down: Wire,
}

impl EditDistanceStep {
    const UP: Self = Self { up: ONE, down: ZERO };
}

/// The steps out of a cell of the table: of the vertical step on its left and the horizontal step
/// above it, the vertical step on its right and the horizontal step below it.
fn cell(
    builder: &mut CircuitBuilder,
    is_equal: Wire,
    left: EditDistanceStep,
    above: EditDistanceStep,
) -> (EditDistanceStep, EditDistanceStep) {
    // The diagonal step is 0 or 1: 0 if the symbols are equal, or a step in is -1.
    let either = builder.or(left.down, above.down);
    let is_zero = builder.or(is_equal, either);
    // The step out on a side is the diagonal step less the step in on the other.
    let mut out = |other: EditDistanceStep| {
        let down = builder.and(is_zero, other.up);
        // It is 1 if the other is -1, or the diagonal is 1 and the other 0: then neither `is_zero`
        // nor `other.up`. The two exclude each other.
        let some = builder.xor(is_zero, other.up);
        let some = builder.xor(some, down);
        let none = builder.not(some);
        EditDistanceStep { up: builder.xor(none, other.down), down }
    };
    (out(above), out(left))
}

/// The sum of a start and steps, which is not negative, and at most the greater of the start and
/// the number of steps.
fn sum(builder: &mut CircuitBuilder, start: u32, steps: &[EditDistanceStep]) -> Vec<Wire> {
    let greatest = u64::from(start).max(steps.len() as u64);
    let bits = greatest.checked_ilog2().map_or(0, |log| log as usize + 1);
    let [ups, downs]: [Vec<Wire>; 2] =
        [steps.iter().map(|step| step.up).collect(), steps.iter().map(|step| step.down).collect()];
    // Modulo 2^bits, which the sum is below.
    let mut count = |ones: &[Wire]| {
        let mut count = builder.count_ones(ones);
        count.resize(bits, ZERO);
        count
    };
    let [ups, downs] = [count(&ups), count(&downs)];
    let sum = builder.add(&constant(start.into(), bits), &ups);
    builder.subtract(&sum, &downs)
}
