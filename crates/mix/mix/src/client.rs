//! A member's end: one client of one group, over one connection after the other. It joins the
//! greeting, membership, the engine and the rounds into one state machine, without input or output.
//!
//! After each call the driver takes, in this order and until there is none of any of them,
//! [`MixClient::poll_store`], which it writes to disk and then reports to
//! [`MixClient::handle_stored`], [`MixClient::event`], which it shows and then reports to
//! [`MixClient::handle_shown`], and [`MixClient::poll_transmit`], which it sends. What is shown or
//! sent is stored before: after a crash at any time no message is lost, and only one that was being
//! shown may be shown again.
//!
//! **Nothing that the proxy sees depends on messages**, but for contents that it cannot read. The
//! driver writes in another thread, and calls the client meanwhile: what is sent does not wait for
//! the disk, because the proxy would see by its time that there was something to write. A request
//! that is made before all is stored writes to nobody. Only what tells the administrator of a
//! change of membership waits until that change is stored, and then for the next round.

mod epochs;
mod event;
mod joining;
mod link;
mod outbox;
mod state;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keys::IdentitySecretKey;
use zeroize::Zeroizing;

use self::epochs::ClientEpochs;
pub use self::event::{
    ClientStateError, LeaveGroupError, MixClientError, MixClientEvent, MixClientSendError,
    MixClientStatus, NotAdministrator,
};
use self::joining::JoinRefusalLimiter;
use self::link::ProxyLink;
use self::outbox::MembershipOutbox;
use self::state::RestoredClientState;
use crate::conversations::Conversations;
use crate::member::{self, ChatMessageId, MIN_AUDIT_ROUNDS, MixMember, MixMemberError};
use crate::membership::{
    Administrator, GroupAddress, Invitation, InviteMemberError, MemberName, MemberNotice,
    RemoveMemberError, group_id,
};
use crate::random::ForwardSecureRng;
use crate::round::{Participant, RoundStart};
use crate::wire::{MAX_GREETING_LEN, MemberToProxy, MixHello, ProxyRefusal, ProxyToMember};

/// A connection that is replaced within this time after another one has met another host with the
/// same key.
const DISPLACED_AGAIN: Duration = Duration::from_secs(60);

/// Which member of which group.
#[derive(Debug)]
pub struct MixClientSettings {
    /// The group. Who has its administrator's key is the administrator, and founds the group if
    /// nothing is stored.
    pub group: GroupAddress,
    /// The name to join with, or that of the administrator.
    pub name: MemberName,
    /// What to join with. A member needs none.
    pub invitation: Option<Invitation>,
    /// Nothing is sent while fewer have taken part in the last round.
    pub least_participants: usize,
    /// The time of the construction.
    pub now: Instant,
    /// The time of the construction, by the calendar.
    pub since_1970: Duration,
}

