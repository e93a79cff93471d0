//! The proxy's end of one group: who is connected, the epoch, the rounds, what waits for the
//! administrator. It knows neither sockets nor files: messages and time in, messages, work for
//! threads, state to be stored and events out.
//!
//! After each call of a `handle_` function the driver
//! 1. runs what [`Group::poll_job`] returns, in any thread, and hands it to [`Group::handle_done`];
//! 2. writes what [`Group::poll_store`] returns, so that it survives a crash;
//! 3. sends what [`Group::poll_transmit`] returns, and ends a connection after its last message;
//! 4. reads [`Group::poll_event`], and calls [`Group::handle_timeout`] at [`Group::poll_timeout`].
//!
//! What one connection does changes nothing for the others, except that a round is open until its
//! interval has passed if a member that was told of it does not answer. `docs/protocols/mix.md`
//! says which message may change what.

mod connection;
mod epoch;
mod job;
mod rounds;
mod status;
mod stored;
mod waiting;

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use hmac::{Hmac, KeyInit, Mac};
use keys::PublicKey;
use sha2::Sha256;
use zeroize::Zeroizing;

use self::connection::{Connection, Exchange, Stage};
use self::epoch::Epoch;
pub use self::job::{Done, Job};
use self::job::{Product, Work};
use self::rounds::{OpenRound, Rounds};
pub use self::status::{Counters, GroupEvent, GroupStatus, LateMember};
use self::stored::Stored;
pub use self::stored::StoredError;
use self::waiting::{Joins, Notices};
use crate::Mailbox;
use crate::engine::{self, EngineError, ProxyEngine};
use crate::wire::{GroupName, Refusal, Standing, Terms, ToMember, ToProxy};

/// The most connections of clients that are not members, and the most requests to join that wait.
pub const MAX_STRANGERS: usize = 64;
/// The most requests to join and notices that a connection may send in an interval.
const MAX_LETTERS: u32 = 4;
/// The same for the administrator, with its answers and announcements.
const MAX_ADMINISTRATOR_LETTERS: u32 = 256;
/// The most set-up messages of one connection.
const MAX_SET_UPS: u32 = 64;

/// Which group it is, and how its members make exchanges.
#[derive(Clone, Debug)]
pub struct GroupSettings {
    /// Its name at the proxy.
    pub name: GroupName,
    /// The key of its administrator.
    pub administrator: PublicKey,
    /// The engine, the shape and the intervals.
    pub terms: Terms,
}

/// Why a group cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// What was stored is not the state of this group.
    #[error("the stored state: {0}")]
    Stored(#[from] StoredError),
    /// The engine cannot make exchanges of this shape.
    #[error("the engine: {0}")]
    Engine(#[from] EngineError),
}

/// A message to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// On this connection.
    pub connection: u64,
    /// Its bytes.
    pub message: Vec<u8>,
    /// Whether the connection is to be closed after it. The group has forgotten it.
    pub is_last: bool,
}

/// The constructor of engines.
type NewEngine = fn(&Terms, [u8; 32]) -> Result<Box<dyn ProxyEngine>, EngineError>;

/// One group at the proxy.
pub struct Group {
    settings: GroupSettings,
    connections: BTreeMap<u64, Connection>,
    epoch: Option<Epoch>,
    /// The next epoch, which begins as soon as no opening of the current one is being made.
    announced: Option<Epoch>,
    rounds: Rounds,
    joins: Joins,
    notices: Notices,
    new_engine: NewEngine,
    seed: Zeroizing<[u8; 32]>,
    engines: u64,
    is_stored: bool,
    jobs: VecDeque<Job>,
    transmits: VecDeque<Transmit>,
    events: VecDeque<GroupEvent>,
    counters: Counters,
}

impl Group {
    /// The group with the state that was stored last, if any. `seed` is 32 random bytes, never the
    /// same twice.
    ///
    /// # Errors
    /// If the state is damaged or another group's, or the engine cannot make such exchanges.
    pub fn new(
        settings: GroupSettings,
        stored: Option<&[u8]>,
        seed: [u8; 32],
    ) -> Result<Self, GroupError> {
        let new_engine: NewEngine =
            |terms, seed| engine::proxy(terms.engine(), terms.shape(), seed);
        Self::with_engines(settings, stored, seed, new_engine)
    }

