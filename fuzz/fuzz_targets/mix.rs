//! A group of mix-in-place: its messages, changed on their way between two members and the proxy,
//! invitations, stored states and contents of slots. Who is on another connection is not disturbed.
#![no_main]

mod changes;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use arbitrary::Arbitrary;
use changes::Changes;
use keys::IdentitySecretKey;
use libfuzzer_sys::fuzz_target;
use mix::client::{AcceptableTerms, MixClient, MixClientSettings};
use mix::engine::MixEngineName;
use mix::exchange::MixExchangeKind;
use mix::group::{ArchiveLimits, MIN_AUDIT_ROUNDS, MixGroup, MixGroupSettings};
use mix::membership::{EpochAnnouncement, GroupAddress, Invitation, MemberName, NameBinding};
use mix::wire::{MemberToProxy, MixHello, MixTerms, ProxyToMember};
use mix::{MailboxShape, MixClientEvent};

#[derive(Arbitrary, Debug)]
struct Input {
    engine: u8,
    /// Messages of bob's connection that are changed, by their numbers; and of alice's, if not.
    of_bob: bool,
    to_proxy: Vec<(u8, Changes)>,
    to_member: Vec<(u8, Changes)>,
    bytes: Vec<u8>,
    text: String,
    invitation: Changes,
    stored: [Changes; 2],
    slots: Vec<Vec<u8>>,
}

const ALICE: usize = 0;
const BOB: usize = 1;
const SINCE_1970: Duration = Duration::from_secs(1_800_000_000);
const STEP: Duration = Duration::from_millis(50);
/// Enough for bob to join, and for some rounds.
const STEPS: u32 = 80;

fuzz_target!(|input: Input| {
    bytes(&input.bytes);
    _ = Invitation::parse(&input.text);
    mix::fuzzing::read_slots(&input.slots);
    let kinds = MixExchangeKind::ALL;
    let exchange = kinds[usize::from(input.engine) % kinds.len()];
    let mut world = World::new(exchange);
    let invitation = world.invite();
    let code = invitation.code().to_string();
    let changed = String::from_utf8_lossy(&input.invitation.of(code.as_bytes())).into_owned();
    if let Ok(parsed) = Invitation::parse(&changed) {
        // The kind of exchange follows the rest, and may be missing.
        let parsed = parsed.code();
        assert!(code.starts_with(&**parsed), "another invitation is taken for a right one");
    }
    world.people[BOB].client = client(BOB, None, Some(invitation), world.now);
    world.run(&input);
    let is_unchanged = input.to_proxy.is_empty() && input.to_member.is_empty();
    assert!(!is_unchanged || world.people[BOB].has_read, "bob gets the message");
    // Bob is disturbed by what is changed of the administrator's, from whom he has the epochs.
    if input.of_bob {
        assert_eq!(world.people[ALICE].errors, Vec::<String>::new());
    }
    let stored = input.stored[0].of(&world.people[BOB].client.stored());
    _ = MixClient::new(
        settings(BOB, None, None, world.now),
        Arc::new(secret(BOB)),
        Some(&stored),
        [9; 32],
    );
    if let Some(stored) = &world.stored {
        _ = MixGroup::new(group(exchange), Some(&input.stored[1].of(stored)), [9; 32]);
    }
});

/// What is decoded is encoded to the same bytes.
fn bytes(bytes: &[u8]) {
    let terms = group(MixEngineName::Ot.into()).terms;
    if let Ok(hello) = MixHello::decode(bytes) {
        assert_eq!(hello.encode(), bytes);
    }
    if let Ok(message) = MemberToProxy::decode(bytes, &terms) {
        assert_eq!(message.encode(), bytes);
    }
    for terms in [None, Some(&terms)] {
        if let Ok(message) = ProxyToMember::decode(bytes, terms) {
            assert_eq!(message.encode(), bytes);
        }
    }
    let alice = secret(ALICE).public();
    assert!(EpochAnnouncement::verify(bytes, "friends", &alice).is_err(), "nobody has signed it");
}

fn secret(person: usize) -> IdentitySecretKey {
    IdentitySecretKey::new(&[1 + u8::try_from(person).expect("there are two"); 32])
}

fn group(exchange: MixExchangeKind) -> MixGroupSettings {
    let writes = if exchange == MixExchangeKind::Broadcast { 2 } else { 1 };
    let shape = MailboxShape::new(3, 2, writes, 3, 64).expect("a shape");
    let (interval, least) = (Duration::from_millis(400), STEP);
    MixGroupSettings {
        name: "friends".parse().expect("a name"),
        administrator: secret(ALICE).public(),
        terms: MixTerms::new(exchange, shape, interval, least).expect("terms"),
        audit_every_rounds: MIN_AUDIT_ROUNDS,
        archive: ArchiveLimits { keep: Duration::ZERO, keep_bytes: 0 },
    }
}

/// A founder accepts a kind of exchange; others accept that of their invitation.
fn settings(
    person: usize,
    accepted: Option<MixExchangeKind>,
    invitation: Option<Invitation>,
    now: Duration,
) -> MixClientSettings {
    let group = group(MixEngineName::Ot.into());
    MixClientSettings {
        group: GroupAddress {
            proxy_address: "127.0.0.1:6700".into(),
            proxy: secret(7).public(),
            group: group.name,
            administrator: group.administrator,
        },
        founds: true,
        name: MemberName::new(["alice", "bob"][person]).expect("a name"),
        invitation,
        least_participants: 2,
        terms: AcceptableTerms { exchange: accepted, ..AcceptableTerms::default() },
        now,
        since_1970: SINCE_1970,
    }
}

