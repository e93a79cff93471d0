//! The two parties of Yao's protocol in one instance.

pub(crate) mod dual;
pub(crate) mod evaluator;
pub(crate) mod garbler;

use std::ops::Range;

use blocks::Block;
use blocks::prg::Prg;
use circuit::CircuitShape;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::figures::PhaseFiguresRecorder;
use crate::link::PartyFrameQueues;
use crate::party::ComputeParty;
use crate::settings::{ComputeRole, ComputeSettings};
use crate::wire::ComputeBegin;

/// The maximum number of transfers of one frame.
const FRAME_TRANSFERS: usize = 1 << 14;
/// The bytes of the digest of the output's labels.
pub(crate) const DIGEST_LEN: usize = 16;

/// What a garbler or an evaluator needs in one execution of a garbled circuit. In dual execution, a
/// party is the garbler of one and the evaluator of another.
struct YaoExecution<'a> {
    frames: PartyFrameQueues,
    figures: &'a PhaseFiguresRecorder,
    settings: ComputeSettings,
    begin: ComputeBegin,
    shape: &'a CircuitShape,
    /// The role of the party that garbles, in the session.
    garbling_party: ComputeRole,
    /// The inputs of the party that garbles.
    garbler_inputs: Range<u32>,
    /// Those of the other party, whose labels are transferred.
    evaluator_inputs: Range<u32>,
}

impl<'a> YaoExecution<'a> {
    /// This party's side of the execution in which it has `role`.
    fn new(
        party: &'a ComputeParty,
        role: ComputeRole,
        shape: &'a CircuitShape,
        begin: ComputeBegin,
    ) -> Self {
        let garbling_party =
            if role == party.role { ComputeRole::Garbler } else { ComputeRole::Evaluator };
        // The party whose role in the session is the garbler has the first input, whoever garbles.
        let (first, second) = (0..shape.garbler_inputs, shape.garbler_inputs..shape.inputs());
        let (garbler_inputs, evaluator_inputs) = match garbling_party {
            ComputeRole::Garbler => (first, second),
            ComputeRole::Evaluator => (second, first),
        };
        Self {
            frames: party.frames.of_role(role),
            figures: &party.figures,
            settings: party.settings,
            begin,
            shape,
            garbling_party,
            garbler_inputs,
            evaluator_inputs,
        }
    }
}

/// The ranges of the frames for `count` transfers.
pub(crate) fn parts(count: u32) -> impl Iterator<Item = Range<usize>> {
    let count = count as usize;
    (0..count).step_by(FRAME_TRANSFERS).map(move |start| start..count.min(start + FRAME_TRANSFERS))
}

/// Calls `take` with the numbers and labels of inputs, which both parties derive from a seed.
fn for_each_label(seed: Block, inputs: Range<u32>, mut take: impl FnMut(u32, Block)) {
    let mut stream = Prg::new(seed);
    // Many at a time, because each call expands the key again.
    let mut labels = Zeroizing::new([Block::ZERO; 256]);
    let mut next = inputs.start;
    while next < inputs.end {
        let labels = &mut labels[..256.min((inputs.end - next) as usize)];
        stream.fill(labels);
        for label in labels {
            take(next, *label);
            next += 1;
        }
    }
}

/// Bit `at` of packed bits.
fn bit(bits: &[u8], at: usize) -> bool {
    bits[at / 8] >> (at % 8) & 1 == 1
}

/// Packs bits.
fn pack(bits: impl Iterator<Item = bool>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, bit) in bits.enumerate() {
        if at % 8 == 0 {
            bytes.push(0);
        }
        bytes[at / 8] |= u8::from(bit) << (at % 8);
    }
    bytes
}

/// The digest with which the evaluator proves that it has these labels.
fn digest(labels: &[Block]) -> [u8; DIGEST_LEN] {
    let digest = Sha256::digest(Block::bytes_of(labels));
    digest[..DIGEST_LEN].try_into().expect("it is longer")
}
