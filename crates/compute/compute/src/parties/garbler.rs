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

use super::{DIGEST_LEN, bit, digest, for_each_label, pack, parts};
use crate::error::{ComputePhase, Error};
use crate::link::{PartyFrameQueues, WINDOW, weight};
use crate::party::{ComputeParty, ObliviousTransferEnd, ObliviousTransferSetUp};
use crate::queue::WeightedQueue;
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
    let mut garbler =
        Garbler::new(party.settings.scheme, party.random.block(), *party.offset, shape);
    let (scheme, learns) = (party.settings.scheme, party.settings.learns);
    let begin = ComputeBegin::new(party.number, shape, scheme, learns, garbler.public());
    let ComputeParty { frames, figures, random, .. } = party;
    figures.enter(ComputePhase::Agreement);
    frames.send(ComputeFrame::of(ComputeFrameKind::Begin, &begin.to_bytes()))?;
    figures.enter(ComputePhase::Inputs);
    let seed = random.block();
    figures
        .count(ComputePhase::Inputs, || send_labels(&mut garbler, shape, seed, frames, input))?;
    let labels = garbler.input_labels(shape.garbler_inputs..shape.inputs());
    let answering = GarblerReplyThread { party, begin, shape, labels };
    // One item signals that all transfers are answered. If the queue is closed without an item,
    // answering has failed.
    let answered = WeightedQueue::new(1);
    let (garbled, result) = thread::scope(|scope| {
        let control = scope.spawn(|| {
            let result = answering.run(setup, &answered);
            wipe_stack();
            answered.close();
            result.inspect_err(|error| answering.party.frames.fail(error))
        });
        let garbled = garble(answering.party, &garbler, source, &answered);
        wipe_stack();
        let garbled = garbled.inspect_err(|error| answering.party.frames.fail(error));
        (garbled, control.join().unwrap_or(Err(Error::Failed)))
    });
    let result = match (garbled, result) {
        (Err(error), Err(other)) => return Err(error.more_specific(other)),
        (Err(error), _) => return Err(error),
        (Ok(()), result) => result?,
    };
    let output = output(party, &garbler, shape, &result);
    party.figures.leave(ComputePhase::Output);
    output
}

/// Sends the labels of this party's input: the evaluator derives them from a seed.
fn send_labels(
    garbler: &mut Garbler,
    shape: &CircuitShape,
    seed: Block,
    frames: &PartyFrameQueues,
    input: &[u8],
) -> Result<(), Error> {
    for_each_label(seed, shape.garbler_inputs, |at, label| {
        garbler.set_input(at, bit(input, at as usize), label);
    });
    frames.send(ComputeFrame::of(ComputeFrameKind::Labels, &seed.to_bytes()))
}

/// The garbler's thread that handles what the evaluator sends.
struct GarblerReplyThread<'a> {
    party: &'a ComputeParty,
    begin: ComputeBegin,
    shape: &'a CircuitShape,
    /// The labels of the evaluator's input: those of 0, or those of 0 and 1 if the scheme has no
    /// offset.
    labels: Vec<Block>,
}

