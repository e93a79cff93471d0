//! The evaluator.

use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use blocks::Block;
use circuit::{CircuitPart, CircuitSource};
use garble::workers::{CircuitJobPool, with_workers};
use garble::{Evaluator, PartLabelBuffer};
use ot::extension::OtExtensionReceiver;
use random::wipe_stack;
use subtle::{Choice, ConditionallySelectable as _};
use zeroize::Zeroizing;

use super::{YaoExecution, bit, digest, for_each_label, pack, parts};
use crate::error::{ComputePhase, Error};
use crate::link::PartyFrameQueues;
use crate::malformed::MalformedComputeFrame;
use crate::party::{ComputeParty, ObliviousTransferSetUp};
use crate::settings::ComputeRole;
use crate::wire::{ComputeBegin, ComputeFrame, ComputeFrameKind};

/// Runs one instance.
///
/// # Errors
/// If the other party computes something else, or the connection fails.
pub(crate) fn run(
    party: &mut ComputeParty,
    setup: &mut ObliviousTransferSetUp,
    source: &dyn CircuitSource,
    input: &[u8],
) -> Result<Option<Vec<u8>>, Error> {
    let shape = source.shape();
    let settings = party.settings;
    let begin =
        ComputeBegin::new(party.number, shape, settings.scheme, settings.learns, Block::ZERO);
    let party = &*party;
    party.figures.enter(ComputePhase::Agreement);
    party.frames.set_evaluating(false);
    party.frames.send(ComputeFrame::of(ComputeFrameKind::Begin, &begin.to_bytes()))?;
    let execution = YaoExecution::new(party, ComputeRole::Evaluator, shape, begin);
    let side = EvaluatorSide { execution, input };
    side.run(
        source,
        || setup.wait()?.receiver(),
        |evaluator| {
            party.figures.enter(ComputePhase::Output);
            let output = side.output(evaluator);
            party.figures.leave(ComputePhase::Output);
            output
        },
    )
}

/// The evaluator's side of an execution.
pub(super) struct EvaluatorSide<'a> {
    pub(super) execution: YaoExecution<'a>,
    /// This party's input.
    pub(super) input: &'a [u8],
}

