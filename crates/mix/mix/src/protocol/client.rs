//! A member's end: one client of one group, over successive connections to the proxy. It combines
//! the greeting, membership, the engine and the rounds into one state machine that does no I/O.
//!
//! The driver connects to [`MixClient::begin_connection`], and again after each connection and each
//! failed attempt.
//!
//! After each call, the driver repeats these steps in this order until none returns anything: it
//! writes the state of [`MixClient::poll_store`] to disk and then calls
//! [`MixClient::handle_stored`]; it shows [`MixClient::event`] and then calls
//! [`MixClient::handle_shown`]; it sends the message of [`MixClient::poll_transmit`]; it calls
//! [`MixClient::read_round`]. State is stored before it is shown or sent. After a crash no message
//! is lost, and only a message that was being shown may be shown again.
//!
//! **Nothing that the proxy sees depends on messages**, but for contents that it cannot read. The
//! driver writes the state in another thread and keeps calling the client: if messages waited for
//! the disk, their timing would tell the proxy that there was something to write. A request that is
//! made while a change is not stored yet writes to nobody. Only messages that tell the
//! administrator of a change of membership wait until that change is stored, and then for the next
//! round.

mod administration;
mod agreed_rounds;
mod branches;
mod epochs;
mod joining;
mod link;
mod members;
mod outbox;
mod proxies;
mod report;
mod report_limiter;
mod rounds;
mod silence;
mod state;
mod terms;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use keys::IdentitySecretKey;
use zeroize::Zeroizing;

use self::administration::JoinRefusalLimiter;
pub use self::agreed_rounds::TermsChangeError;
pub use self::branches::MemberListDifference;
use self::epochs::ClientEpochs;
use self::joining::ProxyPosition;
use self::link::ProxyLink;
use self::outbox::MembershipOutbox;
use self::proxies::ProxySearch;
pub use self::report::{
    AdministratorError, CancelledChatMessages, ClientStateError, DayBytes, ImportError,
    LeaveGroupError, MixClientError, MixClientSendError, MixClientStatus, NotAdministrator,
};
use self::report_limiter::ReportLimiter;
pub(crate) use self::silence::MIN_READ_TIMEOUT;
use self::state::{JoinAttempt, RestoredClientState};
use self::terms::AgreedTerms;
pub use self::terms::{AcceptableTerms, MAX_BYTES_PER_DAY, MAX_TERMS_CHANGE};
use crate::protocol::conversations::Conversations;
use crate::protocol::event::{ChatMessageId, MixClientEvent};
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::member::MixMember;
use crate::protocol::membership::{
    Administrator, EpochAnnouncement, GroupAddress, Invitation, MemberName, group_id,
};
use crate::protocol::random::ForwardSecureRng;
use crate::protocol::wire::{
    MAX_GREETING_LEN, MemberToProxy, MixHello, ProxyRefusal, ProxyToMember,
};

/// If two connections are replaced within this time, another host has the same key.
const DISPLACED_AGAIN: Duration = Duration::from_secs(60);

/// The member, its group and its settings.
#[derive(Debug)]
pub struct MixClientSettings {
    /// The group, with the key of its founder.
    pub group: GroupAddress,
    /// Whether this client founds the group, if its key is the founder's and there is no stored
    /// state. A founder that has lost its state does not: it would begin a group without members.
    pub founds: bool,
    /// The name to join with, or the administrator's name.
    pub name: MemberName,
    /// The invitation to join with. A member needs none.
    pub invitation: Option<Invitation>,
    /// Messages are sent only while at least this many members could read them: those that took
    /// part in the last round or, if the proxy keeps rounds, all.
    pub least_participants: usize,
    /// Which terms of the proxy are accepted.
    pub terms: AcceptableTerms,
    /// The time of construction.
    pub now: Duration,
    /// The wall-clock time of construction, since 1970.
    pub since_1970: Duration,
}