/// What only the administrator can do was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdministratorError {
    /// This client is not the administrator.
    #[error("{0}")]
    NotAdministrator(#[from] NotAdministrator),
    /// There is no invitation.
    #[error("{0}")]
    Invite(#[from] InviteMemberError),
    /// Nobody is removed.
    #[error("{0}")]
    Remove(#[from] RemoveMemberError),
}

/// The client of one member. It has the member's secrets.
pub struct MixClient {
    settings: MixClientSettings,
    identity: Arc<IdentitySecretKey>,
    random: ForwardSecureRng,
    epochs: ClientEpochs,
    conversations: ClientConversations,
    administrator: Option<Administrator>,
    refusals: JoinRefusalLimiter,
    join_request: Option<Vec<u8>>,
    link: Option<ProxyLink>,
    events: VecDeque<MixClientEvent>,
    /// What waits for nothing.
    transmits: VecDeque<Vec<u8>>,
    membership: MembershipOutbox,
    /// Whether the state is the one that [`MixClient::poll_store`] has returned last.
    is_stored: bool,
    /// Whether that one is being written.
    is_storing: bool,
    not_of_round_since: Option<u64>,
    /// When another connection has last replaced this one.
    displaced: Option<Instant>,
    /// The epoch and the round of the last update that this client has audited, also over another
    /// connection.
    last_audit: Option<(u32, u64)>,
    audits: u64,
    /// See [`MixClient::exchanges`].
    exchanges: u64,
}

/// The conversations, which a member has while it knows the shape of the group.
enum ClientConversations {
    Member(Box<MixMember>),
    Waiting(Conversations),
}

impl MixClient {
    /// A client with the state that was stored last, if any. `seed` is 32 random bytes, never the
    /// same twice.
    ///
    /// # Errors
    /// If the stored state is not one of this group.
    pub fn new(
        settings: MixClientSettings,
        identity: Arc<IdentitySecretKey>,
        stored: Option<&[u8]>,
        seed: [u8; 32],
    ) -> Result<Self, ClientStateError> {
        let mut random = ForwardSecureRng::new(seed);
        let now = settings.since_1970;
        let group_id = group_id(&settings.group.administrator, settings.group.group.as_str());
        let life = micros(now);
        let restored = stored.map(|bytes| state::decode(bytes, &group_id, life)).transpose()?;
        let RestoredClientState { epochs, conversations, administrator, mut join_request, events } =
            restored.unwrap_or_else(|| RestoredClientState {
                epochs: ClientEpochs::new(now, &mut random),
                conversations: Conversations::new(life),
                administrator: Vec::new(),
                join_request: None,
                events: VecDeque::new(),
            });
        if settings.invitation.is_some() {
            // The last request may be with another one, or for another name.
            join_request = None;
        }
        let administrator = if identity.public() == settings.group.administrator {
            let own = Arc::clone(&identity);
            let administrator = if administrator.is_empty() {
                let (at, name) = (settings.group.clone(), settings.name.clone());
                Administrator::found(own, at, name, epochs.prekey())
            } else {
                Administrator::from_bytes(own, &administrator).ok_or(ClientStateError::Malformed)?
            };
            Some(administrator)
        } else {
            None
        };
        let mut membership = MembershipOutbox::default();
        if stored.is_none() {
            membership.handle_change();
        }
        Ok(Self {
            settings,
            identity,
            random,
            epochs,
            conversations: ClientConversations::Waiting(conversations),
            administrator,
            refusals: JoinRefusalLimiter::default(),
            join_request,
            link: None,
            events,
            transmits: VecDeque::new(),
            membership,
            is_stored: stored.is_some(),
            is_storing: false,
            not_of_round_since: None,
            displaced: None,
            last_audit: None,
            audits: 0,
            exchanges: 0,
        })
    }

    /// The connection to the proxy is there.
    pub fn handle_connected(&mut self, _now: Instant) {
        self.unlink();
        self.transmits.push_back(MixHello { group: self.settings.group.group.clone() }.encode());
    }

    /// The connection to the proxy has ended.
    pub fn handle_disconnected(&mut self, _now: Instant) {
        self.unlink();
    }

    fn unlink(&mut self) {
        self.link = None;
        self.transmits.clear();
        self.membership.clear();
    }

    /// A message of the proxy has come.
    ///
    /// # Errors
    /// Why the connection is to be ended.
    pub fn handle_message(&mut self, now: Instant, message: &[u8]) -> Result<(), MixClientError> {
        match ProxyToMember::decode(message, self.link.as_ref().map(ProxyLink::terms))? {
            ProxyToMember::Welcome { terms, standing, epoch } => {
                self.handle_welcome(now, terms, standing, epoch)
            }
            ProxyToMember::Refused(ProxyRefusal::Replaced) if self.is_first_displacement(now) => {
                Err(MixClientError::Displaced)
            }
            ProxyToMember::Refused(refusal) => Err(MixClientError::Refused(refusal)),
            ProxyToMember::JoinRequest { key, request } => {
                self.handle_join_request(now, &key, &request);
                Ok(())
            }
            ProxyToMember::Notice { key, notice } => {
                self.handle_notice(now, &key, &notice);
                Ok(())
            }
            ProxyToMember::JoinAnswer(answer) => self.handle_join_answer(&answer),
            ProxyToMember::Announcement(announcement) => {
                self.handle_announcement(now, &announcement)
            }
            ProxyToMember::SetUp(message) => {
                let messages = self.link()?.handle_set_up(message)?;
                self.transmits.extend(messages);
                Ok(())
            }
            ProxyToMember::Round { start, opening } => self.handle_round(now, &start, &opening),
            ProxyToMember::Answer { round, body } => self.handle_answer(now, round, &body),
            ProxyToMember::Late { round } => {
                self.link()?.handle_late(round);
                Ok(())
            }
            ProxyToMember::Audit { epoch, round, subject } => {
                self.handle_audit(epoch, round, subject)
            }
            ProxyToMember::AuditChoices(choices) => {
                let ClientConversations::Member(member) = &mut self.conversations else {
                    return Err(MixClientError::OutOfTurn("an audit before the epoch"));
                };
                let tables = member.end_audit(&choices)?;
                self.transmits.push_back(MemberToProxy::AuditTables(tables).encode());
                self.audits += 1;
                Ok(())
            }
            ProxyToMember::AuditFailed { key, round } => {
                // Only the administrator can do something about it.
                let name = self.epochs.name_of(&key).filter(|_| self.administrator.is_some());
                let found =
                    name.map(|name| MixClientEvent::AuditFailed { name: name.clone(), round });
                self.events.extend(found);
                Ok(())
            }
        }
    }

    /// Whether this is the first connection for some time that another one has replaced. An old
    /// connection whose greeting the proxy has read late can do that once; another host with the
    /// same key does it again and again.
    fn is_first_displacement(&mut self, now: Instant) -> bool {
        let before = self.displaced.replace(now);
        before.is_none_or(|before| now.saturating_duration_since(before) > DISPLACED_AGAIN)
    }

    /// The time of [`MixClient::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.announce_if_due(now);
    }

    /// When [`MixClient::handle_timeout`] is to be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let (administrator, _) = (self.administrator.as_ref()?, self.link.as_ref()?);
        let after = administrator.poll_timeout().saturating_sub(self.settings.since_1970);
        Some(self.settings.now + after)
    }

    /// The state, if it has changed and none is being written: it takes the place of what was
    /// stored before, in one step. Secret. There are no events, and nothing that tells of a change
    /// of membership is sent, until [`MixClient::handle_stored`] is called.
    pub fn poll_store(&mut self) -> Option<Zeroizing<Vec<u8>>> {
        if self.is_stored || self.is_storing {
            return None;
        }
        (self.is_stored, self.is_storing) = (true, true);
        self.membership.begin_to_store();
        Some(self.stored())
    }

    /// What [`MixClient::poll_store`] has returned is on the disk.
    pub fn handle_stored(&mut self) {
        self.is_storing = false;
        self.membership.end_to_store();
    }

    /// What [`MixClient::poll_store`] has returned could not be written: it returns the state
    /// again.
    pub fn handle_not_stored(&mut self) {
        (self.is_storing, self.is_stored) = (false, false);
    }

    /// Whether the state is on the disk as it is.
    pub fn is_stored(&self) -> bool {
        self.is_stored && !self.is_storing
    }

    /// What the client has learned, until [`MixClient::handle_shown`] is called.
    pub fn event(&self) -> Option<&MixClientEvent> {
        if self.is_stored() { self.events.front() } else { None }
    }

    /// What [`MixClient::event`] has returned was shown: there is the next one.
    pub fn handle_shown(&mut self) {
        let shown = self.events.pop_front();
        // If it is in the stored state, it would be shown again.
        let is_in_state = shown.is_some_and(|event| event.is_stored());
        self.is_stored &= !(is_in_state && self.events.is_empty());
    }

    /// How many rounds this client has taken part in since it was started, in which enough others
    /// have to write something. The proxy knows that.
    pub fn exchanges(&self) -> u64 {
        self.exchanges
    }

    /// A message to send to the proxy.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.transmits.pop_front().or_else(|| {
            // Where there are rounds, it is sent with a request: a time between rounds would tell
            // for how long the disk was busy.
            let has_rounds = self.link.as_ref().is_some_and(ProxyLink::is_ready);
            self.membership.poll(has_rounds)
        })
    }

    /// Queues a message to the member with a name. It is delivered once, after those before it.
    ///
    /// # Errors
    /// If it cannot be sent now, or never: in words.
    pub fn send(&mut self, to: &str, text: &str) -> Result<ChatMessageId, MixClientSendError> {
        if let Some(reason) = self.waiting_for() {
            return Err(MixClientSendError::Waiting(reason));
        }
        let ClientConversations::Member(member) = &mut self.conversations else {
            return Err(MixClientSendError::Waiting("there is no epoch yet"));
        };
        let id = member.send(to, text)?;
        self.is_stored = false;
        Ok(id)
    }

    /// Makes an invitation for one person, by the name that is proposed to it. For the
    /// administrator.
    ///
    /// # Errors
    /// If this is not the administrator, or there are too many invitations, or the name is taken.
    pub fn invite(
        &mut self,
        now: Instant,
        name: MemberName,
        lasts: Duration,
    ) -> Result<Invitation, AdministratorError> {
        let now = self.calendar(now);
        let administrator = self.administrator.as_mut().ok_or(NotAdministrator)?;
        let invitation = administrator.invite(now, name, now + lasts, self.random.draw())?;
        self.membership_changed();
        Ok(invitation)
    }

    /// Leaves a member out of the group. For the administrator.
    ///
    /// # Errors
    /// If this is not the administrator, or there is no such member.
    pub fn remove(&mut self, now: Instant, name: &MemberName) -> Result<(), AdministratorError> {
        self.administrator.as_mut().ok_or(NotAdministrator)?.remove(name)?;
        self.membership_changed();
        self.announce_if_due(now);
        Ok(())
    }

    /// Asks the administrator to be left out of the group, of which the next epoch is without this
    /// member.
    ///
    /// # Errors
    /// If this is the administrator or no member, or the proxy cannot be told now.
    pub fn leave(&mut self, now: Instant) -> Result<(), LeaveGroupError> {
        if self.administrator.is_some() {
            return Err(LeaveGroupError::Administrator);
        }
        if !self.epochs.is_member() {
            return Err(LeaveGroupError::NotAMember);
        }
        if self.link.is_none() {
            return Err(LeaveGroupError::NotConnected);
        }
        let number = self.epochs.next_number(self.calendar(now));
        self.send_notice(MemberNotice::Leave { number });
        Ok(())
    }

    /// How the client does.
    pub fn status(&self) -> MixClientStatus {
        let member = match &self.conversations {
            ClientConversations::Member(member) => Some(member),
            ClientConversations::Waiting(_) => None,
        };
        MixClientStatus {
            name: self.epochs.own_name().unwrap_or(&self.settings.name).to_string(),
            others: self.others(),
            epoch: self.epochs.number(),
            round: self.link.as_ref().map_or(0, ProxyLink::round),
            exchanges: self.exchanges,
            latency: self.link.as_ref().and_then(ProxyLink::latency),
            anonymity_set: member.map_or(0, |member| member.anonymity_set()),
            least_participants: self.settings.least_participants,
            undelivered: self.conversations().undelivered(),
            waiting_for: self.waiting_for(),
            not_of_round_since: self.not_of_round_since,
            audits: self.audits,
        }
    }

    /// The longest message of the proxy, in bytes.
    pub fn max_message_len(&self) -> usize {
        self.link.as_ref().map_or(MAX_GREETING_LEN, |link| link.terms().max_to_member_len())
    }

    /// The state, to be restored by [`MixClient::new`]. Secret.
    pub fn stored(&self) -> Zeroizing<Vec<u8>> {
        let at = &self.settings.group;
        let administrator = self.administrator.as_ref().map(Administrator::to_bytes);
        state::encode(
            &group_id(&at.administrator, at.group.as_str()),
            &self.epochs,
            &self.conversations().to_bytes(),
            administrator.as_ref().map_or(&[], |list| list),
            self.join_request.as_deref(),
            &self.events,
        )
    }
}

