//! The proxy's end of one group: the connections, the epoch, the rounds, and the messages that wait
//! for the administrators. It is a state machine without I/O. Its inputs are messages and the time.
//! Its outputs are messages, jobs for threads, state to store and events.
//!
//! After each call of a `handle_` function the driver
//! 1. runs the jobs of [`MixGroup::poll_job`], in any thread, and passes the results to
//!    [`MixGroup::handle_done`];
//! 2. writes the state of [`MixGroup::poll_store`] so that it survives a crash;
//! 3. appends the records of [`MixGroup::poll_record`] to the archive, if rounds are kept, and
//!    calls [`MixGroup::handle_written`]; answers the requests of [`MixGroup::poll_catch_up`];
//! 4. sends the messages of [`MixGroup::poll_transmit`], and ends a connection after its last
//!    message;
//! 5. reads [`MixGroup::poll_event`], and calls [`MixGroup::handle_timeout`] at
//!    [`MixGroup::poll_timeout`].
//!
//! A connection cannot affect the others, with one exception: if a member that was told of a round
//! does not answer, the round stays open until its interval has passed. `docs/protocols/mix.md`
//! says what each message may change.

mod archive;
mod audits;
mod connection;
mod epoch;
mod exchanges;
mod job;
mod membership;
mod rounds;
mod status;
mod stored;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use keys::IdentityPublicKey;
use zeroize::Zeroizing;

pub use self::archive::{
    ArchiveAppend, ArchiveIndex, ArchiveLimits, ForeignArchiveError, PastBatch, PastPart,
    RecordPlace, SegmentEnd, read_record,
};
use self::audits::GroupAudits;
use self::connection::GroupConnection;
use self::epoch::AnnouncedEpoch;
use self::job::GroupJobOutcome;
pub use self::job::{FinishedGroupJob, GroupJob};
use self::rounds::GroupRounds;
pub use self::status::{
    AuditFailedMember, GroupCounters, LateMember, MixGroupEvent, MixGroupStatus,
};
pub use self::stored::GroupStateError;
use self::stored::StoredGroup;
use self::waiting::{LastNotices, PendingJoins};
use crate::MailboxShape;
use crate::protocol::audit::MAX_AUDIT_SLOTS;
use crate::protocol::engine::{self, MixEngineError, MixEngineName, ProxyEngine};
use crate::protocol::exchange::MixExchangeKind;
pub use crate::protocol::member::MIN_AUDIT_ROUNDS;
use crate::protocol::random::ForwardSecureRng;
use crate::protocol::round::RoundPosition;
use crate::protocol::wire::{
    ArchiveRecord, GroupName, MemberToProxy, MembershipStatus, MixTerms, ProxyRefusal,
    ProxyToMember,
};

/// The maximum number of connections of clients that are not members, and of pending join requests.
pub const MAX_NON_MEMBERS: usize = 64;
/// The maximum number of join requests that the administrators get in an interval, from all clients
/// together. Others wait. An administrator answers each, so this is well below
/// [`MAX_ADMINISTRATOR_MESSAGES`], also with those that it gets when it connects.
const MAX_JOINS_PASSED_ON: u32 = 64;
/// The maximum number of join requests and notices that a connection may send in an interval.
const MAX_MEMBERSHIP_MESSAGES: u32 = 4;
/// The same for the administrator, with its answers and announcements.
const MAX_ADMINISTRATOR_MESSAGES: u32 = 256;
/// The maximum number of requests for kept rounds that a connection may send in an interval. Those
/// that go on where an answer ended do not count.
const MAX_CATCH_UPS: u32 = 16;
/// A member that has kept others waiting in this many rounds of an epoch is reported, and again
/// after as many more.
const SLOW_ROUNDS: u64 = 64;
/// The maximum number of set-up messages of one connection.
const MAX_SET_UPS: u32 = 64;

