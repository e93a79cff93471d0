//! The pseudorandom code: words of two different items differ in at least 128 bits, except with a
//! probability below 2^-40 for all pairs of two sets of 2^24 (Kolesnikov, Kumaresan, Rosulek,
//! Trieu, 2016, section 3 and table 1).

use blocks::Block;
use blocks::aes::Aes128;

use crate::hello::PsiRunDigest;

/// The bits of a code word.
pub(crate) const CODE_BITS: usize = 448;

/// The blocks in which a code word is kept. Of the last, only the first half is used.
pub(crate) const CODE_BLOCKS: usize = CODE_BITS.div_ceil(128);

/// The bytes of a code word.
pub(crate) const CODE_LEN: usize = CODE_BITS / 8;

/// The used bits of the last block.
const LAST_BLOCK: u128 = (1 << (CODE_BITS % 128)) - 1;

/// A code word, or something that is added to one.
pub(crate) type CodeWord = [Block; CODE_BLOCKS];

/// The code of a run.
pub(crate) struct PseudorandomCode([Aes128; CODE_BLOCKS]);

impl PseudorandomCode {
    pub(crate) fn new(run: &PsiRunDigest) -> Self {
        Self(std::array::from_fn(|block| {
            #[expect(clippy::cast_possible_truncation, reason = "there are four")]
            let number = block as u8;
            Aes128::new(run.key(&[b'c', number]))
        }))
    }

    /// The words of items.
    pub(crate) fn words(&self, items: &[Block]) -> Vec<CodeWord> {
        let mut words = vec![[Block::ZERO; CODE_BLOCKS]; items.len()];
        let mut blocks = Vec::with_capacity(items.len());
        for (place, cipher) in self.0.iter().enumerate() {
            blocks.clear();
            blocks.extend_from_slice(items);
            cipher.encrypt(&mut blocks);
            for (word, block) in words.iter_mut().zip(&blocks) {
                word[place] = *block;
            }
        }
        for word in &mut words {
            word[CODE_BLOCKS - 1] = word[CODE_BLOCKS - 1] & Block::from(LAST_BLOCK);
        }
        words
    }
}

/// The bytes of a word.
pub(crate) fn to_bytes(word: &CodeWord) -> &[u8] {
    &Block::bytes_of(word)[..CODE_LEN]
}

/// The word of so many bytes: [`CODE_LEN`].
pub(crate) fn of_bytes(bytes: &[u8]) -> CodeWord {
    let mut word = [Block::ZERO; CODE_BLOCKS];
    Block::bytes_of_mut(&mut word)[..CODE_LEN].copy_from_slice(bytes);
    word
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
    use crate::hello::HELLO_LEN;

    #[test]
    fn words_are_far_from_each_other() {
        let run = PsiRunDigest::new(&[1; HELLO_LEN], &[2; HELLO_LEN]);
        let items: Vec<Block> = (0..2_000).map(|number: u128| Block::from(number)).collect();
        let words = PseudorandomCode::new(&run).words(&items);
        let bits = |word: &CodeWord| to_bytes(word).iter().map(|byte| byte.count_ones()).sum();
        let least = words
            .iter()
            .enumerate()
            .flat_map(|(i, word)| words[..i].iter().map(move |other| bits(&sum(*word, *other))));
        let least: u32 = least.min().unwrap();
        assert!((150..224).contains(&least), "{least}");
        assert!(words.iter().all(|word| u128::from(word[CODE_BLOCKS - 1]) <= LAST_BLOCK));
        assert_eq!(to_bytes(&of_bytes(to_bytes(&words[7]))), to_bytes(&words[7]));
    }
}
