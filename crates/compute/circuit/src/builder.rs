//! Builds circuits, and omits gates that are redundant because of constants or equal earlier gates.

mod integers;
mod signed;
mod sorting;
mod tables;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::batch::{ONE, Wire, ZERO};
use crate::circuit::{Circuit, GateKind};
pub use signed::sign_extended;

/// Builds a circuit gate by gate.
///
/// Values of several bits are slices of wires, the least significant bit first. Constants are
/// folded, equal gates near each other are merged, and [`finish`](Self::finish) drops gates that no
/// output needs.
///
/// ```
/// use sunder_circuit::CircuitBuilder;
///
/// // Whether the garbler's number is less than the evaluator's.
/// let mut builder = CircuitBuilder::new(&[8, 8]);
/// let [x, y] = [builder.input(0), builder.input(1)];
/// let less = builder.less(&x, &y);
/// let circuit = builder.finish(&[&[less]]);
/// assert_eq!(circuit.counts().ands, 8);
/// ```
#[derive(Clone, Debug)]
pub struct CircuitBuilder {
    circuit: Circuit,
    /// The outputs of the last gates, by their inputs, the lower one first.
    recent_gates: HashMap<GateKey, Wire, BuildHasherDefault<GateKeyHasher>>,
}

/// The maximum number of remembered gates. When it is exceeded, all are forgotten. Equal gates are
/// rarely far from each other, and a table of all gates would take many times the memory of the
/// circuit.
const MAX_RECENT_GATES: usize = 1 << 18;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GateKey(GateKind, Wire, Wire);

impl std::hash::Hash for GateKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.1) << 32 | u64::from(self.2));
        state.write_u64(self.0 as u64);
    }
}

/// A fast hash for the keys of gates. It need not resist chosen collisions.
#[derive(Default)]
struct GateKeyHasher(u64);

