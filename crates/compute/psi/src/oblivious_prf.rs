//! The oblivious pseudorandom function of each bin (Kolesnikov, Kumaresan, Rosulek, Trieu, 2016,
//! figure 2, with the linear code and the check of Orrù, Orsini, Scholl, 2017, figure 3).
//!
//! From 640 transfers, the receiver has two seeds for each, and the sender the one that a bit of
//! its secret s selects. Each seed gives a row with one bit for each bin. Let a and b be the rows
//! of a pair of seeds, and c the bits of the code words C(x) of the items x in the bins. The
//! receiver sends u = a + b + c, in which b or a hides each bit. The sender, whose row is a or b by
//! its bit of s, adds u to it where the bit is 1, and has a + s c. So its column of a bin is a + (s
//! and C(x)). The value of an item y is the hash of this plus (s and C(y)): for y = x this is the
//! hash of a, which the receiver knows. For every other y, the word C(x + y) selects 128 or more
//! bits of s that the receiver does not know.

use blocks::Block;
use blocks::prg::Prg;
use blocks::transpose::transpose;
use ot::extension::{OtExtension, OtExtensionKind, OtExtensionSecurity};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::check::{self, PROOF_BLOCKS, PieceChallenge};
use crate::code::{self, CODE_BITS, CODE_BLOCKS, CodeWord, LinearCode};
use crate::error::Error;
use crate::hello::PsiRunDigest;

/// The transfers from which the seeds are made. A sender of masks that chooses inconsistently is
/// refused.
pub(crate) const TRANSFERS: OtExtension =
    OtExtension { kind: OtExtensionKind::Iknp, security: OtExtensionSecurity::MaliciousReceiver };

/// The number of bins that are processed at a time, which fits into the caches.
pub(crate) const PIECE_BINS: usize = 8192;

/// The rows of a matrix that is transposed, and the bins of a block.
const ROWS: usize = 128;

/// The length of the sender's messages for the seeds, in bytes.
pub(crate) fn set_up_len() -> usize {
    TRANSFERS.reply_len() + TRANSFERS.message_len(CODE_BITS)
}

/// The blocks of a row: those of the bins, and one that hides the items in the proof.
fn width(bins: usize) -> usize {
    bins.div_ceil(ROWS) + 1
}

/// The length of the receiver's message for a piece of bins, in bytes: its rows, and the proof.
pub(crate) fn piece_len(bins: usize) -> usize {
    16 * (CODE_BITS * width(bins) + PROOF_BLOCKS)
}

/// The length of the receiver's messages for all bins, in bytes.
pub(crate) fn message_len(bins: usize) -> usize {
    let rest = bins % PIECE_BINS;
    bins / PIECE_BINS * piece_len(PIECE_BINS) + if rest > 0 { piece_len(rest) } else { 0 }
}

/// The rows that seeds give for the bins of a piece.
struct SeedRows {
    streams: Vec<Prg>,
    rows: Zeroizing<Vec<Block>>,
}

impl SeedRows {
    fn new(seeds: impl Iterator<Item = Block>) -> Self {
        let rows = Zeroizing::new(vec![Block::ZERO; CODE_BITS * width(PIECE_BINS)]);
        Self { streams: seeds.map(Prg::new).collect(), rows }
    }

    /// The next rows, of a width in blocks.
    fn advance(&mut self, width: usize) -> &mut [Block] {
        let rows = &mut self.rows[..CODE_BITS * width];
        for (stream, row) in self.streams.iter_mut().zip(rows.chunks_exact_mut(width)) {
            stream.fill(row);
        }
        rows
    }
}

/// The columns of rows: the word of each bin.
struct BinWords(Zeroizing<[Vec<Block>; CODE_BLOCKS]>);

impl BinWords {
    fn new() -> Self {
        let blocks = vec![Block::ZERO; ROWS * width(PIECE_BINS)];
        Self(Zeroizing::new(std::array::from_fn(|_| blocks.clone())))
    }

    fn set(&mut self, rows: &[Block]) {
        let len = rows.len() / CODE_BLOCKS;
        for (rows, columns) in rows.chunks_exact(len).zip(self.0.iter_mut()) {
            transpose(rows, &mut columns[..len]);
        }
    }

    #[inline(always)]
    fn word(&self, bin: usize) -> CodeWord {
        std::array::from_fn(|block| self.0[block][bin])
    }
}

/// The hash of a bin's word, of which the masks are parts.
fn value(run: &PsiRunDigest, bin: u32, word: &CodeWord) -> [u8; 16] {
    let hash = Sha256::new().chain_update(run.bytes()).chain_update(bin.to_le_bytes());
    let digest = hash.chain_update(Block::bytes_of(word)).finalize();
    *digest.first_chunk().expect("a digest is longer")
}

/// The receiver's end.
pub(crate) struct PrfReceiver {
    run: PsiRunDigest,
    code: LinearCode,
    /// The rows a and b of each pair of seeds.
    rows: [SeedRows; 2],
    words: BinWords,
    /// Hides items in proofs.
    hiding: Prg,
    bin: u32,
}

