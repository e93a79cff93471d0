//! POLYVAL (RFC 8452, section 3): the value of a polynomial over GF(2^128) at a point, with the
//! blocks as its coefficients, the highest first, and zero as the constant.

use polyval::universal_hash::UniversalHash;
use polyval::{Block, Polyval};

/// The length of the random point and of the tag, in bytes.
pub const BLOCK: usize = 16;

/// A hash in progress.
pub(super) trait BlockHash {
    /// Adds the next coefficients.
    fn update(&mut self, blocks: &[[u8; BLOCK]]);

    /// The value of the polynomial.
    fn finish(self) -> [u8; BLOCK];
}

/// For every processor: carry-less multiplication if the processor supports it, otherwise a
/// constant-time replacement.
impl BlockHash for Polyval {
    fn update(&mut self, blocks: &[[u8; BLOCK]]) {
        UniversalHash::update(self, Block::cast_slice_from_core(blocks));
    }

    fn finish(self) -> [u8; BLOCK] {
        self.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(hex: &str) -> [u8; BLOCK] {
        std::array::from_fn(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
    }

    fn hash(mut hash: impl BlockHash, blocks: &[[u8; BLOCK]], piece: usize) -> [u8; BLOCK] {
        blocks.chunks(piece).for_each(|piece| hash.update(piece));
        hash.finish()
    }

    /// The hash with each implementation that this processor supports.
    fn hashes(point: [u8; BLOCK], blocks: &[[u8; BLOCK]], piece: usize) -> Vec<[u8; BLOCK]> {
        let any = hash(Polyval::new(&point.into()), blocks, piece);
        #[cfg(target_arch = "x86_64")]
        let wide = crate::tamper::wide::WideBlockHash::new(&point).map(|h| hash(h, blocks, piece));
        #[cfg(not(target_arch = "x86_64"))]
        let wide = None;
        [any].into_iter().chain(wide).collect()
    }

    /// RFC 8452, appendix A.
    #[test]
    fn the_rfcs_vector() {
        let point = block("25629347589242761d31f826ba4b757b");
        let blocks =
            [block("4f4f95668c83dfb6401762bb2d01a262"), block("d1a24ddd2721d006bbe45f20d3c9f362")];
        let expected = block("f7a3b47b846119fae5b7866cf5e5b77e");
        assert!(hashes(point, &blocks, 2).iter().all(|&hash| hash == expected));
    }

    #[test]
    fn all_give_the_same_in_any_pieces() {
        let bytes = crate::tamper::tests::bytes(16 * 400);
        let (blocks, _) = bytes.as_chunks::<BLOCK>();
        let point = block("25629347589242761d31f826ba4b757b");
        for point in [[0; BLOCK], [0xFF; BLOCK], blocks[7], point] {
            for count in (0..70).chain([127, 128, 129, 255, 400]) {
                let blocks = &blocks[..count];
                let expected = hash(Polyval::new(&point.into()), blocks, 1);
                for piece in [1, 3, 1 + count / 5, 1 + count] {
                    let found = hashes(point, blocks, piece);
                    assert!(found.iter().all(|&hash| hash == expected), "{count} by {piece}");
                }
            }
        }
    }
}
