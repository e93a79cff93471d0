//! A group with members in memory. The test controls the clock, deliveries and jobs. All guarantees
//! for a member are checked as its messages arrive.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use keys::IdentitySecretKey;

use super::super::epoch::AnnouncedEpoch;
use super::super::{ArchiveLimits, GroupJob, MIN_AUDIT_ROUNDS, MixGroup, MixGroupSettings};
use super::plain;
use crate::protocol::engine::MixEngineName;
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::membership::{EpochAnnouncement, announcement_after, announcement_fixture};
use crate::protocol::round::{Participant, ReadRound, RoundPosition, RoundStart};
use crate::protocol::wire::{
    MemberToProxy, MembershipStatus, MixTerms, ProxyRefusal, ProxyToMember,
};
use crate::{Mailbox, MailboxShape};

/// The clients of a world; client 0 is the administrator.
pub(super) const CLIENTS: usize = 8;
pub(super) const INTERVAL: Duration = Duration::from_secs(1);
pub(super) const LEAST: Duration = Duration::from_millis(200);

pub(super) fn settings() -> MixGroupSettings {
    settings_by(MixEngineName::Ot.into())
}

fn settings_by(exchange: MixExchangeKind) -> MixGroupSettings {
    let shape = MailboxShape::new(6, 2, 1, 3, 64).unwrap();
    MixGroupSettings {
        name: "friends".parse().unwrap(),
        administrator: secret(0).public(),
        terms: MixTerms::new(exchange, shape, INTERVAL, LEAST).unwrap(),
        audit_every_rounds: MIN_AUDIT_ROUNDS,
        archive: ArchiveLimits { keep: Duration::ZERO, keep_bytes: 0 },
    }
}

pub(super) fn secret(client: usize) -> IdentitySecretKey {
    IdentitySecretKey::new(&[u8::try_from(client + 1).unwrap(); 32])
}

pub(super) fn announcement(by: usize, epoch: u32, members: &[usize]) -> Vec<u8> {
    let members: Vec<_> = members.iter().map(|&client| secret(client).public()).collect();
    announcement_fixture(&secret(by), "friends", epoch, &members)
}

/// The keys of the members of an epoch.
fn announced(bytes: &[u8]) -> Vec<[u8; 32]> {
    let announcement =
        EpochAnnouncement::verify(bytes, "friends", &secret(0).public()).expect("it is signed");
    announcement.members().map(|key| key.to_bytes()).collect()
}

pub(super) struct World {
    exchange: MixExchangeKind,
    pub(super) group: MixGroup,
    pub(super) now: Duration,
    /// Jobs that have not been run.
    pub(super) jobs: Vec<GroupJob>,
    pub(super) clients: Vec<Client>,
    pub(super) stored: Option<Vec<u8>>,
    next_connection: u64,
    random: fastrand::Rng,
    /// The start of each round, as it was sent.
    starts: BTreeMap<u64, RoundStart>,
    /// Updates, or own slots, that members have sent, by round and nonce.
    updates: BTreeMap<(u64, [u8; 16]), Vec<u8>>,
    /// The clients that got the answer of a round, and those that were told that they were late.
    answered: Vec<(u64, [u8; 16])>,
    late: Vec<(u64, [u8; 16])>,
    /// The round that was open when the proxy was restarted, or before.
    restarted_after: u64,
}

/// A client that follows the protocol, except for messages that the test sends in its name.
#[derive(Default)]
pub(super) struct Client {
    pub(super) connection: Option<u64>,
    pub(super) status: Option<MembershipStatus>,
    /// Messages that it has sent and the proxy has not received.
    pub(super) outbox: VecDeque<Vec<u8>>,
    /// A silent client takes messages, and answers no round.
    pub(super) is_silent: bool,
    /// All that it got, without rounds, answers and set-up.
    pub(super) received: Vec<ProxyToMember>,
    pub(super) refused: Option<ProxyRefusal>,
    /// Rounds that it has taken part in.
    pub(super) rounds: Vec<u64>,
    exchange: Option<(RoundStart, [u8; 16], Vec<u16>)>,
    epoch: u32,
    /// Whether it has begun exchanges by broadcast.
    has_begun: bool,
}

