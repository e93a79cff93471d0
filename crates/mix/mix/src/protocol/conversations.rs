//! All conversations of a member, by the partners' keys, and their encoding for the state file.

use std::collections::BTreeMap;

use encoding::FieldReader;
use keys::IdentityPublicKey;
use zeroize::Zeroizing;

use crate::protocol::content::SlotContent;
use crate::protocol::conversation::{
    Conversation, ConversationFull, MIN_WINDOW, SlotReadOutcome, VERSION, VERSION_BEFORE,
};
use crate::protocol::round::RoundPosition;
use crate::protocol::state::ConversationStateError;

/// The maximum number of conversations with partners that are no longer members.
const MAX_FORMER: usize = 4096;

/// An undelivered message for a partner that is no longer a member.
pub(crate) struct GivenUpMessage {
    pub(crate) partner: [u8; 32],
    /// Its number.
    pub(crate) id: u64,
}

/// All conversations of a member. They persist over epochs and restarts. Texts and partners are
/// secret. Texts are wiped on drop.
pub struct Conversations {
    /// See [`Self::new`].
    incarnation: u64,
    /// The number of the last message.
    last_id: u64,
    /// The stamp of the last message, not below the start time of this life of the state.
    stamp: u64,
    /// The epoch and round of the last mailbox that was read.
    read: (u32, u64),
    /// The last round that has arrived, from which on this member catches up: that of
    /// [`Self::read`], or an earlier one after a restart.
    arrived: RoundPosition,
    /// The value of `arrived` that is stored. It changes after a number of rounds, whatever was
    /// read: otherwise the proxy would see when there was something to store.
    checkpoint: RoundPosition,
    /// The round since which the mailboxes have not been those of their rounds. Not stored.
    pub(crate) not_of_round_since: Option<u64>,
    /// The maximum length of a fragment in bytes.
    capacity: usize,
    /// The maximum number of fragments to a partner that are not acknowledged.
    window: u32,
    /// The number of the last exchange of this run. Not stored.
    exchange: u64,
    partners: BTreeMap<[u8; 32], Conversation>,
    generation: u64,
}

impl Conversations {
    /// The empty conversations of a member without a stored state. `incarnation` is the time, in
    /// microseconds since 1970, when this process began to use the state. Two incarnations of a
    /// state use different numbers for what they send, even if both start from the same stored
    /// state.
    pub fn new(incarnation: u64) -> Self {
        Self {
            incarnation,
            last_id: 0,
            stamp: incarnation,
            read: (0, 0),
            arrived: RoundPosition::default(),
            checkpoint: RoundPosition::default(),
            not_of_round_since: None,
            capacity: 0,
            window: MIN_WINDOW,
            exchange: 0,
            partners: BTreeMap::new(),
            generation: 0,
        }
    }

    /// A counter of changes. Each change must be stored before the member's next request is sent
    /// and before its events are acted upon. Otherwise messages are lost or duplicated after a
    /// restart.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The number of messages that were sent but not delivered yet.
    pub fn undelivered(&self) -> usize {
        self.partners.values().map(Conversation::undelivered).sum()
    }

