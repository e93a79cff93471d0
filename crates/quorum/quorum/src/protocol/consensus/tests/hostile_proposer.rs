//! One of sixteen servers sends wrong proposals by digests in its turn, while the others propose
//! large values.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use arc_malachitebft_core_types::Round;
use bytes::Bytes;
use sim::SeededRng;

use super::super::codec::{ConsensusMessage, DecidedValue};
use super::super::compact::CompactProposal;
use super::super::context::{
    LogValue, MAX_ENTRIES, MAX_VALUE_LEN, Proposal, ValidatorAddress, ValueId,
};
use super::super::engine::VoteSigner;
use super::world::{World, ms, set_of, signer};
use crate::protocol::admission::{EntryAdmission, EntryCheck, EntrySlot};
use crate::protocol::log_types::Height;
use crate::protocol::wire::Sha256Digest;

const SERVERS: usize = 16;

/// A server that does not exist.
const UNKNOWN: ValidatorAddress = ValidatorAddress([9; 32]);

/// The length of an entry: a value with one is proposed by digests.
const LEN: usize = 70_000;

/// The length of the entries that no server admits, and their number: more than fit in a value.
const JUNK_LEN: usize = 100_000;
const JUNK: u8 = 30;

/// Entry `number` of a server.
fn entry(author: usize, number: u8) -> Bytes {
    padded([u8::try_from(author).expect("few servers"), number], LEN)
}

/// An entry that no server admits.
fn junk(number: u8) -> Bytes {
    padded([u8::MAX, number], JUNK_LEN)
}

fn padded(begin: [u8; 2], len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    bytes[..2].copy_from_slice(&begin);
    bytes.into()
}

fn slot(entry: &[u8]) -> Option<EntrySlot> {
    let [author, number, ..] = entry else { return None };
    let is_server = usize::from(*author) < SERVERS;
    is_server.then(|| EntrySlot(u64::from(*author) * 256 + u64::from(*number)))
}

fn entries(log: &[DecidedValue]) -> Vec<Bytes> {
    log.iter().flat_map(|decided| decided.value.entries()).collect()
}

/// A service that takes each entry of a server once.
fn check(log: &[DecidedValue]) -> EntryCheck {
    let taken: BTreeSet<_> = entries(log).iter().map(|entry| slot(entry)).collect();
    EntryCheck::new(move |entry| match slot(entry) {
        Some(slot) if !taken.contains(&Some(slot)) => EntryAdmission::Admitted(slot),
        _ => EntryAdmission::Refused,
    })
}

/// The entries that a server has not committed.
fn waiting(world: &World, index: usize, submitted: &[Bytes]) -> Vec<Bytes> {
    let committed: BTreeSet<_> = entries(&world.log(index)).into_iter().collect();
    submitted.iter().filter(|entry| !committed.contains(*entry)).cloned().collect()
}

/// The faulty server. It is not silent in its turns, so that it leads often.
struct HostileProposer {
    index: usize,
    signer: VoteSigner,
    /// Its place in the order of addresses.
    position: usize,
    random: SeededRng,
    /// Entries that no server admits.
    junk: Vec<(Sha256Digest, Bytes)>,
    /// To whom it sends a right proposal in a height and round, if to anybody.
    served: BTreeMap<(Height, u32), Vec<usize>>,
    /// The heights and rounds of its proposals with junk.
    filled: BTreeSet<(Height, u32)>,
    /// The number of proposals for later rounds.
    later: usize,
}

impl HostileProposer {
    fn new(index: usize, seed: u64) -> Self {
        let own = signer(index);
        let is_before = |other: &usize| signer(*other).address() < own.address();
        let position = (0..SERVERS).filter(is_before).count();
        let junk = (0..JUNK).map(junk).map(|entry| (Sha256Digest::of(&[&entry]), entry));
        Self {
            index,
            position,
            signer: own,
            random: SeededRng::new(seed),
            junk: junk.collect(),
            served: BTreeMap::new(),
            filled: BTreeSet::new(),
            later: 0,
        }
    }

    /// A right proposal, except that the author of its value may be another server.
    fn proposal(
        &self,
        (height, round): (Height, u32),
        leader: ValidatorAddress,
        entries: &[Bytes],
    ) -> CompactProposal {
        let value = LogValue::new(leader, entries).expect("neither empty nor long");
        let (round, proposer) = (Round::new(round), self.signer.address());
        let proposal = Proposal { height, round, value, pol_round: Round::Nil, proposer };
        CompactProposal::of(&self.signer.sign_proposal(proposal))
    }

