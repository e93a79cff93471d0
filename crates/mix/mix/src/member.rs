//! A member's end of the rounds: what it writes, what it reads, and what it learns from that.

mod auditing;
mod reading;
mod writing;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use blocks::Block;
use blocks::prg::Prg;
use keys::{IdentitySecretKey, SharedKey};
use zeroize::Zeroizing;

use crate::content::{MAX_TEXT_LEN, capacity};
use crate::conversations::GivenUpMessage;
use crate::pair::PairKeys;
use crate::round::NONCE_LEN;
use crate::slot_permutation;
use crate::{Conversations, GroupMember, Mailbox, MemberEpoch, RoundStart, UpdateAuditError};
pub use auditing::MIN_AUDIT_ROUNDS;
use auditing::MemberAudits;
use reading::ExchangeReads;
use writing::WrittenSlot;

/// A member in an epoch: does one exchange in each round, whether it has something to say or not.
///
/// Its driver carries each [`MemberExchange`] to the proxy by an engine, and what comes back to
/// [`Self::handle_slots`]. What may be lost between the two is sent again in later rounds.
pub struct MixMember {
    identity: Arc<IdentitySecretKey>,
    epoch: MemberEpoch,
    /// By number; none with itself.
    pairs: Vec<Option<PairKeys>>,
    numbers: HashMap<[u8; 32], u16>,
    conversations: Conversations,
    random: Prg,
    least_participants: usize,
    anonymity_set: usize,
    /// How many exchanges this member has begun.
    exchange: u64,
    /// The greatest round of the epoch in which it has begun one.
    round: u64,
    /// The last round of the epoch in which it got an answer; 0: none. It is a participant of it.
    answered: u64,
    /// The member that is read next in search of new conversations.
    scan: u16,
    /// What it wrote in its last exchanges, to compare.
    written: VecDeque<WrittenSlot>,
    /// What it reads in the last exchange.
    reading: Option<ExchangeReads>,
    auditing: MemberAudits,
    events: VecDeque<MemberEvent>,
}

/// A member's part of a round.
#[derive(Clone, PartialEq, Eq)]
pub struct MemberExchange {
    /// The nonce of its mask, for all to see.
    pub nonce: [u8; NONCE_LEN],
    /// What it adds to the mailbox of the round.
    pub update: Mailbox,
    /// The q slots that it reads of the mailbox before. Secret from the proxy. If nothing is read
    /// in the round, they are there all the same.
    pub reads: Vec<usize>,
}

/// The number of a message that a member has sent: it counts them over all partners, also after a
/// restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChatMessageId(pub u64);

/// What a member has learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberEvent {
    /// A message has come, the next one of its sender.
    Message {
        /// The sender's name.
        from: String,
        /// The text.
        text: String,
    },
    /// A message that was sent has arrived.
    Delivered {
        /// Its number.
        id: ChatMessageId,
        /// The receiver's name.
        to: String,
    },
    /// A message that was sent is given up.
    GivenUp {
        /// Its number.
        id: ChatMessageId,
        /// The receiver's name.
        to: String,
        /// Why.
        reason: GivenUpReason,
    },
    /// The mailbox is not that of this round and these participants: the proxy has replayed or
    /// changed it, or a member has written into a slot that is not its own. Nothing of it is used.
    NotOfThisRound {
        /// The round.
        round: u64,
    },
    /// The proxy has answered this member in a round, and does not list it as a participant.
    LeftOut {
        /// The round.
        round: u64,
    },
}

/// Why a message is not sent any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GivenUpReason {
    /// The receiver is no member any more.
    #[error("no longer a member of the group")]
    Removed,
    /// The state is an old one, and the receiver has got so much since that it no longer knows
    /// whether it has got this.
    #[error("it may have arrived before your state was restored: ask, or say it again")]
    Uncertain,
}

