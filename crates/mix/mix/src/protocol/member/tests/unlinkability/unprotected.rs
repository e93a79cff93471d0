//! What the proxy would receive if protections were left out.

use super::super::group::{Proxy, group_key, identity};
use super::MEMBERS;
use crate::protocol::pair::{PairKeys, SlotWriteContext};
use crate::{Mailbox, MemberExchange, Participant, SlotPermutation};

#[derive(Clone, Copy, Debug)]
pub(super) struct Protections {
    pub(super) masks: Masks,
    /// Slots are in an order that is secret, and of each round.
    pub(super) order: bool,
    /// Which of the writer's slots is the receiver's is secret, and of each round.
    pub(super) offsets: bool,
    /// Which slots are read is hidden, as by an engine.
    pub(super) reads: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Masks {
    EachRound,
    /// The same for all rounds.
    Same,
    /// Of the written slot only.
    WrittenSlot,
    None,
}

impl Protections {
    pub(super) const ALL: Self =
        Self { masks: Masks::EachRound, order: true, offsets: true, reads: true };
}

/// What a member with these keys hands in in the round that was closed last, with these protections
/// only.
pub(super) fn encode(
    protections: Protections,
    pairs: &[PairKeys],
    own: u16,
    proxy: &Proxy,
    exchange: &MemberExchange,
) -> Mailbox {
    let (shape, round, key) = (&proxy.shape, proxy.round - 1, group_key(proxy.epoch));
    let participant = Participant { member: own, nonce: exchange.nonce };
    let mut written = Mailbox::new(shape);
    key.mask(round, &participant).fill(&mut written);
    written.add(&exchange.update);
    let order = SlotPermutation::new(&key, round, shape);
    let (own, slots) = (usize::from(own), shape.slots_per_member());
    let offset = (0..slots).find(|&it| written.slot(order.slot(own, it)) != [0; 64]).unwrap();
    let content = written.slot(order.slot(own, offset)).to_vec();

    let fixed = receiver(pairs, proxy, exchange, &content).map(|it| it - usize::from(it > own));
    let offset = if protections.offsets { offset } else { fixed.unwrap_or(offset) };
    let slot = if protections.order { order.slot(own, offset) } else { own * slots + offset };
    let mut update = Mailbox::new(shape);
    update.slot_mut(slot).copy_from_slice(&content);
    match protections.masks {
        Masks::EachRound => add_mask(&key, round, participant, &mut update),
        Masks::Same => {
            add_mask(&key, 0, Participant { nonce: [0; 16], ..participant }, &mut update);
        }
        Masks::WrittenSlot => {
            key.mask(round, &participant).add_to_slot(slot, update.slot_mut(slot));
        }
        Masks::None => {}
    }
    // So the others differ from the protocol in nothing but what they leave out.
    let all = protections.masks == Masks::EachRound && protections.order && protections.offsets;
    assert!(!all || update == exchange.update);
    update
}

fn add_mask(key: &crate::MixGroupKey, round: u64, of: Participant, update: &mut Mailbox) {
    let mut mask = update.clone();
    key.mask(round, &of).fill(&mut mask);
    update.add(&mask);
}

/// A member's keys with all.
pub(super) fn pairs_of(own: usize) -> Vec<PairKeys> {
    let pair = |other| PairKeys::new(&identity(own), &identity(other).public());
    (0..MEMBERS).map(pair).collect()
}

/// The receiver of a slot, if any.
fn receiver(
    pairs: &[PairKeys],
    proxy: &Proxy,
    exchange: &MemberExchange,
    content: &[u8],
) -> Option<usize> {
    let (epoch, round) = (proxy.epoch, proxy.round - 1);
    let at = SlotWriteContext { epoch, round, nonce: exchange.nonce, slot: None };
    pairs.iter().position(|pair| pair.to.open(at, &mut content.to_vec()))
}
