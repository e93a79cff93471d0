//! The oblivious pseudorandom function of each bin (Kolesnikov, Kumaresan, Rosulek, Trieu, 2016,
//! figure 2).
//!
//! From 448 transfers, the receiver has two seeds for each, and the sender the one that a bit of
//! its secret s selects. Each seed gives one bit for each bin. Let a and b be the receiver's words
//! of a bin, one bit of each pair of seeds, and C(x) the code word of the item x in it. The
//! receiver sends u = a + b + C(x), in which b or a hides each bit. The sender, whose word is
//! p = a or b by the bits of s, computes q = p + (s and u), which is a + (s and C(x)). Then the
//! value of an item y is the hash of q + (s and C(y)): for y = x this is the hash of a, which the
//! receiver knows. For every other y, 128 or more bits of s that the receiver does not know are
//! added to it.

use blocks::Block;
use blocks::prg::Prg;
use blocks::transpose::transpose;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::code::{self, CODE_BITS, CODE_BLOCKS, CodeWord, PseudorandomCode};
use crate::hello::PsiRunDigest;

/// The number of bins that are processed at a time, which fits into the caches.
pub(crate) const PIECE_BINS: usize = 8192;

/// The rows of a matrix that is transposed.
const ROWS: usize = 128;

/// The bits that seeds give for bins.
struct SeedWords {
    streams: Vec<Prg>,
    rows: Zeroizing<Vec<Block>>,
    columns: Zeroizing<[Vec<Block>; CODE_BLOCKS]>,
}

impl SeedWords {
    fn new(seeds: impl Iterator<Item = Block>) -> Self {
        let blocks = vec![Block::ZERO; PIECE_BINS];
        let columns = Zeroizing::new(std::array::from_fn(|_| blocks.clone()));
        Self { streams: seeds.map(Prg::new).collect(), rows: Zeroizing::new(blocks), columns }
    }

    /// Computes the words of the next bins, at most [`PIECE_BINS`].
    fn advance(&mut self, bins: usize) {
        let width = bins.div_ceil(ROWS);
        let rows = &mut self.rows[..ROWS * width];
        for (streams, columns) in self.streams.chunks_mut(ROWS).zip(self.columns.iter_mut()) {
            rows.fill(Block::ZERO);
            for (stream, row) in streams.iter_mut().zip(rows.chunks_exact_mut(width)) {
                stream.fill(row);
            }
            transpose(rows, &mut columns[..ROWS * width]);
        }
    }

    /// The word of one of these bins.
    #[inline(always)]
    fn word(&self, bin: usize) -> CodeWord {
        std::array::from_fn(|block| self.columns[block][bin])
    }
}

/// The hash of a bin's word, of which the masks are parts.
fn value(run: &PsiRunDigest, bin: u32, word: &CodeWord) -> [u8; 16] {
    let hash = Sha256::new().chain_update(run.bytes()).chain_update(bin.to_le_bytes());
    let digest = hash.chain_update(code::to_bytes(word)).finalize();
    *digest.first_chunk().expect("a digest is longer")
}

/// The receiver's end.
pub(crate) struct PrfReceiver {
    run: PsiRunDigest,
    code: PseudorandomCode,
    words: [SeedWords; 2],
    bin: u32,
}

impl PrfReceiver {
    /// An end with both seeds of each transfer.
    pub(crate) fn new(run: PsiRunDigest, seeds: &[[Block; 2]; CODE_BITS]) -> Self {
        let words = [0, 1].map(|which| SeedWords::new(seeds.iter().map(|pair| pair[which])));
        Self { code: PseudorandomCode::new(&run), run, words, bin: 0 }
    }

    /// The values of the items in the next bins, at most [`PIECE_BINS`]. Appends the message for
    /// the sender. An empty bin has no value, and the message does not show that it is empty.
    pub(crate) fn values(
        &mut self,
        items: &[Option<Block>],
        message: &mut Vec<u8>,
    ) -> Vec<Option<[u8; 16]>> {
        self.words.iter_mut().for_each(|words| words.advance(items.len()));
        let coded: Vec<Block> = items.iter().map(|item| item.unwrap_or_default()).collect();
        let coded = Zeroizing::new(self.code.words(&coded));
        let [a, b] = &self.words;
        let values = items.iter().zip(coded.iter()).enumerate().map(|(place, (item, coded))| {
            let (a, b) = (a.word(place), b.word(place));
            message.extend_from_slice(code::to_bytes(&code::sum(code::sum(a, b), *coded)));
            let bin = self.bin;
            self.bin += 1;
            item.map(|_| value(&self.run, bin, &a))
        });
        values.collect()
    }
}

/// The sender's end.
pub(crate) struct PrfSender {
    run: PsiRunDigest,
    code: PseudorandomCode,
    secret: Zeroizing<CodeWord>,
    words: SeedWords,
    bin: u32,
}

impl PrfSender {
    /// An end with the secret, whose bits selected these seeds.
    pub(crate) fn new(run: PsiRunDigest, secret: CodeWord, seeds: &[Block; CODE_BITS]) -> Self {
        let words = SeedWords::new(seeds.iter().copied());
        let secret = Zeroizing::new(secret);
        Self { code: PseudorandomCode::new(&run), run, secret, words, bin: 0 }
    }

    /// The values of items in the next bins, as many as the receiver's message is for. Each item is
    /// given with the place of its bin among them.
    pub(crate) fn values(&mut self, message: &[u8], items: &[(usize, Block)]) -> Vec<[u8; 16]> {
        let bins = message.len() / code::CODE_LEN;
        self.words.advance(bins);
        let coded: Vec<Block> = items.iter().map(|(_, item)| *item).collect();
        let coded = Zeroizing::new(self.code.words(&coded));
        let values = items.iter().zip(coded.iter()).map(|((place, _), coded)| {
            let sent = code::of_bytes(&message[place * code::CODE_LEN..][..code::CODE_LEN]);
            let added = code::common(*self.secret, code::sum(sent, *coded));
            #[expect(clippy::cast_possible_truncation, reason = "bins are numbered by 32 bits")]
            let bin = self.bin + *place as u32;
            value(&self.run, bin, &code::sum(self.words.word(*place), added))
        });
        let values = values.collect();
        #[expect(clippy::cast_possible_truncation, reason = "at most 8,192")]
        let bins = bins as u32;
        self.bin += bins;
        values
    }
}