impl World {
    /// A world with this kind of exchange.
    pub(super) fn by(exchange: MixExchangeKind, seed: u64) -> Self {
        let settings = settings_by(exchange);
        Self {
            exchange,
            group: MixGroup::with_engines(settings, None, [7; 32], plain::new).unwrap(),
            now: Duration::ZERO,
            jobs: Vec::new(),
            clients: (0..CLIENTS).map(|_| Client::default()).collect(),
            stored: None,
            next_connection: 0,
            random: fastrand::Rng::with_seed(seed),
            starts: BTreeMap::new(),
            updates: BTreeMap::new(),
            answered: Vec::new(),
            late: Vec::new(),
            restarted_after: 0,
        }
    }

    /// A group with an epoch of clients 0 to `members` - 1, all connected and set up.
    pub(super) fn of_members(seed: u64, members: usize) -> Self {
        Self::of_members_by(MixEngineName::Ot.into(), seed, members)
    }

    pub(super) fn of_members_by(exchange: MixExchangeKind, seed: u64, members: usize) -> Self {
        let mut world = Self::by(exchange, seed);
        world.connect(0);
        let all: Vec<_> = (0..members).collect();
        world.send(0, &MemberToProxy::Announce(announcement(0, 1, &all)));
        (1..members).for_each(|client| world.connect(client));
        world.settle();
        world
    }

    pub(super) fn connect(&mut self, client: usize) {
        self.next_connection += 1;
        let (id, key) = (self.next_connection, secret(client).public());
        let old = self.clients[client].connection.replace(id);
        let it = &mut self.clients[client];
        (it.status, it.exchange, it.epoch, it.refused) = (None, None, 0, None);
        it.has_begun = false;
        it.outbox.clear();
        self.group.handle_connected(self.now, id, key);
        // The driver of the old connection sees its end some time.
        if let Some(old) = old {
            self.group.handle_disconnected(self.now, old);
        }
        self.poll();
    }

    pub(super) fn disconnect(&mut self, client: usize) {
        if let Some(id) = self.clients[client].connection.take() {
            self.clients[client].outbox.clear();
            self.group.handle_disconnected(self.now, id);
            self.poll();
        }
    }

    /// The client sends a message, which the proxy gets when it is delivered.
    pub(super) fn send(&mut self, client: usize, message: &MemberToProxy) {
        if self.clients[client].connection.is_some() {
            self.clients[client].outbox.push_back(message.encode());
        }
    }

    /// The administrator announces the epoch after the current one.
    pub(super) fn announce(&mut self, epoch: u32, members: &[usize]) {
        let announcement = self.next_announcement(epoch, members);
        self.send(0, &MemberToProxy::Announce(announcement));
    }

    pub(super) fn next_announcement(&self, epoch: u32, members: &[usize]) -> Vec<u8> {
        let members: Vec<_> = members.iter().map(|&client| secret(client).public()).collect();
        let previous = self.group.newest().map_or([0; 32], AnnouncedEpoch::digest);
        announcement_after(&secret(0), "friends", epoch, &members, previous)
    }

    /// The proxy gets the client's next message.
    pub(super) fn deliver(&mut self, client: usize) {
        let it = &mut self.clients[client];
        let (Some(id), Some(message)) = (it.connection, it.outbox.pop_front()) else { return };
        self.group.handle_message(self.now, id, &message);
        self.poll();
    }

    /// A job is done: any of those that wait.
    pub(super) fn run_job(&mut self, which: usize) {
        if !self.jobs.is_empty() {
            let job = self.jobs.swap_remove(which % self.jobs.len());
            self.group.handle_done(self.now, job.run());
            self.poll();
        }
    }

