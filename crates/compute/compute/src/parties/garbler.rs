//! The garbler.

use std::thread;

use blocks::Block;
use circuit::{CircuitPart, CircuitShape, CircuitSource};
use garble::workers::with_workers;
use garble::{Garbler, PartLabelBuffer};
use ot::extension::OtExtensionSender;
use random::wipe_stack;
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};
use zeroize::{Zeroize as _, Zeroizing};

use super::{DIGEST_LEN, YaoExecution, bit, digest, for_each_label, pack, parts};
use crate::error::{ComputePhase, Error};
use crate::link::{PartyFrameQueues, WINDOW, weight};
use crate::malformed::MalformedComputeFrame;
use crate::party::{ComputeParty, ObliviousTransferSetUp};
use crate::queue::WeightedQueue;
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
    let drawn = DrawnGarbling::draw(party, source.shape());
    let side = GarblerSide::begin(party, drawn, source.shape(), input)?;
    let result =
        side.run(source, || setup.wait()?.sender(), || Ok(()), ComputeFrameKind::Result)?;
    let output = side.output(&result);
    party.figures.leave(ComputePhase::Output);
    output
}

/// A garbled circuit before its first part, and the seed of the labels of the garbler's input.
pub(super) struct DrawnGarbling {
    garbler: Garbler,
    seed: Zeroizing<Block>,
}

impl DrawnGarbling {
    pub(super) fn draw(party: &mut ComputeParty, shape: &CircuitShape) -> Self {
        let ComputeParty { settings, random, offset, .. } = party;
        let garbler = Garbler::new(settings.scheme, random.block(), **offset, shape);
        Self { garbler, seed: Zeroizing::new(random.block()) }
    }

    /// The parameters of the instance, with the public value of this garbling.
    pub(super) fn parameters(&self, party: &ComputeParty, shape: &CircuitShape) -> ComputeBegin {
        let ComputeParty { settings, number, .. } = party;
        ComputeBegin::new(*number, shape, settings.scheme, settings.learns, self.garbler.public())
    }
}

/// The garbler's side of an execution.
pub(super) struct GarblerSide<'a> {
    pub(super) execution: YaoExecution<'a>,
    garbler: Garbler,
    /// The labels of the evaluator's input: those of 0, or those of 0 and 1 if the scheme has no
    /// offset.
    labels: Vec<Block>,
}

impl Drop for GarblerSide<'_> {
    fn drop(&mut self) {
        self.labels.zeroize();
    }
}

impl<'a> GarblerSide<'a> {
    /// Sends the parameters, and the labels of this party's input.
    ///
    /// # Errors
    /// If the connection fails.
    pub(super) fn begin(
        party: &'a ComputeParty,
        drawn: DrawnGarbling,
        shape: &'a CircuitShape,
        input: &[u8],
    ) -> Result<Self, Error> {
        let begin = drawn.parameters(party, shape);
        let DrawnGarbling { mut garbler, seed } = drawn;
        let execution = YaoExecution::new(party, ComputeRole::Garbler, shape, begin);
        let YaoExecution { frames, figures, garbler_inputs, evaluator_inputs, .. } = &execution;
        figures.enter(ComputePhase::Agreement);
        frames.send(ComputeFrame::of(ComputeFrameKind::Begin, &begin.to_bytes()))?;
        figures.enter(ComputePhase::Inputs);
        figures.count(ComputePhase::Inputs, || {
            for_each_label(*seed, garbler_inputs.clone(), |at, label| {
                let value = bit(input, (at - garbler_inputs.start) as usize);
                garbler.set_input(at, value, label);
            });
        });
        // The evaluator derives the same labels.
        frames.send(ComputeFrame::of(ComputeFrameKind::Labels, &seed.to_bytes()))?;
        let labels = garbler.input_labels(evaluator_inputs.clone());
        Ok(Self { execution, garbler, labels })
    }

