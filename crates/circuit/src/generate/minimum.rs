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
/// A node takes two ANDs and five XORs a bit, and one XOR: no gate is folded, so that the numbers
/// of gates are those of the paper's circuit.
///
/// # Panics
/// If there are no numbers, or 2^31 bits or more.
pub fn minimum(garbler: u32, evaluator: u32, bits: u32) -> Circuit {
    let all = |numbers: u32| numbers.checked_mul(bits).expect("fewer than 2^32 bits");
    let mut circuit = Circuit::new(&[all(garbler), all(evaluator)]);
    let inputs: Vec<Wire> = circuit.input(0).chain(circuit.input(1)).collect();
    let mut numbers: Vec<Vec<Wire>> = inputs.chunks(bits as usize).map(<[Wire]>::to_vec).collect();
    let zero = circuit.xor(inputs[0], inputs[0]);
    while numbers.len() > 1 {
        let nodes = numbers.chunks(2).map(|pair| match pair {
            [x, y] => lesser(&mut circuit, x, y, zero),
            _ => pair[0].clone(),
        });
        numbers = nodes.collect();
    }
    let minimum: Vec<Wire> = numbers[0].iter().map(|&bit| circuit.xor(bit, zero)).collect();
    circuit.output(&minimum);
    circuit
}

/// The lesser of two numbers.
fn lesser(circuit: &mut Circuit, x: &[Wire], y: &[Wire], zero: Wire) -> Vec<Wire> {
    // The borrow of x - y.
    let borrow = x.iter().zip(y).fold(zero, |borrow, (&x, &y)| {
        let x_borrow = circuit.xor(x, borrow);
        let y_borrow = circuit.xor(y, borrow);
        let x_same = circuit.not(x_borrow);
        let both = circuit.and(x_same, y_borrow);
        circuit.xor(borrow, both)
    });
    let is_less = circuit.xor(borrow, zero);
    let bits = x.iter().zip(y).map(|(&x, &y)| {
        let differ = circuit.xor(x, y);
        let taken = circuit.and(is_less, differ);
        circuit.xor(taken, y)
    });
    bits.collect()
}