/// The client of one member. It contains the member's secrets.
pub struct MixClient {
    settings: MixClientSettings,
    identity: Arc<IdentitySecretKey>,
    random: ForwardSecureRng,
    epochs: ClientEpochs,
    conversations: ClientConversations,
    administrator: Option<Administrator>,
    refusals: JoinRefusalLimiter,
    join_attempt: Option<JoinAttempt>,
    agreed: AgreedTerms,
    search: ProxySearch,
    /// Set once the proxy has greeted this client.
    link: Option<ProxyLink>,
    events: VecDeque<MixClientEvent>,
    reports: ReportLimiter,
    /// When the proxy has last sent something.
    heard: Duration,
    /// Messages that can be sent at once.
    transmits: VecDeque<Vec<u8>>,
    membership: MembershipOutbox,
    /// Whether the state has not changed since [`MixClient::poll_store`] last returned it.
    is_stored: bool,
    /// Whether that state is being written.
    is_storing: bool,
    /// Whether events were shown that are in the state of that call.
    has_shown: bool,
    /// When a connection of this client was last replaced by another one.
    displaced: Option<Duration>,
    /// The epoch and round of the last update that this client audited, over any connection.
    last_audit: Option<(u32, u64)>,
    audits: u64,
    /// See [`MixClient::exchanges`].
    exchanges: u64,
    bytes_today: DayBytes,
    /// The names of the other members, as they were reported last.
    reported_others: Option<Vec<String>>,
    /// The last epoch of which it was reported that its rounds cannot be read.
    unreadable_epoch: u32,
    /// The last epoch of which it was reported that the proxy had lost it.
    restored_epoch: u32,
}

/// The conversations: part of a member while the shape of the group is known.
enum ClientConversations {
    Member(Box<MixMember>),
    Waiting(Conversations),
}

