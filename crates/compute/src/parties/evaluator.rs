//! The evaluator.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use blocks::Block;
use circuit::{Shape, Source};
use garble::Evaluator;
use sharing::wipe_stack;
use subtle::{Choice, ConditionallySelectable as _};
use zeroize::Zeroizing;

use super::{bit, digest, each_label, pack, parts};
use crate::error::{Error, Phase};
use crate::link::Frames;
use crate::malformed::Malformed;
use crate::party::{Party, SetUp, Transfers};
use crate::settings::Role;
use crate::wire::{Begin, Frame, Kind};

/// Runs one instance.
///
/// # Errors
/// If the other party computes something else, or the connection fails.
pub(crate) fn run(
    party: &mut Party,
    setup: &mut SetUp,
    source: &mut dyn Source,
    input: &[u8],
) -> Result<Option<Vec<u8>>, Error> {
    let shape = source.shape().clone();
    let settings = party.settings;
    let begin = Begin::new(party.number, &shape, settings.scheme, settings.learns, Block::ZERO);
    let party = &*party;
    party.figures.enter(Phase::Agreement);
    party.frames.set_evaluating(false);
    party.frames.send(Frame::of(Kind::Begin, &begin.to_bytes()))?;
    let evaluating = Evaluating { party, begin, shape: &shape, input };
    let (keys, received) = channel();
    let (output, extended) = thread::scope(|scope| {
        let extending = scope.spawn(|| {
            let extended = extend(party, setup, &shape, input, &keys);
            drop(keys);
            wipe_stack();
            extended.inspect_err(|error| party.frames.fail(error))
        });
        let output = evaluating.run(source, &received);
        wipe_stack();
        let output = output.inspect_err(|error| party.frames.fail(error));
        (output, extending.join().unwrap_or(Err(Error::Failed)))
    });
    match (output, extended) {
        (Err(error), Err(other)) => Err(error.or(other)),
        (Err(error), _) => Err(error),
        (output, extended) => extended.and(output),
    }
}

/// Sends the columns of the extension. The keys go to the thread that evaluates.
fn extend(
    party: &Party,
    setup: &mut SetUp,
    shape: &Shape,
    input: &[u8],
    keys: &Sender<Zeroizing<Vec<Block>>>,
) -> Result<(), Error> {
    if shape.evaluator_inputs == 0 {
        return Ok(());
    }
    let Transfers::Receiver(receiver) = setup.wait()? else { return Err(Error::Failed) };
    party.figures.enter(Phase::Inputs);
    for part in parts(shape.evaluator_inputs) {
        let choices = &input[part.start / 8..part.end.div_ceil(8)];
        let mut frame = party.frames.frame(Kind::Extend);
        let mut own = Zeroizing::new(vec![Block::ZERO; part.len()]);
        party.figures.count(Phase::Inputs, || {
            if party.settings.scheme.has_offset() {
                receiver.extend(choices, &mut own, frame.content())
            } else {
                receiver.random(choices, &mut own, frame.content())
            }
        })?;
        party.frames.send(frame)?;
        if keys.send(own).is_err() {
            return Err(Error::Failed);
        }
    }
    Ok(())
}

/// The evaluator's thread that evaluates.
struct Evaluating<'a> {
    party: &'a Party,
    begin: Begin,
    shape: &'a Shape,
    input: &'a [u8],
}