    /// The encoded state. Secret.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        // A growing buffer would leave copies that are not wiped.
        let partners = self.partners.values().map(|conversation| 32 + conversation.stored_len());
        let len = 80 + partners.sum::<usize>();
        let mut out = Zeroizing::new(Vec::with_capacity(len));
        out.push(VERSION);
        out.extend_from_slice(&self.last_id.to_be_bytes());
        out.extend_from_slice(&self.stamp.to_be_bytes());
        out.extend_from_slice(&self.read.0.to_be_bytes());
        out.extend_from_slice(&self.read.1.to_be_bytes());
        out.extend_from_slice(&self.checkpoint.epoch.to_be_bytes());
        out.extend_from_slice(&self.checkpoint.round.to_be_bytes());
        out.extend_from_slice(&(self.capacity as u64).to_be_bytes());
        out.extend_from_slice(&(self.partners.len() as u64).to_be_bytes());
        for (partner, conversation) in &self.partners {
            out.extend_from_slice(partner);
            conversation.encode(&mut out);
        }
        debug_assert!(out.len() <= len, "as many bytes as were expected");
        out
    }

    /// Decodes the output of [`Self::to_bytes`], for a new incarnation `life`: see [`Self::new`].
    ///
    /// # Errors
    /// If the bytes are malformed or of another version.
    pub fn from_bytes(bytes: &[u8], life: u64) -> Result<Self, ConversationStateError> {
        let mut state = FieldReader::new(bytes);
        let version = state.u8()?;
        if version != VERSION && version != VERSION_BEFORE {
            return Err(ConversationStateError);
        }
        let mut all = Self::new(life);
        all.last_id = state.u64()?;
        all.stamp = state.u64()?.max(life);
        all.read = (state.u32()?, state.u64()?);
        all.checkpoint = RoundPosition { epoch: all.read.0, round: all.read.1 };
        if version == VERSION {
            all.checkpoint = RoundPosition { epoch: state.u32()?, round: state.u64()? };
        }
        all.arrived = all.checkpoint;
        all.capacity = usize::try_from(state.u64()?).map_err(|_| ConversationStateError)?;
        let count = state.u64()?;
        if all.capacity == 0 && count > 0 {
            return Err(ConversationStateError);
        }
        for _ in 0..count {
            let partner = state.take()?;
            let conversation = Conversation::decode(&mut state, version, life, all.capacity)?;
            all.partners.insert(partner, conversation);
        }
        state.finish()?;
        Ok(all)
    }

    /// Begins an epoch with these members, whose slots carry `capacity` bytes of text. Returns the
    /// undelivered messages for partners that are no longer members.
    pub(crate) fn begin_epoch(
        &mut self,
        capacity: usize,
        is_member: impl Fn(&[u8; 32]) -> bool,
    ) -> Vec<GivenUpMessage> {
        if capacity != self.capacity {
            self.generation += 1;
            self.capacity = capacity;
            self.partners.values_mut().for_each(|it| it.refragment(capacity));
        }
        let former: Vec<[u8; 32]> =
            self.partners.keys().filter(|key| !is_member(key)).copied().collect();
        for key in former.iter().skip(MAX_FORMER) {
            self.generation += 1;
            self.partners.remove(key);
        }
        let mut given_up = Vec::new();
        for partner in former {
            let ids = self.partners.get_mut(&partner).map(Conversation::give_up);
            given_up.extend(
                ids.unwrap_or_default().into_iter().map(|id| GivenUpMessage { partner, id }),
            );
        }
        self.generation += u64::from(!given_up.is_empty());
        given_up
    }

    /// The number of the last exchange of this run, or 0.
    pub(crate) fn last_exchange(&self) -> u64 {
        self.exchange
    }

    /// A member that continues these conversations counts its exchanges from this one on: what was
    /// sent in an exchange is known by its number.
    pub(crate) fn set_last_exchange(&mut self, exchange: u64) {
        self.exchange = exchange;
    }

    /// The epoch and the round of the last mailbox that was read.
    pub(crate) fn last_read(&self) -> (u32, u64) {
        self.read
    }

    /// The mailbox of a round of an epoch was read.
    pub(crate) fn set_last_read(&mut self, epoch: u32, round: u64) {
        self.read = (epoch, round);
        self.set_arrived(RoundPosition { epoch, round });
    }

    /// The last round that has arrived.
    pub(crate) fn arrived(&self) -> RoundPosition {
        self.arrived
    }

    /// A round has arrived, or is missing.
    pub(crate) fn set_arrived(&mut self, position: RoundPosition) {
        self.arrived = self.arrived.max(position);
    }

    /// The epoch that was read was replaced by this one, whose number is not greater: nothing of it
    /// was read. What was not read of earlier epochs still comes.
    pub(crate) fn forget_position(&mut self, epoch: u32) {
        let begin = RoundPosition { epoch, round: 0 };
        self.read = self.read.min((epoch, 0));
        (self.arrived, self.checkpoint) = (self.arrived.min(begin), self.checkpoint.min(begin));
        self.generation += 1;
    }

    /// The last round of an epoch that has arrived, or 0. After a restart it is that of the
    /// checkpoint: when the state was stored last would show when there were messages.
    pub(crate) fn last_round_of(&self, epoch: u32) -> u64 {
        if self.arrived.epoch == epoch { self.arrived.round } else { 0 }
    }

    /// After a restart, this member catches up from the last round that has arrived now. Called
    /// after a number of rounds, whatever was read.
    pub(crate) fn set_checkpoint(&mut self) {
        if self.checkpoint != self.arrived {
            self.checkpoint = self.arrived;
            self.generation += 1;
        }
    }

    /// Iterates over all conversations.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8; 32], &Conversation)> {
        self.partners.iter()
    }

    /// Appends a message to a partner. Returns its number.
    pub(crate) fn push(
        &mut self,
        exchange: u64,
        partner: &IdentityPublicKey,
        text: &str,
    ) -> Result<u64, ConversationFull> {
        let (id, stamp) = (self.last_id + 1, self.stamp.saturating_add(1));
        let capacity = self.capacity;
        self.with(partner).push(exchange, (id, stamp), text, capacity)?;
        (self.last_id, self.stamp) = (id, stamp);
        self.generation += 1;
        Ok(id)
    }

    /// Drops the messages to a partner of which nothing was sent. Returns their numbers, and those
    /// of the other queued messages.
    pub(crate) fn cancel(&mut self, partner: &[u8; 32]) -> (Vec<u64>, Vec<u64>) {
        let Some(conversation) = self.partners.get_mut(partner) else {
            return (Vec::new(), Vec::new());
        };
        let cancelled = conversation.cancel();
        self.generation += u64::from(!cancelled.0.is_empty());
        cancelled
    }

    /// The slot to write to a partner of [`Self::iter`]: see [`Conversation::write`].
    pub(crate) fn write(
        &mut self,
        exchange: u64,
        partner: &IdentityPublicKey,
        again: bool,
        awaited: bool,
        slot_len: usize,
    ) -> Zeroizing<Vec<u8>> {
        self.with(partner).write(exchange, again, awaited, slot_len)
    }

    /// Whether there is something new to send to a partner of [`Self::iter`].
    pub(crate) fn has_new(&self, partner: &IdentityPublicKey) -> bool {
        self.partners.get(&partner.to_bytes()).is_some_and(Conversation::has_new)
    }

    /// What was written in an exchange is lost, and is to be written again.
    pub(crate) fn handle_lost(&mut self, exchange: u64) {
        self.partners.values_mut().for_each(|it| it.handle_lost(exchange));
    }

    /// The proxy keeps what was written in an exchange. Returns the messages of which it now keeps
    /// all: the partners and the numbers.
    pub(crate) fn handle_kept(&mut self, exchange: u64) -> Vec<([u8; 32], u64)> {
        let of = |(partner, conversation): (&[u8; 32], &mut Conversation)| {
            let ids = conversation.handle_kept(exchange);
            ids.into_iter().map(|id| (*partner, id)).collect::<Vec<_>>()
        };
        self.partners.iter_mut().flat_map(of).collect()
    }

    /// Handles a slot that a partner has written.
    pub(crate) fn read(
        &mut self,
        exchange: u64,
        partner: &IdentityPublicKey,
        content: &SlotContent<'_>,
    ) -> SlotReadOutcome {
        let (capacity, mut stamp) = (self.capacity, self.stamp);
        let received = self.with(partner).read(exchange, content, capacity, &mut stamp);
        self.stamp = stamp;
        self.generation += u64::from(received.changed);
        received
    }

    /// From now on as many fragments to a partner are sent without an acknowledgement.
    pub(crate) fn set_window(&mut self, window: u32) {
        self.window = window;
        self.partners.values_mut().for_each(|it| it.set_window(window));
    }

    fn with(&mut self, partner: &IdentityPublicKey) -> &mut Conversation {
        let (life, window) = (self.incarnation, self.window);
        let new = || {
            let mut conversation = Conversation::new(life);
            conversation.set_window(window);
            conversation
        };
        self.partners.entry(partner.to_bytes()).or_insert_with(new)
    }
}