impl PrfReceiver {
    /// An end with both seeds of each of the [`CODE_BITS`] transfers. A further seed is uniformly
    /// random, secret, and used once.
    pub(crate) fn new(run: PsiRunDigest, seeds: &[[Block; 2]], hiding_seed: Block) -> Self {
        let rows = [0, 1].map(|which| SeedRows::new(seeds.iter().map(|pair| pair[which])));
        let (code, words, hiding) = (LinearCode::new(), BinWords::new(), Prg::new(hiding_seed));
        Self { run, code, rows, words, hiding, bin: 0 }
    }

    /// The values of the items in the next bins, at most [`PIECE_BINS`], and the message for the
    /// sender. An empty bin has no value, and the message does not show that it is empty.
    pub(crate) fn values(&mut self, items: &[Option<Block>]) -> (Vec<Option<[u8; 16]>>, Vec<u8>) {
        let width = width(items.len());
        let mut of_bins = Zeroizing::new(vec![Block::ZERO; ROWS * width]);
        for (bin, item) in of_bins.iter_mut().zip(items) {
            *bin = item.unwrap_or_default();
        }
        self.hiding.fill(&mut of_bins[items.len()..]);
        let mut matrix = self.coded_rows(&of_bins);
        let [a, b] = &mut self.rows;
        let (a, b) = (a.advance(width), b.advance(width));
        for (u, (a, b)) in matrix.iter_mut().zip(a.iter().zip(b.iter())) {
            *u = *u ^ *a ^ *b;
        }
        let proof = PieceChallenge::new(&self.run, self.bin, &matrix).prove(&of_bins, a);
        self.words.set(a);
        let values = items.iter().enumerate().map(|(place, item)| {
            let bin = self.bin;
            self.bin += 1;
            item.map(|_| value(&self.run, bin, &self.words.word(place)))
        });
        let values = values.collect();
        let mut message = Vec::with_capacity(piece_len(items.len()));
        message.extend_from_slice(Block::bytes_of(&matrix));
        message.extend_from_slice(Block::bytes_of(&proof));
        (values, message)
    }

    /// The rows of the code words of items.
    fn coded_rows(&self, items: &[Block]) -> Vec<Block> {
        let mut rows = vec![Block::ZERO; CODE_BLOCKS * items.len()];
        let words: Vec<CodeWord> = items.iter().map(|item| self.code.word(*item)).collect();
        let words = Zeroizing::new(words);
        let mut columns = Zeroizing::new(vec![Block::ZERO; items.len()]);
        for (place, rows) in rows.chunks_exact_mut(items.len()).enumerate() {
            for (column, word) in columns.iter_mut().zip(words.iter()) {
                *column = word[place];
            }
            check::to_rows(&columns, rows);
        }
        rows
    }
}

/// The sender's end.
pub(crate) struct PrfSender {
    run: PsiRunDigest,
    code: LinearCode,
    secret: Zeroizing<CodeWord>,
    rows: SeedRows,
    words: BinWords,
    bin: u32,
}

impl PrfSender {
    /// An end with the secret, whose bits selected these seeds.
    pub(crate) fn new(run: PsiRunDigest, secret: CodeWord, seeds: &[Block; CODE_BITS]) -> Self {
        let rows = SeedRows::new(seeds.iter().copied());
        let secret = Zeroizing::new(secret);
        Self { run, code: LinearCode::new(), secret, rows, words: BinWords::new(), bin: 0 }
    }

    /// Takes the receiver's message for so many further bins.
    ///
    /// # Errors
    /// If its rows are not those of code words.
    pub(crate) fn receive(&mut self, bins: usize, message: &[u8]) -> Result<(), Error> {
        let width = width(bins);
        let mut received = vec![Block::ZERO; CODE_BITS * width + PROOF_BLOCKS];
        Block::bytes_of_mut(&mut received).copy_from_slice(message);
        let (matrix, proof) = received.split_at(CODE_BITS * width);
        let rows = self.rows.advance(width);
        let of_seeds = rows.chunks_exact_mut(width).zip(matrix.chunks_exact(width));
        for (number, (row, u)) in of_seeds.enumerate() {
            let is_chosen = check::secret_bit(&self.secret, number);
            row.iter_mut().zip(u).for_each(|(q, u)| *q ^= *u & is_chosen);
        }
        let challenge = PieceChallenge::new(&self.run, self.bin, matrix);
        if !challenge.verify(&self.code, proof, rows, width, &self.secret) {
            return Err(Error::Malformed("rows that are not those of items"));
        }
        self.words.set(rows);
        #[expect(clippy::cast_possible_truncation, reason = "at most 8,192")]
        let bins = bins as u32;
        self.bin += bins;
        Ok(())
    }

    /// The value of an item in a bin of those of the last message, which began with `first`.
    #[inline]
    pub(crate) fn value(&self, first: usize, place: usize, item: Block) -> [u8; 16] {
        let added = code::common(*self.secret, self.code.word(item));
        #[expect(clippy::cast_possible_truncation, reason = "bins are numbered by 32 bits")]
        let bin = (first + place) as u32;
        value(&self.run, bin, &code::sum(self.words.word(place), added))
    }
}

#[cfg(test)]
mod tests;