/// Something that a proxy that follows the protocol does not ask for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixMemberError {
    /// It is of another epoch.
    #[error("the proxy has opened a round of epoch {epoch} in epoch {own}")]
    Epoch {
        /// The proxy's.
        epoch: u32,
        /// The member's.
        own: u32,
    },
    /// There was a later one before.
    #[error("the proxy has opened round {round} after round {last}")]
    Round {
        /// Its number.
        round: u64,
        /// The number of the last one.
        last: u64,
    },
    /// It has the mailbox of a round that is not over, or older than one that was read before.
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
    /// A participant is no member, or they are not in order.
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
        /// How many took part.
        participants: usize,
        /// How many have to.
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
    /// A member with these conversations. It sends only while `least_participants` have taken part
    /// in the last round. The random bytes of `seed` are secret, and never used for another member.
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
        let mut member = Self {
            identity,
            epoch,
            pairs: Vec::new(),
            numbers: HashMap::new(),
            conversations,
            random: Prg::new(seed),
            least_participants,
            anonymity_set: 0,
            exchange: 0,
            round: 0,
            answered: 0,
            scan: 0,
            written: VecDeque::new(),
            reading: None,
            auditing: MemberAudits::default(),
            events: VecDeque::new(),
        };
        member.enter_epoch(&[]);
        member
    }

    /// Leaves its epoch for another. Conversations go on, by the partners' keys.
    pub fn begin_epoch(&mut self, epoch: MemberEpoch) {
        let before = std::mem::replace(&mut self.epoch, epoch);
        self.enter_epoch(before.members());
    }

    /// Enters the epoch. Before, there were these members.
    fn enter_epoch(&mut self, before: &[GroupMember]) {
        let (members, own) = (self.epoch.members(), usize::from(self.epoch.own()));
        let pair = |(number, member): (usize, &GroupMember)| {
            (number != own).then(|| PairKeys::new(&self.identity, &member.key))
        };
        self.pairs = members.iter().enumerate().map(pair).collect();
        self.numbers = (0..).zip(members).map(|(number, it)| (it.key.to_bytes(), number)).collect();
        let capacity = capacity(self.epoch.shape().slot_len());
        let is_member = |key: &[u8; 32]| self.numbers.contains_key(key);
        for GivenUpMessage { partner, id } in self.conversations.begin_epoch(capacity, is_member) {
            let known = before.iter().find(|member| member.key.to_bytes() == partner);
            let to = known.map_or("a former member".into(), |member| member.name.clone());
            let (id, reason) = (ChatMessageId(id), GivenUpReason::Removed);
            self.events.push_back(MemberEvent::GivenUp { id, to, reason });
        }
        (self.round, self.answered, self.scan, self.reading) = (0, 0, 0, None);
        self.written.clear();
        self.auditing = MemberAudits::default();
    }

    /// Begins the exchange of a round. If one was begun in the same round before, of which the
    /// proxy has not taken the request, this one is in place of it.
    ///
    /// `is_stored` says whether the conversations are stored as they are. If not, this exchange
    /// writes to nobody: what it would say could be lost, and to wait for the disk would tell the
    /// proxy that there is something to say.
    ///
    /// # Errors
    /// If the start of the round cannot be. Nothing has changed then.
    pub fn handle_round(
        &mut self,
        start: &RoundStart,
        is_stored: bool,
    ) -> Result<MemberExchange, MixMemberError> {
        self.check(start)?;
        self.exchange += 1;
        self.round = start.round;
        self.check_listed(start);
        self.auditing.remember(start);
        let (nonce, update) = self.write(start.round, is_stored);
        let reading = self.choose(start);
        let reads = reading.slots().collect();
        self.reading = Some(reading);
        Ok(MemberExchange { nonce, update, reads })
    }

    /// Reports if this member has taken part in the round that is read, and is not listed.
    fn check_listed(&mut self, start: &RoundStart) {
        let own = self.epoch.own();
        let read = start.read.as_ref().filter(|read| read.round == self.answered);
        if read.is_some_and(|read| read.participants.iter().all(|it| it.member != own)) {
            self.events.push_back(MemberEvent::LeftOut { round: self.answered });
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

    /// Takes the slots of the last exchange, in the order of its `reads`. Ignored if nothing was to
    /// be read in it.
    pub fn handle_slots(&mut self, slots: &[Vec<u8>]) {
        self.answered = self.round;
        if let Some(reading) = self.reading.take() {
            self.read(&reading, slots);
        }
    }

    /// Queues a message to the member with a name. It is delivered once, after those before it.
    ///
    /// # Errors
    /// If there is no such member, the text is empty or too long, too much waits for the receiver,
    /// or too few took part in the last round.
    pub fn send(&mut self, to: &str, text: &str) -> Result<ChatMessageId, MemberSendError> {
        if !self.is_anonymous() {
            let (participants, least) = (self.anonymity_set, self.least_participants);
            return Err(MemberSendError::AnonymitySet { participants, least });
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

    /// The next thing that it has learned. See [`Conversations::generation`] for what is to be done
    /// before.
    pub fn poll_event(&mut self) -> Option<MemberEvent> {
        self.events.pop_front()
    }

    /// How many members took part in the last round that was read and found in order: among so many
    /// the proxy cannot tell who wrote. 0 before the first.
    pub fn anonymity_set(&self) -> usize {
        self.anonymity_set
    }

    /// Whether the anonymity set is large enough to send.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.anonymity_set >= self.least_participants
    }

    /// The epoch.
    pub fn epoch(&self) -> &MemberEpoch {
        &self.epoch
    }

    /// The conversations, to be stored.
    pub fn conversations(&self) -> &Conversations {
        &self.conversations
    }

    /// The conversations, of a member that ends.
    pub fn into_conversations(self) -> Conversations {
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
mod tests;
