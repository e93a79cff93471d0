//! The group key of an epoch, and the masks derived from it.

use std::fmt;

use blocks::Block;
use blocks::prg::Prg;
use keys::SharedKey;
use zeroize::{Zeroize, Zeroizing};

use crate::{Mailbox, Participant};

/// Length of an AES block in bytes.
const BLOCK: usize = 16;

/// The key K of an epoch. All members know it; the proxy does not. Secret, wiped on drop.
pub struct MixGroupKey {
    bytes: Zeroizing<[u8; 32]>,
    keyed: SharedKey,
}

impl MixGroupKey {
    /// A key made of 32 random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self { keyed: SharedKey::new(&bytes), bytes: Zeroizing::new(bytes) }
    }

    /// Its bytes. Secret.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// The mask of a participant of a round.
    pub fn mask(&self, round: u64, participant: &Participant) -> ParticipantMask {
        let member = participant.member.to_be_bytes();
        ParticipantMask::new(self.prg(&[
            b"mask",
            &round.to_be_bytes(),
            &member,
            &participant.nonce,
        ]))
    }

    /// AES-128 in counter mode, with the first 16 bytes of the HMAC of `parts` as its key.
    pub(crate) fn prg(&self, parts: &[&[u8]]) -> Prg {
        let code = Zeroizing::new(self.keyed.authenticate(parts));
        Prg::new(Block::from_bytes(*code.first_chunk().expect("a code has 32 bytes")))
    }
}

impl fmt::Debug for MixGroupKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("MixGroupKey(..)")
    }
}

/// The mask that a participant adds to all slots of a mailbox. It looks uniformly random without
/// the group key.
pub struct ParticipantMask {
    prg: Prg,
    /// The number of the block that `prg` gives next.
    next: u64,
    blocks: Vec<Block>,
}

impl ParticipantMask {
    fn new(prg: Prg) -> Self {
        Self { prg, next: 0, blocks: Vec::new() }
    }

    /// Overwrites a mailbox with the mask.
    pub fn fill(mut self, mailbox: &mut Mailbox) {
        self.prg.fill_bytes(mailbox.as_bytes_mut());
    }

    /// Adds (exclusive or) the mask of one slot to the bytes of that slot. Computes no other part
    /// of the mask.
    pub fn add_to_slot(&mut self, slot: usize, bytes: &mut [u8]) {
        let start = slot * bytes.len();
        let (first, lead) = ((start / BLOCK) as u64, start % BLOCK);
        self.blocks.resize((lead + bytes.len()).div_ceil(BLOCK), Block::ZERO);
        self.prg.skip(first.wrapping_sub(self.next));
        self.prg.fill(&mut self.blocks);
        self.next = first + self.blocks.len() as u64;
        let mask = &Block::bytes_of(&self.blocks)[lead..];
        bytes.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    }
}

impl Drop for ParticipantMask {
    fn drop(&mut self) {
        self.blocks.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MailboxShape;

    fn participant(member: u16, nonce: u8) -> Participant {
        Participant { member, nonce: [nonce; 16] }
    }

    #[test]
    fn masks_of_slots_are_parts_of_the_mask() {
        let key = MixGroupKey::new([7; 32]);
        for slot_len in [64, 100, 4096] {
            let shape = MailboxShape::new(5, 3, 1, 3, slot_len).unwrap();
            let mut whole = Mailbox::new(&shape);
            key.mask(9, &participant(2, 1)).fill(&mut whole);
            let mut mask = key.mask(9, &participant(2, 1));
            for slot in [3, 0, 15, 15, 1] {
                let mut bytes = whole.slot(slot).to_vec();
                mask.add_to_slot(slot, &mut bytes);
                assert_eq!(bytes, vec![0; slot_len], "slot {slot} of {slot_len} bytes");
            }
        }
    }

    #[test]
    fn masks_differ_by_key_round_member_and_nonce() {
        let shape = MailboxShape::new(2, 1, 1, 3, 64).unwrap();
        let mask = |key: u8, round, participant| {
            let mut mailbox = Mailbox::new(&shape);
            MixGroupKey::new([key; 32]).mask(round, &participant).fill(&mut mailbox);
            mailbox.as_bytes().to_vec()
        };
        let masks = [
            mask(1, 1, participant(1, 1)),
            mask(2, 1, participant(1, 1)),
            mask(1, 2, participant(1, 1)),
            mask(1, 1, participant(0, 1)),
            mask(1, 1, participant(1, 0)),
        ];
        for (i, one) in masks.iter().enumerate() {
            assert!(masks[..i].iter().all(|other| one != other));
        }
        assert_eq!(masks[0], mask(1, 1, participant(1, 1)));
    }

    #[test]
    fn the_key_is_not_printed() {
        assert_eq!(format!("{:?}", MixGroupKey::new([0xAB; 32])), "MixGroupKey(..)");
    }
}