    /// Garbles the circuit and answers the evaluator's transfers. Calls `finish` when everything is
    /// garbled and sent. Returns the evaluator's last frame, which is of the kind `last`.
    ///
    /// # Errors
    /// If the other party computes something else or deviates detectably, or the connection fails.
    pub(super) fn run<'s>(
        &self,
        source: &dyn CircuitSource,
        sender: impl FnOnce() -> Result<&'s mut OtExtensionSender, Error> + Send,
        finish: impl FnOnce() -> Result<(), Error>,
        last: ComputeFrameKind,
    ) -> Result<Vec<u8>, Error> {
        let frames = &self.execution.frames;
        // One item signals that all transfers are answered. If the queue is closed without an item,
        // answering has failed.
        let answered = WeightedQueue::new(1);
        let (garbled, result) = thread::scope(|scope| {
            let control = scope.spawn(|| {
                let result = self.reply(sender, &answered, last);
                wipe_stack();
                // First, so that the other party is told this error and not a consequence of it.
                let result = result.inspect_err(|error| frames.fail(error));
                answered.close();
                result
            });
            let garbled = self.garble(source, &answered).and_then(|()| finish());
            wipe_stack();
            let garbled = garbled.inspect_err(|error| frames.fail(error));
            (garbled, control.join().unwrap_or(Err(Error::Failed)))
        });
        match (garbled, result) {
            (Err(error), Err(other)) => Err(error.more_specific(other)),
            (Err(error), _) => Err(error),
            (Ok(()), result) => result,
        }
    }

    /// Handles what the evaluator sends. Returns its last frame.
    fn reply<'s>(
        &self,
        sender: impl FnOnce() -> Result<&'s mut OtExtensionSender, Error>,
        answered: &WeightedQueue<()>,
        last: ComputeFrameKind,
    ) -> Result<Vec<u8>, Error> {
        let YaoExecution { frames, figures, settings, begin, .. } = &self.execution;
        begin.check(&frames.expect(ComputeFrameKind::Begin)?)?;
        figures.leave(ComputePhase::Agreement);
        if !self.execution.evaluator_inputs.is_empty() {
            self.answer(sender()?)?;
        }
        figures.leave(ComputePhase::Inputs);
        let _ = answered.push((), 1, settings.timeout);
        frames.expect(last)
    }

    /// Answers all transfers.
    fn answer(&self, sender: &mut OtExtensionSender) -> Result<(), Error> {
        let YaoExecution { frames, figures, settings, evaluator_inputs, .. } = &self.execution;
        let mut labels = &self.labels[..];
        for part in parts(evaluator_inputs.end - evaluator_inputs.start) {
            let expected = settings.extension().message_len(part.len());
            let message = frames.expect_len(ComputeFrameKind::Extend, expected)?;
            let mut frame = frames.frame(ComputeFrameKind::Answer);
            let each = if settings.scheme.has_offset() { 1 } else { 2 };
            let (of_part, rest) = labels.split_at(each * part.len());
            labels = rest;
            let answered = figures.count(ComputePhase::Inputs, || {
                if settings.scheme.has_offset() {
                    correct(sender, &message, of_part, frame.content())
                } else {
                    encrypt(sender, &message, of_part, frame.content())
                }
            });
            answered.map_err(|error| error.in_phase(ComputePhase::Inputs))?;
            frames.send(frame)?;
        }
        Ok(())
    }

    /// Garbles all gates, and sends the tables.
    fn garble(
        &self,
        source: &dyn CircuitSource,
        answered: &WeightedQueue<()>,
    ) -> Result<(), Error> {
        let YaoExecution { frames, figures, settings, .. } = &self.execution;
        figures.enter(ComputePhase::Gates);
        let mut sending = GarbledTableSender { frames, answered, is_answered: false, sent: 0 };
        let work = |memory: &mut PartLabelBuffer, job: &mut GarblingJob<'_>| {
            figures.count(ComputePhase::Gates, || {
                self.garbler.garble(memory, &job.part, job.frame.content());
            });
            figures.add_ands(job.part.gates.ands);
        };
        let threads = settings.threads_for(source);
        let garbled: Result<(), Error> = with_workers(threads, work, |workers| {
            for part in (0..source.parts()).map(|index| source.part(index)) {
                if !workers.has_room()
                    && let Some(job) = workers.take()
                {
                    sending.send(job.frame)?;
                }
                workers.add(
                    GarblingJob { part, frame: frames.frame(ComputeFrameKind::Tables) },
                    part.dependencies,
                );
            }
            while let Some(job) = workers.take() {
                sending.send(job.frame)?;
            }
            Ok(())
        });
        garbled?;
        figures.leave(ComputePhase::Gates);
        figures.enter(ComputePhase::Output);
        sending.wait()?;
        let mut decoding = frames.frame(ComputeFrameKind::Decoding);
        if settings.learns.includes(ComputeRole::Evaluator) && !settings.security().is_dual() {
            decoding.content().extend(pack(self.garbler.decoding().into_iter()));
        }
        frames.send(decoding)
    }

    /// The labels of 0 and 1 of the outputs, after everything is garbled.
    pub(super) fn output_pairs(&self) -> Zeroizing<Vec<[Block; 2]>> {
        Zeroizing::new(self.garbler.output_pairs())
    }

    /// The output that the evaluator reports, if this party may learn it.
    fn output(&self, result: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let YaoExecution { settings, shape, .. } = &self.execution;
        let learns = settings.learns;
        let is_learner = learns.includes(ComputeRole::Garbler);
        let bytes = shape.outputs.len().div_ceil(8);
        let expected = if is_learner { bytes + DIGEST_LEN } else { 0 };
        if result.len() != expected {
            let (kind, length) = (ComputeFrameKind::Result.name(), result.len());
            let source = MalformedComputeFrame::Length { kind, length, expected };
            return Err(Error::Malformed { phase: ComputePhase::Output, source });
        }
        if !is_learner {
            return Ok(None);
        }
        let (bits, proof) = result.split_at(bytes);
        let bits = (0..shape.outputs.len()).map(|at| bit(bits, at));
        let bits: Vec<bool> = if learns.includes(ComputeRole::Evaluator) {
            bits.collect()
        } else {
            bits.zip(self.garbler.decoding()).map(|(bit, mask)| bit ^ mask).collect()
        };
        let labels = selected(&self.output_pairs(), &bits);
        let is_proven = bool::from(digest(&labels)[..].ct_eq(proof));
        if is_proven { Ok(Some(pack(bits.into_iter()))) } else { Err(Error::Unproven) }
    }
}