fn client(
    person: usize,
    accepted: Option<MixExchangeKind>,
    invitation: Option<Invitation>,
    now: Duration,
) -> MixClient {
    let settings = settings(person, accepted, invitation, now);
    let seed = [u8::try_from(person).expect("there are two"); 32];
    MixClient::new(settings, Arc::new(secret(person)), None, seed).expect("a client")
}

struct Person {
    client: MixClient,
    /// The connection; none after an error, until the next step.
    id: Option<u64>,
    is_greeted: bool,
    to_proxy: VecDeque<Vec<u8>>,
    to_member: VecDeque<Vec<u8>>,
    /// How many messages have gone each way.
    sent: [u8; 2],
    errors: Vec<String>,
    has_read: bool,
}

struct World {
    now: Duration,
    group: MixGroup,
    stored: Option<Vec<u8>>,
    people: [Person; 2],
    next_id: u64,
}

impl World {
    fn new(exchange: MixExchangeKind) -> Self {
        let now = Duration::ZERO;
        let person = |number| Person {
            client: client(number, Some(exchange), None, now),
            id: None,
            is_greeted: false,
            to_proxy: VecDeque::new(),
            to_member: VecDeque::new(),
            sent: [0; 2],
            errors: Vec::new(),
            has_read: false,
        };
        let group = MixGroup::new(group(exchange), None, [3; 32]).expect("a group");
        Self { now, group, stored: None, people: [ALICE, BOB].map(person), next_id: 0 }
    }

    fn invite(&mut self) -> Invitation {
        let (name, day) = (MemberName::new("bob").expect("a name"), Duration::from_secs(86_400));
        let client = &mut self.people[ALICE].client;
        client.invite(self.now, name, NameBinding::Any, day).expect("an invitation")
    }

    fn run(&mut self, input: &Input) {
        for _ in 0..STEPS {
            self.now += STEP;
            for person in [ALICE, BOB] {
                self.connect(person);
                // It is taken when bob is a member, and not before.
                let [Person { client: alice, .. }, bob] = &mut self.people;
                let has_sent = alice.status().undelivered > 0 || bob.has_read;
                if person == ALICE && !has_sent {
                    _ = alice.send("bob", "text");
                }
            }
            for _ in 0..8 {
                for person in [ALICE, BOB] {
                    self.poll(person);
                    self.deliver(person, input);
                }
            }
            self.group.handle_timeout(self.now);
            for person in &mut self.people {
                person.client.handle_timeout(self.now);
            }
        }
    }

    fn connect(&mut self, number: usize) {
        let person = &mut self.people[number];
        if person.id.is_none() {
            self.next_id += 1;
            person.id = Some(self.next_id);
            person.is_greeted = false;
            (person.to_proxy, person.to_member) = (VecDeque::new(), VecDeque::new());
            person.client.handle_connected(self.now);
        }
    }

    /// Takes what the client and the group have for each other.
    fn poll(&mut self, number: usize) {
        let person = &mut self.people[number];
        loop {
            if person.client.poll_store().is_some() {
                person.client.handle_stored();
                continue;
            }
            let event = person.client.event().cloned();
            match event {
                Some(event) => {
                    if let MixClientEvent::Message { text, .. } = event {
                        assert_eq!(text, "text", "what nobody has said");
                        person.has_read = true;
                    }
                    person.client.handle_shown();
                }
                None => match person.client.poll_transmit(self.now) {
                    Some(message) => person.to_proxy.push_back(message),
                    None if person.client.read_round() => {}
                    None => break,
                },
            }
        }
        while let Some(job) = self.group.poll_job() {
            self.group.handle_done(self.now, job.run());
        }
        if let Some(stored) = self.group.poll_store() {
            self.stored = Some(stored);
        }
        while let Some(transmit) = self.group.poll_transmit() {
            let to = self.people.iter_mut().find(|it| it.id == Some(transmit.connection));
            if let Some(person) = to {
                person.to_member.push_back(transmit.message.to_vec());
            }
        }
        while self.group.poll_event().is_some() {}
    }

    fn deliver(&mut self, number: usize, input: &Input) {
        let person = &mut self.people[number];
        let is_changed = (number == BOB) == input.of_bob;
        if let (Some(id), Some(message)) = (person.id, person.to_proxy.pop_front()) {
            let message = change(message, &input.to_proxy, &mut person.sent[0], is_changed);
            if std::mem::replace(&mut person.is_greeted, true) {
                self.group.handle_message(self.now, id, &message);
            } else if MixHello::decode(&message).is_ok() {
                self.group.handle_connected(self.now, id, secret(number).public());
            } else {
                person.is_greeted = false;
                self.disconnect(number);
            }
        }
        let person = &mut self.people[number];
        if let Some(message) = person.to_member.pop_front() {
            let message = change(message, &input.to_member, &mut person.sent[1], is_changed);
            if let Err(error) = person.client.handle_message(self.now, &message) {
                person.errors.push(error.to_string());
                self.disconnect(number);
            }
        }
    }

    fn disconnect(&mut self, number: usize) {
        let person = &mut self.people[number];
        person.client.handle_disconnected(self.now);
        if let Some(id) = person.id.take().filter(|_| person.is_greeted) {
            self.group.handle_disconnected(self.now, id);
        }
    }
}

/// The message, changed if the input says so.
fn change(message: Vec<u8>, changes: &[(u8, Changes)], sent: &mut u8, is_changed: bool) -> Vec<u8> {
    let number = *sent;
    *sent = sent.saturating_add(1);
    let found = changes.iter().find(|(of, _)| is_changed && *of == number);
    found.map_or(message.clone(), |(_, changes)| changes.of(&message))
}
