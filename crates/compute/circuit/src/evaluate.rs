//! Plain evaluation: one instance, or 64 at a time, bit i of each word being instance i.

use crate::batch::{CircuitSource, FIRST_INPUT, ONE, ZERO};
use crate::circuit::{Circuit, Gate, GateKind};

impl Circuit {
    /// The output bits, for the garbler's and the evaluator's input bits.
    ///
    /// # Panics
    /// If the number of inputs is wrong.
    pub fn evaluate(&self, inputs: &[bool]) -> Vec<bool> {
        let inputs: Vec<u64> = inputs.iter().map(|&bit| u64::from(bit)).collect();
        self.evaluate_64(&inputs).iter().map(|word| word & 1 == 1).collect()
    }

    /// The outputs of 64 instances: bit i of each word belongs to instance i.
    ///
    /// # Panics
    /// If the number of inputs is wrong.
    pub fn evaluate_64(&self, inputs: &[u64]) -> Vec<u64> {
        assert_eq!(inputs.len() as u64, u64::from(self.first_gate() - FIRST_INPUT), "inputs");
        let mut values = Vec::with_capacity(self.wires() as usize);
        values.extend([0, u64::MAX]);
        values.extend_from_slice(inputs);
        for Gate { kind, a, b } in self.gates() {
            let (a, b) = (values[a as usize], values[b as usize]);
            values.push(if kind == GateKind::And { a & b } else { a ^ b });
        }
        self.outputs().iter().map(|&wire| values[wire as usize]).collect()
    }
}

/// The outputs of 64 instances of the circuit of a source: bit i of each word belongs to instance
/// i.
///
/// # Panics
/// If the number of inputs is wrong.
pub fn evaluate_64(source: &dyn CircuitSource, inputs: &[u64]) -> Vec<u64> {
    let shape = source.shape();
    assert_eq!(inputs.len() as u64, u64::from(shape.inputs()), "inputs");
    let mut all = vec![0; shape.places as usize];
    let mut values = vec![0; shape.part_places as usize];
    for values in [&mut all, &mut values] {
        (values[ZERO as usize], values[ONE as usize]) = (0, u64::MAX);
    }
    all[FIRST_INPUT as usize..][..inputs.len()].copy_from_slice(inputs);
    for index in 0..source.parts() {
        let part = source.part(index);
        for import in part.imports {
            values[import.to as usize] = all[import.from as usize];
        }
        for batch in part.batches() {
            for gate in batch.linear {
                values[gate.out as usize] = values[gate.a as usize] ^ values[gate.b as usize];
            }
            for gate in batch.ands {
                values[gate.out as usize] = values[gate.a as usize] & values[gate.b as usize];
            }
        }
        for export in part.exports {
            all[export.to as usize] = values[export.from as usize];
        }
    }
    shape.outputs.iter().map(|&place| all[place as usize]).collect()
}
