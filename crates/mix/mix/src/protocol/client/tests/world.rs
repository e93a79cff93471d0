//! A simulation in virtual time of clients and their group at the proxy. Connections are cut, and
//! ends are killed and restarted from their stored state.

mod drivers;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use fastrand::Rng;

use super::exchanges::{Exchanges, SINCE_1970, SLOT_LEN, settings_for};
use super::person::{CROWD, NAMES, Person};
use crate::protocol::client::MixClientError;
use crate::protocol::event::MixClientEvent;
use crate::protocol::group::{ArchiveIndex, GroupJob, MixGroup, MixGroupSettings, SegmentEnd};
use crate::protocol::membership::{Invitation, MemberName, NameBinding, ProxyAddress};
use crate::protocol::wire::{MemberToProxy, ProxyRefusal, ProxyToMember};

/// The validity of invitations that all can use.
const YEAR: Duration = Duration::from_secs(365 * 86_400);
const TICK: Duration = Duration::from_millis(5);
/// The maximum time until a cut connection is noticed.
const NOTICE_MS: u64 = 1_500;

/// The number of faults per thousand ticks of 5 ms.
#[derive(Clone, Copy, Default)]
pub(super) struct Faults {
    /// A connection is cut.
    pub(super) cuts: u32,
    /// A client is killed, and restarted from its stored state.
    pub(super) clients: u32,
    /// The proxy is killed, and restarted from its stored state.
    pub(super) proxy: u32,
    /// A message is lost, and those after it are not, until the connection ends. In a thousand
    /// messages.
    pub(super) lost: u32,
    /// A day passes. In a million ticks.
    pub(super) days: u32,
}

/// A dishonest proxy's manipulation of a message to a client.
type Tamper = Box<dyn FnMut(usize, &mut ProxyToMember)>;

/// Whether a dishonest proxy does not send a message to a client.
type Withhold = Box<dyn FnMut(usize, &ProxyToMember) -> bool>;

/// A deviating member's manipulation of its messages.
type Deviate = Box<dyn FnMut(usize, &mut MemberToProxy)>;

/// What an attacker on the path sees of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Since the simulation began.
    pub(super) at: Duration,
    pub(super) person: usize,
    pub(super) what: Sight,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// A connection begins.
    Begin,
    /// A message of this length.
    Message(usize),
    /// The client ends the connection.
    End,
}

/// One direction of a connection: messages arrive in order.
#[derive(Default)]
struct Pipe(VecDeque<(Duration, Vec<u8>)>);

/// A connection of a client.
struct Wire {
    id: u64,
    person: usize,
    up: Pipe,
    down: Pipe,
    is_greeted: bool,
    is_cut: bool,
    /// When an end notices the end of the connection; none if it has noticed.
    proxy_ends: Option<Duration>,
    client_ends: Option<Duration>,
}

/// What the proxy has on its disk.
#[derive(Clone, Default)]
pub(super) struct ProxyState {
    stored: Option<Vec<u8>>,
    segments: BTreeMap<u64, Vec<u8>>,
}

pub(super) struct World {
    pub(super) exchange: Exchanges,
    pub(super) rng: Rng,
    pub(super) faults: Faults,
    began: Duration,
    pub(super) now: Duration,
    pub(super) people: Vec<Person>,
    pub(super) group: Option<MixGroup>,
    /// When the proxy starts again.
    proxy_starts: Duration,
    stored: Option<Vec<u8>>,
    archive: ArchiveIndex,
    pub(super) segments: BTreeMap<u64, Vec<u8>>,
    /// The maximum number of bytes of the archive when the proxy is started.
    pub(super) keep_bytes: u64,
    /// Whether the archive cannot be written.
    pub(super) is_archive_full: bool,
    jobs: Vec<(Duration, GroupJob)>,
    wires: Vec<Wire>,
    connect_at: Vec<Option<Duration>>,
    /// Where the proxy is; none: wherever clients connect.
    pub(super) address: Option<ProxyAddress>,
    next_id: u64,
    seeds: u64,
    pub(super) tamper: Option<Tamper>,
    /// Which messages to a client a dishonest proxy does not send.
    pub(super) withhold: Option<Withhold>,
    /// How long clients take to write their states.
    pub(super) disk: Duration,
    pub(super) deviate: Option<Deviate>,
    /// Who does not read the rounds that have arrived.
    pub(super) reads_nothing: Option<usize>,
    /// The length of slots at the proxy when it is started.
    pub(super) slot_len: usize,
    /// The delays that the attacker on the path adds to the messages from and to each client.
    pub(super) delays: Vec<Duration>,
    /// What the attacker sees.
    pub(super) seen: Vec<Seen>,
    /// Rounds that were closed.
    pub(super) rounds: u64,
    pub(super) restarts: u64,
    /// Why clients have ended connections.
    pub(super) errors: Vec<(usize, MixClientError)>,
    /// Why the proxy has.
    pub(super) refusals: Vec<ProxyRefusal>,
}

