//! The rounds of a group: the open round, and the closed mailbox of the previous one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::Mailbox;
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::round::{NONCE_LEN, Participant, ReadRound, RoundStart};
use crate::protocol::wire::{ArchivedRound, MixTerms, ProxyToMember};

/// The number of round numbers that one stored state reserves. After a restart, rounds begin with
/// the first number that was not reserved, so no number is used twice.
const RESERVED: u64 = 1024;

/// The greatest number that a member can claim to know: enough numbers are left after it.
const MAX_SKIPPED: u64 = 1 << 62;

/// How many rounds a member can skip at a proxy that has the epoch: more than there can be in an
/// epoch. So a member cannot use up the numbers.
const MAX_SKIP: u64 = 1 << 24;

pub(super) struct GroupRounds {
    terms: MixTerms,
    next: u64,
    /// The first round number that is not reserved in the stored state.
    reserved: u64,
    open: Option<OpenRound>,
    closed: Option<ClosedRound>,
    nothing: Arc<Mailbox>,
}

struct ClosedRound {
    round: ReadRound,
    mailbox: ClosedMailbox,
    /// Whether it is in the archive.
    is_kept: bool,
}

enum ClosedMailbox {
    /// The sum of the participants' updates.
    Sum(Arc<Mailbox>),
    /// The participants' slots, in the order of the participants.
    Slots(Vec<u8>),
}

/// What a member hands in.
pub(super) enum RoundContribution {
    /// An update of the whole mailbox.
    Update(Mailbox),
    /// Its own slots.
    Slots(Vec<u8>),
}

enum OpenMailbox {
    Sum(Mailbox),
    Slots(BTreeMap<u16, Vec<u8>>),
}

/// What the members need to take part in a round.
enum RoundOpening {
    /// The mailbox that the engines read.
    Mailbox(Arc<Mailbox>),
    /// The message that tells all members of the round, with the slots of the previous one. It is
    /// long, so all connections share it.
    Message(Arc<[u8]>),
}

pub(super) struct OpenRound {
    start: Arc<RoundStart>,
    opening: RoundOpening,
    opened: Duration,
    /// When the open round ends in any case; `None` if that time has passed but answers are still
    /// being computed.
    deadline: Option<Duration>,
    earliest_close: Duration,
    participants: BTreeMap<u16, [u8; NONCE_LEN]>,
    mailbox: OpenMailbox,
}

impl GroupRounds {
    /// No round is open. The first one gets the number `next`, but at least 1.
    pub(super) fn new(terms: MixTerms, next: u64) -> Self {
        let (next, nothing) = (next.max(1), Arc::new(Mailbox::new(terms.shape())));
        Self { terms, next, reserved: next, open: None, closed: None, nothing }
    }

    pub(super) fn open(&self) -> Option<&OpenRound> {
        self.open.as_ref()
    }

    /// The closed round as it is kept, without the time; `None` if it is not by broadcast.
    pub(super) fn closed_record(&self, epoch: u32) -> Option<ArchivedRound> {
        let ClosedRound { round, mailbox: ClosedMailbox::Slots(slots), .. } =
            self.closed.as_ref()?
        else {
            return None;
        };
        let (shape, number) = (self.terms.shape(), |number: usize| u16::try_from(number).ok());
        Some(ArchivedRound {
            epoch,
            closed_s: 0,
            slots_per_member: number(shape.slots_per_member())?,
            slot_len: number(shape.slot_len())?,
            read: round.clone(),
            mailbox: slots.clone(),
        })
    }

    /// The number of the last round of the epoch that was closed; 0 if none.
    pub(super) fn closed(&self) -> u64 {
        self.closed.as_ref().map_or(0, |closed| closed.round.round)
    }

    /// The number of the last round that was opened; 0 if none.
    pub(super) fn last(&self) -> u64 {
        self.next - 1
    }

    /// The first number that may be used after a restart.
    pub(super) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// A mailbox of zeros, for exchanges that read nothing.
    pub(super) fn nothing(&self) -> Arc<Mailbox> {
        self.nothing.clone()
    }

    /// Opens the next round. Returns whether more numbers were reserved, which must be stored.
    pub(super) fn begin(&mut self, now: Duration, epoch: u32) -> bool {
        let round = self.next;
        self.next += 1;
        let read = self.closed.as_ref().map(|closed| closed.round.clone());
        let start = RoundStart { epoch, round, read };
        let (opening, mailbox) = match self.terms.exchange() {
            MixExchangeKind::Broadcast => {
                let opening = match &self.closed {
                    Some(ClosedRound { mailbox: ClosedMailbox::Slots(slots), is_kept, .. }) => {
                        [&[u8::from(*is_kept)], &slots[..]].concat()
                    }
                    _ => Vec::new(),
                };
                let message = ProxyToMember::Round { start: start.clone(), opening };
                let mailbox = OpenMailbox::Slots(BTreeMap::new());
                (RoundOpening::Message(message.encode().into()), mailbox)
            }
            MixExchangeKind::Oblivious(_) => {
                let read = match &self.closed {
                    Some(ClosedRound { mailbox: ClosedMailbox::Sum(read), .. }) => read.clone(),
                    _ => self.nothing(),
                };
                let mailbox = OpenMailbox::Sum(Mailbox::new(self.terms.shape()));
                (RoundOpening::Mailbox(read), mailbox)
            }
        };
        self.open = Some(OpenRound {
            start: Arc::new(start),
            opening,
            opened: now,
            deadline: Some(now + self.terms.interval()),
            earliest_close: now + self.terms.least_interval(),
            participants: BTreeMap::new(),
            mailbox,
        });
        let is_reserved = round < self.reserved;
        if !is_reserved {
            self.reserved = round + RESERVED;
        }
        !is_reserved
    }

