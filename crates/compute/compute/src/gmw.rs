//! The protocol of Goldreich, Micali and Wigderson for two semi-honest parties (Transputation,
//! appendix A.3 and table 5). Each party has a share of each wire, and the wire's value is the sum
//! of both shares.
//!
//! Each party computes its shares of linear gates locally. An AND takes a triple and an exchange of
//! two bits in each direction. All ANDs of a level share one exchange. One thread makes the
//! triples, as far ahead as its queue allows, while another evaluates the gates.
//! `docs/protocols/gmw.md` specifies the protocol.

pub(crate) mod gates;
pub(crate) mod triples;
mod words;

use std::sync::mpsc::sync_channel;
use std::thread;

use blocks::Block;
use circuit::{CircuitShape, CircuitSource};
use random::wipe_stack;

use crate::error::{ComputePhase, Error};
use crate::party::{ComputeParty, ObliviousTransferSetUp};
use crate::wire::{ComputeBegin, ComputeFrame, ComputeFrameKind};
use gates::GmwWireShares;
use triples::{AndTripleSupply, AndTriples, MAX_READY_FRAMES};

/// Runs one instance, as either party.
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
    let [seed, choices] = [party.random.block(), party.random.block()];
    let party = &*party;
    let (made, triples) = sync_channel(MAX_READY_FRAMES);
    let (ands, supply) = (shape.ands, AndTripleSupply::new(triples, gates::max_len(shape)));
    let (output, made) = thread::scope(|scope| {
        let making = scope.spawn(move || {
            let made = triples::make(party, setup, ands, choices, &made);
            wipe_stack();
            made.inspect_err(|error| party.frames.fail(error))
        });
        let output = evaluate(party, source, input, seed, supply);
        wipe_stack();
        let output = output.inspect_err(|error| party.frames.fail(error));
        (output, making.join().unwrap_or(Err(Error::Failed)))
    });
    match (output, made) {
        (Err(error), Err(other)) => Err(error.more_specific(other)),
        (output, made) => made.and(output),
    }
}

/// Checks that both parties compute the same, shares the inputs, evaluates all gates and opens the
/// output.
fn evaluate(
    party: &ComputeParty,
    source: &dyn CircuitSource,
    input: &[u8],
    seed: Block,
    supply: AndTripleSupply,
) -> Result<Option<Vec<u8>>, Error> {
    let ComputeParty { role, frames, figures, .. } = party;
    let shape = source.shape();
    figures.enter(ComputePhase::Agreement);
    let begin = begin(party, shape);
    frames.send(ComputeFrame::of(ComputeFrameKind::Begin, &begin.to_bytes()))?;
    frames.send(ComputeFrame::of(ComputeFrameKind::Share, &seed.to_bytes()))?;
    begin.check(&frames.expect(ComputeFrameKind::Begin)?)?;
    figures.leave(ComputePhase::Agreement);
    figures.enter(ComputePhase::Inputs);
    let theirs = frames.expect_len(ComputeFrameKind::Share, 16)?;
    let theirs = Block::from_bytes(theirs[..].try_into().expect("16 bytes"));
    let mut shares = GmwWireShares::new(shape, *role);
    figures.count(ComputePhase::Inputs, || shares.set_inputs(shape, *role, input, [seed, theirs]));
    figures.leave(ComputePhase::Inputs);
    figures.enter(ComputePhase::Gates);
    // Waiting is not counted as processor time.
    figures.count(ComputePhase::Gates, || evaluate_gates(party, source, &mut shares, supply))?;
    figures.leave(ComputePhase::Gates);
    figures.enter(ComputePhase::Output);
    let output = output(party, &shares, shape);
    figures.leave(ComputePhase::Output);
    output
}

/// The parameters that both parties must share. GMW has no garbling scheme and no public value.
fn begin(party: &ComputeParty, shape: &CircuitShape) -> ComputeBegin {
    let ComputeParty { settings, number, .. } = party;
    let begin = ComputeBegin::new(*number, shape, settings.scheme, settings.learns, Block::ZERO);
    ComputeBegin { scheme: 0, ..begin }
}

/// Evaluates all gates.
fn evaluate_gates(
    party: &ComputeParty,
    source: &dyn CircuitSource,
    shares: &mut GmwWireShares,
    mut supply: AndTripleSupply,
) -> Result<(), Error> {
    let mut triples = AndTriples::default();
    for part in (0..source.parts()).map(|index| source.part(index)) {
        shares.begin(&part);
        for batch in part.batches() {
            if shares.must_open_before(batch) {
                exchange(party, shares, &mut supply, &mut triples)?;
            }
            shares.add(batch);
        }
        if shares.waiting() > 0 {
            exchange(party, shares, &mut supply, &mut triples)?;
        }
        shares.end(&part);
    }
    Ok(())
}

/// Exchanges the opened bits of a level with the other party.
fn exchange(
    party: &ComputeParty,
    shares: &mut GmwWireShares,
    supply: &mut AndTripleSupply,
    triples: &mut AndTriples,
) -> Result<(), Error> {
    let ComputeParty { frames, figures, .. } = party;
    let ands = shares.waiting();
    supply.take(ands, triples)?;
    let mut frame = frames.frame(ComputeFrameKind::Open);
    shares.open(triples, frame.content());
    let len = frame.len();
    frames.send(frame)?;
    shares.apply_opened(triples, &frames.expect_len(ComputeFrameKind::Open, len)?);
    figures.add_ands(ands as u64);
    Ok(())
}

/// Sends this party's shares of the output if the other party may learn it, and adds the other
/// party's shares.
fn output(
    party: &ComputeParty,
    shares: &GmwWireShares,
    shape: &CircuitShape,
) -> Result<Option<Vec<u8>>, Error> {
    let ComputeParty { role, frames, settings, .. } = party;
    let mut output = shares.packed(&shape.outputs);
    let is_learner = settings.learns.includes(*role);
    let revealed = if settings.learns.includes(role.other()) { &output[..] } else { &[] };
    frames.send(ComputeFrame::of(ComputeFrameKind::Output, revealed))?;
    let theirs =
        frames.expect_len(ComputeFrameKind::Output, if is_learner { output.len() } else { 0 })?;
    if !is_learner {
        return Ok(None);
    }
    output.iter_mut().zip(theirs).for_each(|(own, other)| *own ^= other);
    let rest = shape.outputs.len() % 8;
    if let Some(last) = output.last_mut().filter(|_| rest > 0) {
        *last &= (1 << rest) - 1;
    }
    Ok(Some(output))
}
