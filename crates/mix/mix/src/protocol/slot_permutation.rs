//! The secret order of the members' slots in a round.

use zeroize::Zeroizing;

use crate::{MailboxShape, MixGroupKey};

/// The permutation p of a round: the positions of the members' slots and of the sentinel. It is
/// secret from the proxy. The member's own memory accesses depend on it.
pub struct SlotPermutation {
    places: Zeroizing<Vec<u32>>,
    slots_per_member: usize,
}

impl SlotPermutation {
    /// The permutation of a round.
    #[expect(clippy::missing_panics_doc, reason = "a shape has at most 2^20 + 1 slots")]
    pub fn new(key: &MixGroupKey, round: u64, shape: &MailboxShape) -> Self {
        let slots = u32::try_from(shape.slots()).expect("a shape has at most 2^20 + 1 slots");
        let mut places: Zeroizing<Vec<u32>> = Zeroizing::new((0..slots).collect());
        let mut random = Zeroizing::new(vec![0; 8 * places.len()]);
        key.prg(&[b"slots", &round.to_be_bytes()]).fill_bytes(&mut random);
        // Fisher and Yates.
        for (i, random) in (1..places.len()).rev().zip(random.as_chunks().0) {
            places.swap(i, below(*random, i + 1));
        }
        Self { places, slots_per_member: shape.slots_per_member() }
    }

    /// The position of a member's slot, given its offset among the member's slots.
    ///
    /// # Panics
    /// If there is no such member or slot.
    pub fn slot(&self, member: usize, offset: usize) -> usize {
        assert!(offset < self.slots_per_member, "the offset of a slot of a member");
        let (_sentinel, members) = self.places.split_last().expect("a mailbox has slots");
        members[member * self.slots_per_member + offset] as usize
    }

    /// The position of the sentinel, the slot that nobody writes.
    #[expect(clippy::missing_panics_doc, reason = "a mailbox has slots")]
    pub fn sentinel(&self) -> usize {
        *self.places.last().expect("a mailbox has slots") as usize
    }
}

/// Maps random bytes to a number below `n`. The bias is at most n / 2^64.
pub(crate) fn below(random: [u8; 8], n: usize) -> usize {
    let scaled = (u128::from(u64::from_le_bytes(random)) * n as u128) >> 64;
    usize::try_from(scaled).expect("less than a usize")
}

#[cfg(test)]
mod tests {
    use sim::statistics::ChiSquared;

    use super::*;

    #[test]
    fn slot_permutation_is_a_bijection_that_changes_each_round() {
        let shape = MailboxShape::new(7, 3, 1, 3, 64).unwrap();
        let places = |round| {
            let order = SlotPermutation::new(&MixGroupKey::new([3; 32]), round, &shape);
            let slots = (0..7).flat_map(|member| (0..3).map(move |offset| (member, offset)));
            let mut places: Vec<usize> = slots.map(|(m, o)| order.slot(m, o)).collect();
            places.push(order.sentinel());
            places
        };
        let mut sorted = places(1);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..22).collect::<Vec<_>>());
        assert_eq!(places(1), places(1));
        assert_ne!(places(1), places(2));
    }

    /// Chi-squared with fewer than 24 degrees of freedom, as no two slots have one position. By
    /// chance it is five deviations above 24 with a probability below 10^-4; the key is fixed.
    #[test]
    fn slot_positions_are_uniform() {
        let shape = MailboxShape::new(2, 2, 1, 3, 64).unwrap();
        let (key, rounds) = (MixGroupKey::new([5; 32]), 5_000_u32);
        let mut counts = [[0_u32; 5]; 5];
        for round in 0..rounds {
            let order = SlotPermutation::new(&key, u64::from(round), &shape);
            for slot in 0..4 {
                counts[slot][order.slot(slot / 2, slot % 2)] += 1;
            }
            counts[4][order.sentinel()] += 1;
        }
        let uniform = ChiSquared::of_uniform(counts.as_flattened());
        assert!(uniform.deviations() < 5.0, "{uniform:?}");
    }
}
