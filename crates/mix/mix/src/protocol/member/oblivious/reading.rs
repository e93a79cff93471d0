//! The slots that a member reads in an exchange, and how it handles them.

use std::cmp::Reverse;

use zeroize::Zeroizing;

use super::super::MixMember;
use crate::protocol::event::MixClientEvent;
use crate::protocol::pair::SlotWriteContext;
use crate::{Participant, ReadRound, RoundStart, SlotPermutation};

/// The slots that are read in an exchange.
pub(super) struct ExchangeReads {
    /// The round that is read; `None` if there is nothing to read.
    round: Option<ReadRound>,
    slots: Vec<(usize, ExpectedSlot)>,
}

/// The expected content of a slot that is read, after the masks are removed.
enum ExpectedSlot {
    /// Zeros, because nobody has written the slot.
    Zeros,
    /// What this member has written.
    Own(Zeroizing<Vec<u8>>),
    /// Something that this member wrote before it was restarted.
    Unknown,
    /// Possibly a message of this participant to this member.
    Of(Participant),
}

impl ExchangeReads {
    /// The positions of the slots.
    pub(super) fn slots(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().map(|(slot, _)| *slot)
    }
}

impl MixMember {
    /// Chooses what to read: the sentinel, an own slot, and those of other members.
    pub(super) fn choose(&mut self, start: &RoundStart) -> ExchangeReads {
        let shape = *self.epoch.shape();
        let round = start.read.as_ref().map_or(0, |read| read.round);
        let order = SlotPermutation::new(self.epoch.key(), round, &shape);
        let mut slots = vec![(order.sentinel(), ExpectedSlot::Zeros)];
        if let Some(read) = &start.read {
            slots.push(self.own_slot(read, &order));
            for participant in self.senders_to_read(read, shape.reads() - slots.len()) {
                let number = usize::from(participant.member);
                let pair = self.pairs[number].as_ref().expect("the sender is another member");
                let epoch = self.epoch.number();
                let offset = pair.from.offset(epoch, round, shape.slots_per_member());
                slots.push((order.slot(number, offset), ExpectedSlot::Of(participant)));
            }
        }
        // All exchanges read the same number of slots.
        slots.resize_with(shape.reads(), || (order.sentinel(), ExpectedSlot::Zeros));
        ExchangeReads { round: start.read.clone(), slots }
    }

    /// One of this member's own slots, and its expected content.
    fn own_slot(&mut self, read: &ReadRound, order: &SlotPermutation) -> (usize, ExpectedSlot) {
        let own = self.epoch.own();
        let listed = read.participants.iter().find(|it| it.member == own);
        let written =
            listed.and_then(|own| self.oblivious.written.iter().find(|it| it.nonce == own.nonce));
        let (offset, expected) = if let Some(written) = written {
            (written.offset, ExpectedSlot::Own(written.slot.clone()))
        } else {
            let expected =
                if listed.is_some() { ExpectedSlot::Unknown } else { ExpectedSlot::Zeros };
            (self.below(self.epoch.shape().slots_per_member()), expected)
        };
        (order.slot(usize::from(own), offset), expected)
    }

    /// The participants whose slots are read, at most `most`. Half of the reads are for current
    /// conversations, the most recent first. The rest are for all participants in turn.
    fn senders_to_read(&mut self, read: &ReadRound, most: usize) -> Vec<Participant> {
        let mut others = read.participants.clone();
        others.retain(|it| it.member != self.epoch.own());
        let mut chosen: Vec<Participant> = self.current_senders(&others);
        // Half of an odd number is rounded up and down alternately.
        let half = most / 2 + most % 2 * usize::from(self.exchange.is_multiple_of(2));
        chosen.truncate(half);
        others.retain(|other| chosen.iter().all(|it| it.member != other.member));
        let next = others.partition_point(|it| it.member < self.oblivious.scan);
        others.rotate_left(next);
        others.truncate(most - chosen.len());
        if let Some(last) = others.last() {
            self.oblivious.scan = last.member + 1;
        }
        chosen.extend(others);
        chosen
    }

    /// The participants with whom there is a current conversation, the most recent first.
    fn current_senders(&self, others: &[Participant]) -> Vec<Participant> {
        let current = self.conversations.iter().filter_map(|(key, conversation)| {
            let number = *self.numbers.get(key)?;
            let active = conversation.current(self.exchange)?;
            let index = others.binary_search_by_key(&number, |it| it.member).ok()?;
            Some((Reverse(active), index))
        });
        let mut current: Vec<_> = current.collect();
        current.sort_unstable();
        current.into_iter().map(|(_, index)| others[index]).collect()
    }

    /// Handles the slots that were read. `since` is the round since which the mailboxes have not
    /// been those of their rounds.
    pub(super) fn read(&mut self, reading: &ExchangeReads, slots: &[Vec<u8>], since: Option<u64>) {
        let Some(read) = &reading.round else { return };
        let Some(slots) = self.unmasked(reading, read, slots) else {
            let (round, since) = (read.round, since.unwrap_or(read.round));
            self.conversations.not_of_round_since = Some(since);
            self.events.push_back(MixClientEvent::NotOfThisRound { round, since });
            return;
        };
        self.anonymity_set = read.participants.len();
        self.conversations.set_last_read(self.epoch.number(), read.round);
        for ((_, expected), mut slot) in reading.slots.iter().zip(slots) {
            if let ExpectedSlot::Of(participant) = expected {
                self.read_slot(read.round, participant, &mut slot);
            }
        }
    }

    /// The slots without the participants' masks; `None` if they are not those of the round.
    fn unmasked(
        &self,
        reading: &ExchangeReads,
        read: &ReadRound,
        slots: &[Vec<u8>],
    ) -> Option<Vec<Zeroizing<Vec<u8>>>> {
        let slot_len = self.epoch.shape().slot_len();
        if slots.len() != reading.slots.len() || slots.iter().any(|slot| slot.len() != slot_len) {
            return None;
        }
        let mut slots: Vec<_> = slots.iter().cloned().map(Zeroizing::new).collect();
        for participant in &read.participants {
            let mut mask = self.epoch.key().mask(read.round, participant);
            for (place, slot) in reading.slots().zip(&mut slots) {
                mask.add_to_slot(place, slot);
            }
        }
        let as_expected =
            reading.slots.iter().zip(&slots).all(|((_, expected), slot)| match expected {
                ExpectedSlot::Zeros => slot.iter().all(|&byte| byte == 0),
                ExpectedSlot::Own(written) => **written == **slot,
                ExpectedSlot::Unknown | ExpectedSlot::Of(_) => true,
            });
        as_expected.then_some(slots)
    }

    /// Handles a slot of a participant that may contain a message to this member.
    fn read_slot(&mut self, round: u64, from: &Participant, slot: &mut [u8]) {
        let number = usize::from(from.member);
        let pair = self.pairs[number].as_ref().expect("the sender is another member");
        let (epoch, nonce) = (self.epoch.number(), from.nonce);
        if pair.from.open(SlotWriteContext { epoch, round, nonce, slot: None }, slot) {
            let partner = self.epoch.members()[number].clone();
            self.receive(&partner, slot);
        }
    }
}
