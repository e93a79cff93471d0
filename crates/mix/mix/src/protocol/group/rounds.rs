//! The rounds of a group: the open round, and the closed mailbox of the previous one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::Mailbox;
use crate::protocol::round::{NONCE_LEN, Participant, ReadRound, RoundStart};
use crate::protocol::wire::MixTerms;

/// The number of round numbers that one stored state reserves. After a restart, rounds begin with
/// the first number that was not reserved, so no number is used twice.
const RESERVED: u64 = 1024;

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
    mailbox: Arc<Mailbox>,
}

pub(super) struct OpenRound {
    start: Arc<RoundStart>,
    read: Arc<Mailbox>,
    opened: Duration,
    /// When the open round ends in any case; `None` if that time has passed but answers are still
    /// being computed.
    deadline: Option<Duration>,
    earliest_close: Duration,
    participants: BTreeMap<u16, [u8; NONCE_LEN]>,
    mailbox: Mailbox,
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

    pub(super) fn closed_mailbox(&self) -> Option<&Mailbox> {
        self.closed.as_ref().map(|closed| &*closed.mailbox)
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
        let mailbox = self.closed.as_ref().map(|closed| closed.mailbox.clone());
        self.open = Some(OpenRound {
            start: Arc::new(RoundStart { epoch, round, read }),
            read: mailbox.unwrap_or_else(|| self.nothing()),
            opened: now,
            deadline: Some(now + self.terms.interval()),
            earliest_close: now + self.terms.least_interval(),
            participants: BTreeMap::new(),
            mailbox: Mailbox::new(self.terms.shape()),
        });
        let is_reserved = round < self.reserved;
        if !is_reserved {
            self.reserved = round + RESERVED;
        }
        !is_reserved
    }

    /// Adds a member's update to the open round.
    pub(super) fn add(&mut self, member: u16, nonce: [u8; NONCE_LEN], update: &Mailbox) {
        let open = self.open.as_mut().expect("a round is open");
        let is_new = open.participants.insert(member, nonce).is_none();
        assert!(is_new, "a member takes part once");
        open.mailbox.add(update);
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
        self.closed = Some(ClosedRound { round, mailbox: Arc::new(open.mailbox) });
        (count, now.saturating_sub(open.opened))
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

    /// The mailbox that is read in it.
    pub(super) fn read(&self) -> Arc<Mailbox> {
        self.read.clone()
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
