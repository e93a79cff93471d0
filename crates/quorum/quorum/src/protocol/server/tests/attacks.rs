//! Whole servers, of which one in each group is faulty, for each way in which a key is shared.
//!
//! The faulty servers run the usual program. What it sends is withheld, changed, repeated or sent
//! to others. Besides, they send again whatever they have sent and received, garbage, entries that
//! are changed, and questions for shares. They sign all of it with their own keys. The simulations
//! of faulty dealers and receivers are in `refresh::simulation`, and in the crates `threshold-rsa`
//! and `schnorr`.

use super::ed25519::numbers;
use super::handovers::started;
use super::world::ALL_KINDS;
use super::*;
use crate::fuzzing::changed;

/// The last of each group.
const FAULTY: [Number; 2] = [4, 103];

/// The index of both in their groups.
const FAULTY_INDEX: ServerIndex = ServerIndex(3);

const OLD: [Number; 3] = [1, 2, 3];
const NEW: [Number; 3] = [100, 101, 102];

/// How many messages and entries the faulty servers send besides those of their program, in the
/// first epoch and again in the refresh, so that a run ends.
const MAX_ATTACKS: u32 = 400;

/// How many messages they remember.
const MAX_OVERHEARD: usize = 1_000;

/// The faulty servers of a world. By default, there are none.
#[derive(Default)]
pub(super) struct Adversary {
    pub(super) servers: BTreeSet<Number>,
    /// What answers to requests for signatures are signed with, before their content.
    answer_domain: Vec<u8>,
    /// The messages that faulty servers have sent and received.
    overheard: VecDeque<(LinkTopic, Bytes)>,
    /// Their entries.
    entries: Vec<(Number, Bytes)>,
    attacks: u32,
}

impl Adversary {
    fn new(world: &World, kind: GroupKeyKind) -> Self {
        let public = world.key.group().public().to_der();
        let answer_domain = match kind {
            GroupKeyKind::Rsa => {
                let key = Sha256Digest::of(&[&public]).0;
                [&b"sunder-quorum answer to a sign request v1\0"[..], &key].concat()
            }
            GroupKeyKind::RsaPolynomial => b"sunder-quorum part of a signature v1\0".to_vec(),
            GroupKeyKind::Ed25519 => b"sunder-quorum answer to a session v1\0".to_vec(),
        };
        Self { servers: FAULTY.into(), answer_domain, ..Self::default() }
    }

    /// A faulty server has sent or received a message.
    pub(super) fn overhear(&mut self, topic: LinkTopic, bytes: Bytes) {
        if self.overheard.len() == MAX_OVERHEARD {
            self.overheard.pop_front();
        }
        self.overheard.push_back((topic, bytes));
    }
}

impl World {
    /// A faulty server's program sends a message.
    pub(super) fn send_as_faulty(
        &mut self,
        from: Number,
        to: Number,
        topic: LinkTopic,
        bytes: Bytes,
    ) {
        self.adversary.overhear(topic, bytes.clone());
        match self.rng.below(8) {
            0 => {}
            1 => {
                for bytes in [bytes.clone(), bytes] {
                    self.links.push_back((from, to, topic, bytes));
                }
            }
            2 => {
                let bytes = self.changed_message(from, topic, &bytes);
                self.links.push_back((from, to, topic, bytes));
            }
            3 => {
                let to = self.any_correct();
                self.links.push_back((from, to, topic, bytes));
            }
            _ => self.links.push_back((from, to, topic, bytes)),
        }
    }

    /// A faulty server's program submits an entry.
    pub(super) fn submit_as_faulty(&mut self, from: Number, entry: Bytes) {
        self.adversary.entries.push((from, entry.clone()));
        match self.rng.below(8) {
            0 => {}
            1 => {
                let entry = self.changed_entry(from, &entry);
                self.commit_bytes(entry);
            }
            _ => self.commit_bytes(entry),
        }
    }