/// Rounds.
impl MixClient {
    /// Exchanges can be made in the epoch of the proxy.
    fn begin_exchanges(&mut self) -> Result<(), MixClientError> {
        let messages = self.link()?.begin()?;
        self.transmits.extend(messages);
        Ok(())
    }

    fn handle_round(
        &mut self,
        now: Instant,
        start: &RoundStart,
        opening: &[u8],
    ) -> Result<(), MixClientError> {
        let is_stored = self.is_stored();
        let (ClientConversations::Member(member), Some(link)) =
            (&mut self.conversations, &mut self.link)
        else {
            return Err(MixClientError::OutOfTurn("a round before the epoch"));
        };
        self.transmits.push_back(link.handle_round(now, start, opening, member, is_stored)?);
        self.membership.handle_round();
        Ok(())
    }

    fn handle_answer(
        &mut self,
        now: Instant,
        round: u64,
        body: &[u8],
    ) -> Result<(), MixClientError> {
        let slots = self.link()?.handle_answer(now, round, body)?;
        let ClientConversations::Member(member) = &mut self.conversations else { return Ok(()) };
        let generation = member.conversations().generation();
        member.handle_slots(&slots);
        self.is_stored &= member.conversations().generation() == generation;
        self.exchanges += u64::from(member.is_anonymous());
        if self.take_events() {
            self.not_of_round_since = None;
        }
        Ok(())
    }