/// The settings of a group.
#[derive(Clone, Debug)]
pub struct MixGroupSettings {
    /// Its name at the proxy.
    pub name: GroupName,
    /// The key of its founder, the first administrator.
    pub administrator: IdentityPublicKey,
    /// The engine, the shape and the intervals.
    pub terms: MixTerms,
    /// The number of rounds between two audited updates, at least [`MIN_AUDIT_ROUNDS`]; 0 for no
    /// audits. There are none in exchanges by broadcast.
    pub audit_every_rounds: u64,
    /// How much the archive keeps. The terms have the same time.
    pub archive: ArchiveLimits,
}

/// A member asks for the rounds that it has missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatchUpRequest {
    /// Its connection.
    pub connection: u64,
    /// Its key.
    pub key: IdentityPublicKey,
    /// The last round that it has.
    pub after: RoundPosition,
}

/// Why a group cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixGroupError {
    /// The stored state is not that of this group.
    #[error("the stored state: {0}")]
    Stored(#[from] GroupStateError),
    /// The engine does not support this shape.
    #[error("the engine: {0}")]
    Engine(#[from] MixEngineError),
    /// Audits are so frequent that members would refuse them, or the mailbox is too large for
    /// audits.
    #[error(
        "audits are made of {MAX_AUDIT_SLOTS} slots, and each {MIN_AUDIT_ROUNDS} rounds, at most"
    )]
    Audits,
}

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupTransmit {
    /// The connection.
    pub connection: u64,
    /// Its bytes, which several connections may share.
    pub message: Arc<[u8]>,
    /// Whether it begins a round of an exchange by broadcast.
    pub begins_round: bool,
    /// Whether to close the connection after the message. The group has already forgotten the
    /// connection.
    pub is_last: bool,
}

/// The constructor of engines.
type ProxyEngineConstructor =
    fn(MixEngineName, &MailboxShape, [u8; 32]) -> Result<Box<dyn ProxyEngine>, MixEngineError>;

/// One group at the proxy.
pub struct MixGroup {
    settings: MixGroupSettings,
    connections: BTreeMap<u64, GroupConnection>,
    epoch: Option<AnnouncedEpoch>,
    /// The message with the announcement of the epoch. All connections share its bytes: those of
    /// 1024 members take 200 kB.
    announcement: Arc<[u8]>,
    /// The next epoch. It begins as soon as no opening of the current epoch is being computed.
    announced: Option<AnnouncedEpoch>,
    rounds: GroupRounds,
    /// Whether a member has restored the current epoch.
    is_restored: bool,
    /// The members that have named their last round in this epoch.
    restorers: BTreeSet<[u8; 32]>,
    joins: PendingJoins,
    notices: LastNotices,
    audits: GroupAudits,
    /// In how many rounds of this epoch others have waited for a member, by its key.
    slow: BTreeMap<[u8; 32], u64>,
    new_engine: ProxyEngineConstructor,
    seed: Zeroizing<[u8; 32]>,
    engines: u64,
    is_stored: bool,
    jobs: VecDeque<GroupJob>,
    /// Closed rounds and announcements that are to be kept.
    records: VecDeque<ArchiveRecord>,
    /// Whether a record is being written, and whether it is a round.
    writing: Option<bool>,
    catch_ups: VecDeque<CatchUpRequest>,
    transmits: VecDeque<GroupTransmit>,
    events: VecDeque<MixGroupEvent>,
    counters: GroupCounters,
}

impl MixGroup {
    /// The group with the last stored state, if any. `seed` is 32 random bytes that must never be
    /// used twice.
    ///
    /// # Errors
    /// If the state is damaged or belongs to another group, or the engine does not support the
    /// shape.
    pub fn new(
        settings: MixGroupSettings,
        stored: Option<&[u8]>,
        seed: [u8; 32],
    ) -> Result<Self, MixGroupError> {
        let new_engine: ProxyEngineConstructor =
            |engine, shape, seed| engine::proxy(engine, shape, seed);
        Self::with_engines(settings, stored, seed, new_engine)
    }

