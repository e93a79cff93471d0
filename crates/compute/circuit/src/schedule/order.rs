//! The order of the gates of a part.

use std::ops::Range;

use crate::batch::{FIRST_INPUT, ONE, Wire};
use crate::circuit::Circuit;

/// Orders the gates of parts, reusing its memory for one part after another.
///
/// A part has *values*: value i is the output of its gate i, then come the constants 0 and 1, then
/// its imports. A step is a depth: its linear gates, then its ANDs. A run is linear gates of a step
/// that do not depend on each other, or the ANDs of a step.
pub(super) struct GateSorter<'a> {
    circuit: &'a Circuit,
    /// For each wire before the part: which import it is, if [`Self::imports`] has it there.
    numbers: Vec<u32>,
    imports: Vec<Wire>,
    /// The values that each gate reads.
    inputs: Vec<[u32; 2]>,
    /// For each value the step in which it is computed; none for constants and imports.
    steps: Vec<u32>,
    /// For each value the last step in which it can be computed.
    latest_steps: Vec<u32>,
    /// For each linear gate its depth among those of its step, from 1 on; then for each gate the
    /// number of its run, twice, and one more for a NOT or a copy.
    keys: Vec<u32>,
    /// For each step the number of its runs of linear gates; then that of the runs before it.
    runs: Vec<u32>,
    /// The ends of the keys in `gates`.
    ends: Vec<u32>,
    gates: Vec<u32>,
}

impl<'a> GateSorter<'a> {
    pub(super) fn new(circuit: &'a Circuit) -> Self {
        Self {
            circuit,
            numbers: vec![0; circuit.wires() as usize],
            imports: Vec::new(),
            inputs: Vec::new(),
            steps: Vec::new(),
            latest_steps: Vec::new(),
            keys: Vec::new(),
            runs: Vec::new(),
            ends: Vec::new(),
            gates: Vec::new(),
        }
    }

    /// Orders the gates of a part.
    pub(super) fn sort(&mut self, gates: Range<usize>) {
        self.find_inputs(&gates);
        let last = self.find_earliest_steps(&gates);
        self.delay_linear(&gates, last);
        self.number_runs(&gates, last);
        self.sort_by_keys(gates.len());
    }

    /// The wires that the part imports.
    pub(super) fn imports(&self) -> &[Wire] {
        &self.imports
    }

    /// The values that each gate reads.
    pub(super) fn inputs(&self) -> &[[u32; 2]] {
        &self.inputs
    }

    /// The number of values.
    pub(super) fn values(&self) -> usize {
        self.steps.len()
    }

    /// The runs in order, those of linear gates with the XORs first.
    pub(super) fn runs(&self) -> impl Iterator<Item = &[u32]> {
        let ends = self.ends.iter().skip(1).step_by(2);
        let starts = std::iter::once(0).chain(ends.clone().copied());
        let runs = starts.zip(ends).map(|(start, &end)| &self.gates[start as usize..end as usize]);
        runs.filter(|gates| !gates.is_empty())
    }

    fn find_inputs(&mut self, gates: &Range<usize>) {
        let (a, b) = self.circuit.inputs_of_gates();
        let own = self.circuit.first_gate() + number(gates.start);
        let constants = number(gates.len());
        let Self { numbers, imports, inputs, .. } = self;
        imports.clear();
        inputs.clear();
        let mut value = |wire: Wire| {
            if wire >= own {
                return wire - own;
            }
            if wire < FIRST_INPUT {
                return constants + wire;
            }
            let import = &mut numbers[wire as usize];
            if imports.get(*import as usize) != Some(&wire) {
                *import = number(imports.len());
                imports.push(wire);
            }
            constants + FIRST_INPUT + *import
        };
        let wires = a[gates.clone()].iter().zip(&b[gates.clone()]);
        inputs.extend(wires.map(|(&a, &b)| [value(a), value(b)]));
    }

    /// Finds the first step in which each gate can be. Returns the last step of all.
    fn find_earliest_steps(&mut self, gates: &Range<usize>) -> u32 {
        let Self { circuit, imports, inputs, steps, .. } = self;
        let len = gates.len();
        steps.clear();
        steps.resize(len + FIRST_INPUT as usize + imports.len(), 0);
        let mut last = 0;
        for (i, ([a, b], gate)) in inputs.iter().zip(gates.clone()).enumerate() {
            // The output of an AND is ready in the next step.
            let is_and = u32::from(circuit.is_and(gate));
            steps[i] = steps[*a as usize].max(steps[*b as usize]) + is_and;
            last = last.max(steps[i]);
        }
        last
    }

    /// Moves each linear gate to the last step in which it can be, so that its output occupies a
    /// place as briefly as possible.
    fn delay_linear(&mut self, gates: &Range<usize>, last: u32) {
        let Self { circuit, inputs, steps, latest_steps: needed, .. } = self;
        needed.clear();
        needed.resize(steps.len(), last);
        for (i, ([a, b], gate)) in inputs.iter().zip(gates.clone()).enumerate().rev() {
            let step = if circuit.is_and(gate) { steps[i] - 1 } else { needed[i] };
            steps[i] = step;
            for value in [*a, *b] {
                let needed = &mut needed[value as usize];
                *needed = step.min(*needed);
            }
        }
        steps[gates.len()..].fill(u32::MAX);
    }

    /// Finds the run of each gate.
    fn number_runs(&mut self, gates: &Range<usize>, last: u32) {
        let Self { circuit, inputs, steps, keys, runs, .. } = self;
        let len = gates.len();
        keys.clear();
        keys.resize(steps.len(), 0);
        runs.clear();
        runs.resize(last as usize + 1, 0);
        for (i, ([a, b], gate)) in inputs.iter().zip(gates.clone()).enumerate() {
            let step = steps[i];
            let depth = |value: u32| {
                let is_same = steps[value as usize] == step;
                if is_same { keys[value as usize] } else { 0 }
            };
            // An AND of the same step comes after all its linear gates, so it is not read here.
            let depth = 1 + depth(*a).max(depth(*b));
            keys[i] = if circuit.is_and(gate) { 0 } else { depth };
            let count = &mut runs[step as usize];
            *count = keys[i].max(*count);
        }
        let mut before = 0;
        for count in runs.iter_mut() {
            // The ANDs are one more.
            (*count, before) = (before, before + *count + 1);
        }
        runs.push(before);
        for (i, ([_, b], gate)) in inputs.iter().zip(gates.clone()).enumerate() {
            let step = steps[i] as usize;
            let is_and = circuit.is_and(gate);
            let run = if is_and { runs[step + 1] - 1 } else { runs[step] + keys[i] - 1 };
            let is_constant = *b == number(len) || *b == number(len) + ONE;
            keys[i] = 2 * run + u32::from(is_constant && !is_and);
        }
    }

    /// Sorts the gates by their keys. Gates with equal keys keep their order.
    fn sort_by_keys(&mut self, len: usize) {
        let Self { keys, runs, ends, gates, .. } = self;
        let runs = runs.last().map_or(0, |&runs| runs as usize);
        ends.clear();
        ends.resize(2 * runs, 0);
        for &key in &keys[..len] {
            ends[key as usize] += 1;
        }
        let mut start = 0;
        for end in ends.iter_mut() {
            (*end, start) = (start, start + *end);
        }
        gates.clear();
        gates.resize(len, 0);
        for (gate, &key) in (0..).zip(&keys[..len]) {
            let end = &mut ends[key as usize];
            gates[*end as usize] = gate;
            *end += 1;
        }
    }
}

/// Converts a number of gates or values, of which a circuit has fewer than 2^32.
pub(super) fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
