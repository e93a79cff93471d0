//! A member's exchanges by broadcast: it hands in its own slots, and gets those of all participants
//! of the previous round. The slots for this member open with keys that it shares with their
//! writers. All others look like random bytes.

use std::collections::VecDeque;

use keys::IdentitySecretKey;
use zeroize::Zeroizing;

use super::{MixMember, MixMemberError};
use crate::protocol::content::SlotContent;
use crate::protocol::conversation::MAX_WINDOW;
use crate::protocol::event::{ChatMessageId, MixClientEvent};
use crate::protocol::pair::{PairKey, PairKeys, SlotWriteContext};
use crate::protocol::round::{NONCE_LEN, Participant, ReadRound, RoundPosition, RoundStart};
use crate::protocol::wire::ArchivedRound;
use crate::{GroupMember, MemberEpoch};

/// The number of exchanges whose slots are remembered.
const REMEMBERED: usize = 4;

/// The state of exchanges by broadcast in an epoch.
#[derive(Default)]
pub(super) struct BroadcastRounds {
    /// The keys that seal slots in this epoch, by member number; `None` for this member itself.
    pairs: Vec<Option<PairKeys>>,
    /// What this member handed in in its last exchanges, the latest first.
    written: VecDeque<WrittenRound>,
}

/// What a member handed in in an exchange.
struct WrittenRound {
    exchange: u64,
    round: u64,
    nonce: [u8; NONCE_LEN],
    slots: Vec<u8>,
    /// Whether it is known if the round's mailbox contains it.
    is_settled: bool,
}

/// A member's part of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BroadcastExchange {
    /// The nonce of its seals. Public.
    pub nonce: [u8; NONCE_LEN],
    /// Its own slots: m L bytes that look random.
    pub slots: Vec<u8>,
}

impl BroadcastRounds {
    /// An epoch in which slots are sealed with these keys, by member number.
    pub(super) fn new(pairs: Vec<Option<PairKeys>>) -> Self {
        Self { pairs, written: VecDeque::new() }
    }
}

impl MixMember {
    /// Begins the exchange of a round. It replaces an earlier exchange of the same round whose
    /// request the proxy has not taken. What was written in a round that is lost is written again.
    ///
    /// `is_stored`: see [`Self::handle_round`].
    ///
    /// # Errors
    /// If the start of the round deviates from the protocol. The member is then unchanged.
    pub fn handle_broadcast_round(
        &mut self,
        start: &RoundStart,
        is_stored: bool,
    ) -> Result<BroadcastExchange, MixMemberError> {
        self.begin_round(start)?;
        self.conversations.set_window(MAX_WINDOW);
        self.settle(start);
        let mut nonce = [0; NONCE_LEN];
        self.random.fill_bytes(&mut nonce);
        let slots = self.own_slots(start.round, nonce, is_stored);
        let written = &mut self.broadcast.written;
        written.truncate(REMEMBERED - 1);
        written.push_front(WrittenRound {
            exchange: self.exchange,
            round: start.round,
            nonce,
            slots: slots.clone(),
            is_settled: false,
        });
        Ok(BroadcastExchange { nonce, slots })
    }

    /// Finds out if earlier exchanges are in the mailbox that is offered. If not, or if nothing is
    /// known of them, they count as lost: what is then written twice is recognised by the receiver.
    fn settle(&mut self, start: &RoundStart) {
        for written in self.broadcast.written.iter_mut().filter(|it| !it.is_settled) {
            let own = Participant { member: self.epoch.own(), nonce: written.nonce };
            let read = start.read.as_ref().filter(|read| read.round == written.round);
            if !read.is_some_and(|read| read.participants.contains(&own)) {
                self.conversations.handle_lost(written.exchange);
            }
            written.is_settled = true;
        }
    }

    /// The outcome of the last exchange will not be known: it counts as lost.
    pub(super) fn give_up_unsettled(&mut self) {
        for written in self.broadcast.written.drain(..).filter(|it| !it.is_settled) {
            self.conversations.handle_lost(written.exchange);
        }
    }

