//! What a member writes in an oblivious exchange.

use zeroize::Zeroizing;

use super::super::MixMember;
use crate::protocol::content::SlotContent;
use crate::protocol::pair::{PairKey, SlotWriteContext};
use crate::protocol::round::NONCE_LEN;
use crate::{Mailbox, Participant, SlotPermutation};

/// The number of exchanges whose written slots are remembered.
const REMEMBERED: usize = 4;
/// One of the slots that a member wrote in an exchange.
pub(super) struct WrittenSlot {
    pub(super) nonce: [u8; NONCE_LEN],
    /// The offset among the member's slots.
    pub(super) offset: usize,
    pub(super) slot: Zeroizing<Vec<u8>>,
}

impl MixMember {
    /// The nonce and the update of an exchange: the mask with s own slots written. Slots are
    /// written to partners only if the conversations are stored.
    pub(super) fn write(&mut self, round: u64, is_stored: bool) -> ([u8; NONCE_LEN], Mailbox) {
        let shape = *self.epoch.shape();
        let mut nonce = [0; NONCE_LEN];
        self.random.fill_bytes(&mut nonce);
        let own = self.epoch.own();
        let mut update = Mailbox::new(&shape);
        self.epoch.key().mask(round, &Participant { member: own, nonce }).fill(&mut update);
        let order = SlotPermutation::new(self.epoch.key(), round, &shape);
        let at = SlotWriteContext { epoch: self.epoch.number(), round, nonce, slot: None };
        let slots = self.compose(at, is_stored);
        for (offset, slot) in &slots {
            let place = update.slot_mut(order.slot(usize::from(own), *offset));
            place.iter_mut().zip(slot.iter()).for_each(|(byte, added)| *byte ^= added);
        }
        // A random one of them is kept for comparison with the next mailbox.
        let one = self.below(slots.len());
        if let Some((offset, slot)) = slots.into_iter().nth(one) {
            self.oblivious.written.truncate(REMEMBERED - 1);
            self.oblivious.written.push_front(WrittenSlot { nonce, offset, slot });
        }
        (nonce, update)
    }

    /// The s sealed slots to write, with their offsets: those that conversations need, and dummies
    /// that nobody can open. Both take the same work.
    fn compose(
        &mut self,
        at: SlotWriteContext,
        is_stored: bool,
    ) -> Vec<(usize, Zeroizing<Vec<u8>>)> {
        let shape = *self.epoch.shape();
        let mut free: Vec<usize> = (0..shape.slots_per_member()).collect();
        let mut slots = Vec::with_capacity(shape.writes());
        let again = self.retransmits_first();
        let partners = if is_stored { self.partners_in_turn(again) } else { Vec::new() };
        for partner in partners {
            if slots.len() == shape.writes() {
                break;
            }
            let awaited = self.below(2) == 0;
            let pair = self.pairs[partner].as_ref().expect("a conversation is with another member");
            let offset = pair.to.offset(at.epoch, at.round, shape.slots_per_member());
            // If two messages have the same slot, one of them waits.
            let Some(index) = free.iter().position(|&free| free == offset) else { continue };
            free.remove(index);
            let (key, len) = (&self.epoch.members()[partner].key, shape.slot_len());
            let mut slot = self.conversations.write(self.exchange, key, again, awaited, len);
            pair.to.seal(at, &mut slot);
            slots.push((offset, slot));
        }
        while slots.len() < shape.writes() {
            let mut nobody = Zeroizing::new([0; 32]);
            self.random.fill_bytes(&mut *nobody);
            let nobody = PairKey::new(&nobody);
            let offset = free.swap_remove(nobody.offset(at.epoch, at.round, free.len()));
            let mut slot = SlotContent::NOTHING.encode(shape.slot_len());
            nobody.seal(at, &mut slot);
            slots.push((offset, slot));
        }
        slots
    }
}
