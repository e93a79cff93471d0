//! Dual execution (Mohassel, Franklin 2006; Huang, Katz, Evans 2012): each party garbles the
//! circuit for the other one, and evaluates that of the other. A party uses an output only if the
//! other proves that it has the labels of the same output in both garbled circuits.
//!
//! A deviating party can learn one bit of the other's input by it: whether a predicate holds that
//! its garbled circuit computes in place of the output. If not, the other party detects it.
//! `docs/protocols/yao.md` has the proof.

use std::sync::mpsc::{Receiver, channel};
use std::thread;

use blocks::Block;
use circuit::CircuitSource;
use garble::Evaluator;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};
use zeroize::Zeroizing;

use super::evaluator::EvaluatorSide;
use super::garbler::{DrawnGarbling, GarblerSide, selected};
use super::{YaoExecution, pack, parts};
use crate::error::{ComputePhase, Error};
use crate::link::PartyFrameQueues;
use crate::party::{ComputeParty, ObliviousTransferSetUp};
use crate::settings::ComputeRole;
use crate::wire::{ComputeFrame, ComputeFrameKind};

/// The length of the hash of a label, in bytes. Two labels with the same hash cannot be found.
const HASH_LEN: usize = 32;
/// The bytes that the garbler sends for each bit of the output: the hashes of both labels.
pub(crate) const OUTPUT_LEN: usize = 2 * HASH_LEN;
/// The length of a proof, in bytes.
pub(crate) const PROOF_LEN: usize = 32;

/// Runs one instance, as either party.
///
/// # Errors
/// If the other party computes something else or deviates detectably, or the connection fails.
pub(crate) fn run(
    party: &mut ComputeParty,
    setup: &mut ObliviousTransferSetUp,
    source: &dyn CircuitSource,
    input: &[u8],
) -> Result<Option<Vec<u8>>, Error> {
    run_circuits(party, setup, [source, source], input).map(Some)
}

/// As [`run`], with the circuit that this party garbles and the one that it evaluates. Only a party
/// that deviates has two.
pub(crate) fn run_circuits(
    party: &mut ComputeParty,
    setup: &mut ObliviousTransferSetUp,
    [garbled, evaluated]: [&dyn CircuitSource; 2],
    input: &[u8],
) -> Result<Vec<u8>, Error> {
    let drawn = DrawnGarbling::draw(party, garbled.shape());
    let decoy = Zeroizing::new([party.random.block(), party.random.block()]);
    let party = &*party;
    party.frames.set_evaluating(false);
    let begin = drawn.parameters(party, evaluated.shape());
    let execution = YaoExecution::new(party, ComputeRole::Evaluator, evaluated.shape(), begin);
    let garbler = GarblerSide::begin(party, drawn, garbled.shape(), input)?;
    let evaluator = EvaluatorSide { execution, input };
    let (to_garbler, senders) = channel();
    let (to_evaluator, receivers) = channel();
    let (to_comparison, evaluations) = channel();
    let mut comparison = DualComparison { party, decoy, expected: None };
    let (theirs, evaluated) = thread::scope(|scope| {
        scope.spawn(move || {
            // A set-up that fails reports its error, and the sides find nothing in the channels.
            if let Ok((sender, receiver)) = setup.wait().and_then(|ends| ends.both()) {
                let _ = to_garbler.send(sender);
                let _ = to_evaluator.send(receiver);
            }
        });
        let evaluating = scope.spawn(move || {
            let output = evaluator.run(
                evaluated,
                move || receivers.recv().map_err(|_| Error::Failed),
                |labels| DualOutput::take(&evaluator.execution, labels),
            )?;
            to_comparison.send(output).map_err(|_| Error::Failed)?;
            expect_end(&evaluator.execution.frames)
        });
        let theirs = garbler.run(
            garbled,
            move || senders.recv().map_err(|_| Error::Failed),
            || {
                send_hashes(&garbler)?;
                comparison.send_proof(&garbler, &evaluations)
            },
            ComputeFrameKind::Proof,
        );
        (theirs, evaluating.join().unwrap_or(Err(Error::Failed)))
    });
    let theirs = match (theirs, evaluated) {
        (Err(error), Err(other)) => return Err(error.more_specific(other)),
        (theirs, evaluated) => evaluated.and(theirs)?,
    };
    let output = comparison.output(&theirs);
    party.figures.leave(ComputePhase::Output);
    output
}

/// Waits until the other party has sent everything to this one as the evaluator. A frame too many
/// may be one with a wrong kind, which this party waits for as the garbler.
fn expect_end(frames: &PartyFrameQueues) -> Result<(), Error> {
    let proof = frames.expect(ComputeFrameKind::Proof);
    proof.map(drop).inspect_err(|error| frames.fail(error))
}

/// Sends the hashes of both labels of each output, that of 0 first.
fn send_hashes(garbler: &GarblerSide<'_>) -> Result<(), Error> {
    let YaoExecution { frames, figures, .. } = &garbler.execution;
    let pairs = garbler.output_pairs();
    for part in parts(u32::try_from(pairs.len()).map_err(|_| Error::TooLarge)?) {
        let mut frame = frames.frame(ComputeFrameKind::Hashes);
        figures.count(ComputePhase::Output, || {
            for at in part {
                for label in &pairs[at] {
                    frame.content().extend(hash_label(&garbler.execution, at, label));
                }
            }
        });
        frames.send(frame)?;
    }
    Ok(())
}