    fn with_engines(
        settings: MixGroupSettings,
        stored: Option<&[u8]>,
        seed: [u8; 32],
        new_engine: ProxyEngineConstructor,
    ) -> Result<Self, MixGroupError> {
        let every = match settings.terms.exchange() {
            // A member writes only its own slots, so there is nothing to audit.
            MixExchangeKind::Broadcast => 0,
            MixExchangeKind::Oblivious(engine) => {
                new_engine(engine, settings.terms.shape(), [0; 32])?;
                settings.audit_every_rounds
            }
        };
        let is_too_large = settings.terms.shape().slots() > MAX_AUDIT_SLOTS;
        if every > 0 && (every < MIN_AUDIT_ROUNDS || is_too_large) {
            return Err(MixGroupError::Audits);
        }
        let stored = stored.map(|bytes| StoredGroup::decode(bytes, &settings)).transpose()?;
        let StoredGroup { epoch, next_round, notices } = stored.unwrap_or_default();
        let random = ForwardSecureRng::new(membership::derive_seed(&seed, 0));
        let mut group = Self {
            audits: GroupAudits::new(every, next_round, random),
            rounds: GroupRounds::new(settings.terms, next_round),
            settings,
            connections: BTreeMap::new(),
            epoch: None,
            announcement: Arc::default(),
            announced: None,
            is_restored: false,
            restorers: BTreeSet::new(),
            joins: PendingJoins::default(),
            notices,
            slow: BTreeMap::new(),
            new_engine,
            seed: Zeroizing::new(seed),
            engines: 0,
            is_stored: true,
            jobs: VecDeque::new(),
            records: VecDeque::new(),
            writing: None,
            catch_ups: VecDeque::new(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            counters: GroupCounters::default(),
        };
        if let Some(epoch) = epoch {
            group.set_epoch(epoch);
        }
        Ok(group)
    }

    /// A client has connected and has named the group in its greeting. The connection has
    /// authenticated its key. `id` identifies the connection and must not have been used before.
    pub fn handle_connected(&mut self, now: Duration, id: u64, key: IdentityPublicKey) {
        if let Some(old) = self.connection_of(&key) {
            self.refuse(old, ProxyRefusal::Replaced);
        }
        let status = self.membership_status(&key);
        self.connections.insert(id, GroupConnection::new(key, now));
        if matches!(status, MembershipStatus::Unknown | MembershipStatus::Waiting) {
            let strangers = self.connections.values().filter(|it| !self.is_inside(&it.key));
            if strangers.count() > MAX_NON_MEMBERS {
                return self.refuse(id, ProxyRefusal::TooManyConnections);
            }
        }
        if self.audits.is_left_out(&key) {
            return self.refuse(id, ProxyRefusal::LeftOut);
        }
        let terms = self.settings.terms;
        let epoch = self.epoch.as_ref().map_or(0, AnnouncedEpoch::number);
        let (round, is_restored) = (self.rounds.last(), self.is_restored);
        self.send(id, &ProxyToMember::Welcome { terms, status, epoch, round, is_restored });
        self.events.push_back(MixGroupEvent::Connected { key, status });
        if let Some(answer) = self.joins.take_answer(&key) {
            self.send(id, &ProxyToMember::JoinAnswer(answer));
        }
        if self.is_inside(&key) {
            self.admit(now, id);
        }
        if self.is_administrator(&key) {
            self.send_pending_membership(id);
        }
        self.advance(now);
    }

    /// A connection has ended.
    pub fn handle_disconnected(&mut self, now: Duration, id: u64) {
        if let Some(connection) = self.connections.remove(&id) {
            self.events.push_back(MixGroupEvent::Disconnected { key: connection.key });
            self.advance(now);
        }
    }

    /// Handles a message of a connection.
    pub fn handle_message(&mut self, now: Duration, id: u64, message: &[u8]) {
        if !self.connections.contains_key(&id) {
            return;
        }
        self.counters.bytes_received += message.len() as u64;
        let message = MemberToProxy::decode(message, &self.settings.terms);
        let message = message.map_err(|_| ProxyRefusal::Malformed);
        if let Err(refusal) = message.and_then(|message| self.handle(now, id, message)) {
            self.refuse(id, refusal);
        }
        self.advance(now);
    }

    /// Handles the result of a job.
    pub fn handle_done(&mut self, now: Duration, done: FinishedGroupJob) {
        match done.0 {
            GroupJobOutcome::Exchange { connection: id, result } => {
                // The exchange of a closed connection is dropped.
                let Some(connection) = self.connections.get_mut(&id) else { return };
                match result {
                    Ok((engine, product)) => {
                        connection.return_engine(engine);
                        self.handle_product(now, id, product);
                        self.work(now, id);
                    }
                    Err(_) => self.refuse(id, ProxyRefusal::Engine),
                }
            }
            GroupJobOutcome::Audit { inquiry, result } => self.handle_audited(inquiry, result),
        }
        self.advance(now);
    }

    /// Must be called at the time of [`MixGroup::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Duration) {
        self.advance(now);
    }