impl GarblerReplyThread<'_> {
    /// Returns the evaluator's result.
    fn run(
        &self,
        setup: &mut ObliviousTransferSetUp,
        answered: &WeightedQueue<()>,
    ) -> Result<Vec<u8>, Error> {
        let ComputeParty { frames, figures, settings, .. } = self.party;
        self.begin.check(&frames.expect(ComputeFrameKind::Begin)?)?;
        figures.leave(ComputePhase::Agreement);
        if self.shape.evaluator_inputs > 0 {
            self.answer(setup)?;
        }
        figures.leave(ComputePhase::Inputs);
        let _ = answered.push((), 1, settings.timeout);
        frames.expect(ComputeFrameKind::Result)
    }

    /// Answers all transfers.
    fn answer(&self, setup: &mut ObliviousTransferSetUp) -> Result<(), Error> {
        let ComputeParty { frames, figures, settings, .. } = self.party;
        let ObliviousTransferEnd::Sender(sender) = setup.wait()? else { return Err(Error::Failed) };
        let mut labels = &self.labels[..];
        for part in parts(self.shape.evaluator_inputs) {
            let expected = settings.transfers.message_len(part.len());
            let message = frames.expect_len(ComputeFrameKind::Extend, expected)?;
            let mut frame = frames.frame(ComputeFrameKind::Answer);
            let each = if settings.scheme.has_offset() { 1 } else { 2 };
            let (of_part, rest) = labels.split_at(each * part.len());
            labels = rest;
            figures.count(ComputePhase::Inputs, || {
                if settings.scheme.has_offset() {
                    correct(sender, &message, of_part, frame.content())
                } else {
                    encrypt(sender, &message, of_part, frame.content())
                }
            })?;
            frames.send(frame)?;
        }
        Ok(())
    }
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

impl Drop for GarblerReplyThread<'_> {
    fn drop(&mut self) {
        self.labels.zeroize();
    }
}

/// A part to garble, and the frame for its tables.
struct GarblingJob<'a> {
    part: CircuitPart<'a>,
    frame: ComputeFrame,
}

/// Garbles all gates, and sends the tables.
fn garble(
    party: &ComputeParty,
    garbler: &Garbler,
    source: &dyn CircuitSource,
    answered: &WeightedQueue<()>,
) -> Result<(), Error> {
    let ComputeParty { frames, figures, settings, .. } = party;
    figures.enter(ComputePhase::Gates);
    let mut sending = GarbledTableSender { frames, answered, is_answered: false, sent: 0 };
    let work = |memory: &mut PartLabelBuffer, job: &mut GarblingJob<'_>| {
        figures
            .count(ComputePhase::Gates, || garbler.garble(memory, &job.part, job.frame.content()));
        figures.add_ands(job.part.gates.ands);
    };
    let garbled: Result<(), Error> = with_workers(settings.threads_for(source), work, |workers| {
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
    if settings.learns.includes(crate::ComputeRole::Evaluator) {
        decoding.content().extend(pack(garbler.decoding().into_iter()));
    }
    frames.send(decoding)
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

/// The output that the evaluator reports, if this party may learn it.
fn output(
    party: &ComputeParty,
    garbler: &Garbler,
    shape: &CircuitShape,
    result: &[u8],
) -> Result<Option<Vec<u8>>, Error> {
    let learns = party.settings.learns;
    let is_learner = learns.includes(party.role);
    let bytes = shape.outputs.len().div_ceil(8);
    let expected = if is_learner { bytes + DIGEST_LEN } else { 0 };
    if result.len() != expected {
        let length = result.len();
        let source =
            crate::malformed::MalformedComputeFrame::Length { kind: "result", length, expected };
        return Err(Error::Malformed { phase: ComputePhase::Output, source });
    }
    if !is_learner {
        return Ok(None);
    }
    let (bits, proof) = result.split_at(bytes);
    let bits = (0..shape.outputs.len()).map(|at| bit(bits, at));
    let bits: Vec<bool> = if learns.includes(crate::ComputeRole::Evaluator) {
        bits.collect()
    } else {
        bits.zip(garbler.decoding()).map(|(bit, mask)| bit ^ mask).collect()
    };
    let pairs = Zeroizing::new(garbler.output_pairs());
    let of_bit = |([zero, one], bit): (&[Block; 2], &bool)| {
        Block::conditional_select(zero, one, Choice::from(u8::from(*bit)))
    };
    let labels: Zeroizing<Vec<Block>> =
        Zeroizing::new(pairs.iter().zip(&bits).map(of_bit).collect());
    let is_proven = bool::from(digest(&labels)[..].ct_eq(proof));
    if is_proven { Ok(Some(pack(bits.into_iter()))) } else { Err(Error::Unproven) }
}