/// The hash of a label of output `at`.
fn hash_label(execution: &YaoExecution<'_>, at: usize, label: &Block) -> [u8; HASH_LEN] {
    let YaoExecution { garbling_party, begin, .. } = execution;
    Sha256::new()
        .chain_update(b"sunder dual label")
        .chain_update([*garbling_party as u8])
        .chain_update(begin.number.to_be_bytes())
        .chain_update((at as u64).to_be_bytes())
        .chain_update(label.to_bytes())
        .finalize()
        .into()
}

/// The output that a party has evaluated.
struct DualOutput {
    bits: Vec<bool>,
    labels: Zeroizing<Vec<Block>>,
    /// Whether each label is one of the two whose hashes the garbler has sent.
    is_valid: Choice,
}

impl DualOutput {
    /// Decodes the outputs by the garbler's hashes. A label that is neither of the two is no error:
    /// whether there is one can depend on this party's input.
    fn take(execution: &YaoExecution<'_>, evaluator: &Evaluator) -> Result<Self, Error> {
        let YaoExecution { frames, figures, .. } = execution;
        figures.enter(ComputePhase::Output);
        frames.expect_len(ComputeFrameKind::Decoding, 0)?;
        let labels = Zeroizing::new(evaluator.output_labels());
        let mut bits = Vec::with_capacity(labels.len());
        let mut is_valid = Choice::from(1);
        for part in parts(u32::try_from(labels.len()).map_err(|_| Error::TooLarge)?) {
            let hashes = frames.expect_len(ComputeFrameKind::Hashes, OUTPUT_LEN * part.len())?;
            figures.count(ComputePhase::Output, || {
                for (at, pair) in part.zip(hashes.chunks_exact(OUTPUT_LEN)) {
                    let own = hash_label(execution, at, &labels[at]);
                    let (zero, one) = pair.split_at(HASH_LEN);
                    let [is_zero, is_one] = [zero, one].map(|hash| own[..].ct_eq(hash));
                    is_valid &= is_zero ^ is_one;
                    bits.push(bool::from(is_one));
                }
            });
        }
        Ok(Self { bits, labels, is_valid })
    }
}

/// The comparison of both outputs.
struct DualComparison<'a> {
    party: &'a ComputeParty,
    /// Sent in place of a proof if there is none.
    decoy: Zeroizing<[Block; 2]>,
    /// This party's output, whether it is valid, and the proof that the other party must have sent.
    expected: Option<(Vec<bool>, Choice, [u8; PROOF_LEN])>,
}

impl DualComparison<'_> {
    /// Waits for the output, and proves to the other party that this one has it.
    fn send_proof(
        &mut self,
        garbler: &GarblerSide<'_>,
        evaluations: &Receiver<DualOutput>,
    ) -> Result<(), Error> {
        let DualOutput { bits, labels, is_valid } =
            evaluations.recv().map_err(|_| Error::Failed)?;
        let ComputeParty { role, frames, number, .. } = self.party;
        let own = selected(&garbler.output_pairs(), &bits);
        // Those of the circuit of the party whose role is the garbler come first.
        let circuits = match role {
            ComputeRole::Garbler => [&own[..], &labels],
            ComputeRole::Evaluator => [&labels[..], &own],
        };
        let [proof, expected] =
            [*role, role.other()].map(|prover| prove(prover, *number, circuits));
        let mut sent = [0; PROOF_LEN];
        let decoy = Block::bytes_of(&self.decoy[..]);
        for ((sent, decoy), proof) in sent.iter_mut().zip(decoy).zip(&proof) {
            *sent = u8::conditional_select(decoy, proof, is_valid);
        }
        self.expected = Some((bits, is_valid, expected));
        frames.send(ComputeFrame::of(ComputeFrameKind::Proof, &sent))
    }

    /// The output, if the other party has proven that it has the same.
    fn output(self, theirs: &[u8]) -> Result<Vec<u8>, Error> {
        let (bits, is_valid, expected) = self.expected.ok_or(Error::Failed)?;
        // A frame of another length is not equal.
        let is_proven = bool::from(is_valid & expected[..].ct_eq(theirs));
        if is_proven { Ok(pack(bits.into_iter())) } else { Err(Error::Disagree) }
    }
}

/// The proof of a party that it has these labels of the output in both garbled circuits. A party
/// that lacks one of them cannot compute its own proof from that of the other.
fn prove(prover: ComputeRole, number: u64, circuits: [&[Block]; 2]) -> [u8; PROOF_LEN] {
    Sha256::new()
        .chain_update(b"sunder dual proof")
        .chain_update([prover as u8])
        .chain_update(number.to_be_bytes())
        .chain_update(Block::bytes_of(circuits[0]))
        .chain_update(Block::bytes_of(circuits[1]))
        .finalize()
        .into()
}