    /// A faulty server does something that its program does not, if there are faulty servers.
    pub(super) fn attack(&mut self) {
        if self.adversary.servers.is_empty() || self.adversary.attacks >= MAX_ATTACKS {
            return;
        }
        self.adversary.attacks += 1;
        let (from, to) = (*self.rng.pick(&FAULTY).expect("there are two"), self.any_correct());
        match self.rng.below(6) {
            0 | 1 => {
                let place = self.rng.index(self.adversary.overheard.len());
                let Some((topic, bytes)) = self.adversary.overheard.get(place).cloned() else {
                    return;
                };
                let is_changed = self.rng.chance(50);
                let bytes =
                    if is_changed { self.changed_message(from, topic, &bytes) } else { bytes };
                self.links.push_back((from, to, topic, bytes));
            }
            2 => {
                let topics = [LinkTopic::Signing, LinkTopic::Refresh];
                let topic = *self.rng.pick(&topics).expect("there are two");
                let kind = u8::try_from(self.rng.below(14)).expect("a small number");
                let bytes = [&[kind][..], &self.rng.bytes::<80>()].concat();
                let len = self.rng.index(bytes.len());
                self.links.push_back((from, to, topic, bytes[..=len].to_vec().into()));
            }
            3 => {
                let Some((author, entry)) = self.rng.pick(&self.adversary.entries).cloned() else {
                    return;
                };
                let entry = self.changed_entry(author, &entry);
                self.commit_bytes(entry);
            }
            4 => {
                let Some(committed) = self.rng.pick(&self.log) else { return };
                let entry = committed.entries[0].clone();
                self.commit_bytes(entry);
            }
            _ => self.ask_for_shares(from, to),
        }
    }

    /// A question for the shares of an epoch, signed with the voting key of that epoch, or the
    /// identity key.
    fn ask_for_shares(&mut self, from: Number, to: Number) {
        let epoch = 1 + self.rng.below(2);
        let ask = RefreshMessage::Ask { epoch, witnesses: self.rng.chance(50) }.to_bytes();
        let voting = self.nodes.get(&from).and_then(|node| node.saved.voting.get(&epoch));
        let voting = voting.map(|(_, secret)| secret.clone());
        let key = VotingSecret::from_bytes(voting.unwrap_or(Zeroizing::new([from; 32])));
        let (own, other) = (identity(from).public(), identity(to).public());
        let signature = key.sign(&questions::signed(&own, &other, &ask));
        let bytes = [&[refreshing::QUESTION][..], &signature, &ask].concat();
        self.links.push_back((from, to, LinkTopic::Refresh, bytes.into()));
    }

    fn any_correct(&mut self) -> Number {
        let correct: Vec<Number> =
            self.numbers().into_iter().filter(|it| !FAULTY.contains(it)).collect();
        *self.rng.pick(&correct).expect("most are correct")
    }

    /// The message with a few changed bytes. Answers to requests for signatures are signed again.
    fn changed_message(&mut self, from: Number, topic: LinkTopic, bytes: &[u8]) -> Bytes {
        let is_answer = topic == LinkTopic::Signing && matches!(bytes.first(), Some(2 | 10));
        if is_answer && bytes.len() > 9 + 64 && self.rng.chance(70) {
            let content = changed(&bytes[9..bytes.len() - 64], &mut self.rng);
            let signed = [&self.adversary.answer_domain[..], &content].concat();
            let signature = identity(from).sign(&signed);
            return [&bytes[..9], &content, &signature].concat().into();
        }
        changed(bytes, &mut self.rng).into()
    }

    /// The entry with a few changed bytes, signed by its author, or of another author.
    fn changed_entry(&mut self, author: Number, bytes: &[u8]) -> Bytes {
        let content = &bytes[..bytes.len() - 64];
        let index = if self.rng.chance(20) { self.rng.next_u64().to_le_bytes()[0] % 4 } else { 3 };
        let body = [&[index][..], &changed(&content[1..], &mut self.rng)].concat();
        let signature = identity(author).sign(&[b"SNDR-QUORUM-ENTRY\0", &body[..]].concat());
        [&body[..], &signature].concat().into()
    }