impl World {
    /// The administrator connects; the others join by invitations.
    pub(super) fn new(exchange: Exchanges, seed: u64, faults: Faults) -> Self {
        Self::of(exchange, seed, NAMES.len(), faults)
    }

    fn of(exchange: Exchanges, seed: u64, count: usize, faults: Faults) -> Self {
        let mut world = Self::founded_for(exchange, seed, count);
        for (number, name) in CROWD[..count].iter().enumerate().skip(1) {
            let invitation = world.invite(name, YEAR);
            world.people[number].invitation = Some(invitation.code().to_string());
            world.restart(number);
        }
        world.faults = faults;
        world
    }

    /// A world whose clients are all members and make exchanges, without faults.
    pub(super) fn of_members(exchange: Exchanges, seed: u64) -> Self {
        Self::of_crowd(exchange, seed, NAMES.len())
    }

    /// The same with this number of members.
    pub(super) fn of_crowd(exchange: Exchanges, seed: u64, count: usize) -> Self {
        let mut world = Self::of(exchange, seed, count, Faults::default());
        world.run_until("all take part", Self::all_take_part);
        world
    }

    /// Whether everybody takes part in rounds.
    pub(super) fn all_take_part(&self) -> bool {
        self.people.iter().all(|it| it.status().anonymity_set == self.people.len())
    }

    /// The administrator connects, and nobody else.
    pub(super) fn founded(exchange: Exchanges, seed: u64) -> Self {
        Self::founded_for(exchange, seed, NAMES.len())
    }

    fn founded_for(exchange: Exchanges, seed: u64, count: usize) -> Self {
        let now = Duration::ZERO;
        let person = |number| Person::new(number, now, seed << 32, exchange.kind);
        let people = (0..count).map(person).collect();
        let mut world = Self {
            exchange,
            rng: Rng::with_seed(seed),
            faults: Faults::default(),
            began: now,
            now,
            people,
            group: None,
            proxy_starts: now,
            stored: None,
            archive: ArchiveIndex::new(settings_for(exchange, SLOT_LEN, count + 1)),
            segments: BTreeMap::new(),
            keep_bytes: 1 << 30,
            is_archive_full: false,
            jobs: Vec::new(),
            wires: Vec::new(),
            connect_at: vec![None; count],
            address: None,
            next_id: 0,
            seeds: seed << 32,
            tamper: None,
            withhold: None,
            disk: Duration::from_millis(seed % 4 * 15),
            deviate: None,
            reads_nothing: None,
            delays: vec![Duration::ZERO; count],
            slot_len: SLOT_LEN,
            seen: Vec::new(),
            rounds: 0,
            restarts: 0,
            errors: Vec::new(),
            refusals: Vec::new(),
        };
        world.start_proxy();
        world.connect_at[0] = Some(now);
        world
    }

    pub(super) fn invite(&mut self, name: &str, lasts: Duration) -> Invitation {
        self.invite_by(0, name, lasts)
    }

    pub(super) fn invite_by(
        &mut self,
        administrator: usize,
        name: &str,
        lasts: Duration,
    ) -> Invitation {
        let administrator = &mut self.people[administrator];
        let invited = administrator.client.invite(
            self.now,
            MemberName::new(name).unwrap(),
            NameBinding::Any,
            lasts,
        );
        administrator.finish_storing(self.now + TICK);
        administrator.begin_to_store(self.now);
        administrator.finish_storing(self.now);
        invited.unwrap()
    }

    fn seed(&mut self) -> u64 {
        self.seeds += 1;
        self.seeds
    }

    fn soon(&mut self, most_ms: u64) -> Duration {
        self.now + Duration::from_millis(self.rng.u64(0..=most_ms))
    }

    fn happens(&mut self, permille: u32) -> bool {
        self.rng.u32(0..1000) < permille
    }

    /// The length of the slots of a member, in bytes.
    pub(super) fn own_slots_len(&self) -> usize {
        self.settings().terms.shape().own_slots_len()
    }

    fn settings(&self) -> MixGroupSettings {
        settings_for(self.exchange, self.slot_len, self.people.len() + 1)
    }

    fn start_proxy(&mut self) {
        let mut seed = [1; 32];
        seed[..8].copy_from_slice(&self.seed().to_be_bytes());
        let mut settings = self.settings();
        settings.archive.keep_bytes = self.keep_bytes;
        self.archive = ArchiveIndex::new(settings.clone());
        let (archive, now_s) = (&mut self.archive, (SINCE_1970 + self.now).as_secs());
        let last = self.segments.keys().last().copied();
        self.segments.retain(|number, bytes| {
            match archive.load(*number, bytes, now_s, Some(*number) == last).unwrap() {
                SegmentEnd::Whole => {}
                SegmentEnd::Torn { used } => bytes.truncate(used.try_into().unwrap()),
                end @ SegmentEnd::Unreadable { .. } => panic!("segment {number}: {end:?}"),
            }
            !bytes.is_empty()
        });
        self.group = Some(MixGroup::new(settings, self.stored.as_deref(), seed).unwrap());
    }

