//! A member's end of the rounds: what it writes and reads, and the events that follow.

mod broadcast;
mod oblivious;
mod partners;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use blocks::Block;
use blocks::prg::Prg;
use keys::{IdentitySecretKey, SharedKey};
use zeroize::Zeroizing;

use crate::protocol::content::{MAX_TEXT_LEN, capacity};
use crate::protocol::conversations::GivenUpMessage;
use crate::protocol::event::{ChatMessageId, GivenUpReason, MixClientEvent};
use crate::protocol::pair::PairKeys;
use crate::protocol::round::RoundPosition;
use crate::protocol::slot_permutation;
use crate::{Conversations, GroupMember, MemberEpoch, RoundStart, UpdateAuditError};
pub use broadcast::BroadcastExchange;
use broadcast::{BroadcastRounds, PastEpoch};
use oblivious::ObliviousRounds;
pub use oblivious::{MIN_AUDIT_ROUNDS, MemberExchange};

/// A member in an epoch. It makes one exchange in each round, whether or not it has something to
/// send.
///
/// In an oblivious exchange, the driver sends each [`MemberExchange`] to the proxy by means of an
/// engine, and passes the slots that it gets back to [`Self::handle_slots`]. In an exchange by
/// broadcast, it sends each [`BroadcastExchange`], and passes the mailboxes that it gets to
/// [`Self::read_mailbox`]. Contents that may have been lost are sent again in later rounds.
pub struct MixMember {
    identity: Arc<IdentitySecretKey>,
    epoch: MemberEpoch,
    /// By member number; `None` for this member itself.
    pairs: Vec<Option<PairKeys>>,
    numbers: HashMap<[u8; 32], u16>,
    conversations: Conversations,
    random: Prg,
    least_participants: usize,
    anonymity_set: usize,
    /// The number of exchanges that were begun with these conversations in this run.
    exchange: u64,
    /// The last round of the epoch in which it began an exchange.
    round: u64,
    /// The last round of the epoch that was answered, in which it is therefore a participant; 0 if
    /// there is none.
    answered: u64,
    oblivious: ObliviousRounds,
    broadcast: BroadcastRounds,
    /// Whether the proxy keeps rounds for members that are away.
    is_kept: bool,
    /// The epoch whose rounds are read to catch up.
    past: Option<PastEpoch>,
    events: VecDeque<MixClientEvent>,
}

/// The number of exchanges after which the last round that has arrived is stored.
const CHECKPOINT_ROUNDS: u64 = 64;

/// The proxy deviates from the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixMemberError {
    /// The round is of another epoch.
    #[error("the proxy has opened a round of epoch {epoch} in epoch {own}")]
    Epoch {
        /// The proxy's.
        epoch: u32,
        /// The member's.
        own: u32,
    },
    /// The round is not after the last one.
    #[error("the proxy has opened round {round} after round {last}")]
    Round {
        /// Its number.
        round: u64,
        /// The number of the last one.
        last: u64,
    },
    /// The round whose mailbox is offered is not over, or is older than one that was already read.
    #[error("the proxy gives the mailbox of round {read} in round {round} to read")]
    Read {
        /// Its number.
        round: u64,
        /// The number of the round that is to be read.
        read: u64,
    },
    /// The proxy asks for an audit that does not follow the protocol.
    #[error("the proxy asks for an audit of round {0} that is not due")]
    Audit(u64),
    /// A message of an audit is wrong.
    #[error("{0}")]
    AuditMessage(#[from] UpdateAuditError),
    /// A participant is not a member, or the participants are not in order.
    #[error("the participants of round {0} are not members with ascending numbers")]
    Participants(u64),
}

/// A message that cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberSendError {
    /// The anonymity set is too small.
    #[error(
        "not sent: {participants} members took part in the last round, and the least is {least}"
    )]
    AnonymitySet {
        /// The number of participants of the last round.
        participants: usize,
        /// The required number of participants.
        least: usize,
    },
    /// The group is too small.
    #[error("not sent: the group has {members} members, and the least is {least}")]
    Members {
        /// The number of members.
        members: usize,
        /// The required number.
        least: usize,
    },
    /// No other member has this name.
    #[error("nobody in this group is called {0}")]
    Unknown(String),
    /// The text is empty.
    #[error("there is no text to send")]
    Empty,
    /// The text is too long.
    #[error("the text has {0} bytes; a message has at most {MAX_TEXT_LEN}")]
    TooLong(usize),
    /// Too much waits for this receiver.
    #[error("too many messages wait for {0}")]
    Full(String),
}

