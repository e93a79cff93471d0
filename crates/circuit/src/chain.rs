//! A circuit that is repeated, each time on its last outputs: gates without end in the memory of
//! one circuit.

use sha2::{Digest, Sha256};

use crate::batch::{Batch, FIRST_INPUT, Linear, MAX_LINEAR, Shape, Source, ZERO};
use crate::circuit::{Circuit, Kind};
use crate::schedule::Schedule;

/// A circuit, repeated: its outputs become the evaluator's inputs of the next time, while the
/// garbler's inputs stay. With [`generate::aes128`](crate::generate::aes128), for example, a block
/// is encrypted again and again.
///
/// It holds one copy of the circuit. The copies of outputs to inputs are linear gates, which
/// [`Shape::xors`] does not count.
#[derive(Clone, Debug)]
pub struct Chain {
    schedule: Schedule,
    shape: Shape,
    times: u64,
    /// Copies the outputs to the evaluator's inputs.
    feedback: Vec<Linear>,
    /// Their only run.
    runs: [u32; 1],
    /// How often the circuit has been repeated, and its next batch.
    round: u64,
    next: usize,
}

impl Chain {
    /// A circuit that is evaluated so many times.
    ///
    /// # Panics
    /// If `times` is 0, the outputs are not as many as the evaluator's inputs, or they are none or
    /// more than [`MAX_LINEAR`].
    pub fn new(circuit: &Circuit, times: u64) -> Self {
        assert!(times > 0, "at least once");
        let bits = circuit.outputs().len();
        assert!(bits as u64 == u64::from(circuit.evaluator_inputs()), "the outputs");
        assert!((1..=MAX_LINEAR).contains(&bits), "the number of outputs");
        let digest = circuit.digest();
        // No output is an input: the copies read no place that they write.
        let mut copied = circuit.clone();
        let outputs: Vec<u32> = circuit
            .outputs()
            .iter()
            .map(|&wire| {
                let is_gate = wire >= circuit.first_gate();
                if is_gate { wire } else { copied.push(Kind::Xor, wire, ZERO) }
            })
            .collect();
        let schedule = Schedule::keeping_inputs(&copied.with_outputs(&[&outputs]));
        let mut shape = schedule.shape().clone();
        let first = FIRST_INPUT + shape.garbler_inputs;
        let feedback: Vec<Linear> =
            (first..).zip(&shape.outputs).map(|(out, &a)| Linear { a, b: ZERO, out }).collect();
        let mut of_chain = Sha256::new_with_prefix(b"sunder chain 1");
        of_chain.update(times.to_le_bytes());
        of_chain.update(digest);
        shape.digest = of_chain.finalize().into();
        shape.ands = shape.ands.saturating_mul(times);
        shape.xors = shape.xors.saturating_mul(times);
        shape.nots = shape.nots.saturating_mul(times);
        let runs = [shape.evaluator_inputs];
        Self { schedule, shape, times, feedback, runs, round: 0, next: 0 }
    }
}

impl Source for Chain {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn next_batch(&mut self) -> Option<Batch<'_>> {
        if self.next < self.schedule.batches() {
            self.next += 1;
            return self.schedule.batch(self.next - 1);
        }
        if self.round + 1 >= self.times {
            return None;
        }
        self.round += 1;
        self.next = 0;
        Some(Batch { linear: &self.feedback, runs: &self.runs, ands: &[] })
    }

    fn rewind(&mut self) {
        self.round = 0;
        self.next = 0;
    }
}