    /// The proxy is killed, and starts again soon.
    pub(super) fn stop_proxy(&mut self) {
        self.restarts += 1;
        self.group = None;
        self.jobs.clear();
        self.proxy_starts = self.soon(1_000);
        for number in 0..self.wires.len() {
            self.cut(number);
            self.wires[number].proxy_ends = None;
        }
    }

    /// The proxy is killed, and starts without a state.
    pub(super) fn lose_proxy_state(&mut self) {
        self.restore_proxy_state(ProxyState::default());
    }

    /// What the proxy has on its disk.
    pub(super) fn proxy_state(&self) -> ProxyState {
        ProxyState { stored: self.stored.clone(), segments: self.segments.clone() }
    }

    /// The proxy is killed, and starts from this state.
    pub(super) fn restore_proxy_state(&mut self, ProxyState { stored, segments }: ProxyState) {
        self.stop_proxy();
        (self.stored, self.segments) = (stored, segments);
    }

    /// A person's program of its own sends a message over the connection.
    pub(super) fn send_as(&mut self, person: usize, message: &MemberToProxy) {
        let wire = self.wires.iter_mut().find(|it| it.person == person && !it.is_cut);
        wire.expect("it is connected").up.push(self.now, message.encode());
    }

    /// A client is killed, and connects soon.
    pub(super) fn restart(&mut self, person: usize) {
        self.restarts += 1;
        let seed = self.seed();
        let is_written = self.rng.bool();
        self.people[person].start(self.now, seed, is_written);
        for number in 0..self.wires.len() {
            if self.wires[number].person == person {
                self.cut(number);
                self.wires[number].client_ends = None;
            }
        }
        self.connect_at[person] = Some(self.soon(1_000));
    }

    /// Messages in flight are lost. Each end notices later.
    fn cut(&mut self, wire: usize) {
        let (proxy, client) = (self.soon(NOTICE_MS), self.soon(NOTICE_MS));
        let wire = &mut self.wires[wire];
        if !std::mem::replace(&mut wire.is_cut, true) {
            (wire.proxy_ends, wire.client_ends) = (Some(proxy), Some(client));
            wire.up.0.clear();
            wire.down.0.clear();
        }
    }

    /// A client ends its connection for good, and is not started again.
    pub(super) fn leave(&mut self, person: usize) {
        self.see(person, Sight::End);
        self.connect_at[person] = None;
        for number in 0..self.wires.len() {
            if self.wires[number].person == person {
                self.cut(number);
                self.wires[number].client_ends = None;
            }
        }
    }

    fn see(&mut self, person: usize, what: Sight) {
        self.seen.push(Seen { at: self.now.saturating_sub(self.began), person, what });
    }

    pub(super) fn cut_of(&mut self, person: usize) {
        let wire = self.wires.iter().position(|it| it.person == person && !it.is_cut);
        if let Some(wire) = wire {
            self.cut(wire);
        }
    }

    /// Time passes, in which faults happen.
    pub(super) fn tick(&mut self) {
        self.now += TICK;
        self.break_something();
        if self.group.is_none() && self.now >= self.proxy_starts {
            self.start_proxy();
        }
        for person in 0..self.people.len() {
            if self.connect_at[person].is_some_and(|at| at <= self.now) {
                self.connect(person);
            }
        }
        self.end_wires();
        self.arrive();
        while let Some(at) = self.jobs.iter().position(|(due, _)| *due <= self.now) {
            let (_, job) = self.jobs.swap_remove(at);
            if let Some(group) = &mut self.group {
                group.handle_done(self.now, job.run());
            }
            self.poll_proxy();
        }
        for person in 0..self.people.len() {
            self.people[person].finish_storing(self.now);
            let client = &mut self.people[person].client;
            if client.poll_timeout().is_some_and(|at| at <= self.now) {
                client.handle_timeout(self.now);
            }
            self.poll_client(person);
        }
        if let Some(group) = &mut self.group
            && group.poll_timeout().is_some_and(|at| at <= self.now)
        {
            group.handle_timeout(self.now);
            self.poll_proxy();
        }
    }

    fn break_something(&mut self) {
        let Faults { cuts, clients, proxy, days, .. } = self.faults;
        if self.happens(cuts) {
            let person = self.rng.usize(0..self.people.len());
            self.cut_of(person);
        }
        if self.happens(clients) {
            let person = self.rng.usize(0..self.people.len());
            self.restart(person);
        }
        if self.group.is_some() && self.happens(proxy) {
            self.stop_proxy();
        }
        if self.rng.u32(0..1_000_000) < days {
            self.now += Duration::from_secs(86_400);
        }
    }

