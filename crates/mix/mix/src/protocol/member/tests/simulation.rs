//! A group over a thousand rounds. Rounds are lost, members and the proxy are restarted, and
//! members join and leave.

use std::collections::{HashMap, HashSet};

use fastrand::Rng;

use super::group::{Proxy, epoch, member, name};
use crate::{ChatMessageId, Conversations, GivenUpReason, MailboxShape, MixClientEvent, MixMember};

const PEOPLE: usize = 8;

/// A person that is a member from time to time.
struct Person {
    member: Option<MixMember>,
    /// The content of the state file.
    stored: Vec<u8>,
    generation: u64,
    /// Texts sent, by receiver, and the numbers of messages that were not yet delivered.
    sent: HashMap<String, Vec<String>>,
    waiting: HashMap<ChatMessageId, (String, String)>,
    /// Texts that were given up, because the receiver was no member. They may have arrived before.
    given_up: HashSet<String>,
    /// Texts received, by sender.
    received: HashMap<String, Vec<String>>,
}

struct World {
    rng: Rng,
    proxy: Proxy,
    people: Vec<Person>,
    /// The persons that are members in this epoch, by number.
    members: Vec<usize>,
    seeds: u64,
}

impl World {
    fn new(seed: u64, shape: MailboxShape) -> Self {
        let person = |number: u64| Person {
            member: None,
            stored: Conversations::new(1 + number).to_bytes().to_vec(),
            generation: 0,
            sent: HashMap::new(),
            waiting: HashMap::new(),
            given_up: HashSet::new(),
            received: HashMap::new(),
        };
        let people = (0..PEOPLE as u64).map(person).collect();
        let rng = Rng::with_seed(seed);
        let mut world =
            Self { rng, proxy: Proxy::new(shape), people, members: vec![], seeds: seed << 32 };
        world.begin_epoch(vec![2, 0, 1]);
        world
    }

    fn begin_epoch(&mut self, members: Vec<usize>) {
        self.members = members;
        self.proxy.begin_epoch();
        for person in 0..PEOPLE {
            if !self.members.contains(&person) {
                self.people[person].member = None;
            } else if let Some(member) = &mut self.people[person].member {
                let (number, shape) = (self.proxy.epoch, self.proxy.shape);
                member.begin_epoch(epoch(number, shape, &self.members, person));
            } else {
                self.start(person);
            }
        }
    }

    /// Starts a member from what it has stored.
    fn start(&mut self, person: usize) {
        self.seeds += 1;
        let (stored, life) = (&self.people[person].stored, 1_000 * self.seeds);
        let conversations = Conversations::from_bytes(stored, life).unwrap();
        self.people[person].generation = conversations.generation();
        let epoch = epoch(self.proxy.epoch, self.proxy.shape, &self.members, person);
        self.people[person].member = Some(member(epoch, person, conversations, self.seeds));
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }

    fn send(&mut self) {
        let (from, to) = (*self.rng.choice(&self.members).unwrap(), self.rng.usize(0..PEOPLE));
        if from == to || !self.members.contains(&to) {
            return;
        }
        let person = &mut self.people[from];
        let sent = person.sent.entry(name(to)).or_default();
        let len = if self.rng.u32(0..10) == 0 { self.rng.usize(0..600) } else { 3 };
        let text = format!("{} from {from} to {to} {}", sent.len(), "ü".repeat(len));
        let id = person.member.as_mut().unwrap().send(&name(to), &text).unwrap();
        sent.push(text.clone());
        assert!(person.waiting.insert(id, (name(to), text)).is_none());
        person.store();
        person.show();
    }

