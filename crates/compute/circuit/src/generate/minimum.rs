//! The minimum of many numbers, as in the third circuit of the paper's Table 2.

use crate::batch::Wire;
use crate::circuit::Circuit;

/// `MinCut`: the minimum of 25,000 numbers of 20 bits, the first 12,500 the garbler's.
///
/// It has 999,960 ANDs, 2,524,920 XORs and 499,980 NOTs, as many as the paper's circuit.
pub fn min_cut() -> Circuit {
    minimum(12_500, 12_500, 20)
}

/// The minimum of `garbler + evaluator` numbers of `bits` bits, as a tree.
///
/// A node takes two ANDs and five XORs per bit, plus one XOR. Gates are not folded, so the numbers
/// of gates are those of the paper's circuit.
///
/// # Panics
/// If there are no numbers, or 2^31 bits or more.
pub fn minimum(garbler: u32, evaluator: u32, bits: u32) -> Circuit {
    let all = |numbers: u32| numbers.checked_mul(bits).expect("fewer than 2^32 bits");
    let mut circuit = Circuit::new(&[all(garbler), all(evaluator)]);
    let inputs: Vec<Wire> = circuit.input(0).chain(circuit.input(1)).collect();
    let width = bits as usize;
    let nodes = (inputs.len() / width).saturating_sub(1);
    circuit.reserve(nodes * (8 * width + 1) + width + 1);
    let zero = circuit.xor(inputs[0], inputs[0]);
    // One after another, `width` bits each.
    let mut numbers = inputs;
    while numbers.len() > width {
        let mut lesser = Vec::with_capacity(numbers.len().div_ceil(2 * width) * width);
        for pair in numbers.chunks(2 * width) {
            match pair.split_at(width) {
                (x, []) => lesser.extend_from_slice(x),
                (x, y) => add_lesser(&mut circuit, x, y, zero, &mut lesser),
            }
        }
        numbers = lesser;
    }
    let minimum: Vec<Wire> = numbers.iter().map(|&bit| circuit.xor(bit, zero)).collect();
    circuit.output(&minimum);
    circuit
}

/// Appends the lesser of two numbers.
fn add_lesser(circuit: &mut Circuit, x: &[Wire], y: &[Wire], zero: Wire, lesser: &mut Vec<Wire>) {
    // The borrow of x - y.
    let borrow = x.iter().zip(y).fold(zero, |borrow, (&x, &y)| {
        let x_borrow = circuit.xor(x, borrow);
        let y_borrow = circuit.xor(y, borrow);
        let x_same = circuit.not(x_borrow);
        let both = circuit.and(x_same, y_borrow);
        circuit.xor(borrow, both)
    });
    let is_less = circuit.xor(borrow, zero);
    lesser.extend(x.iter().zip(y).map(|(&x, &y)| {
        let differ = circuit.xor(x, y);
        let taken = circuit.and(is_less, differ);
        circuit.xor(taken, y)
    }));
}