    fn connect(&mut self, person: usize) {
        self.connect_at[person] = None;
        let to = self.people[person].client.begin_connection();
        let is_elsewhere = self.address.as_ref().is_some_and(|at| *at != to);
        if self.group.is_none() || is_elsewhere {
            self.people[person].client.handle_disconnected(self.now);
            self.connect_at[person] = Some(self.soon(500) + TICK);
            return;
        }
        self.next_id += 1;
        self.wires.push(Wire {
            id: self.next_id,
            person,
            up: Pipe::default(),
            down: Pipe::default(),
            is_greeted: false,
            is_cut: false,
            proxy_ends: None,
            client_ends: None,
        });
        self.see(person, Sight::Begin);
        self.people[person].client.handle_connected(self.now);
        self.poll_client(person);
    }

    /// The ends of connections are noticed.
    fn end_wires(&mut self) {
        for at in 0..self.wires.len() {
            let wire = &mut self.wires[at];
            let is_due = |end: &mut Option<Duration>| end.take_if(|end| *end <= self.now).is_some();
            let (proxy, client) = (is_due(&mut wire.proxy_ends), is_due(&mut wire.client_ends));
            let (id, person, is_greeted) = (wire.id, wire.person, wire.is_greeted);
            if proxy
                && is_greeted
                && let Some(group) = &mut self.group
            {
                group.handle_disconnected(self.now, id);
                self.poll_proxy();
            }
            if client {
                self.cut(at);
                self.wires[at].client_ends = None;
                self.see(person, Sight::End);
                self.people[person].client.handle_disconnected(self.now);
                self.connect_at[person] = Some(self.soon(500));
                self.poll_client(person);
            }
        }
        let is_over = |it: &Wire| it.is_cut && it.proxy_ends.is_none() && it.client_ends.is_none();
        self.wires.retain(|it| !is_over(it));
    }

    /// Messages arrive that are due.
    fn arrive(&mut self) {
        for at in 0..self.wires.len() {
            let due = |pipe: &mut Pipe, now| pipe.0.pop_front_if(|(at, _)| *at <= now);
            while let Some((_, message)) = due(&mut self.wires[at].up, self.now) {
                self.handle_at_proxy(at, &message);
            }
            while let Some((_, message)) = due(&mut self.wires[at].down, self.now) {
                let person = self.wires[at].person;
                let handled = self.people[person].client.handle_message(self.now, &message);
                if let Err(error) = handled {
                    self.errors.push((person, error));
                    // The client ends the connection; the proxy notices later.
                    self.cut(at);
                    self.wires[at].client_ends = Some(self.now);
                }
                self.poll_client(person);
            }
        }
    }

    /// Runs without faults until all messages are delivered.
    pub(super) fn finish(&mut self) {
        self.faults = Faults::default();
        self.run_until("no message waits", |world| {
            world.people.iter().all(|it| it.undelivered() == 0)
        });
    }

    /// Runs until a condition holds.
    ///
    /// # Panics
    /// If that takes longer than two minutes.
    pub(super) fn run_until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = self.now + Duration::from_secs(120);
        while !is_so(self) {
            assert!(self.now < end, "not so: {what}\n{}", self.describe());
            self.tick();
        }
    }

    /// Checks that each stored message was read once and in order.
    pub(super) fn check_all_read(&self) {
        for (from, sender) in CROWD.iter().zip(&self.people) {
            for (to, receiver) in CROWD.iter().zip(&self.people) {
                let sent = sender.sent.get(*to).map_or(&[][..], |it| it);
                let read = receiver.read.get(*from).map_or(&[][..], |it| it);
                assert_eq!(sent, read, "of {from} to {to}");
            }
        }
        let is_wrong = |it: &&MixClientEvent| {
            matches!(
                it,
                MixClientEvent::NotOfThisRound { .. }
                    | MixClientEvent::ChangedByProxy { .. }
                    | MixClientEvent::LeftOut { .. }
            )
        };
        for person in &self.people {
            assert_eq!(person.reported.iter().find(is_wrong), None);
        }
    }

    pub(super) fn describe(&self) -> String {
        let people = self.people.iter().map(|it| format!("{:?}\n", it.status()));
        format!("{}{:?} {:?}", people.collect::<String>(), self.errors, self.refusals)
    }
}

impl Pipe {
    /// A message is sent that arrives then, or after those before it.
    fn push(&mut self, due: Duration, message: Vec<u8>) {
        let due = self.0.back().map_or(due, |(last, _)| due.max(*last));
        self.0.push_back((due, message));
    }
}
