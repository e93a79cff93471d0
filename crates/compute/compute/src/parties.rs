//! The two parties of Yao's protocol in one instance.

pub(crate) mod evaluator;
pub(crate) mod garbler;

use std::ops::Range;

use blocks::Block;
use blocks::prg::Prg;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// The maximum number of transfers of one frame.
const FRAME_TRANSFERS: usize = 1 << 14;
/// The bytes of the digest of the output's labels.
pub(crate) const DIGEST_LEN: usize = 16;

/// The ranges of the frames for `count` transfers.
pub(crate) fn parts(count: u32) -> impl Iterator<Item = Range<usize>> {
    let count = count as usize;
    (0..count).step_by(FRAME_TRANSFERS).map(move |start| start..count.min(start + FRAME_TRANSFERS))
}

/// Calls `take` with the labels of `count` inputs, which both parties derive from a seed.
fn for_each_label(seed: Block, count: u32, mut take: impl FnMut(u32, Block)) {
    let mut stream = Prg::new(seed);
    // Many at a time, because each call expands the key again.
    let mut labels = Zeroizing::new([Block::ZERO; 256]);
    let mut next = 0;
    while next < count {
        let labels = &mut labels[..256.min((count - next) as usize)];
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
