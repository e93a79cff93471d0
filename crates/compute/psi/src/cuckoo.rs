//! Cuckoo hashing: each item has three possible bins, and the receiver puts each of its items into
//! one of them, at most one into each bin.

use blocks::Block;
use blocks::aes::Aes128;

use crate::error::Error;

/// The number of bins in which an item may be.
pub(crate) const CHOICES: usize = 3;

/// The minimum number of bins, so that small sets find a place too. With 512 bins, the most likely
/// reason why there is none are four items with the same three bins: for 403 items, with a
/// probability of 2^-43.
const MIN_BINS: usize = 512;

/// The bins for a hundred items. Pinkas, Schneider, Zohner ("Scalable private set intersection
/// based on OT extension", 2018) measured that 127 are enough for a failure probability of 2^-40.
const BINS_PER_HUNDRED: usize = 127;

/// How often an item may displace another one before the table is given up.
const MAX_MOVES: usize = 100_000;

/// The bits of a number that selects a bin.
const SELECTOR_BITS: u32 = 42;

/// The number of bins for so many items of the receiver.
pub(crate) fn bins(items: usize) -> usize {
    (items * BINS_PER_HUNDRED).div_ceil(100).max(MIN_BINS)
}

/// The bins in which items may be.
pub(crate) struct BinSelector {
    cipher: Aes128,
    bins: usize,
}

impl BinSelector {
    /// A selector with a public key, for so many bins.
    pub(crate) fn new(key: Block, bins: usize) -> Self {
        Self { cipher: Aes128::new(key), bins }
    }

    /// The bins of each item: three different ones.
    pub(crate) fn bins_of(&self, items: &[Block]) -> Vec<[u32; CHOICES]> {
        let mut selectors = items.to_vec();
        self.cipher.encrypt(&mut selectors);
        selectors.into_iter().map(|selector| self.select(selector.into())).collect()
    }

    #[expect(clippy::cast_possible_truncation, reason = "bins are numbered by 32 bits")]
    fn select(&self, selector: u128) -> [u32; CHOICES] {
        // The second is one of the others, and so is the third.
        let one_of = |place: u32, count: usize| {
            let part = (selector >> (place * SELECTOR_BITS)) & ((1 << SELECTOR_BITS) - 1);
            ((part * count as u128) >> SELECTOR_BITS) as u32
        };
        let first = one_of(0, self.bins);
        let mut second = one_of(1, self.bins - 1);
        second += u32::from(second >= first);
        let (low, high) = (first.min(second), first.max(second));
        let mut third = one_of(2, self.bins - 2);
        third += u32::from(third >= low);
        third += u32::from(third >= high);
        [first, second, third]
    }
}

/// Which item is in each bin.
pub(crate) struct CuckooTable(Vec<Option<u32>>);

impl CuckooTable {
    /// Puts each item into one of its bins, of so many.
    ///
    /// # Errors
    /// If no place is found for an item.
    #[expect(clippy::cast_possible_truncation, reason = "there are at most 2^24 items")]
    pub(crate) fn new(choices: &[[u32; CHOICES]], bins: usize) -> Result<Self, Error> {
        let mut table = vec![None; bins];
        // Which of an item's bins is tried next. Going round is as good as chance.
        let mut next = vec![0_u8; choices.len()];
        for item in 0..choices.len() {
            let mut moving = item as u32;
            for moves in 0.. {
                if moves == MAX_MOVES {
                    return Err(Error::NoBin);
                }
                let turn = &mut next[moving as usize];
                let bin = choices[moving as usize][usize::from(*turn)];
                *turn = (*turn + 1) % CHOICES as u8;
                match table[bin as usize].replace(moving) {
                    None => break,
                    Some(displaced) => moving = displaced,
                }
            }
        }
        Ok(Self(table))
    }

    /// The item in each bin.
    pub(crate) fn bins(&self) -> &[Option<u32>] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices(items: usize, bins: usize, seed: u64) -> Vec<[u32; CHOICES]> {
        let mut random = fastrand::Rng::with_seed(seed);
        let items: Vec<Block> = (0..items).map(|_| Block::from(random.u128(..))).collect();
        BinSelector::new(Block::from(u128::from(seed)), bins).bins_of(&items)
    }

    #[test]
    fn each_item_is_in_one_of_its_bins() {
        for items in [0, 1, 2, 403, 404, 10_000] {
            let bins = bins(items);
            let choices = choices(items, bins, 1);
            let table = CuckooTable::new(&choices, bins).unwrap();
            let mut placed = vec![0; items];
            for (bin, item) in table.bins().iter().enumerate() {
                if let Some(item) = item {
                    placed[*item as usize] += 1;
                    assert!(choices[*item as usize].contains(&u32::try_from(bin).unwrap()));
                }
            }
            assert!(placed.iter().all(|&count| count == 1), "{items}");
        }
    }

    #[test]
    fn the_bins_of_an_item_are_different_and_uniform() {
        let mut counts = [0; 5];
        for [a, b, c] in choices(10_000, 5, 2) {
            assert!(a != b && b != c && a != c && a.max(b).max(c) < 5);
            for bin in [a, b, c] {
                counts[bin as usize] += 1;
            }
        }
        assert!(counts.iter().all(|count| (5_700..6_300).contains(count)), "{counts:?}");
    }

    #[test]
    fn there_is_a_place_in_many_tables() {
        for seed in 0..300 {
            for items in [40, 403, 1_000] {
                let bins = bins(items);
                CuckooTable::new(&choices(items, bins, seed), bins).unwrap();
            }
        }
    }

    #[test]
    fn too_many_items_are_refused() {
        let refused = CuckooTable::new(&[[0, 1, 2]; 4], 3);
        assert!(matches!(refused, Err(Error::NoBin)));
    }
}