    fn with_engines(
        settings: GroupSettings,
        stored: Option<&[u8]>,
        seed: [u8; 32],
        new_engine: NewEngine,
    ) -> Result<Self, GroupError> {
        new_engine(&settings.terms, [0; 32])?;
        let stored = stored.map(|bytes| Stored::decode(bytes, &settings)).transpose()?;
        let Stored { epoch, next_round, notices } = stored.unwrap_or_default();
        Ok(Self {
            rounds: Rounds::new(settings.terms, next_round),
            settings,
            connections: BTreeMap::new(),
            epoch,
            announced: None,
            joins: Joins::default(),
            notices,
            new_engine,
            seed: Zeroizing::new(seed),
            engines: 0,
            is_stored: true,
            jobs: VecDeque::new(),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
        })
    }

    /// A client has connected with this key, which the connection has authenticated, and has named
    /// the group in its greeting. `id` is the connection's, never used before.
    pub fn handle_connected(&mut self, now: Instant, id: u64, key: PublicKey) {
        if let Some(old) = self.connection_of(&key) {
            self.refuse(old, Refusal::Replaced);
        }
        let standing = self.standing(&key);
        self.connections.insert(id, Connection::new(key, now));
        if matches!(standing, Standing::Unknown | Standing::Waiting) {
            let strangers = self.connections.values().filter(|it| !self.is_inside(&it.key));
            if strangers.count() > MAX_STRANGERS {
                return self.refuse(id, Refusal::TooManyConnections);
            }
        }
        let (terms, epoch) = (self.settings.terms, self.epoch.as_ref().map_or(0, Epoch::number));
        self.send(id, &ToMember::Welcome { terms, standing, epoch });
        self.events.push_back(GroupEvent::Connected { key, standing });
        if let Some(answer) = self.joins.take_answer(&key) {
            self.send(id, &ToMember::JoinAnswer(answer));
        }
        if self.is_inside(&key) {
            self.admit(now, id);
        }
        if key == self.settings.administrator {
            self.send_letters(id);
        }
        self.advance(now);
    }

    /// A connection has ended.
    pub fn handle_disconnected(&mut self, now: Instant, id: u64) {
        if let Some(connection) = self.connections.remove(&id) {
            self.events.push_back(GroupEvent::Disconnected { key: connection.key });
            self.advance(now);
        }
    }

    /// A message has come.
    pub fn handle_message(&mut self, now: Instant, id: u64, message: &[u8]) {
        if !self.connections.contains_key(&id) {
            return;
        }
        self.counters.bytes_received += message.len() as u64;
        let message = ToProxy::decode(message, &self.settings.terms);
        let message = message.map_err(|_| Refusal::Malformed);
        if let Err(refusal) = message.and_then(|message| self.handle(now, id, message)) {
            self.refuse(id, refusal);
        }
        self.advance(now);
    }

    /// A job has been done.
    pub fn handle_done(&mut self, now: Instant, done: Done) {
        let id = done.connection;
        // Without its connection nothing of an exchange counts.
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match done.result {
            Ok((engine, product)) => {
                connection.rest(engine);
                self.handle_product(now, id, product);
                self.work(now, id);
            }
            Err(_) => self.refuse(id, Refusal::Engine),
        }
        self.advance(now);
    }

