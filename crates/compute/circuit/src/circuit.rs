//! A circuit in memory.

use std::ops::Range;

use sha2::{Digest, Sha256};

use crate::batch::{FIRST_INPUT, ONE, Wire, ZERO};

/// A circuit in memory, as a struct of arrays with 9 bytes per gate.
///
/// Wires [`ZERO`] and [`ONE`] are the constants, the inputs start at [`FIRST_INPUT`], those of the
/// garbler first, and each gate defines the next wire. Each gate therefore comes after the gates
/// whose outputs it reads, and every value of this type is a valid circuit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circuit {
    inputs: Vec<u32>,
    /// How many of the input values are the garbler's.
    garbler_values: usize,
    /// The output of the first gate.
    first_gate: Wire,
    output_values: Vec<u32>,
    kinds: Vec<GateKind>,
    a: Vec<Wire>,
    b: Vec<Wire>,
    outputs: Vec<Wire>,
}

/// What a gate computes of its two inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GateKind {
    /// XOR; a NOT if the second input is [`ONE`], a copy if it is [`ZERO`].
    Xor = 0,
    /// AND.
    And = 1,
}

/// One gate of a circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// What it computes.
    pub kind: GateKind,
    /// The wire of the first input.
    pub a: Wire,
    /// The wire of the second input.
    pub b: Wire,
}

/// The numbers of gates of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CircuitCounts {
    /// ANDs.
    pub ands: u64,
    /// XORs of two inputs that are not constant.
    pub xors: u64,
    /// NOTs.
    pub nots: u64,
    /// Copies, of wires or constants.
    pub copies: u64,
}