    fn unknown_digest(&mut self) -> Sha256Digest {
        Sha256Digest(self.random.bytes())
    }

    /// The encoding of a proposal that is wrong in one way.
    fn wrong_proposal(&mut self, place: (Height, u32), waiting: &[Bytes]) -> Vec<u8> {
        let kind = self.random.below(9);
        let leader = if kind == 0 { UNKNOWN } else { self.signer.address() };
        let mut entries = waiting.to_vec();
        if kind == 1 {
            entries.push(self.junk[0].1.clone());
        }
        let mut proposal = self.proposal(place, leader, &entries);
        match kind {
            0 | 1 => {}
            2 => proposal.signature.0[0] ^= 1,
            3 => proposal.proposer = UNKNOWN,
            4 => proposal.entries.push(self.unknown_digest()),
            5 => proposal.entries.push(proposal.entries[0]),
            6 if self.random.chance(50) => proposal.entries.clear(),
            6 => proposal.entries = (0..=MAX_ENTRIES).map(|_| self.unknown_digest()).collect(),
            // With one entry, these two are right.
            7 => proposal.entries.reverse(),
            _ => proposal.entries.truncate(1),
        }
        let mut bytes = ConsensusMessage::Compact(proposal).to_bytes();
        if self.random.chance(5) {
            bytes.truncate(bytes.len() - 1 - self.random.index(40));
        }
        bytes
    }

    /// The height and the round of a server, and whether this one proposes there.
    fn turn(&self, world: &World, server: usize) -> ((Height, u32), bool) {
        let engine = world.engine(server).expect("it runs");
        ((engine.height(), engine.round()), engine.proposer() == self.signer.address())
    }

    /// Has a server keep as many entries as it does for a proposal with others that do not exist.
    fn fill(&mut self, world: &mut World, to: usize, submitted: &[Bytes]) {
        let (place, is_turn) = self.turn(world, to);
        let waiting = waiting(world, to, submitted);
        if !is_turn || waiting.is_empty() {
            return;
        }
        if self.filled.insert(place) {
            let mut proposal = self.proposal(place, self.signer.address(), &waiting);
            proposal.value = ValueId(self.unknown_digest());
            proposal.entries.extend(self.junk.iter().map(|(digest, _)| *digest));
            proposal.entries.push(self.unknown_digest());
            world.inject(self.index, to, ConsensusMessage::Compact(proposal).to_bytes());
        }
        let (_, junk) = self.random.pick(&self.junk).expect("some").clone();
        world.inject(self.index, to, ConsensusMessage::Entry(junk).to_bytes());
    }

    /// Sends something to one of these servers. In a turn, it sends a right proposal to most of
    /// them, or to none, and wrong ones to the others.
    fn attack(&mut self, world: &mut World, others: &[usize], submitted: &[Bytes]) {
        let to = others[self.random.index(others.len())];
        let (place, is_turn) = self.turn(world, to);
        let waiting = waiting(world, to, submitted);
        if waiting.is_empty() || !self.random.chance(if is_turn { 40 } else { 10 }) {
            return;
        }
        if is_turn && !self.served.contains_key(&place) {
            let mut served = others.to_vec();
            self.random.shuffle(&mut served);
            // With them, 2f+1 vote for it.
            served.truncate(if self.random.chance(70) { 12 } else { 0 });
            let proposal = self.proposal(place, self.signer.address(), &waiting);
            let bytes = ConsensusMessage::Compact(proposal).to_bytes();
            for &server in &served {
                world.inject(self.index, server, bytes.clone());
            }
            self.served.insert(place, served);
        }
        if self.served.get(&place).is_some_and(|served| served.contains(&to)) {
            return;
        }
        let bytes = match self.random.below(10) {
            0 => ConsensusMessage::Entry(self.junk[0].1.clone()).to_bytes(),
            1..=6 if is_turn => self.wrong_proposal(place, &waiting),
            7 => self.wrong_proposal((place.0.next(), 0), &waiting),
            // It proposes in this round, too.
            _ => {
                self.later += 1;
                let round = u32::try_from(self.position + SERVERS * self.later).expect("few");
                self.wrong_proposal((place.0, round), &waiting)
            }
        };
        world.inject(self.index, to, bytes);
    }
}

/// Checks the bound of `docs/bounds.md`, and returns the length of the entries that are kept for a
/// proposal, at most.
fn check_bound(world: &World, servers: &[usize]) -> usize {
    let mut most = 0;
    for index in servers {
        let engine = world.engine(*index).expect("it runs");
        let mut places = BTreeSet::new();
        for (height, proposer, digests, kept) in engine.unresolved().held() {
            let is_current = height == engine.height();
            assert!(is_current || height == engine.height().next(), "a proposal for {height}");
            assert!(places.insert((height, proposer)), "two proposals of {proposer}");
            assert!(digests <= MAX_ENTRIES, "{digests} digests");
            assert!(kept <= if is_current { MAX_VALUE_LEN } else { 0 }, "{kept} bytes");
            most = most.max(kept);
        }
    }
    most
}