    /// The time of [`Group::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
    }

    /// When [`Group::handle_timeout`] is to be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let open = self.rounds.open().filter(|_| !self.is_held())?;
        open.timeout(self.exchanges(open.number()).any(|_| true))
    }

    /// Work that takes time. Jobs may be done at the same time, in any order.
    pub fn poll_job(&mut self) -> Option<Job> {
        self.jobs.pop_front()
    }

    /// The state, if it has changed: it takes the place of what was stored before, in one step.
    /// Nothing is transmitted as long as this has a value.
    pub fn poll_store(&mut self) -> Option<Vec<u8>> {
        let is_stored = std::mem::replace(&mut self.is_stored, true);
        (!is_stored)
            .then(|| stored::encode(self.epoch.as_ref(), self.rounds.reserved(), &self.notices))
    }

    /// A message to send. None while there is a state to be stored.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        if self.is_stored { self.transmits.pop_front() } else { None }
    }

    /// What has happened, for the log.
    pub fn poll_event(&mut self) -> Option<GroupEvent> {
        self.events.pop_front()
    }

    /// The mailbox that is read in the open round: what the proxy has of the messages.
    pub fn closed_mailbox(&self) -> Option<&Mailbox> {
        self.rounds.closed_mailbox()
    }

    /// The longest message that a client may send, in bytes.
    pub fn max_message_len(&self) -> usize {
        self.settings.terms.max_to_proxy_len()
    }

    /// How the group does.
    pub fn status(&self, now: Instant) -> GroupStatus {
        let is_member = |it: &&Connection| self.number_of(&it.key).is_some();
        let late = self.connections.values().filter_map(|it| {
            let since = now.saturating_duration_since(it.late_since?);
            Some(LateMember { key: it.key, since })
        });
        GroupStatus {
            epoch: self.epoch.as_ref().map_or(0, Epoch::number),
            members: self.epoch.as_ref().map_or(0, Epoch::members),
            connected: self.connections.values().filter(is_member).count(),
            joins_waiting: self.joins.waiting().count(),
            round: self.rounds.last(),
            late_members: late.collect(),
            counters: self.counters,
        }
    }

    fn handle(&mut self, now: Instant, id: u64, message: ToProxy) -> Result<(), Refusal> {
        let key = self.connections[&id].key;
        match message {
            ToProxy::Join(request) => {
                self.count_letter(now, id)?;
                self.handle_join(key, request)
            }
            ToProxy::Notice(notice) => {
                self.count_letter(now, id)?;
                self.handle_notice(key, notice)
            }
            ToProxy::Announce(announcement) => {
                self.check_administrator(&key)?;
                self.count_letter(now, id)?;
                self.handle_announcement(announcement)
            }
            ToProxy::JoinAnswer { key: to, answer } => {
                self.check_administrator(&key)?;
                self.count_letter(now, id)?;
                self.handle_join_answer(to, answer);
                Ok(())
            }
            ToProxy::SetUp(message) => {
                let connection = self.connections.get_mut(&id).expect("checked");
                connection.push_set_up(message, MAX_SET_UPS)?;
                self.work(now, id);
                Ok(())
            }
            ToProxy::Request { round, nonce, body } => self.handle_request(id, round, nonce, body),
        }
    }

    fn handle_join(&mut self, key: PublicKey, request: Vec<u8>) -> Result<(), Refusal> {
        if self.is_inside(&key) {
            return Err(Refusal::AlreadyMember);
        }
        let is_full = |epoch: &Epoch| epoch.members() >= self.settings.terms.shape().members();
        if self.epoch.as_ref().is_some_and(is_full) {
            return Err(Refusal::GroupFull);
        }
        let connections = &self.connections;
        let is_connected = |key: &PublicKey| connections.values().any(|it| it.key == *key);
        self.joins.insert(key, request.clone(), is_connected)?;
        self.events.push_back(GroupEvent::JoinWaits { key });
        self.send_administrator(&ToMember::JoinRequest { key, request });
        Ok(())
    }

    fn handle_notice(&mut self, key: PublicKey, notice: Vec<u8>) -> Result<(), Refusal> {
        if self.number_of(&key).is_none() {
            return Err(Refusal::NotMember);
        }
        if self.notices.insert(&key, notice.clone()) {
            self.is_stored = false;
            self.send_administrator(&ToMember::Notice { key, notice });
        }
        Ok(())
    }

    fn handle_join_answer(&mut self, key: PublicKey, answer: Vec<u8>) {
        match self.connection_of(&key) {
            Some(id) if self.joins.remove(&key) => self.send(id, &ToMember::JoinAnswer(answer)),
            _ => self.joins.answer(&key, answer),
        }
    }

    /// Takes an announcement, if it is the administrator's, and of a later epoch than all before.
    fn handle_announcement(&mut self, announcement: Vec<u8>) -> Result<(), Refusal> {
        let epoch = Epoch::verify(announcement, &self.settings)?;
        let last = self.announced.as_ref().or(self.epoch.as_ref());
        if epoch.number() <= last.map_or(0, Epoch::number) {
            return Err(Refusal::OldAnnouncement);
        }
        self.announced = Some(epoch);
        Ok(())
    }

    /// Begins the announced epoch. The open round ends without being closed: its mailbox would not
    /// be read, because the first round of an epoch reads nothing.
    fn begin_epoch(&mut self, now: Instant, epoch: Epoch) {
        let (number, members) = (epoch.number(), epoch.members());
        self.events.push_back(GroupEvent::EpochBegan { epoch: number, members });
        self.joins.remove_members(&epoch);
        self.notices.keep_members(&epoch);
        self.rounds.abandon();
        let old = self.epoch.replace(epoch);
        self.is_stored = false;
        for (id, key) in self.connections.iter().map(|(&id, it)| (id, it.key)).collect::<Vec<_>>() {
            let was_member = old.as_ref().is_some_and(|old| old.number_of(&key).is_some());
            if self.is_inside(&key) {
                self.admit(now, id);
            } else if was_member {
                self.refuse(id, Refusal::Removed);
            }
        }
    }

    /// Tells a member, or the administrator, of the epoch, and makes a member an engine.
    fn admit(&mut self, now: Instant, id: u64) {
        let key = self.connections[&id].key;
        let Some(epoch) = &self.epoch else { return };
        let announcement = ToMember::Announcement(epoch.announcement().to_vec());
        let is_member = epoch.number_of(&key).is_some();
        self.send(id, &announcement);
        let connection = self.connections.get_mut(&id).expect("the caller has it");
        if is_member && connection.needs_engine() {
            self.engines += 1;
            let seed = derive_seed(&self.seed, self.engines);
            match (self.new_engine)(&self.settings.terms, seed) {
                Ok(engine) => {
                    connection.set_up(engine);
                    self.work(now, id);
                }
                Err(_) => self.refuse(id, Refusal::Engine),
            }
        }
    }

    fn handle_request(
        &mut self,
        id: u64,
        round: u64,
        nonce: [u8; 16],
        body: Vec<u8>,
    ) -> Result<(), Refusal> {
        let connection = self.connections.get_mut(&id).expect("checked");
        let engine = connection.take_request(round, nonce)?;
        // The engine takes a late request too, because both ends of its transfers count on.
        let read = self.rounds.open().filter(|open| open.number() == round);
        let read = read.map_or_else(|| self.rounds.nothing(), OpenRound::read);
        self.jobs.push_back(Job::new(id, engine, Work::Answer { request: body, read }));
        Ok(())
    }

    fn handle_product(&mut self, now: Instant, id: u64, product: Product) {
        match product {
            Product::SetUp(messages) => {
                for message in messages {
                    self.send(id, &ToMember::SetUp(message));
                }
            }
            Product::Opening(opening) => {
                let exchange = self.connections.get_mut(&id).and_then(|it| it.exchange.as_mut());
                let exchange = exchange.expect("an opening is made for an exchange");
                exchange.stage = Stage::Opened;
                let start = (*exchange.start).clone();
                self.send(id, &ToMember::Round { start, opening });
            }
            Product::Answer { update, body } => {
                let connection = self.connections.get_mut(&id).expect("the caller has it");
                let Exchange { start, stage, .. } =
                    connection.exchange.take().expect("an answer is made for an exchange");
                let Stage::Answering(nonce) = stage else { unreachable!("a request has come") };
                let (round, key) = (start.round, connection.key);
                let member = self.epoch.as_ref().and_then(|epoch| epoch.number_of(&key));
                let is_open = self.rounds.open().is_some_and(|open| open.number() == round);
                let Some(member) = member.filter(|_| is_open) else {
                    return self.send(id, &ToMember::Late { round });
                };
                if let Some(since) = connection.late_since.take() {
                    let after = now.saturating_duration_since(since);
                    self.events.push_back(GroupEvent::InTimeAgain { key, after });
                }
                self.rounds.add(member, nonce, &update);
                self.send(id, &ToMember::Answer { round, body });
            }
        }
    }

    /// Gives a resting engine its next work: set-up messages first, then the open round.
    fn work(&mut self, now: Instant, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let number = self.epoch.as_ref().and_then(|epoch| epoch.number_of(&connection.key));
        let can_take_part = |open: &&OpenRound| number.is_some_and(|it| !open.has(it));
        let round = self.rounds.open().filter(|_| self.announced.is_none()).filter(can_take_part);
        if let Some((engine, work)) = connection.next_work(now, round) {
            self.jobs.push_back(Job::new(id, engine, work));
        }
    }

    /// Does what is due: begins an epoch, closes the open round, opens the next one.
    fn advance(&mut self, now: Instant) {
        if self.is_held() {
            return;
        }
        if let Some(epoch) = self.announced.take() {
            self.begin_epoch(now, epoch);
        }
        if let Some(round) = self.rounds.open().map(OpenRound::number) {
            let is_awaited = self.exchanges(round).any(|_| true);
            let is_computed =
                self.exchanges(round).any(|it| matches!(it.stage, Stage::Answering(_)));
            if !self.rounds.is_over(now, is_awaited, is_computed) {
                return;
            }
            self.close_round(now, round);
        }
        self.open_round(now);
    }

    /// Whether everything waits until openings are made: a member is told of no round of an epoch
    /// after it has been told of the next epoch.
    fn is_held(&self) -> bool {
        let is_opening = |it: &Connection| {
            it.exchange.as_ref().is_some_and(|exchange| exchange.stage == Stage::Opening)
        };
        self.announced.is_some() && self.connections.values().any(is_opening)
    }

    /// Opens a round, if a member can take part.
    fn open_round(&mut self, now: Instant) {
        let Some(epoch) = &self.epoch else { return };
        let can_take_part =
            |it: &Connection| it.can_exchange() && epoch.number_of(&it.key).is_some();
        if !self.connections.values().any(can_take_part) {
            return;
        }
        if self.rounds.begin(now, epoch.number()) {
            self.is_stored = false;
        }
        for id in self.connections.keys().copied().collect::<Vec<_>>() {
            self.work(now, id);
        }
    }

    fn close_round(&mut self, now: Instant, round: u64) {
        let mut late = 0;
        for connection in self.connections.values_mut() {
            let exchange = connection.exchange.as_ref().filter(|it| it.start.round == round);
            let Some(since) = exchange.map(|it| it.since) else { continue };
            late += 1;
            if connection.late_since.is_none() {
                connection.late_since = Some(since);
                self.events.push_back(GroupEvent::Late { key: connection.key, round });
            }
        }
        let (participants, took) = self.rounds.close(now);
        self.counters.count_round(participants, late, took);
        self.events.push_back(GroupEvent::RoundClosed { round, participants, late, took });
    }

    /// The exchanges of a round that have begun and not ended.
    fn exchanges(&self, round: u64) -> impl Iterator<Item = &Exchange> {
        let all = self.connections.values().filter_map(|it| it.exchange.as_ref());
        all.filter(move |exchange| exchange.start.round == round)
    }

    /// What waits for the administrator.
    fn send_letters(&mut self, id: u64) {
        let joins =
            self.joins.waiting().map(|(key, request)| ToMember::JoinRequest { key, request });
        let notices = self.notices.all().map(|(key, notice)| ToMember::Notice { key, notice });
        for message in joins.chain(notices).collect::<Vec<_>>() {
            self.send(id, &message);
        }
    }

    fn send_administrator(&mut self, message: &ToMember) {
        let administrator = self.settings.administrator;
        if let Some(id) = self.connection_of(&administrator) {
            self.send(id, message);
        }
    }

    fn send(&mut self, connection: u64, message: &ToMember) {
        let message = message.encode();
        self.counters.bytes_sent += message.len() as u64;
        self.transmits.push_back(Transmit { connection, message, is_last: false });
    }

    /// Ends a connection, and says why.
    fn refuse(&mut self, id: u64, refusal: Refusal) {
        let Some(connection) = self.connections.remove(&id) else { return };
        let message = ToMember::Refused(refusal).encode();
        self.counters.bytes_sent += message.len() as u64;
        self.transmits.push_back(Transmit { connection: id, message, is_last: true });
        self.events.push_back(GroupEvent::Refused { key: connection.key, refusal });
    }

    fn count_letter(&mut self, now: Instant, id: u64) -> Result<(), Refusal> {
        let connection = self.connections.get_mut(&id).expect("checked");
        let is_administrator = connection.key == self.settings.administrator;
        let most = if is_administrator { MAX_ADMINISTRATOR_LETTERS } else { MAX_LETTERS };
        connection.count_letter(now, self.settings.terms.interval(), most)
    }

    fn check_administrator(&self, key: &PublicKey) -> Result<(), Refusal> {
        if *key == self.settings.administrator { Ok(()) } else { Err(Refusal::NotAdministrator) }
    }

    fn standing(&self, key: &PublicKey) -> Standing {
        if *key == self.settings.administrator {
            Standing::Administrator
        } else if self.number_of(key).is_some() {
            Standing::Member
        } else if self.joins.is_waiting(key) {
            Standing::Waiting
        } else {
            Standing::Unknown
        }
    }

    /// Whether it is the key of a member or of the administrator.
    fn is_inside(&self, key: &PublicKey) -> bool {
        matches!(self.standing(key), Standing::Member | Standing::Administrator)
    }

    fn number_of(&self, key: &PublicKey) -> Option<u16> {
        self.epoch.as_ref()?.number_of(key)
    }

    fn connection_of(&self, key: &PublicKey) -> Option<u64> {
        self.connections.iter().find(|(_, it)| it.key == *key).map(|(&id, _)| id)
    }
}

/// The seed of an engine.
fn derive_seed(seed: &[u8; 32], number: u64) -> [u8; 32] {
    let mut hmac = Hmac::<Sha256>::new_from_slice(seed).expect("a key of any length");
    hmac.update(&number.to_be_bytes());
    hmac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests;
