//! Masks of items, in ascending order: the order says nothing about the items.

/// A statistical security parameter: the probability that two different items have equal masks is
/// below 2^-40.
const STATISTICAL_BITS: u32 = 40;

/// A mask with the number of an item in the lower 32 bits.
pub(crate) type NumberedMask = u128;

/// The number of what is no item, but hides how many there are.
pub(crate) const NO_ITEM: u32 = u32::MAX;

/// The length of masks in bytes, if each of `receiver` masks is compared with each of `sender`: at
/// most 12.
pub(crate) fn mask_len(receiver: usize, sender: usize) -> usize {
    let bits = |count: usize| usize::BITS - count.leading_zeros();
    (STATISTICAL_BITS + bits(receiver) + bits(sender)).div_ceil(8) as usize
}

/// A mask, of a digest's first `len` bytes.
pub(crate) fn mask(digest: &[u8; 16], len: usize) -> u128 {
    u128::from_le_bytes(*digest) & ((1 << (8 * len)) - 1)
}

/// A mask with the number of an item.
pub(crate) fn numbered(digest: &[u8; 16], len: usize, item: u32) -> NumberedMask {
    mask(digest, len) << 32 | u128::from(item)
}

/// The masks of a message, of `len` bytes each.
pub(crate) fn parse(message: &[u8], len: usize) -> impl Iterator<Item = u128> {
    message.chunks_exact(len).map(move |bytes| {
        let mut mask = [0; 16];
        mask[..len].copy_from_slice(bytes);
        u128::from_le_bytes(mask)
    })
}

/// The item's number.
#[expect(clippy::cast_possible_truncation, reason = "it is in the lower 32 bits")]
fn item(mask: NumberedMask) -> u32 {
    mask as u32
}

/// Appends the masks without numbers to a message.
pub(crate) fn append(masks: &[NumberedMask], len: usize, message: &mut Vec<u8>) {
    for mask in masks {
        message.extend_from_slice(&(mask >> 32).to_le_bytes()[..len]);
    }
}

/// The receiver's masks in ascending order, compared with those that the sender sends in the same
/// order.
pub(crate) struct MaskComparison {
    own: Vec<NumberedMask>,
    /// The first of them that is not compared yet.
    next: usize,
    /// The last mask of the sender.
    last: u128,
    /// The items of this party whose masks the sender has sent.
    found: Vec<u32>,
}

impl MaskComparison {
    pub(crate) fn new(mut own: Vec<NumberedMask>) -> Self {
        own.sort_unstable();
        Self { own, next: 0, last: 0, found: Vec::new() }
    }

    /// Compares the sender's next masks, of `len` bytes each. Returns whether they are in ascending
    /// order.
    pub(crate) fn compare(&mut self, message: &[u8], len: usize) -> bool {
        for mask in parse(message, len) {
            if mask < self.last {
                return false;
            }
            self.last = mask;
            while self.own.get(self.next).is_some_and(|own| own >> 32 < mask) {
                self.next += 1;
            }
            if let Some(own) = self.own.get(self.next)
                && own >> 32 == mask
            {
                self.found.push(item(*own));
                self.next += 1;
            }
        }
        true
    }

    /// The items that were found, in the order of their masks.
    pub(crate) fn into_found(self) -> Vec<u32> {
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_as_long_as_their_number_requires() {
        assert_eq!(mask_len(0, 0), 5);
        assert_eq!(mask_len(1_000, 3_000), 8);
        assert_eq!(mask_len(1_000_000, 3_000_000), 11);
        assert_eq!(mask_len(1 << 24, 3 << 24), 12);
    }

    #[test]
    fn equal_masks_are_found_in_pieces() {
        let mask = |number: u8| {
            let mut digest = [0; 16];
            digest[4] = number;
            digest
        };
        let own = [9, 3, 5].map(|number| numbered(&mask(number), 5, number.into()));
        let mut theirs = Vec::new();
        for number in [1, 3, 4, 9, 10] {
            append(&[numbered(&mask(number), 5, NO_ITEM)], 5, &mut theirs);
        }
        let mut comparison = MaskComparison::new(own.to_vec());
        assert!(comparison.compare(&theirs[..10], 5));
        assert!(comparison.compare(&theirs[10..], 5));
        assert!(!comparison.compare(&theirs[..5], 5), "not in order");
        assert_eq!(comparison.into_found(), [3, 9]);
    }
}