impl MixClient {
    /// A client with the last stored state, if any. `seed` is 32 random bytes that must never be
    /// used twice.
    ///
    /// # Errors
    /// If the stored state is not of this group.
    pub fn new(
        settings: MixClientSettings,
        identity: Arc<IdentitySecretKey>,
        stored: Option<&[u8]>,
        seed: [u8; 32],
    ) -> Result<Self, ClientStateError> {
        let mut random = ForwardSecureRng::new(seed);
        let now = settings.since_1970;
        let (at, life) = (&settings.group, micros(now));
        let restored = stored.map(|bytes| state::decode(bytes, at, life)).transpose()?;
        let RestoredClientState {
            mut epochs,
            conversations,
            administrator,
            is_administrator_before,
            mut join_attempt,
            mut agreed,
            events,
        } = restored.unwrap_or_else(|| RestoredClientState {
            epochs: ClientEpochs::new(now, &mut random),
            conversations: Conversations::new(life),
            administrator: Vec::new(),
            is_administrator_before: false,
            join_attempt: None,
            agreed: AgreedTerms::of_new(&settings.terms),
            events: VecDeque::new(),
        });
        if let Some(invitation) = &settings.invitation {
            // Who joins does not leave any more.
            epochs.end_leaving(now, &mut random);
            // A stored request may be for another invitation or name.
            join_attempt = Some(JoinAttempt::new(invitation));
            agreed.handle_invitation(invitation);
        }
        let own = Arc::clone(&identity);
        let is_founder = own.public() == at.administrator;
        let administrator = if !administrator.is_empty() {
            let decoded = if is_administrator_before {
                Administrator::from_bytes_before(own, &administrator)
            } else {
                Administrator::from_bytes(own, at, &administrator)
            };
            Some(decoded.ok_or(ClientStateError::Malformed)?)
        } else if is_founder && settings.founds && stored.is_none() {
            let name = settings.name.clone();
            Some(Administrator::found(own, at.clone(), name, epochs.prekey()))
        } else {
            None
        };
        let mut membership = MembershipOutbox::default();
        // What an invitation changes is stored as well.
        let is_stored = stored.is_some() && settings.invitation.is_none();
        if !is_stored {
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
            join_attempt,
            agreed,
            search: ProxySearch::default(),
            link: None,
            events,
            reports: ReportLimiter::default(),
            heard: Duration::ZERO,
            transmits: VecDeque::new(),
            membership,
            is_stored,
            is_storing: false,
            has_shown: false,
            displaced: None,
            last_audit: None,
            audits: 0,
            exchanges: 0,
            bytes_today: DayBytes::default(),
            reported_others: None,
            unreadable_epoch: 0,
            restored_epoch: 0,
        })
    }

    /// The connection of [`MixClient::begin_connection`] is established.
    pub fn handle_connected(&mut self, _now: Duration) {
        self.unlink();
        self.transmits.push_back(MixHello { group: self.settings.group.group.clone() }.encode());
    }

    /// The connection to the proxy has ended, or could not be established.
    pub fn handle_disconnected(&mut self, _now: Duration) {
        self.handle_search_end();
        self.unlink();
    }

    fn unlink(&mut self) {
        self.link = None;
        self.transmits.clear();
        self.membership.clear();
    }

    /// Handles a message of the proxy.
    ///
    /// # Errors
    /// Returns why the driver must end the connection.
    pub fn handle_message(&mut self, now: Duration, message: &[u8]) -> Result<(), MixClientError> {
        self.heard = now;
        let calendar = self.calendar(now);
        self.bytes_today.count(calendar, 0, message.len());
        self.settings.terms.check_day(&self.bytes_today)?;
        // Usually the driver has read all before.
        while self.read_round() {}
        match ProxyToMember::decode(message, self.link.as_ref().map(ProxyLink::terms))? {
            ProxyToMember::Welcome { terms, status, epoch, round, is_restored } => {
                let position = ProxyPosition { epoch, round, is_restored };
                self.handle_welcome(now, terms, status, position)
            }
            ProxyToMember::Refused(ProxyRefusal::Replaced) if self.is_first_displacement(now) => {
                Err(MixClientError::Displaced)
            }
            // The group is perhaps being moved to another proxy.
            ProxyToMember::Refused(ProxyRefusal::UnknownGroup) if self.is_listed() => {
                Err(MixClientError::GroupGone)
            }
            // This member is not in the list of the proxy, which is none that follows its own.
            ProxyToMember::Refused(ProxyRefusal::NotMember) if self.has_restored() => {
                Err(MixClientError::Fork)
            }
            ProxyToMember::Refused(ProxyRefusal::Removed) if self.has_restored() => {
                Err(MixClientError::Removed)
            }
            // The group may have another proxy, of which this one knows nothing.
            ProxyToMember::Refused(
                refusal @ (ProxyRefusal::Version | ProxyRefusal::Removed | ProxyRefusal::GroupFull),
            ) if self.handle_refused() => Err(MixClientError::RefusedHere(refusal)),
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
            ProxyToMember::Round { start, opening } => self.handle_round(now, &start, opening),
            ProxyToMember::Answer { round, body } => self.handle_answer(now, round, &body),
            ProxyToMember::Late { round } => self.handle_late(round),
            ProxyToMember::Past { is_last, records } => {
                let newest = self.epochs.newest_number();
                let next = self.link()?.handle_past(is_last, records, newest)?;
                self.transmits.extend(next);
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
                // In exchanges by broadcast there are no audits: the proxy accuses a member.
                if self.link()?.terms().exchange() == MixExchangeKind::Broadcast {
                    return Err(MixClientError::OutOfTurn("the result of an audit in a broadcast"));
                }
                // Only an administrator can act on it.
                let name = self.epochs.name_of(&key).filter(|_| self.administrator.is_some());
                let found =
                    name.map(|name| MixClientEvent::AuditFailed { name: name.clone(), round });
                self.events.extend(found);
                Ok(())
            }
        }
    }

    /// Whether no other connection of this client was replaced within [`DISPLACED_AGAIN`]. An old
    /// connection whose greeting the proxy reads late can replace a newer one once. Another host
    /// with the same key does so repeatedly.
    fn is_first_displacement(&mut self, now: Duration) -> bool {
        let before = self.displaced.replace(now);
        before.is_none_or(|before| now.saturating_sub(before) > DISPLACED_AGAIN)
    }

    /// Must be called at the time of [`MixClient::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Duration) {
        self.announce_if_due(now);
    }

    /// When to call [`MixClient::handle_timeout`] next.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.link.as_ref().filter(|link| link.is_current)?;
        let due = self.administrator.as_ref()?.poll_timeout()?;
        let after = due.saturating_sub(self.settings.since_1970);
        Some(self.settings.now + after)
    }

    /// The state to store, if it has changed and no other is being written. It must replace the
    /// stored state atomically. Secret. Until [`MixClient::handle_stored`] is called, there are no
    /// events, and no message about a change of membership is sent.
    pub fn poll_store(&mut self) -> Option<Zeroizing<Vec<u8>>> {
        if self.is_stored || self.is_storing {
            return None;
        }
        (self.is_stored, self.is_storing, self.has_shown) = (true, true, false);
        self.membership.begin_to_store();
        Some(self.stored())
    }

    /// The state that [`MixClient::poll_store`] returned is on the disk.
    pub fn handle_stored(&mut self) {
        self.is_storing = false;
        self.membership.end_to_store();
    }

    /// The state that [`MixClient::poll_store`] returned could not be written. `poll_store` returns
    /// it again.
    pub fn handle_not_stored(&mut self) {
        (self.is_storing, self.is_stored) = (false, false);
    }

    /// Whether the current state is on the disk.
    pub fn is_stored(&self) -> bool {
        self.is_stored && !self.is_storing
    }

    /// The next event to show. It stays the same until [`MixClient::handle_shown`] is called.
    pub fn event(&self) -> Option<&MixClientEvent> {
        if self.is_stored() { self.events.front() } else { None }
    }

    /// The event that [`MixClient::event`] returned was shown. Continues with the next one.
    pub fn handle_shown(&mut self) {
        let shown = self.events.pop_front();
        self.has_shown |= shown.is_some_and(|event| event.is_stored());
        if self.events.is_empty() {
            self.store_without_shown();
        }
    }

    /// Has the state stored again if events of the stored state were shown, even if others are
    /// left. Called before the program ends: a shown event that is still in the stored state is
    /// shown again after a restart.
    pub fn store_without_shown(&mut self) {
        self.is_stored &= !std::mem::take(&mut self.has_shown);
    }

    /// Adds an event, as a round does.
    #[cfg(test)]
    pub(crate) fn push_event(&mut self, event: MixClientEvent) {
        self.events.push_back(event);
    }

    /// The number of rounds, since the start, in which this client took part with enough
    /// participants to send. The proxy knows this number.
    pub fn exchanges(&self) -> u64 {
        self.exchanges
    }

    /// A message to send to the proxy.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<Vec<u8>> {
        let message = self.transmits.pop_front().or_else(|| {
            // While there are rounds, membership messages go out with a request. Sent between
            // rounds, they would show how long the disk was busy.
            let has_rounds = self.link.as_ref().is_some_and(ProxyLink::is_ready);
            self.membership.poll(has_rounds)
        })?;
        let calendar = self.calendar(now);
        self.bytes_today.count(calendar, message.len(), 0);
        Some(message)
    }

    /// Queues a message to the member with this name. Messages are delivered once and in order.
    ///
    /// # Errors
    /// If it cannot be sent, or cannot be sent now.
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

    /// The status of the client.
    pub fn status(&self) -> MixClientStatus {
        let member = match &self.conversations {
            ClientConversations::Member(member) => Some(member),
            ClientConversations::Waiting(_) => None,
        };
        MixClientStatus {
            name: self.epochs.own_name().unwrap_or(&self.settings.name).to_string(),
            others: self.other_names(),
            administrators: self.administrator_names(),
            has_notices_waiting: self.membership.is_waiting(),
            is_leaving: self.epochs.is_leaving(),
            epoch: self.epochs.number(),
            round: self.link.as_ref().map_or(0, ProxyLink::round),
            exchanges: self.exchanges,
            latency: self.link.as_ref().and_then(ProxyLink::latency),
            anonymity_set: member.map_or(0, |member| member.anonymity_set()),
            least_participants: self.settings.least_participants,
            can_send: member.is_some_and(|member| member.is_anonymous()),
            undelivered: self.conversations().undelivered(),
            waiting_for: self.waiting_for(),
            not_of_round_since: self.conversations().not_of_round_since,
            bytes_today: self.bytes_today,
            audits: self.audits,
        }
    }

    /// The longest message of the proxy, in bytes.
    pub fn max_message_len(&self) -> usize {
        self.link.as_ref().map_or(MAX_GREETING_LEN, |link| link.terms().max_to_member_len())
    }

    /// The state, to be restored by [`MixClient::new`]. Secret.
    pub fn stored(&self) -> Zeroizing<Vec<u8>> {
        let administrator = self.administrator.as_ref().map(Administrator::to_bytes);
        state::encode(
            &self.group_id(),
            &self.epochs,
            &self.conversations().to_bytes(),
            administrator.as_ref().map_or(&[], |list| list),
            self.join_attempt.as_ref(),
            self.agreed,
            &self.events,
        )
    }
}