impl Evaluating<'_> {
    fn run(
        &self,
        source: &mut dyn Source,
        keys: &Receiver<Zeroizing<Vec<Block>>>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let Party { frames, figures, settings, .. } = self.party;
        let theirs = self.begin.check(&frames.expect(Kind::Begin)?)?;
        figures.leave(Phase::Agreement);
        figures.enter(Phase::Inputs);
        let public = Block::from_bytes(theirs.public);
        let mut evaluator = Evaluator::new(settings.scheme, public, self.shape);
        self.take_labels(&mut evaluator)?;
        self.take_answers(&mut evaluator, keys)?;
        figures.leave(Phase::Inputs);
        figures.enter(Phase::Gates);
        frames.set_evaluating(true);
        // Waiting takes no processor time.
        figures.count(Phase::Gates, || self.evaluate(&mut evaluator, source))?;
        figures.leave(Phase::Gates);
        figures.enter(Phase::Output);
        let output = self.output(&evaluator);
        figures.leave(Phase::Output);
        output
    }

    /// Takes the labels of the garbler's input.
    fn take_labels(&self, evaluator: &mut Evaluator) -> Result<(), Error> {
        let Party { frames, figures, .. } = self.party;
        let seed = frames.expect_len(Kind::Labels, 16)?;
        figures.count(Phase::Inputs, || {
            let seed = Block::from_bytes(seed[..].try_into().expect("16 bytes"));
            each_label(seed, self.shape.garbler_inputs, |at, label| evaluator.set_input(at, label));
        });
        Ok(())
    }

    /// Takes the labels of this party's input.
    fn take_answers(
        &self,
        evaluator: &mut Evaluator,
        keys: &Receiver<Zeroizing<Vec<Block>>>,
    ) -> Result<(), Error> {
        let Party { frames, figures, settings, .. } = self.party;
        let first = self.shape.garbler_inputs;
        for part in parts(self.shape.evaluator_inputs) {
            let size = if settings.scheme.has_offset() { 16 } else { 32 };
            let answer = frames.expect_len(Kind::Answer, size * part.len())?;
            let keys = keys.recv().map_err(|_| Error::Failed)?;
            figures.count(Phase::Inputs, || {
                let answers = answer.chunks_exact(size);
                for ((at, key), content) in part.zip(keys.iter()).zip(answers) {
                    let place = first + u32::try_from(at).expect("inputs are few");
                    // One block, or the encrypted labels of 0 and 1: both are read.
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
    fn evaluate(&self, evaluator: &mut Evaluator, source: &mut dyn Source) -> Result<(), Error> {
        let Party { frames, figures, settings, .. } = self.party;
        let mut tables = Tables { frames, chunk: Vec::new(), at: 0, joined: Vec::new() };
        while let Some(batch) = source.next_batch() {
            let bytes = tables.take(settings.scheme.table_len(batch))?;
            evaluator.evaluate(batch, bytes).map_err(|_| wrong_tables())?;
            figures.add_ands(batch.ands.len());
        }
        tables.finish()
    }

    /// Learns the output, and reports it if the garbler may learn it.
    fn output(&self, evaluator: &Evaluator) -> Result<Option<Vec<u8>>, Error> {
        let Party { frames, settings, .. } = self.party;
        let learns = settings.learns;
        let bytes = self.shape.outputs.len().div_ceil(8);
        let is_told = learns.includes(Role::Evaluator);
        let decoding = frames.expect_len(Kind::Decoding, if is_told { bytes } else { 0 })?;
        let labels = evaluator.output_labels();
        let decode = |at| is_told && bit(&decoding, at);
        let bits = pack(labels.iter().enumerate().map(|(at, label)| label.lsb() ^ decode(at)));
        let mut result = frames.frame(Kind::Result);
        if learns.includes(Role::Garbler) {
            result.content().extend_from_slice(&bits);
            result.content().extend_from_slice(&digest(&labels));
        }
        frames.send(result)?;
        Ok(is_told.then_some(bits))
    }
}

/// The stream of tables.
struct Tables<'a> {
    frames: &'a Frames,
    chunk: Vec<u8>,
    /// What was taken of the chunk.
    at: usize,
    /// Tables of a batch that lie in more than one chunk.
    joined: Vec<u8>,
}

impl Tables<'_> {
    /// The next bytes.
    fn take(&mut self, len: usize) -> Result<&[u8], Error> {
        if self.chunk.len() == self.at && len > 0 {
            self.next()?;
        }
        if self.chunk.len() - self.at >= len {
            self.at += len;
            return Ok(&self.chunk[self.at - len..self.at]);
        }
        self.joined.clear();
        while self.joined.len() < len {
            if self.chunk.len() == self.at {
                self.next()?;
            }
            let count = (len - self.joined.len()).min(self.chunk.len() - self.at);
            self.joined.extend_from_slice(&self.chunk[self.at..self.at + count]);
            self.at += count;
        }
        Ok(&self.joined)
    }

    fn next(&mut self) -> Result<(), Error> {
        let chunk = std::mem::replace(&mut self.chunk, self.frames.tables()?);
        self.frames.recycle(chunk);
        self.at = 0;
        if self.chunk.is_empty() { Err(wrong_tables()) } else { Ok(()) }
    }

    /// Checks that there are no more.
    fn finish(&mut self) -> Result<(), Error> {
        let is_complete = self.at == self.chunk.len() && self.frames.tables()?.is_empty();
        if is_complete { Ok(()) } else { Err(wrong_tables()) }
    }
}

/// More or fewer tables than the circuit has gates for.
fn wrong_tables() -> Error {
    Error::Malformed { phase: Phase::Gates, source: Malformed::Tables }
}