impl Circuit {
    /// A circuit without gates or outputs. `inputs` has the number of bits of each input value: the
    /// first is the garbler's, all others are the evaluator's, unless
    /// [`with_garbler_values`](Self::with_garbler_values) changes that.
    ///
    /// # Panics
    /// If the inputs have 2^31 bits or more together.
    pub fn new(inputs: &[u32]) -> Self {
        let bits: u64 = inputs.iter().map(|&bits| u64::from(bits)).sum();
        assert!(bits < 1 << 31, "too many inputs");
        Self {
            inputs: inputs.to_vec(),
            garbler_values: inputs.len().min(1),
            first_gate: FIRST_INPUT + inputs.iter().sum::<u32>(),
            output_values: Vec::new(),
            kinds: Vec::new(),
            a: Vec::new(),
            b: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// Reserves memory for more gates.
    pub(crate) fn reserve(&mut self, gates: usize) {
        self.kinds.reserve_exact(gates);
        self.a.reserve_exact(gates);
        self.b.reserve_exact(gates);
    }

    /// Adds a gate. Returns its output.
    ///
    /// # Panics
    /// If an input is not defined yet, or there are 2^32 wires.
    #[inline]
    pub fn push(&mut self, kind: GateKind, a: Wire, b: Wire) -> Wire {
        let out = self.wires();
        assert!(a < out && b < out && out < Wire::MAX, "wire {a} or {b} of {out} is not defined");
        // A constant comes second.
        let (a, b) = if kind == GateKind::Xor && a <= ONE && b > ONE { (b, a) } else { (a, b) };
        self.kinds.push(kind);
        self.a.push(a);
        self.b.push(b);
        out
    }

    /// Adds an XOR.
    ///
    /// # Panics
    /// As [`push`](Self::push).
    pub fn xor(&mut self, a: Wire, b: Wire) -> Wire {
        self.push(GateKind::Xor, a, b)
    }

    /// Adds an AND.
    ///
    /// # Panics
    /// As [`push`](Self::push).
    pub fn and(&mut self, a: Wire, b: Wire) -> Wire {
        self.push(GateKind::And, a, b)
    }

    /// Adds a NOT.
    ///
    /// # Panics
    /// As [`push`](Self::push).
    pub fn not(&mut self, a: Wire) -> Wire {
        self.push(GateKind::Xor, a, ONE)
    }

    /// Adds an output value. A wire can be an output more than once.
    ///
    /// # Panics
    /// If a wire is not defined, or there are 2^32 output bits.
    pub fn output(&mut self, value: &[Wire]) {
        assert!(value.iter().all(|&wire| wire < self.wires()), "an output is not defined");
        self.output_values.push(count(value.len()));
        self.outputs.extend_from_slice(value);
        assert!(self.outputs.len() < u32::MAX as usize, "too many outputs");
    }

    /// Replaces the circuit's outputs by these values, and removes gates that no output needs. The
    /// other gates keep their order.
    ///
    /// # Panics
    /// If a wire is not defined.
    #[must_use]
    pub fn with_outputs(mut self, values: &[&[Wire]]) -> Self {
        let first = self.first_gate();
        let mut needed = vec![false; self.wires() as usize];
        for &wire in values.iter().copied().flatten() {
            needed[wire as usize] = true;
        }
        for (wire, gate) in (first..self.wires()).zip(self.gates()).rev() {
            if needed[wire as usize] {
                needed[gate.a as usize] = true;
                needed[gate.b as usize] = true;
            }
        }
        // The gates move up in place: a copy of a large circuit would take as much memory again.
        let mut numbers: Vec<Wire> = Vec::with_capacity(needed.len());
        numbers.extend(0..first);
        let mut kept = 0;
        for from in 0..self.kinds.len() {
            // A gate that is not needed has no reader, so its number does not matter.
            if !needed[numbers.len()] {
                numbers.push(ZERO);
                continue;
            }
            self.kinds[kept] = self.kinds[from];
            self.a[kept] = numbers[self.a[from] as usize];
            self.b[kept] = numbers[self.b[from] as usize];
            numbers.push(first + count(kept));
            kept += 1;
        }
        self.kinds.truncate(kept);
        self.kinds.shrink_to_fit();
        for inputs in [&mut self.a, &mut self.b] {
            inputs.truncate(kept);
            inputs.shrink_to_fit();
        }
        self.output_values.clear();
        self.outputs.clear();
        for value in values {
            let value: Vec<Wire> = value.iter().map(|&wire| numbers[wire as usize]).collect();
            self.output(&value);
        }
        self
    }

    /// The circuit to which the garbler gives the input values with these indices, and the
    /// evaluator all others. The garbler's values become the first ones. Otherwise values keep
    /// their order.
    ///
    /// # Panics
    /// If there are fewer values.
    #[must_use]
    pub fn with_garbler_values(mut self, indices: &[usize]) -> Self {
        let mut is_garblers = vec![false; self.inputs.len()];
        for &index in indices {
            is_garblers[index] = true;
        }
        let mut numbers: Vec<Wire> = (0..self.first_gate).collect();
        let mut inputs = Vec::with_capacity(self.inputs.len());
        let mut next = FIRST_INPUT;
        for of_garbler in [true, false] {
            let mut wire = FIRST_INPUT;
            for (&bits, &is_garblers) in self.inputs.iter().zip(&is_garblers) {
                if is_garblers == of_garbler {
                    numbers[wire as usize..][..bits as usize]
                        .iter_mut()
                        .zip(next..)
                        .for_each(|(number, new)| *number = new);
                    inputs.push(bits);
                    next += bits;
                }
                wire += bits;
            }
        }
        for wire in self.a.iter_mut().chain(&mut self.b).chain(&mut self.outputs) {
            *wire = numbers.get(*wire as usize).map_or(*wire, |&number| number);
        }
        self.garbler_values = is_garblers.iter().filter(|&&it| it).count();
        self.inputs = inputs;
        self
    }

    /// The wires of input value `index`.
    ///
    /// # Panics
    /// If there are fewer values.
    pub fn input(&self, index: usize) -> Range<Wire> {
        let start = FIRST_INPUT + self.inputs[..index].iter().sum::<u32>();
        start..start + self.inputs[index]
    }

    /// The gate that defines a wire; `None` for an input or a constant.
    ///
    /// # Panics
    /// If the wire is not defined.
    pub fn gate(&self, wire: Wire) -> Option<Gate> {
        let i = wire.checked_sub(self.first_gate())? as usize;
        Some(Gate { kind: self.kinds[i], a: self.a[i], b: self.b[i] })
    }

    /// The number of input bits of the garbler.
    pub fn garbler_inputs(&self) -> u32 {
        self.garbler_values().iter().sum()
    }

    /// The number of input bits of the evaluator.
    pub fn evaluator_inputs(&self) -> u32 {
        self.evaluator_values().iter().sum()
    }

    /// The number of bits of each input value, of the garbler's values first.
    pub fn input_values(&self) -> &[u32] {
        &self.inputs
    }

    /// The number of bits of each input value of the garbler.
    pub fn garbler_values(&self) -> &[u32] {
        &self.inputs[..self.garbler_values]
    }

    /// The number of bits of each input value of the evaluator.
    pub fn evaluator_values(&self) -> &[u32] {
        &self.inputs[self.garbler_values..]
    }

    /// The number of bits of each output value.
    pub fn output_values(&self) -> &[u32] {
        &self.output_values
    }

    /// The wires of the output bits.
    pub fn outputs(&self) -> &[Wire] {
        &self.outputs
    }

    /// The number of gates.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Whether there are no gates.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// The number of wires, with those of the constants.
    pub fn wires(&self) -> u32 {
        self.first_gate() + count(self.kinds.len())
    }

    /// The output of the first gate.
    pub fn first_gate(&self) -> Wire {
        self.first_gate
    }

    /// The gates in order. The output of gate i is wire [`first_gate`](Self::first_gate)` + i`.
    pub fn gates(&self) -> impl DoubleEndedIterator<Item = Gate> + ExactSizeIterator {
        let inputs = self.a.iter().zip(&self.b);
        self.kinds.iter().zip(inputs).map(|(&kind, (&a, &b))| Gate { kind, a, b })
    }

    /// The first and the second inputs of all gates.
    pub(crate) fn inputs_of_gates(&self) -> (&[Wire], &[Wire]) {
        (&self.a, &self.b)
    }

    /// Whether a gate is an AND.
    pub(crate) fn is_and(&self, gate: usize) -> bool {
        self.kinds[gate] == GateKind::And
    }

    /// The numbers of gates.
    pub fn counts(&self) -> CircuitCounts {
        let mut counts = CircuitCounts::default();
        // Sums without branches: which gate comes next cannot be guessed.
        for (&kind, &b) in self.kinds.iter().zip(&self.b) {
            let is_xor = kind == GateKind::Xor;
            counts.ands += u64::from(!is_xor);
            counts.nots += u64::from(is_xor && b == ONE);
            counts.copies += u64::from(is_xor && b == ZERO);
        }
        counts.xors = self.kinds.len() as u64 - counts.ands - counts.nots - counts.copies;
        counts
    }

    /// The AND-depth: the number of ANDs on the longest path.
    pub fn depth(&self) -> u32 {
        let mut depths = vec![0_u32; self.first_gate as usize];
        depths.reserve_exact(self.len());
        let mut deepest = 0;
        for Gate { kind, a, b } in self.gates() {
            let depth =
                depths[a as usize].max(depths[b as usize]) + u32::from(kind == GateKind::And);
            deepest = deepest.max(depth);
            depths.push(depth);
        }
        deepest
    }

    /// The SHA-256 digest of the circuit: of the numbers of inputs of both parties, of outputs and
    /// of gates, the kinds of all gates, their first inputs, their second inputs, and the outputs.
    /// Numbers are 4 bytes, little-endian, kinds one byte.
    pub fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new_with_prefix(b"sunder circuit 1");
        update(&mut digest, &[self.garbler_inputs(), self.evaluator_inputs()]);
        update(&mut digest, &[count(self.outputs.len()), count(self.kinds.len())]);
        for kinds in self.kinds.chunks(1024) {
            let mut bytes = [0; 1024];
            for (byte, &kind) in bytes.iter_mut().zip(kinds) {
                *byte = kind as u8;
            }
            digest.update(&bytes[..kinds.len()]);
        }
        for wires in [&self.a, &self.b, &self.outputs] {
            update(&mut digest, wires);
        }
        digest.finalize().into()
    }
}

/// A number of gates or of outputs, which [`Circuit`] keeps below 2^32.
fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn update(digest: &mut Sha256, numbers: &[u32]) {
    for numbers in numbers.chunks(1024) {
        let mut bytes = [0; 4096];
        for (bytes, number) in bytes.chunks_exact_mut(4).zip(numbers) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        digest.update(&bytes[..4 * numbers.len()]);
    }
}