    /// Adds what a member has handed in to the open round.
    pub(super) fn add(
        &mut self,
        member: u16,
        nonce: [u8; NONCE_LEN],
        contribution: &RoundContribution,
    ) {
        let open = self.open.as_mut().expect("a round is open");
        let is_new = open.participants.insert(member, nonce).is_none();
        assert!(is_new, "a member takes part once");
        match (&mut open.mailbox, contribution) {
            (OpenMailbox::Sum(sum), RoundContribution::Update(update)) => sum.add(update),
            (OpenMailbox::Slots(all), RoundContribution::Slots(slots)) => {
                all.insert(member, slots.clone());
            }
            _ => unreachable!("all exchanges of a group are of one kind"),
        }
    }

    /// Whether the open round is over. `is_awaited` means that a member was told of it and has not
    /// completed its exchange. `is_computed` means that the answer to a request is being computed.
    pub(super) fn is_over(&mut self, now: Duration, is_awaited: bool, is_computed: bool) -> bool {
        let Some(open) = &mut self.open else { return false };
        let has_passed = open.deadline.is_none_or(|deadline| now >= deadline);
        if open.participants.is_empty() {
            // A round without participants is not closed: its empty mailbox would replace the one
            // that is read.
            if has_passed {
                open.deadline = Some(now + self.terms.interval());
            }
            return false;
        }
        if has_passed {
            open.deadline = None;
        }
        now >= open.earliest_close && (!is_awaited || (has_passed && !is_computed))
    }

    /// Closes the open round. Returns the number of participants, and how long it was open.
    pub(super) fn close(&mut self, now: Duration) -> (usize, Duration) {
        let open = self.open.take().expect("a round is open");
        let participant = |(member, nonce)| Participant { member, nonce };
        let participants: Vec<_> = open.participants.into_iter().map(participant).collect();
        let count = participants.len();
        let round = ReadRound { round: open.start.round, participants };
        let mailbox = match open.mailbox {
            OpenMailbox::Sum(sum) => ClosedMailbox::Sum(Arc::new(sum)),
            OpenMailbox::Slots(slots) => {
                ClosedMailbox::Slots(slots.into_values().flatten().collect())
            }
        };
        self.closed = Some(ClosedRound { round, mailbox, is_kept: false });
        (count, now.saturating_sub(open.opened))
    }

    /// The closed round is in the archive.
    pub(super) fn set_kept(&mut self) {
        if let Some(closed) = &mut self.closed {
            closed.is_kept = true;
        }
    }

    /// No later round gets this number or a smaller one. Rounds that have one are dropped.
    /// `is_restored` means that the proxy had lost the epoch, and so perhaps all numbers. Returns
    /// whether anything changes.
    pub(super) fn skip(&mut self, round: u64, is_restored: bool) -> bool {
        let most = if is_restored { MAX_SKIPPED } else { self.next.saturating_add(MAX_SKIP) };
        let is_new = round >= self.next && round < most.min(MAX_SKIPPED);
        if is_new {
            self.next = round + 1;
            self.abandon();
        }
        is_new
    }

    /// Drops the open round and the closed mailbox, because the epoch ends.
    pub(super) fn abandon(&mut self) {
        (self.open, self.closed) = (None, None);
    }
}

impl OpenRound {
    pub(super) fn number(&self) -> u64 {
        self.start.round
    }

    pub(super) fn start(&self) -> Arc<RoundStart> {
        self.start.clone()
    }

    /// The mailbox that the engines read in it; `None` in exchanges by broadcast.
    pub(super) fn read(&self) -> Option<Arc<Mailbox>> {
        match &self.opening {
            RoundOpening::Mailbox(read) => Some(read.clone()),
            RoundOpening::Message(_) => None,
        }
    }

    /// The message that tells members of it, in exchanges by broadcast.
    pub(super) fn message(&self) -> Option<&Arc<[u8]>> {
        match &self.opening {
            RoundOpening::Mailbox(_) => None,
            RoundOpening::Message(message) => Some(message),
        }
    }

    /// Whether the member has taken part.
    pub(super) fn has(&self, member: u16) -> bool {
        self.participants.contains_key(&member)
    }

    /// When it may be over, if nothing else happens.
    pub(super) fn timeout(&self, is_awaited: bool) -> Option<Duration> {
        if is_awaited {
            self.deadline
        } else {
            (!self.participants.is_empty()).then_some(self.earliest_close)
        }
    }
}