impl MixClient {
    /// Why there are no exchanges now.
    fn waiting_for(&self) -> Option<&'static str> {
        match &self.link {
            None => Some("there is no connection to the proxy"),
            Some(_) if self.is_lost_founder() => Some(
                "neither this chat nor the proxy has the members of the group: wait until a member \
                 comes, import them, or found the group again",
            ),
            Some(link) if link.owes_announcement() => {
                Some("the proxy has not sent the members of the group yet")
            }
            Some(_) if !self.epochs.is_member() && self.administrator.is_none() => Some(
                "the administrator has not admitted this client yet, or is not connected, or the \
                 proxy keeps the answer back",
            ),
            Some(_) if !self.epochs.is_member() => Some("the group's first epoch has not begun"),
            Some(link) if !link.is_begun() => Some(
                "the administrator has not sent the epoch's key yet, or is not connected, or the \
                 proxy keeps the key back",
            ),
            Some(link) if !link.is_ready() => Some("the exchanges with the proxy are being set up"),
            Some(_) => None,
        }
    }

    fn has_restored(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.has_restored)
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

    fn conversations_mut(&mut self) -> &mut Conversations {
        match &mut self.conversations {
            ClientConversations::Member(member) => member.conversations_mut(),
            ClientConversations::Waiting(conversations) => conversations,
        }
    }

    fn group_id(&self) -> [u8; 32] {
        group_id(&self.settings.group.administrator, self.settings.group.group.as_str())
    }

    /// Whether this client is the founder, and has no state of the group.
    fn is_lost_founder(&self) -> bool {
        self.identity.public() == self.settings.group.administrator
            && self.administrator.is_none()
            && self.epochs.newest().is_none()
    }

    /// Whether this client is in the newest list of members that it knows.
    fn is_listed(&self) -> bool {
        let is_in = |it: &EpochAnnouncement| it.index_of(&self.identity.public()).is_some();
        self.epochs.is_member() || self.epochs.newest().is_some_and(is_in)
    }

    fn administrator_names(&self) -> Vec<String> {
        let keys = self.epochs.newest().map_or(&[][..], |newest| newest.administrators().keys());
        let names = keys.iter().filter_map(|key| self.epochs.name_of(key));
        names.map(ToString::to_string).collect()
    }

    fn other_names(&self) -> Vec<String> {
        self.epochs.others().map(|(_, name)| name.to_string()).collect()
    }

    /// The time since 1970.
    fn calendar(&self, now: Duration) -> Duration {
        self.settings.since_1970 + now.saturating_sub(self.settings.now)
    }
}

fn micros(since_1970: Duration) -> u64 {
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