/// The labels of these bits.
pub(super) fn selected(pairs: &[[Block; 2]], bits: &[bool]) -> Zeroizing<Vec<Block>> {
    let of_bit = |([zero, one], bit): (&[Block; 2], &bool)| {
        Block::conditional_select(zero, one, Choice::from(u8::from(*bit)))
    };
    Zeroizing::new(pairs.iter().zip(bits).map(of_bit).collect())
}

/// Appends the corrections that convert the results of correlated transfers to the labels of 0.
fn correct(
    sender: &mut OtExtensionSender,
    message: &[u8],
    labels: &[Block],
    content: &mut Vec<u8>,
) -> Result<(), Error> {
    let mut keys = Zeroizing::new(vec![Block::ZERO; labels.len()]);
    sender.extend(message, &mut keys)?;
    add(&mut keys, labels);
    content.extend_from_slice(Block::bytes_of(&keys));
    Ok(())
}

/// Appends both labels of each transfer, encrypted under its keys.
fn encrypt(
    sender: &mut OtExtensionSender,
    message: &[u8],
    labels: &[Block],
    content: &mut Vec<u8>,
) -> Result<(), Error> {
    let mut keys = Zeroizing::new(vec![[Block::ZERO; 2]; labels.len() / 2]);
    sender.random(message, &mut keys)?;
    let keys = keys.as_flattened_mut();
    add(keys, labels);
    content.extend_from_slice(Block::bytes_of(keys));
    Ok(())
}

/// Adds each label to the corresponding key.
fn add(keys: &mut [Block], labels: &[Block]) {
    keys.iter_mut().zip(labels).for_each(|(key, label)| *key ^= *label);
}

/// A part to garble, and the frame for its tables.
struct GarblingJob<'a> {
    part: CircuitPart<'a>,
    frame: ComputeFrame,
}

/// Sends tables, but at most [`WINDOW`] before all transfers are answered.
struct GarbledTableSender<'a> {
    frames: &'a PartyFrameQueues,
    answered: &'a WeightedQueue<()>,
    is_answered: bool,
    sent: usize,
}

impl GarbledTableSender<'_> {
    fn send(&mut self, frame: ComputeFrame) -> Result<(), Error> {
        if frame.len() == 0 {
            return Ok(());
        }
        if !self.is_answered {
            self.is_answered = self.answered.try_pop().is_some();
        }
        if self.sent + weight(frame.len()) > WINDOW {
            self.wait()?;
        }
        self.sent += weight(frame.len());
        self.frames.send(frame)
    }

    /// Waits until all transfers are answered.
    fn wait(&mut self) -> Result<(), Error> {
        if !self.is_answered && self.answered.pop().is_none() {
            return Err(Error::Failed);
        }
        self.is_answered = true;
        Ok(())
    }
}
