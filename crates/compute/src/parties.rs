//! The two parties in one instance.

pub(crate) mod evaluator;
pub(crate) mod garbler;

use std::ops::Range;

use blocks::Block;
use sha2::{Digest, Sha256};

/// The transfers of one frame.
const TRANSFERS: usize = 1 << 14;
/// The bytes of the digest of the output's labels.
pub(crate) const DIGEST_LEN: usize = 16;

/// The ranges of the frames for `count` transfers.
pub(crate) fn parts(count: u32) -> impl Iterator<Item = Range<usize>> {
    let count = count as usize;
    (0..count).step_by(TRANSFERS).map(move |start| start..count.min(start + TRANSFERS))
}

/// A bit of packed ones.
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