    /// Commits an entry that the check of entries need not admit.
    fn commit_bytes(&mut self, entry: Bytes) {
        let height = Height(self.log.len() as u64 + 1);
        self.log.push(CommittedEntries { height, entries: vec![entry] });
    }
}

/// Whether a server accuses one that is not faulty.
fn accuses_correct_server(event: &QuorumServerEvent) -> bool {
    match event {
        QuorumServerEvent::WrongEntry { author: server, .. }
        | QuorumServerEvent::DealerExcluded { dealer: server, .. }
        | QuorumServerEvent::FalseComplaint { complainant: server }
        | QuorumServerEvent::WrongAnswer { server, .. } => *server != FAULTY_INDEX,
        _ => false,
    }
}

/// Correct servers have signed nothing for others but what was registered, and headers.
fn assert_nothing_else_was_signed(world: &World, registered: &[&[u8]]) {
    let correct = || OLD.iter().chain(&NEW).map(|number| &world.nodes[number]);
    let mut allowed: HashSet<MessageDigest> =
        registered.iter().map(|message| MessageDigest::of(message)).collect();
    for node in correct() {
        let chain = node.saved.start.iter().flat_map(|start| &start.chain);
        allowed.extend(chain.map(|it| MessageDigest::of(&it.header.to_bytes())));
        allowed.extend(node.events.iter().filter_map(|event| match event {
            QuorumServerEvent::RunOpened { run, .. } => Some(MessageDigest(run.0)),
            _ => None,
        }));
    }
    for event in correct().flat_map(|node| &node.events) {
        if let QuorumServerEvent::Answered { message, .. } = event {
            assert!(allowed.contains(message), "{message:?} was signed");
        }
    }
}

/// The correct servers generate or have a key, sign, move the key while they stop and start and
/// messages are lost, and sign again. Nobody else is accused, and nothing else is signed.
/// `SUNDER_SEEDS=N` runs as many seeds, `SUNDER_SEED=S` one of them.
#[test]
fn a_faulty_server_in_each_group_stops_and_forges_nothing() {
    for kind in ALL_KINDS {
        sim::run_seeds(6, |seed| {
            let mut world = started(kind, 1, seed);
            world.adversary = Adversary::new(&world, kind);
            world.late = if seed % 2 == 0 { 0 } else { 60 };
            world.run_until(|world| world.have_epoch(1, &OLD));
            let public = world.public();
            world.sign(1, b"before");
            world.join(numbers(100, 1));
            world.adversary.attacks = 0;
            (world.loss, world.crashes) = (5, 10);
            let is_open = |world: &World| {
                let run = |node: &Node| node.server.as_ref()?.status().epoch?.run;
                let is_begun = OLD.iter().any(|number| run(&world.nodes[number]).is_some());
                is_begun || world.have_epoch(2, &NEW)
            };
            let mut attempts = 0;
            while !is_open(&world) {
                // The operator's request does not survive a restart, so the operator repeats it.
                for at in OLD {
                    let now = world.now;
                    let _ = world.server(at).start_refresh(group(1, 100), now);
                }
                let until = world.now + Duration::from_secs(3);
                world.run(|world| is_open(world) || world.now > until);
                attempts += 1;
                assert!(attempts < 20, "{kind:?}: no refresh begins");
            }
            world.run_until(|world| world.have_epoch(2, &NEW));
            (world.loss, world.crashes) = (0, 0);
            world.sign(100, b"after");
            world.run_until(|world| {
                OLD.iter().chain(&NEW).all(|number| {
                    let saved = &world.nodes[number].saved;
                    !saved.shares.contains_key(&1) && !saved.voting.contains_key(&1)
                })
            });
            assert_eq!(world.public(), public, "{kind:?}");
            for number in OLD.iter().chain(&NEW) {
                let accused =
                    world.nodes[number].events.iter().find(|event| accuses_correct_server(event));
                assert_eq!(accused, None, "{kind:?}: by server {number}");
            }
            assert_nothing_else_was_signed(&world, &[b"before", b"after"]);
        });
    }
}