impl EvaluatorSide<'_> {
    /// Evaluates the circuit, and returns what `finish` makes of the outputs' labels.
    ///
    /// # Errors
    /// If the other party computes something else, or the connection fails.
    pub(super) fn run<'r, T>(
        &self,
        source: &dyn CircuitSource,
        receiver: impl FnOnce() -> Result<&'r mut OtExtensionReceiver, Error> + Send,
        finish: impl FnOnce(&Evaluator) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let frames = &self.execution.frames;
        let (keys, received) = channel();
        let (output, extended) = thread::scope(|scope| {
            let extending = scope.spawn(|| {
                let extended = self.extend(receiver, &keys);
                drop(keys);
                wipe_stack();
                extended.inspect_err(|error| frames.fail(error))
            });
            let output = self.evaluated(source, &received).and_then(|it| finish(&it));
            wipe_stack();
            let output = output.inspect_err(|error| frames.fail(error));
            (output, extending.join().unwrap_or(Err(Error::Failed)))
        });
        match (output, extended) {
            (Err(error), Err(other)) => Err(error.more_specific(other)),
            (Err(error), _) => Err(error),
            (output, extended) => extended.and(output),
        }
    }

    /// Sends the columns of the extension, and passes the keys to the evaluating thread.
    fn extend<'r>(
        &self,
        receiver: impl FnOnce() -> Result<&'r mut OtExtensionReceiver, Error>,
        keys: &Sender<Zeroizing<Vec<Block>>>,
    ) -> Result<(), Error> {
        let YaoExecution { frames, figures, settings, .. } = &self.execution;
        if self.execution.evaluator_inputs.is_empty() {
            return Ok(());
        }
        let receiver = receiver()?;
        figures.enter(ComputePhase::Inputs);
        for part in self.transfers() {
            let choices = &self.input[part.start / 8..part.end.div_ceil(8)];
            let mut frame = frames.frame(ComputeFrameKind::Extend);
            let mut own = Zeroizing::new(vec![Block::ZERO; part.len()]);
            figures.count(ComputePhase::Inputs, || {
                if settings.scheme.has_offset() {
                    receiver.extend(choices, &mut own, frame.content())
                } else {
                    receiver.random(choices, &mut own, frame.content())
                }
            })?;
            frames.send(frame)?;
            if keys.send(own).is_err() {
                return Err(Error::Failed);
            }
        }
        Ok(())
    }

    /// The ranges of this party's input bits in the frames of the transfers.
    fn transfers(&self) -> impl Iterator<Item = Range<usize>> {
        let YaoExecution { evaluator_inputs, .. } = &self.execution;
        parts(evaluator_inputs.end - evaluator_inputs.start)
    }

    /// Takes the labels of both inputs, and evaluates the circuit.
    fn evaluated(
        &self,
        source: &dyn CircuitSource,
        keys: &Receiver<Zeroizing<Vec<Block>>>,
    ) -> Result<Evaluator, Error> {
        let YaoExecution { frames, figures, settings, begin, shape, .. } = &self.execution;
        let theirs = begin.check(&frames.expect(ComputeFrameKind::Begin)?)?;
        figures.leave(ComputePhase::Agreement);
        figures.enter(ComputePhase::Inputs);
        let public = Block::from_bytes(theirs.public);
        let mut evaluator = Evaluator::new(settings.scheme, public, shape);
        self.take_labels(&mut evaluator)?;
        self.take_answers(&mut evaluator, keys)?;
        figures.leave(ComputePhase::Inputs);
        figures.enter(ComputePhase::Gates);
        frames.set_evaluating(true);
        self.evaluate(&evaluator, source)?;
        figures.leave(ComputePhase::Gates);
        Ok(evaluator)
    }

    /// Takes the labels of the garbler's input.
    fn take_labels(&self, evaluator: &mut Evaluator) -> Result<(), Error> {
        let YaoExecution { frames, figures, garbler_inputs, .. } = &self.execution;
        let seed = frames.expect_len(ComputeFrameKind::Labels, 16)?;
        figures.count(ComputePhase::Inputs, || {
            let seed = Block::from_bytes(seed[..].try_into().expect("16 bytes"));
            for_each_label(seed, garbler_inputs.clone(), |at, label| {
                evaluator.set_input(at, label);
            });
        });
        Ok(())
    }

    /// Takes the labels of this party's input.
    fn take_answers(
        &self,
        evaluator: &mut Evaluator,
        keys: &Receiver<Zeroizing<Vec<Block>>>,
    ) -> Result<(), Error> {
        let YaoExecution { frames, figures, settings, evaluator_inputs, .. } = &self.execution;
        let first = evaluator_inputs.start;
        for part in self.transfers() {
            let size = if settings.scheme.has_offset() { 16 } else { 32 };
            let answer = frames.expect_len(ComputeFrameKind::Answer, size * part.len())?;
            let keys = keys.recv().map_err(|_| Error::Failed)?;
            figures.count(ComputePhase::Inputs, || {
                let answers = answer.chunks_exact(size);
                for ((at, key), content) in part.zip(keys.iter()).zip(answers) {
                    let place = first + u32::try_from(at).expect("inputs are few");
                    // The content is one block, or the encrypted labels of 0 and 1. Both are always
                    // read.
                    let zero = Block::from_bytes(*content.first_chunk().expect("16 bytes"));
                    let one = Block::from_bytes(*content.last_chunk().expect("16 bytes"));
                    let choice = Choice::from(u8::from(bit(self.input, at)));
                    let sent = Block::conditional_select(&zero, &one, choice);
                    evaluator.set_input(place, *key ^ sent);
                }
            });
        }
        Ok(())
    }

    /// Evaluates all gates as their tables arrive.
    fn evaluate(&self, evaluator: &Evaluator, source: &dyn CircuitSource) -> Result<(), Error> {
        let YaoExecution { frames, figures, settings, .. } = &self.execution;
        let work = |memory: &mut PartLabelBuffer, job: &mut EvaluationJob<'_>| {
            let evaluate = || evaluator.evaluate(memory, &job.part, &job.tables);
            job.is_right = figures.count(ComputePhase::Gates, evaluate).is_ok();
            figures.add_ands(job.part.gates.ands);
        };
        let threads = settings.threads_for(source);
        let evaluated: Result<(), Error> = with_workers(threads, work, |workers| {
            for part in (0..source.parts()).map(|index| source.part(index)) {
                let has_tables = settings.scheme.part_len(&part) > 0;
                let tables = loop {
                    // Does not wait for tables while jobs are in progress.
                    let tables = match () {
                        () if !workers.has_room() => None,
                        () if !has_tables => Some(Vec::new()),
                        () if workers.is_empty() => Some(frames.tables()?),
                        () => frames.try_tables(),
                    };
                    match tables {
                        Some(tables) => break tables,
                        None => take(workers, frames)?,
                    }
                };
                workers.add(EvaluationJob { part, tables, is_right: false }, part.dependencies);
            }
            while !workers.is_empty() {
                take(workers, frames)?;
            }
            Ok(())
        });
        evaluated?;
        let is_complete = frames.tables()?.is_empty();
        if is_complete { Ok(()) } else { Err(wrong_tables()) }
    }

    /// Learns the output, and reports it if the garbler may learn it.
    fn output(&self, evaluator: &Evaluator) -> Result<Option<Vec<u8>>, Error> {
        let YaoExecution { frames, settings, shape, .. } = &self.execution;
        let learns = settings.learns;
        let bytes = shape.outputs.len().div_ceil(8);
        let is_learner = learns.includes(ComputeRole::Evaluator);
        let decoding =
            frames.expect_len(ComputeFrameKind::Decoding, if is_learner { bytes } else { 0 })?;
        let labels = evaluator.output_labels();
        let decode = |at| is_learner && bit(&decoding, at);
        let bits = pack(labels.iter().enumerate().map(|(at, label)| label.lsb() ^ decode(at)));
        let mut result = frames.frame(ComputeFrameKind::Result);
        if learns.includes(ComputeRole::Garbler) {
            result.content().extend_from_slice(&bits);
            result.content().extend_from_slice(&digest(&labels));
        }
        frames.send(result)?;
        Ok(is_learner.then_some(bits))
    }
}

/// A part to evaluate, and its tables.
struct EvaluationJob<'a> {
    part: CircuitPart<'a>,
    tables: Vec<u8>,
    /// Whether the tables have the right length.
    is_right: bool,
}

/// Waits for the next part.
fn take(
    workers: &mut CircuitJobPool<'_, EvaluationJob<'_>>,
    frames: &PartyFrameQueues,
) -> Result<(), Error> {
    match workers.take() {
        Some(EvaluationJob { is_right: false, .. }) => Err(wrong_tables()),
        Some(job) => {
            frames.recycle(job.tables);
            Ok(())
        }
        None => Ok(()),
    }
}

/// More or fewer tables than the circuit has gates for.
fn wrong_tables() -> Error {
    Error::Malformed { phase: ComputePhase::Gates, source: MalformedComputeFrame::Tables }
}
