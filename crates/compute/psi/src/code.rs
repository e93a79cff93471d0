//! A linear code: words of two different items differ in at least 128 bits.
//!
//! C(x) = (x, x h1, x h2, x h3, x h4), with fixed factors h of GF(2^128) in the representation of
//! RFC 8452. For uniformly random factors, x h1 to x h4 are uniform for each x that is not zero. So
//! any word but zero has fewer than 128 ones with a probability of at most 2^-512 times the number
//! of such words of 640 bits, which is 2^-56 (the bound of Gilbert and Varshamov). The factors are
//! SHA-256 digests of their numbers, so that nobody has chosen them.

use blocks::Block;
use polyval::Polyval;
use polyval::universal_hash::UniversalHash as _;
use sha2::{Digest as _, Sha256};

/// The bits of a code word.
pub(crate) const CODE_BITS: usize = 128 * CODE_BLOCKS;

/// The blocks of a code word.
pub(crate) const CODE_BLOCKS: usize = 5;

/// A code word, or something that is added to one.
pub(crate) type CodeWord = [Block; CODE_BLOCKS];

/// The code. The items are the whole space of blocks.
pub(crate) struct LinearCode([Polyval; CODE_BLOCKS - 1]);

impl LinearCode {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|place| {
            let hash = Sha256::new().chain_update(b"sunder psi code ");
            #[expect(clippy::cast_possible_truncation, reason = "there are four")]
            let digest = hash.chain_update([place as u8]).finalize();
            let factor: &[u8; 16] = digest.first_chunk().expect("a digest is longer");
            Polyval::new(&(*factor).into())
        }))
    }

    /// The word of an item.
    pub(crate) fn word(&self, item: Block) -> CodeWord {
        let mut word = [item; CODE_BLOCKS];
        for (product, factor) in word[1..].iter_mut().zip(&self.0) {
            *product = linear_hash(factor, &[item]);
        }
        word
    }
}

/// The value of a polynomial over GF(2^128), whose coefficients are blocks (RFC 8452, section 3).
pub(crate) fn linear_hash(hash: &Polyval, blocks: &[Block]) -> Block {
    let mut hash = hash.clone();
    let (blocks, _) = Block::bytes_of(blocks).as_chunks::<16>();
    hash.update(polyval::Block::cast_slice_from_core(blocks));
    Block::from_bytes(hash.finalize().into())
}

/// The sum of words.
#[inline(always)]
pub(crate) fn sum(a: CodeWord, b: CodeWord) -> CodeWord {
    std::array::from_fn(|i| a[i] ^ b[i])
}

/// The bits that both words have.
#[inline(always)]
pub(crate) fn common(a: CodeWord, b: CodeWord) -> CodeWord {
    std::array::from_fn(|i| a[i] & b[i])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ones(word: &CodeWord) -> u32 {
        Block::bytes_of(word).iter().map(|byte| byte.count_ones()).sum()
    }

    #[test]
    fn the_code_is_linear() {
        let code = LinearCode::new();
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..100 {
            let [a, b] = [random.u128(..), random.u128(..)].map(Block::from);
            let of_sum = code.word(a ^ b);
            let words = sum(code.word(a), code.word(b));
            assert_eq!(Block::bytes_of(&of_sum), Block::bytes_of(&words));
        }
        assert_eq!(ones(&code.word(Block::ZERO)), 0);
    }

    /// Words of the items that are most likely to be close: those of few ones, where the word
    /// begins with the item.
    #[test]
    fn words_have_many_ones() {
        let code = LinearCode::new();
        let bit = |at: u32| Block::from(1_u128 << at);
        let (mut least, mut count) = (u32::MAX, 0);
        for a in 0..128 {
            for b in a..128 {
                for c in b..128 {
                    let item = bit(a) ^ bit(b) ^ bit(c);
                    least = least.min(ones(&code.word(item)));
                    count += 1;
                }
            }
        }
        assert_eq!(count, 357_760);
        assert!((160..256).contains(&least), "{least}");
    }
}