    /// The own slots, sealed: one for each partner in turn, and further ones for partners for whom
    /// there is more that is new; dummies that nobody can open. All take the same work.
    fn own_slots(&mut self, round: u64, nonce: [u8; NONCE_LEN], is_stored: bool) -> Vec<u8> {
        let (epoch, shape) = (self.epoch.number(), *self.epoch.shape());
        let again = self.retransmits_first();
        let mut served = Vec::new();
        let mut partners =
            VecDeque::from(if is_stored { self.partners_in_turn(again) } else { Vec::new() });
        let mut slots = Vec::with_capacity(shape.own_slots_len());
        for number in 0..shape.slots_per_member() {
            let slot = u8::try_from(number).expect("a member has at most 64 slots");
            let at = SlotWriteContext { epoch, round, nonce, slot: Some(slot) };
            let sealed = if let Some(partner) = partners.pop_front() {
                let awaited = self.below(2) == 0;
                let (key, len) = (&self.epoch.members()[partner].key, shape.slot_len());
                let again = again && !served.contains(&partner);
                let mut slot = self.conversations.write(self.exchange, key, again, awaited, len);
                served.push(partner);
                let pair = self.broadcast.pairs[partner].as_ref();
                pair.expect("a conversation is with another member").to.seal(at, &mut slot);
                if self.conversations.has_new(key) {
                    // Before those for whom there is nothing new.
                    let is_idle = |other: &usize| {
                        !self.conversations.has_new(&self.epoch.members()[*other].key)
                    };
                    let at = partners.iter().position(is_idle).unwrap_or(partners.len());
                    partners.insert(at, partner);
                }
                slot
            } else {
                let mut nobody = Zeroizing::new([0; 32]);
                self.random.fill_bytes(&mut *nobody);
                let mut slot = SlotContent::NOTHING.encode(shape.slot_len());
                PairKey::new(&nobody).seal(at, &mut slot);
                slot
            };
            slots.extend_from_slice(&sealed);
        }
        slots
    }

    /// Reads the mailbox of a round, if it was not read before: m L bytes for each participant, in
    /// their order. `is_kept` says whether the proxy keeps it for members that are away. Nothing
    /// that the proxy sees depends on what is read.
    pub fn read_mailbox(&mut self, read: &ReadRound, mailbox: &[u8], is_kept: bool) {
        let epoch = self.epoch.number();
        let position = RoundPosition { epoch, round: read.round };
        if !self.begin_reading(position) {
            return;
        }
        self.anonymity_set = read.participants.len();
        self.compare_mailbox(read, mailbox, is_kept);
        for (number, slot) in opened(&self.epoch, &self.broadcast.pairs, read, mailbox) {
            let partner = self.epoch.members()[number].clone();
            self.receive(&partner, &slot);
        }
    }

    /// Compares the own slots in the mailbox of a round. Of a round that comes again when this
    /// member has caught up, nothing else is read now.
    pub(crate) fn compare_mailbox(&mut self, read: &ReadRound, mailbox: &[u8], is_kept: bool) {
        let own = self.epoch.own();
        let slots = mailbox.chunks_exact(self.epoch.shape().own_slots_len());
        let mut all = read.participants.iter().zip(slots);
        if let Some((own, slots)) = all.find(|(participant, _)| participant.member == own) {
            self.compare_own(read.round, own, slots, is_kept);
        }
    }