impl MixMember {
    /// A member with these conversations. It sends only while at least `least_participants` members
    /// took part in the last round. The random bytes of `seed` are secret and must not be used for
    /// another member.
    #[expect(clippy::missing_panics_doc, reason = "a code has 32 bytes")]
    pub fn new(
        identity: Arc<IdentitySecretKey>,
        epoch: MemberEpoch,
        conversations: Conversations,
        least_participants: usize,
        seed: [u8; 32],
    ) -> Self {
        let seed = Zeroizing::new(seed);
        let seed = Zeroizing::new(SharedKey::new(&seed).authenticate(&[b"exchanges"]));
        let seed = Block::from_bytes(*seed.first_chunk().expect("a code has 32 bytes"));
        let exchange = conversations.last_exchange();
        let mut member = Self {
            identity,
            epoch,
            pairs: Vec::new(),
            numbers: HashMap::new(),
            conversations,
            random: Prg::new(seed),
            least_participants,
            anonymity_set: 0,
            exchange,
            round: 0,
            answered: 0,
            oblivious: ObliviousRounds::default(),
            broadcast: BroadcastRounds::default(),
            is_kept: false,
            past: None,
            events: VecDeque::new(),
        };
        member.enter_epoch(&[]);
        member
    }

    /// Sets whether the proxy keeps rounds for members that are away. Then every member of the
    /// epoch may be the receiver of what is written, whether or not it takes part in the round.
    pub fn set_kept(&mut self, is_kept: bool) {
        self.is_kept = is_kept;
    }

    /// Changes to another epoch. Conversations continue, by the partners' keys.
    pub fn begin_epoch(&mut self, epoch: MemberEpoch) {
        let before = std::mem::replace(&mut self.epoch, epoch);
        self.enter_epoch(before.members());
    }

    /// Enters the epoch. `before` are the members of the previous epoch.
    fn enter_epoch(&mut self, before: &[GroupMember]) {
        self.give_up_unsettled();
        let (members, own) = (self.epoch.members(), usize::from(self.epoch.own()));
        let pair = |(number, member): (usize, &GroupMember)| {
            (number != own).then(|| PairKeys::new(&self.identity, &member.key))
        };
        self.pairs = members.iter().enumerate().map(pair).collect();
        self.numbers = (0..).zip(members).map(|(number, it)| (it.key.to_bytes(), number)).collect();
        let in_epoch = |pair: &PairKeys| pair.in_epoch(self.epoch.key());
        let pairs = self.pairs.iter().map(|pair| pair.as_ref().map(in_epoch)).collect();
        self.broadcast = BroadcastRounds::new(pairs);
        let capacity = capacity(self.epoch.shape().slot_len());
        let is_member = |key: &[u8; 32]| self.numbers.contains_key(key);
        for GivenUpMessage { partner, id } in self.conversations.begin_epoch(capacity, is_member) {
            let known = before.iter().find(|member| member.key.to_bytes() == partner);
            let to = known.map_or("a former member".into(), |member| member.name.clone());
            let (id, reason) = (ChatMessageId(id), GivenUpReason::Removed);
            self.events.push_back(MixClientEvent::GivenUp { id, to, reason });
        }
        (self.round, self.answered) = (0, 0);
        self.oblivious = ObliviousRounds::default();
    }

    /// Begins an exchange of a round.
    fn begin_round(&mut self, start: &RoundStart) -> Result<(), MixMemberError> {
        self.check(start)?;
        self.exchange += 1;
        if self.exchange.is_multiple_of(CHECKPOINT_ROUNDS) {
            self.conversations.set_checkpoint();
        }
        self.round = start.round;
        self.check_listed(start);
        Ok(())
    }

    /// The proxy has answered the last exchange, so this member is a participant of its round.
    pub fn handle_answered(&mut self) {
        self.answered = self.round;
    }

