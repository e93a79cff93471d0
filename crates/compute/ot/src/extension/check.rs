//! The sender's checks of a receiver that may deviate from the protocol.

use blocks::Block;
use blocks::prg::Prg;
use polyval::Polyval;
use polyval::universal_hash::UniversalHash as _;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};
use zeroize::Zeroizing;

use crate::extension::BASE_TRANSFERS;

/// The length of the commitment to one tree's leaves, in bytes: the sum of their values and the
/// hash of all values.
pub(super) const COMMITMENT_LEN: usize = 64;

/// The length of a proof, in bytes: the hash of the choices, and that of each row.
pub(super) const PROOF_LEN: usize = 16 + 16 * BASE_TRANSFERS;

/// The number of blocks at the beginning of a leaf's stream that make its value.
pub(super) const VALUE_BLOCKS: u64 = 2;

type OtLeafValue = [u8; 32];

/// The receiver's commitment to the leaves of a tree. The value of a leaf is the beginning of its
/// stream.
pub(super) fn commit(leaves: &[Block]) -> [u8; COMMITMENT_LEN] {
    let values = values(leaves);
    let mut commitment = [0; COMMITMENT_LEN];
    let (sum, hash) = commitment.split_at_mut(COMMITMENT_LEN / 2);
    sum.copy_from_slice(&sum_of(&values));
    hash.copy_from_slice(&Sha256::digest(values.as_flattened()));
    commitment
}

/// Whether the known leaves of a tree are among those that a receiver committed to. They are
/// numbered as in `known_leaves`.
pub(super) fn is_committed(leaves: &[Block], choices: &[u8], commitment: &[u8]) -> Choice {
    let mut values = values(leaves);
    values[0].fill(0);
    let (sum, hash) = commitment.split_at(COMMITMENT_LEN / 2);
    let known = sum_of(&values);
    for ((missing, sum), known) in values[0].iter_mut().zip(sum).zip(known) {
        *missing = sum ^ known;
    }
    // Converts to the receiver's numbering.
    for (bit, choice) in choices.iter().enumerate() {
        let choice = Choice::from(*choice);
        for part in values.chunks_exact_mut(2 << bit) {
            let (lower, upper) = part.split_at_mut(1 << bit);
            for (lower, upper) in lower.iter_mut().zip(upper) {
                for (a, b) in lower.iter_mut().zip(upper) {
                    u8::conditional_swap(a, b, choice);
                }
            }
        }
    }
    Sha256::digest(values.as_flattened()).ct_eq(hash)
}

fn values(leaves: &[Block]) -> Zeroizing<Vec<OtLeafValue>> {
    let value = |leaf: &Block| {
        let mut value = OtLeafValue::default();
        Prg::new(*leaf).fill_bytes(&mut value);
        value
    };
    Zeroizing::new(leaves.iter().map(value).collect())
}

fn sum_of(values: &[OtLeafValue]) -> OtLeafValue {
    let mut sum = OtLeafValue::default();
    for value in values {
        sum.iter_mut().zip(value).for_each(|(sum, byte)| *sum ^= byte);
    }
    sum
}

/// A linear hash of rows, chosen by a challenge: the value of a polynomial over GF(2^128) (RFC
/// 8452, section 3), whose coefficients are the row's blocks. The last block belongs to no transfer
/// and makes the hash uniform.
pub(super) struct RowHash(Polyval);

impl RowHash {
    /// The hash that is chosen by the receiver's message for piece `number` of a session.
    pub(super) fn new(session: &[u8; 32], number: u64, message: &[u8]) -> Self {
        let challenge = Sha256::new()
            .chain_update(b"sunder ot check ")
            .chain_update(session)
            .chain_update(number.to_be_bytes())
            .chain_update(message)
            .finalize();
        let challenge = challenge.first_chunk::<16>().expect("a hash has 32 bytes");
        Self(Polyval::new(&(*challenge).into()))
    }

    pub(super) fn hash(&self, row: &[Block]) -> Block {
        let mut hash = self.0.clone();
        let (blocks, _) = Block::bytes_of(row).as_chunks::<16>();
        hash.update(polyval::Block::cast_slice_from_core(blocks));
        Block::from_bytes(hash.finalize().into())
    }
}