    /// Takes what the member has learned. Whether no mailbox was a wrong one.
    fn take_events(&mut self) -> bool {
        let ClientConversations::Member(member) = &mut self.conversations else { return true };
        let mut is_right = true;
        while let Some(event) = member.poll_event() {
            self.events.push_back(match event {
                member::MemberEvent::Message { from, text } => {
                    MixClientEvent::Message { from, text }
                }
                member::MemberEvent::Delivered { id, to } => MixClientEvent::Delivered { id, to },
                member::MemberEvent::GivenUp { id, to, reason } => {
                    MixClientEvent::GivenUp { id, to, reason }
                }
                member::MemberEvent::NotOfThisRound { round } => {
                    is_right = false;
                    let since = *self.not_of_round_since.get_or_insert(round);
                    MixClientEvent::NotOfThisRound { round, since }
                }
                member::MemberEvent::LeftOut { round } => MixClientEvent::LeftOut { round },
            });
        }
        is_right
    }

    /// Begins an audit. A proxy that follows the protocol asks for each at a distance of some
    /// rounds; what another one could learn of masks and orders is bounded so.
    fn handle_audit(
        &mut self,
        epoch: u32,
        round: u64,
        subject: Participant,
    ) -> Result<(), MixClientError> {
        let ClientConversations::Member(member) = &mut self.conversations else {
            return Err(MixClientError::OutOfTurn("an audit before the epoch"));
        };
        let last = self.last_audit.filter(|(of, _)| *of == epoch).map(|(_, round)| round);
        if last.is_some_and(|last| round < last.saturating_add(MIN_AUDIT_ROUNDS)) {
            return Err(MixMemberError::Audit(round).into());
        }
        let set_up = member.begin_audit(epoch, round, subject)?;
        self.last_audit = Some((epoch, round));
        self.transmits.push_back(MemberToProxy::AuditSetUp(set_up).encode());
        Ok(())
    }

