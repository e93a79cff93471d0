//! The sender's check that a receiver has used a code word in each bin (Orrù, Orsini, Scholl 2017,
//! figure 3, with the hash of Roy 2022, section 4).
//!
//! The receiver's matrix has a row of bits for each of the 640 seeds, and a column for each bin: u
//! = a + b + C(x), where x is the bin's item. The sender has rows q = a + s C(x). A challenge, the
//! hash of u, chooses a linear hash of rows over GF(2^128). The receiver sends the hashes of its
//! rows a, and of the 128 rows of its items. As the code is linear, the sender knows from the
//! latter what the hashes of the rows of C(x) must be. The last 128 columns have random items,
//! which make the hashes of items uniform.
//!
//! A receiver whose matrix is of no code words passes only if it guesses the bits of s where it
//! deviates: with a probability of 2^-j for j bits.

use blocks::Block;
use blocks::transpose::transpose;
use polyval::Polyval;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};
use zeroize::Zeroizing;

use crate::code::{self, CODE_BITS, CODE_BLOCKS, LinearCode};
use crate::hello::PsiRunDigest;

/// The bits of an item, and of a block.
const ITEM_BITS: usize = 128;

/// The blocks of a proof: the hashes of the rows of items, and of the rows a.
pub(crate) const PROOF_BLOCKS: usize = ITEM_BITS + CODE_BITS;

/// The hash that is chosen by the receiver's matrix of a piece.
pub(crate) struct PieceChallenge(Polyval);

impl PieceChallenge {
    /// The challenge of the piece that begins with a bin.
    pub(crate) fn new(run: &PsiRunDigest, first_bin: u32, matrix: &[Block]) -> Self {
        let challenge = Sha256::new()
            .chain_update(b"sunder psi check")
            .chain_update(run.bytes())
            .chain_update(first_bin.to_be_bytes())
            .chain_update(Block::bytes_of(matrix))
            .finalize();
        let challenge = challenge.first_chunk::<16>().expect("a hash has 32 bytes");
        Self(Polyval::new(&(*challenge).into()))
    }

    /// The hash of each row, of a width in blocks.
    fn hashes<'a>(&'a self, rows: &'a [Block], width: usize) -> impl Iterator<Item = Block> + 'a {
        rows.chunks_exact(width).map(|row| code::linear_hash(&self.0, row))
    }

    /// The receiver's proof, from the items of all columns and its rows a.
    pub(crate) fn prove(&self, items: &[Block], a: &[Block]) -> Vec<Block> {
        let width = items.len() / ITEM_BITS;
        let mut of_items = Zeroizing::new(vec![Block::ZERO; items.len()]);
        to_rows(items, &mut of_items);
        self.hashes(&of_items, width).chain(self.hashes(a, width)).collect()
    }

    /// Whether a proof fits the sender's rows q, of a width in blocks, and its secret.
    pub(crate) fn verify(
        &self,
        code: &LinearCode,
        proof: &[Block],
        q: &[Block],
        width: usize,
        secret: &[Block; CODE_BLOCKS],
    ) -> bool {
        let (of_items, of_a) = proof.split_at(ITEM_BITS);
        let mut is_right = Choice::from(u8::from(proof.len() == PROOF_BLOCKS));
        let of_words = hashes_of_words(code, of_items);
        let rows = of_a.iter().zip(&of_words).zip(self.hashes(q, width)).enumerate();
        for (row, ((of_a, of_word), of_q)) in rows {
            let expected = *of_a ^ (*of_word & secret_bit(secret, row));
            is_right &= of_q.ct_eq(&expected);
        }
        is_right.into()
    }
}

/// The hashes of the rows of code words, from those of the rows of items.
fn hashes_of_words(code: &LinearCode, of_items: &[Block]) -> Vec<Block> {
    let mut items = [Block::ZERO; ITEM_BITS];
    transpose(of_items, &mut items);
    let words = items.map(|item| code.word(item));
    let mut rows = vec![Block::ZERO; CODE_BITS];
    for (place, rows) in rows.chunks_exact_mut(ITEM_BITS).enumerate() {
        transpose(&words.map(|word| word[place]), rows);
    }
    rows
}

/// All ones if a bit of the secret is set, or zero.
pub(crate) fn secret_bit(secret: &[Block; CODE_BLOCKS], bit: usize) -> Block {
    Block::mask(secret[bit / 128].bit(bit % 128))
}

/// The 128 rows of bits, one after the other, whose columns are blocks.
pub(crate) fn to_rows(columns: &[Block], rows: &mut [Block]) {
    let width = columns.len() / ITEM_BITS;
    let mut tile = Zeroizing::new([Block::ZERO; ITEM_BITS]);
    for (place, columns) in columns.chunks_exact(ITEM_BITS).enumerate() {
        transpose(columns, &mut *tile);
        for (row, block) in rows.chunks_exact_mut(width).zip(tile.iter()) {
            row[place] = *block;
        }
    }
}