/// What happened in a run.
struct HostileProposerOutcome {
    refusals: BTreeSet<&'static str>,
    /// How many values were refused because of their entries.
    refused: u64,
    /// The length of the entries that a server kept for a proposal, at most.
    most: usize,
    /// The numbers of heights with a value of the faulty server, and of others.
    led: [usize; 2],
}

fn run(seed: u64) -> HostileProposerOutcome {
    let all: Vec<usize> = (0..SERVERS).collect();
    let set = set_of(&all);
    let mut world = World::new(SERVERS, &[], seed, move |_| set.clone());
    world.set_checks(check);
    world.submit(1, entry(1, 0));
    world.run_until(ms(900));
    // The server that leads is faulty from now on.
    let leader = world.log(0)[0].value.leader();
    let faulty = all.iter().position(|index| world.address(*index) == leader).expect("a server");
    world.corrupt(faulty);
    let honest: Vec<_> = all.into_iter().filter(|index| *index != faulty).collect();
    assert!(honest.iter().all(|index| world.committed(*index) == 1));

    let mut hostile = HostileProposer::new(faulty, seed);
    let (mut submitted, mut most, mut attacked) = (Vec::new(), 0, u128::MAX);
    for number in 1..=5 {
        for _ in 0..2 {
            let author = honest[hostile.random.index(honest.len())];
            if !submitted.contains(&entry(author, number)) {
                submitted.push(entry(author, number));
                world.submit(author, entry(author, number));
            }
        }
        let (limit, mut committed) = (world.now() + Duration::from_secs(120), 0);
        loop {
            let heights: u64 = honest.iter().map(|index| world.committed(*index)).sum();
            let has_changed = heights != committed;
            committed = heights;
            if has_changed
                && honest.iter().all(|index| waiting(&world, *index, &submitted).is_empty())
            {
                break;
            }
            assert!(world.now() < limit, "no progress with seed {seed}");
            let millisecond = world.now().as_millis();
            if millisecond != attacked {
                attacked = millisecond;
                if millisecond.is_multiple_of(3) {
                    hostile.fill(&mut world, honest[0], &submitted);
                }
                hostile.attack(&mut world, &honest[1..], &submitted);
            }
            world.step(world.now() + ms(1));
            most = most.max(check_bound(&world, &honest));
        }
    }
    world.run_until(world.now() + Duration::from_secs(30));
    world.check();
    let log = world.log(honest[0]);
    assert!(honest.iter().all(|index| world.committed(*index) == log.len() as u64));
    // Each entry once, and no others.
    let mut decided = entries(&log);
    decided.sort();
    submitted.push(entry(1, 0));
    submitted.sort();
    assert!(decided == submitted, "other entries with seed {seed}");
    let of_faulty = log[1..].iter().filter(|decided| decided.value.leader() == leader).count();
    HostileProposerOutcome {
        refusals: world.refusals,
        refused: world.refused,
        most,
        led: [of_faulty, log.len() - 1 - of_faulty],
    }
}

/// All correct servers commit all entries of correct servers, each once, and the same. Only the
/// faulty server is refused: [`World`] checks that. No server keeps more than it should.
#[test]
fn a_hostile_proposer_divides_nobody_and_fills_no_memory() {
    let outcomes = sim::run_seeds(4, run);
    // A single seed may show less.
    if outcomes.len() < 4 {
        return;
    }
    let refusals: BTreeSet<_> = outcomes.iter().flat_map(|it| &it.refusals).copied().collect();
    for why in [
        "a proposal of another server",
        "a proposal of another value than it says",
        "a value of another server as a new one",
        "a wrong signature or certificate",
        "an entry is named twice",
        "entries of a value are out of bounds",
    ] {
        assert!(refusals.contains(why), "never refused: {why}");
    }
    assert!(outcomes.iter().any(|it| it.refused > 0), "junk was never refused");
    let most = outcomes.iter().map(|it| it.most).max().unwrap_or(0);
    assert!(most > MAX_VALUE_LEN - JUNK_LEN, "{most} bytes were kept, and more are allowed");
    for led in [0, 1] {
        assert!(outcomes.iter().any(|it| it.led[led] > 0), "no value of the faulty or of others");
    }
}