    /// Why there are no exchanges now.
    fn waiting_for(&self) -> Option<&'static str> {
        match &self.link {
            None => Some("there is no connection to the proxy"),
            Some(_) if !self.epochs.is_member() && self.administrator.is_none() => {
                Some("the administrator has not admitted this client yet, or is not connected")
            }
            Some(_) if !self.epochs.is_member() => Some("the group's first epoch has not begun"),
            Some(link) if !link.is_begun() => {
                Some("the administrator has not sent the epoch's key yet, or is not connected")
            }
            Some(link) if !link.is_ready() => Some("the exchanges with the proxy are being set up"),
            Some(_) => None,
        }
    }

    fn link(&mut self) -> Result<&mut ProxyLink, MixClientError> {
        self.link.as_mut().ok_or(MixClientError::OutOfTurn("a message before the greeting"))
    }

    fn conversations(&self) -> &Conversations {
        match &self.conversations {
            ClientConversations::Member(member) => member.conversations(),
            ClientConversations::Waiting(conversations) => conversations,
        }
    }

    fn others(&self) -> Vec<String> {
        self.epochs.others().map(ToString::to_string).collect()
    }

    /// The time since 1970.
    fn calendar(&self, now: Instant) -> Duration {
        self.settings.since_1970 + now.saturating_duration_since(self.settings.now)
    }
}

fn micros(since_1970: Duration) -> u64 {
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