    /// Reads a round that the proxy has kept, if it was not read before. `epoch` is that of the
    /// round, with the shape of its slots.
    ///
    /// # Errors
    /// If its participants are not members.
    pub fn read_past(
        &mut self,
        epoch: MemberEpoch,
        round: &ArchivedRound,
    ) -> Result<(), MixMemberError> {
        let is_member = |it: &Participant| usize::from(it.member) < epoch.members().len();
        if !round.read.participants.iter().all(is_member) {
            return Err(MixMemberError::Participants(round.read.round));
        }
        if !self.begin_reading(round.position()) {
            return Ok(());
        }
        // Most rounds are of the epoch and the shape of the one before.
        let is_same = |past: &PastEpoch| {
            past.epoch.number() == epoch.number() && past.epoch.shape() == epoch.shape()
        };
        let past = match self.past.take() {
            Some(past) if is_same(&past) => past,
            _ => PastEpoch::new(&self.identity, epoch),
        };
        for (number, slot) in opened(&past.epoch, &past.pairs, &round.read, &round.mailbox) {
            self.receive(&past.epoch.members()[number], &slot);
        }
        self.past = Some(past);
        Ok(())
    }

    /// Whether a round is to be read, because it was not read before.
    fn begin_reading(&mut self, position: RoundPosition) -> bool {
        let RoundPosition { epoch, round } = position;
        self.conversations.set_arrived(position);
        if (epoch, round) <= self.conversations.last_read() {
            return false;
        }
        self.conversations.set_last_read(epoch, round);
        true
    }

    /// Only the proxy can have changed what this member has handed in.
    fn compare_own(&mut self, round: u64, own: &Participant, slots: &[u8], is_kept: bool) {
        let all = &self.broadcast.written;
        let Some(written) = all.iter().find(|it| it.nonce == own.nonce) else {
            // Handed in before a restart, unless this member has been there since an earlier round.
            if all.iter().any(|it| it.round == round) && all.iter().any(|it| it.round < round) {
                self.events.push_back(MixClientEvent::ChangedByProxy { round });
            }
            return;
        };
        let exchange = written.exchange;
        // Slots of another round, listed with its nonce, do not open for anybody.
        if written.round != round || written.slots != slots {
            self.conversations.handle_lost(exchange);
            self.events.push_back(MixClientEvent::ChangedByProxy { round });
        } else if is_kept {
            for (partner, id) in self.conversations.handle_kept(exchange) {
                let Some(number) = self.numbers.get(&partner) else { continue };
                let to = self.epoch.members()[usize::from(*number)].name.clone();
                self.events.push_back(MixClientEvent::Stored { id: ChatMessageId(id), to });
            }
        }
    }
}

/// An earlier epoch, or the current one with slots of another shape, whose rounds are read.
pub(super) struct PastEpoch {
    epoch: MemberEpoch,
    pairs: Vec<Option<PairKeys>>,
}

impl PastEpoch {
    fn new(identity: &IdentitySecretKey, epoch: MemberEpoch) -> Self {
        let pair = |(number, member): (usize, &GroupMember)| {
            let keys = || PairKeys::new(identity, &member.key).in_epoch(epoch.key());
            (number != usize::from(epoch.own())).then(keys)
        };
        let pairs = epoch.members().iter().enumerate().map(pair).collect();
        Self { epoch, pairs }
    }
}

/// The slots of other participants that open with the keys of the pairs, and the numbers of their
/// writers. All slots are tried.
fn opened(
    epoch: &MemberEpoch,
    pairs: &[Option<PairKeys>],
    read: &ReadRound,
    mailbox: &[u8],
) -> Vec<(usize, Zeroizing<Vec<u8>>)> {
    let shape = epoch.shape();
    let mut opened = Vec::new();
    for (from, slots) in read.participants.iter().zip(mailbox.chunks_exact(shape.own_slots_len())) {
        let number = usize::from(from.member);
        let Some(pair) = &pairs[number] else { continue };
        for (slot, sealed) in (0..).zip(slots.chunks_exact(shape.slot_len())) {
            let (epoch, round, nonce) = (epoch.number(), read.round, from.nonce);
            let at = SlotWriteContext { epoch, round, nonce, slot: Some(slot) };
            let mut slot = Zeroizing::new(sealed.to_vec());
            if pair.from.open(at, &mut slot) {
                opened.push((number, slot));
            }
        }
    }
    opened
}
