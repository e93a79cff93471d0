//! Pseudorandom blocks: AES-128 in counter mode under a secret seed.

use crate::aes::{Aes128, AesKernel};
use crate::block::Block;

/// The number of blocks generated at a time if the caller takes single blocks or bytes.
const BUFFER: usize = 64;

/// A stream of pseudorandom blocks from a seed: block `j` is the encryption of `j` under the seed.
/// The seed is wiped on drop.
pub struct Prg {
    cipher: Aes128,
    next: u64,
}

impl Prg {
    /// Starts the stream of a seed. The seed must be secret and have 128 bits of entropy.
    pub fn new(seed: Block) -> Self {
        Self::with_kernel(seed, AesKernel::best())
    }

    /// Starts the stream of a seed, for one kernel.
    pub fn with_kernel(seed: Block, kernel: AesKernel) -> Self {
        Self { cipher: Aes128::with_kernel(seed, kernel), next: 0 }
    }

    /// Skips the next blocks of the stream.
    pub fn skip(&mut self, blocks: u64) {
        self.next = self.next.wrapping_add(blocks);
    }

    /// Overwrites blocks with the next of the stream.
    pub fn fill(&mut self, blocks: &mut [Block]) {
        self.cipher.encrypt_counter(self.next, blocks);
        self.next = self.next.wrapping_add(blocks.len() as u64);
    }

    /// Overwrites bytes with the next blocks of the stream. The rest of a partly used block is
    /// dropped.
    pub fn fill_bytes(&mut self, bytes: &mut [u8]) {
        let mut blocks = [Block::ZERO; BUFFER];
        for piece in bytes.chunks_mut(16 * BUFFER) {
            let blocks = &mut blocks[..piece.len().div_ceil(16)];
            self.fill(blocks);
            piece.copy_from_slice(&Block::bytes_of(blocks)[..piece.len()]);
        }
        zeroize::Zeroize::zeroize(&mut blocks);
    }

    /// Returns the next block of the stream.
    pub fn block(&mut self) -> Block {
        let mut block = [Block::ZERO];
        self.fill(&mut block);
        block[0]
    }
}