    /// A round, in which as many in a hundred members, requests and answers are lost as `lost`
    /// says.
    fn run_round(&mut self, lost: u32) {
        let start = self.proxy.start();
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        self.rng.shuffle(&mut order);
        for number in order {
            let person = self.members[number];
            if self.chance(lost) {
                self.start(person);
            }
            if self.chance(lost) {
                continue;
            }
            let member = self.people[person].member.as_mut().unwrap();
            // Now and then the disk is late.
            let is_stored = self.rng.u32(0..8) > 0;
            let exchange = member.handle_round(&start, is_stored).unwrap();
            if self.rng.u32(0..100) < lost {
                continue;
            }
            self.proxy.hand_in(u16::try_from(number).unwrap(), &exchange);
            if self.rng.u32(0..100) < lost {
                continue;
            }
            member.handle_slots(&self.proxy.slots(&exchange));
            // It stops before it has stored what it read, and has shown nothing.
            if self.chance(lost) {
                self.start(person);
            }
            self.people[person].store();
            self.people[person].show();
        }
        self.proxy.close();
    }

    fn check(&self) {
        for (from, person) in self.people.iter().enumerate() {
            assert!(person.waiting.is_empty(), "{from} waits for {:?}", person.waiting);
            for (to, receiver) in self.people.iter().enumerate() {
                let received = receiver.received.get(&name(from)).map_or(&[][..], |it| it);
                let sent = person.sent.get(&name(to)).map_or(&[][..], |it| it);
                let has_come =
                    |text: &&String| !person.given_up.contains(*text) || received.contains(*text);
                let expected: Vec<&String> = sent.iter().filter(has_come).collect();
                assert!(received.iter().eq(expected), "{from} to {to}: {received:?}");
            }
        }
    }
}

impl Person {
    fn store(&mut self) {
        let conversations = self.member.as_ref().unwrap().conversations();
        if conversations.generation() != self.generation {
            self.generation = conversations.generation();
            self.stored = conversations.to_bytes().to_vec();
        }
    }

    fn show(&mut self) {
        while let Some(event) = self.member.as_mut().unwrap().poll_event() {
            match event {
                MixClientEvent::Message { from, text, .. } => {
                    self.received.entry(from).or_default().push(text);
                }
                MixClientEvent::Delivered { id, to } => {
                    let delivered = self.waiting.remove(&id);
                    assert_eq!(delivered.map(|(to, _)| to), Some(to));
                }
                MixClientEvent::GivenUp { id, reason, .. } => {
                    assert_eq!(reason, GivenUpReason::Removed);
                    self.given_up.insert(self.waiting.remove(&id).unwrap().1);
                }
                other => panic!("{other}"),
            }
        }
    }
}

fn simulate(seed: u64, shape: MailboxShape, rounds: usize, lost: u32) {
    let mut world = World::new(seed, shape);
    for round in 0..rounds {
        for _ in 0..world.rng.usize(0..3) {
            if world.chance(20) {
                world.send();
            }
        }
        world.run_round(lost);
        if world.chance(lost) && world.chance(20) {
            world.proxy.restart();
        }
        if round % 97 == 96 {
            let mut members: Vec<usize> = (0..PEOPLE).collect();
            world.rng.shuffle(&mut members);
            members.truncate(world.rng.usize(2..=PEOPLE));
            world.begin_epoch(members);
        }
    }
    world.begin_epoch((0..PEOPLE).collect());
    for _ in 0..3000 {
        world.run_round(0);
        if world.people.iter().all(|person| person.waiting.is_empty()) {
            break;
        }
    }
    world.check();
}

#[test]
fn no_message_is_lost_or_doubled_over_a_thousand_rounds() {
    simulate(1, MailboxShape::new(PEOPLE, 2, 1, 5, 128).unwrap(), 1000, 5);
}

#[test]
fn no_message_is_lost_or_doubled_without_losses_in_the_network() {
    simulate(2, MailboxShape::new(PEOPLE, 1, 1, 3, 100).unwrap(), 1000, 0);
}

#[test]
fn no_message_is_lost_or_doubled_with_a_third_lost_and_several_writes() {
    simulate(3, MailboxShape::new(PEOPLE, 7, 3, 9, 256).unwrap(), 1000, 33);
}

/// `SUNDER_SEEDS=N` runs as many seeds, `SUNDER_SEED=S` one of them.
#[test]
fn no_message_is_lost_or_doubled_for_many_seeds() {
    sim::run_seeds(10, |seed| {
        simulate(10 + seed, MailboxShape::new(PEOPLE, 3, 2, 4, 64).unwrap(), 200, 15);
    });
}