    /// Reports if this member took part in the round that is read but is not listed.
    fn check_listed(&mut self, start: &RoundStart) {
        let own = self.epoch.own();
        let read = start.read.as_ref().filter(|read| read.round == self.answered);
        if read.is_some_and(|read| read.participants.iter().all(|it| it.member != own)) {
            self.events.push_back(MixClientEvent::LeftOut { round: self.answered });
        }
    }

    fn check(&self, start: &RoundStart) -> Result<(), MixMemberError> {
        let (epoch, own, round, last) = (start.epoch, self.epoch.number(), start.round, self.round);
        if epoch != own {
            return Err(MixMemberError::Epoch { epoch, own });
        }
        if round < last {
            return Err(MixMemberError::Round { round, last });
        }
        let Some(read) = &start.read else { return Ok(()) };
        if read.round >= round || (epoch, read.round) < self.conversations.last_read() {
            return Err(MixMemberError::Read { round, read: read.round });
        }
        let members = || read.participants.iter().map(|it| usize::from(it.member));
        let ascending = members().zip(members().skip(1)).all(|(one, next)| one < next);
        let known = members().all(|member| member < self.epoch.members().len());
        if ascending && known { Ok(()) } else { Err(MixMemberError::Participants(read.round)) }
    }

    /// Queues a message to the member with this name. Messages are delivered once and in order.
    ///
    /// # Errors
    /// If there is no such member, the text is empty or too long, too much waits for the receiver,
    /// or too few took part in the last round.
    pub fn send(&mut self, to: &str, text: &str) -> Result<ChatMessageId, MemberSendError> {
        if !self.is_anonymous() {
            let (participants, least) = (self.anonymity_set, self.least_participants);
            return Err(if self.is_kept {
                MemberSendError::Members { members: self.epoch.members().len(), least }
            } else {
                MemberSendError::AnonymitySet { participants, least }
            });
        }
        let number = self.epoch.number_of(to).filter(|&number| number != self.epoch.own());
        let number = number.ok_or_else(|| MemberSendError::Unknown(to.to_owned()))?;
        if text.is_empty() {
            return Err(MemberSendError::Empty);
        }
        if text.len() > MAX_TEXT_LEN {
            return Err(MemberSendError::TooLong(text.len()));
        }
        let partner = &self.epoch.members()[usize::from(number)].key;
        let id = self.conversations.push(self.exchange.max(1), partner, text);
        id.map(ChatMessageId).map_err(|_| MemberSendError::Full(to.to_owned()))
    }

    /// The next event. [`Conversations::generation`] says what must be stored before it is acted
    /// upon.
    pub fn poll_event(&mut self) -> Option<MixClientEvent> {
        self.events.pop_front()
    }

    /// The size of the anonymity set: the number of participants of the last round whose mailbox
    /// was read and correct. 0 before the first such round.
    pub fn anonymity_set(&self) -> usize {
        self.anonymity_set
    }

    /// Whether the anonymity set is large enough to send.
    pub(crate) fn is_anonymous(&self) -> bool {
        let possible = if self.is_kept { self.epoch.members().len() } else { self.anonymity_set };
        possible >= self.least_participants
    }

    /// The epoch.
    pub fn epoch(&self) -> &MemberEpoch {
        &self.epoch
    }

    /// A round is missing, or cannot be read.
    pub(crate) fn skip(&mut self, position: RoundPosition) {
        self.conversations.set_arrived(position);
    }

    /// All rounds that were missed have been read.
    pub(crate) fn handle_caught_up(&mut self) {
        self.past = None;
        self.conversations.set_checkpoint();
    }

    /// The conversations, to change them.
    pub(crate) fn conversations_mut(&mut self) -> &mut Conversations {
        &mut self.conversations
    }

    /// The conversations, to be stored.
    pub fn conversations(&self) -> &Conversations {
        &self.conversations
    }

    /// Consumes the member and returns its conversations.
    pub fn into_conversations(mut self) -> Conversations {
        self.give_up_unsettled();
        self.conversations.set_last_exchange(self.exchange);
        self.conversations
    }

    /// A random number below `n`.
    fn below(&mut self, n: usize) -> usize {
        let mut random = [0; 8];
        self.random.fill_bytes(&mut random);
        slot_permutation::below(random, n)
    }
}

#[cfg(test)]
pub(super) mod tests;