impl Hasher for GateKeyHasher {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u64(&mut self, word: u64) {
        // The multiplier is 2^64 divided by the golden ratio, made odd.
        self.0 = (self.0.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl CircuitBuilder {
    /// A circuit without gates. `inputs` has the number of bits of each input value: the first is
    /// the garbler's, all others are the evaluator's.
    ///
    /// # Panics
    /// If the inputs have 2^31 bits or more together.
    pub fn new(inputs: &[u32]) -> Self {
        Self { circuit: Circuit::new(inputs), recent_gates: HashMap::default() }
    }

    /// The wires of input value `index`.
    ///
    /// # Panics
    /// If there are fewer values.
    pub fn input(&self, index: usize) -> Vec<Wire> {
        self.circuit.input(index).collect()
    }

    /// The number of gates so far.
    pub(crate) fn gates(&self) -> usize {
        self.circuit.len()
    }

    /// The XOR of two bits.
    ///
    /// # Panics
    /// Gates panic if a wire is not of this builder, or there are 2^32 wires.
    pub fn xor(&mut self, a: Wire, b: Wire) -> Wire {
        // NOTs move behind the XOR, so that gates which differ in NOTs only become one.
        let ((a, not_a), (b, not_b)) = (self.positive(a), self.positive(b));
        let out = self.xor_positive(a, b);
        if not_a == not_b { out } else { self.not(out) }
    }

    fn xor_positive(&mut self, a: Wire, b: Wire) -> Wire {
        match (a.min(b), a.max(b)) {
            (a, b) if a == b => ZERO,
            (ZERO, b) => b,
            (a, b) => {
                // x XOR (x XOR y) = y.
                let Some((p, q)) = self.xor_inputs(b) else {
                    return self.gate(GateKind::Xor, a, b);
                };
                match a {
                    _ if a == p => q,
                    _ if a == q => p,
                    _ => self.gate(GateKind::Xor, a, b),
                }
            }
        }
    }

    /// The NOT of a bit.
    pub fn not(&mut self, a: Wire) -> Wire {
        match self.positive(a) {
            (ZERO, is_not) => Wire::from(!is_not),
            (positive, true) => positive,
            (a, false) => self.gate(GateKind::Xor, a, ONE),
        }
    }

    /// The AND of two bits.
    pub fn and(&mut self, a: Wire, b: Wire) -> Wire {
        match (a.min(b), a.max(b)) {
            (a, b) if a == b => a,
            (ZERO, _) => ZERO,
            (ONE, b) => b,
            (a, b) => {
                let ((x, not_x), (y, not_y)) = (self.positive(a), self.positive(b));
                if x == y && not_x != not_y { ZERO } else { self.gate(GateKind::And, a, b) }
            }
        }
    }

    /// The OR of two bits.
    pub fn or(&mut self, a: Wire, b: Wire) -> Wire {
        let [not_a, not_b] = [self.not(a), self.not(b)];
        let neither = self.and(not_a, not_b);
        self.not(neither)
    }

    /// The output values of another circuit, whose input values are these.
    ///
    /// ```
    /// use sunder_circuit::{CircuitBuilder, generate};
    ///
    /// // AES-128 under the XOR of a key of each party.
    /// let mut builder = CircuitBuilder::new(&[128, 256]);
    /// let (share, other) = (builder.input(0), builder.input(1));
    /// let (other_share, block) = other.split_at(128);
    /// let key = builder.xor_bits(&share, other_share);
    /// let encrypted = builder.embed(&generate::aes128(), &[&key, block]);
    /// let circuit = builder.finish(&[&encrypted[0]]);
    /// assert_eq!(circuit.counts().ands, 6_400);
    /// ```
    ///
    /// # Panics
    /// If the number of values or of their bits is not that of the circuit's inputs.
    pub fn embed(&mut self, circuit: &Circuit, inputs: &[&[Wire]]) -> Vec<Vec<Wire>> {
        let bits: Vec<usize> = inputs.iter().map(|value| value.len()).collect();
        let expected = circuit.input_values().iter().map(|&bits| bits as usize);
        assert!(expected.eq(bits.iter().copied()), "inputs of {bits:?} bits");
        let mut wires = vec![ZERO, ONE];
        wires.extend(inputs.iter().copied().flatten());
        for gate in circuit.gates() {
            let [a, b] = [gate.a, gate.b].map(|wire| wires[wire as usize]);
            wires.push(match gate.kind {
                GateKind::Xor => self.xor(a, b),
                GateKind::And => self.and(a, b),
            });
        }
        let mut outputs = circuit.outputs().iter().map(|&wire| wires[wire as usize]);
        let values = circuit.output_values().iter();
        values.map(|&bits| outputs.by_ref().take(bits as usize).collect()).collect()
    }

    /// The circuit with these output values, without gates that no output needs.
    pub fn finish(self, outputs: &[&[Wire]]) -> Circuit {
        let Self { circuit, recent_gates: known } = self;
        drop(known);
        circuit.with_outputs(outputs)
    }

    /// The wire of which `a` is the NOT, and true; or `a` and false. The constant 1 is the NOT of
    /// the constant 0.
    fn positive(&self, a: Wire) -> (Wire, bool) {
        match a {
            ONE => (ZERO, true),
            _ => match self.circuit.gate(a) {
                Some(gate) if gate.kind == GateKind::Xor && gate.b == ONE => (gate.a, true),
                _ => (a, false),
            },
        }
    }

    /// The inputs of the XOR that defines `wire`.
    fn xor_inputs(&self, wire: Wire) -> Option<(Wire, Wire)> {
        let gate = self.circuit.gate(wire).filter(|gate| gate.kind == GateKind::Xor)?;
        Some((gate.a, gate.b))
    }

    fn gate(&mut self, kind: GateKind, a: Wire, b: Wire) -> Wire {
        if self.recent_gates.len() >= MAX_RECENT_GATES {
            self.recent_gates.clear();
        }
        let circuit = &mut self.circuit;
        *self
            .recent_gates
            .entry(GateKey(kind, a.min(b), a.max(b)))
            .or_insert_with(|| circuit.push(kind, a, b))
    }
}

/// The wires of a constant of `bits` bits.
pub fn constant(value: u64, bits: usize) -> Vec<Wire> {
    (0..bits).map(|i| if i < 64 { Wire::from(value >> i & 1 == 1) } else { ZERO }).collect()
}