    /// When to call [`MixGroup::handle_timeout`] next.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let open = self.rounds.open().filter(|_| !self.is_waiting_for_openings());
        let round = open.and_then(|open| open.timeout(self.exchanges(open.number()).any(|_| true)));
        let joins = self.joins.timeout(self.settings.terms.interval());
        round.into_iter().chain(joins).min()
    }

    /// The next job to run. Jobs may run concurrently and in any order.
    pub fn poll_job(&mut self) -> Option<GroupJob> {
        self.jobs.pop_front()
    }

    /// The state to store, if it has changed. It must replace the stored state atomically.
    /// [`Self::poll_transmit`] returns nothing until then.
    pub fn poll_store(&mut self) -> Option<Vec<u8>> {
        let is_stored = std::mem::replace(&mut self.is_stored, true);
        (!is_stored)
            .then(|| stored::encode(self.epoch.as_ref(), self.rounds.reserved(), &self.notices))
    }

    /// The next record for the archive. The driver then calls [`Self::handle_written`]. Until then
    /// the next round is not opened, so that members are told whether the closed one is kept.
    pub fn poll_record(&mut self) -> Option<ArchiveRecord> {
        let record = self.records.pop_front()?;
        self.writing = Some(matches!(record, ArchiveRecord::Round(_)));
        Some(record)
    }

    /// The last record is in the archive, or could not be written.
    pub fn handle_written(&mut self, now: Duration, is_written: bool) {
        if self.writing.take() == Some(true) && is_written {
            self.rounds.set_kept();
        }
        self.advance(now);
    }

    /// The next request of a member that catches up, to be answered with [`Self::handle_past`].
    pub fn poll_catch_up(&mut self) -> Option<CatchUpRequest> {
        self.catch_ups.pop_front()
    }

    /// Sends the answer to the request of a connection.
    pub fn handle_past(&mut self, connection: u64, is_last: bool, records: Vec<ArchiveRecord>) {
        let Some(to) = self.connections.get_mut(&connection) else { return };
        let until = records.iter().filter_map(ArchiveRecord::position).next_back();
        to.set_past_until(until.filter(|_| !is_last));
        self.send(connection, &ProxyToMember::Past { is_last, records });
    }

    /// The next message to send. `None` while a state must be stored.
    pub fn poll_transmit(&mut self) -> Option<GroupTransmit> {
        if self.is_stored { self.transmits.pop_front() } else { None }
    }

    /// The next event, for the log.
    pub fn poll_event(&mut self) -> Option<MixGroupEvent> {
        self.events.pop_front()
    }

    /// The longest message that a client may send, in bytes.
    pub fn max_message_len(&self) -> usize {
        self.settings.terms.max_to_proxy_len()
    }

    /// Counters since the start.
    pub fn counters(&self) -> GroupCounters {
        self.counters
    }

    /// The status of the group.
    pub fn status(&self, now: Duration) -> MixGroupStatus {
        let is_member = |it: &&GroupConnection| self.number_of(&it.key).is_some();
        let late = self.connections.values().filter_map(|it| {
            let since = now.saturating_sub(it.late_since?);
            Some(LateMember { key: it.key, since })
        });
        MixGroupStatus {
            epoch: self.epoch.as_ref().map_or(0, AnnouncedEpoch::number),
            members: self.epoch.as_ref().map_or(0, AnnouncedEpoch::members),
            connected: self.connections.values().filter(is_member).count(),
            joins_waiting: self.joins.count(),
            round: self.rounds.last(),
            late_members: late.collect(),
            found: self.audits.found().to_vec(),
            counters: self.counters,
        }
    }

    fn handle(
        &mut self,
        now: Duration,
        id: u64,
        message: MemberToProxy,
    ) -> Result<(), ProxyRefusal> {
        let key = self.connections[&id].key;
        match message {
            MemberToProxy::Join(request) => {
                self.count_membership_message(now, id)?;
                self.handle_join(key, request)
            }
            MemberToProxy::Notice(notice) => {
                self.count_membership_message(now, id)?;
                self.handle_notice(key, notice)
            }
            MemberToProxy::Announce(announcement) => {
                self.check_administrator(&key)?;
                self.count_membership_message(now, id)?;
                self.handle_announcement(&announcement)
            }
            MemberToProxy::JoinAnswer { key: to, answer } => {
                self.check_administrator(&key)?;
                self.count_membership_message(now, id)?;
                self.handle_join_answer(to, answer);
                Ok(())
            }
            MemberToProxy::SetUp(message) => {
                let connection = self.connections.get_mut(&id).expect("checked");
                connection.push_set_up(message, MAX_SET_UPS)?;
                self.work(now, id);
                Ok(())
            }
            MemberToProxy::Request { round, nonce, body } => {
                self.handle_request(now, id, round, nonce, body)
            }
            MemberToProxy::AuditSetUp(set_up) => self.handle_audit_set_up(id, set_up),
            MemberToProxy::AuditTables(tables) => self.handle_audit_tables(id, tables),
            MemberToProxy::Restore { round, announcement } => {
                self.count_membership_message(now, id)?;
                self.handle_restore(id, round, &announcement)
            }
            MemberToProxy::CatchUp(after) => self.handle_catch_up(now, id, after),
        }
    }

    fn send(&mut self, connection: u64, message: &ProxyToMember) {
        self.transmit(connection, message.encode().into(), false);
    }

    fn transmit(&mut self, connection: u64, message: Arc<[u8]>, begins_round: bool) {
        self.counters.bytes_sent += message.len() as u64;
        let is_last = false;
        self.transmits.push_back(GroupTransmit { connection, message, begins_round, is_last });
    }

    /// Ends a connection with a refusal.
    fn refuse(&mut self, id: u64, refusal: ProxyRefusal) {
        let Some(connection) = self.connections.remove(&id) else { return };
        self.send(id, &ProxyToMember::Refused(refusal));
        if let Some(transmit) = self.transmits.back_mut() {
            transmit.is_last = true;
        }
        self.events.push_back(MixGroupEvent::Refused { key: connection.key, refusal });
    }

    fn membership_status(&self, key: &IdentityPublicKey) -> MembershipStatus {
        if self.is_administrator(key) {
            MembershipStatus::Administrator
        } else if self.number_of(key).is_some() {
            MembershipStatus::Member
        } else if self.joins.is_waiting(key) {
            MembershipStatus::Waiting
        } else {
            MembershipStatus::Unknown
        }
    }

    /// Whether the key belongs to a member or to an administrator.
    fn is_inside(&self, key: &IdentityPublicKey) -> bool {
        matches!(
            self.membership_status(key),
            MembershipStatus::Member | MembershipStatus::Administrator
        )
    }

    fn number_of(&self, key: &IdentityPublicKey) -> Option<u16> {
        self.epoch.as_ref()?.number_of(key)
    }

    fn connection_of(&self, key: &IdentityPublicKey) -> Option<u64> {
        self.connections.iter().find(|(_, it)| it.key == *key).map(|(&id, _)| id)
    }
}

#[cfg(test)]
mod tests;