    /// Time passes; the driver calls at each timeout.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        let mut calls = 0;
        while let Some(timeout) = self.group.poll_timeout().filter(|&it| it <= end) {
            self.now = self.now.max(timeout);
            self.group.handle_timeout(self.now);
            self.poll();
            calls += 1;
            assert!(calls < 1000, "timeouts come without an end");
        }
        self.now = end;
    }

    /// Delivers all messages and does all jobs, at this moment.
    pub(super) fn settle(&mut self) {
        while !self.jobs.is_empty() || self.clients.iter().any(|it| !it.outbox.is_empty()) {
            (0..CLIENTS).for_each(|client| self.deliver(client));
            self.run_job(0);
        }
    }

    /// Time passes, and what is sent arrives at once.
    pub(super) fn run(&mut self, time: Duration) {
        for _ in 0..time.as_millis() / 50 {
            self.pass(Duration::from_millis(50));
            self.settle();
        }
    }

    /// The proxy is killed, and begins again with what it has stored. All connections end.
    pub(super) fn restart(&mut self) {
        let stored = self.stored.as_deref();
        let settings = settings_by(self.exchange);
        self.group = MixGroup::with_engines(settings, stored, [8; 32], plain::new).unwrap();
        self.jobs.clear();
        self.restarted_after = self.starts.keys().next_back().copied().unwrap_or(0);
        for client in &mut self.clients {
            client.connection = None;
            client.outbox.clear();
        }
    }

    /// The number of the last round that anybody was told of.
    pub(super) fn last_round(&self) -> u64 {
        self.starts.keys().next_back().copied().unwrap_or(0)
    }

    fn poll(&mut self) {
        self.jobs.extend(std::iter::from_fn(|| self.group.poll_job()));
        if let Some(stored) = self.group.poll_store() {
            self.stored = Some(stored);
        }
        while let Some(transmit) = self.group.poll_transmit() {
            let client =
                self.clients.iter().position(|it| it.connection == Some(transmit.connection));
            // Messages on an old connection are lost.
            let Some(client) = client else { continue };
            let is_welcomed = self.clients[client].status.is_some();
            let terms = is_welcomed.then_some(settings_by(self.exchange).terms);
            let message = ProxyToMember::decode(&transmit.message, terms.as_ref()).unwrap();
            assert_eq!(transmit.is_last, matches!(message, ProxyToMember::Refused(_)));
            self.handle(client, message);
        }
    }

    fn handle(&mut self, client: usize, message: ProxyToMember) {
        let it = &mut self.clients[client];
        match message {
            ProxyToMember::SetUp(message) => {
                assert_eq!(message, plain::FROM_PROXY);
                it.outbox.push_back(MemberToProxy::SetUp(plain::FROM_MEMBER.to_vec()).encode());
            }
            ProxyToMember::Round { start, opening } => self.handle_round(client, start, &opening),
            ProxyToMember::Answer { round, body } => self.handle_answer(client, round, &body),
            ProxyToMember::Late { round } => {
                let (start, nonce, _) = it.exchange.take().expect("late without an exchange");
                assert_eq!(start.round, round);
                self.late.push((round, nonce));
            }
            ProxyToMember::Welcome { status, epoch, .. } => {
                (it.status, it.epoch) = (Some(status), epoch);
                it.received.push(message);
            }
            ProxyToMember::Refused(refusal) => {
                (it.connection, it.refused) = (None, Some(refusal));
                it.outbox.clear();
            }
            ProxyToMember::Announcement(ref bytes) => {
                let number = u32::from_be_bytes(*bytes[1..].first_chunk().unwrap());
                assert!(number >= it.epoch, "announcements come in order");
                it.epoch = number;
                let is_listed = announced(bytes).contains(&secret(client).public().to_bytes());
                if self.exchange == MixExchangeKind::Broadcast && is_listed && !it.has_begun {
                    it.has_begun = true;
                    it.outbox.push_back(MemberToProxy::CatchUp(RoundPosition::default()).encode());
                }
                it.received.push(message);
            }
            other => it.received.push(other),
        }
    }

    fn handle_round(&mut self, client: usize, start: RoundStart, opening: &[u8]) {
        if let Some(known) = self.starts.get(&start.round) {
            assert_eq!(*known, start, "a round is the same for all");
            assert!(start.round > self.restarted_after, "a number comes again after a restart");
        } else {
            assert!(start.round > self.last_round(), "numbers of rounds grow");
            self.check_participants(&start);
            self.starts.insert(start.round, start.clone());
        }
        let it = &mut self.clients[client];
        assert!(it.exchange.is_none(), "a round while a request is outstanding");
        let mut nonce = [0; 16];
        self.random.fill(&mut nonce);
        let shape = *settings().terms.shape();
        if self.exchange == MixExchangeKind::Broadcast {
            return self.handle_broadcast_round(client, start, nonce, opening);
        }
        let mut update = Mailbox::new(&shape);
        self.random.fill(update.as_bytes_mut());
        let slots = u16::try_from(shape.slots()).unwrap();
        let reads: Vec<_> = (0..shape.reads()).map(|_| self.random.u16(0..slots)).collect();
        let body = plain::request(opening, &update, &reads);
        let round = start.round;
        if !it.is_silent {
            it.outbox.push_back(MemberToProxy::Request { round, nonce, body }.encode());
        }
        it.exchange = Some((start, nonce, reads));
        self.updates.insert((round, nonce), update.as_bytes().to_vec());
    }

    /// The slots are those of the listed participants, in their order.
    fn handle_broadcast_round(
        &mut self,
        client: usize,
        start: RoundStart,
        nonce: [u8; 16],
        opening: &[u8],
    ) {
        let slots_of = |read: &ReadRound| -> Vec<u8> {
            let updates = read.participants.iter().map(|it| &self.updates[&(read.round, it.nonce)]);
            [0].into_iter().chain(updates.flatten().copied()).collect()
        };
        let expected = start.read.as_ref().map_or(Vec::new(), slots_of);
        assert!(*opening == expected, "the slots of the round that is read");
        let mut body = vec![0; settings().terms.shape().own_slots_len()];
        self.random.fill(&mut body);
        let (it, round) = (&mut self.clients[client], start.round);
        assert!(it.has_begun, "no round before the member has the key");
        if !it.is_silent {
            it.outbox
                .push_back(MemberToProxy::Request { round, nonce, body: body.clone() }.encode());
        }
        it.exchange = Some((start, nonce, Vec::new()));
        self.updates.insert((round, nonce), body);
    }

    /// Checks that each listed participant has sent its update and was not told that it was late,
    /// and that each member with an answer in the previous round is listed.
    fn check_participants(&self, start: &RoundStart) {
        let Some(read) = &start.read else { return };
        assert!(self.starts[&read.round].epoch == start.epoch, "an epoch reads its own rounds");
        assert!(read.round > self.restarted_after, "a round from before a restart is read");
        let listed = |nonce| read.participants.iter().any(|it: &Participant| it.nonce == nonce);
        for participant in &read.participants {
            let of = (read.round, participant.nonce);
            assert!(self.updates.contains_key(&of) && !self.late.contains(&of));
        }
        for (_, nonce) in self.answered.iter().filter(|(round, _)| *round == read.round) {
            assert!(listed(*nonce), "a participant is missing");
        }
    }

    /// The slots are those of the sum of the listed participants' updates.
    fn handle_answer(&mut self, client: usize, round: u64, body: &[u8]) {
        let it = &mut self.clients[client];
        let (start, nonce, reads) = it.exchange.take().expect("an answer without a request");
        assert_eq!((start.round, start.epoch), (round, it.epoch), "of the round and epoch");
        assert!(!it.rounds.contains(&round), "a member takes part once");
        it.rounds.push(round);
        self.answered.push((round, nonce));
        if self.exchange == MixExchangeKind::Broadcast {
            return assert!(body.is_empty(), "the slots come with the start of a round");
        }
        let terms = settings().terms;
        let shape = terms.shape();
        let mut mailbox = Mailbox::new(shape);
        if let Some(read) = &start.read {
            for participant in &read.participants {
                let update = self.updates[&(read.round, participant.nonce)].clone();
                mailbox.add(&Mailbox::from_bytes(shape, update).unwrap());
            }
        }
        let expected: Vec<u8> =
            reads.iter().flat_map(|&slot| mailbox.slot(slot.into()).to_vec()).collect();
        assert_eq!(body, expected);
    }
}
