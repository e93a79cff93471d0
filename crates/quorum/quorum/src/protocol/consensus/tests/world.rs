//! Servers of a log on a simulated network, with disks that outlive them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arc_malachitebft_core_consensus::{LivenessMsg, SignedConsensusMsg};
use arc_malachitebft_core_types::{NilOrVal, SignedVote};
use bytes::Bytes;
use keys::IdentitySecretKey;
use sim::{SeededRng, SimulatedLinkId, SimulatedNetwork, SimulationEvent};
use zeroize::Zeroizing;

use super::super::codec::{ConsensusMessage, DecidedValue};
use super::super::context::servers::ConsensusValidatorSet;
use super::super::context::{ConsensusContext, ValidatorAddress};
use super::super::engine::{
    ConsensusEngine, ConsensusEngineError, ConsensusOutput, LogResumePoint, VoteSigner,
};
use crate::protocol::admission::EntryCheck;
use crate::protocol::log_types::{Height, ServerSet, Voter};
use crate::protocol::voting::VotingSecret;
use crate::protocol::wire::Sha256Digest;

pub(super) const LOG: Sha256Digest = Sha256Digest([7; 32]);

pub(super) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn secret(number: usize) -> IdentitySecretKey {
    IdentitySecretKey::new(&[u8::try_from(number + 1).expect("few servers"); 32])
}

pub(super) fn voting(number: usize) -> Arc<VotingSecret> {
    let byte = u8::try_from(number + 100).expect("few servers");
    Arc::new(VotingSecret::from_bytes(Zeroizing::new([byte; 32])))
}

pub(super) fn signer(number: usize) -> VoteSigner {
    signer_with(number, voting(number))
}

pub(super) fn signer_with(number: usize, key: Arc<VotingSecret>) -> VoteSigner {
    let mut signer = VoteSigner::new(&secret(number).public(), LOG);
    signer.set_key(Some(key));
    signer
}

/// A server's identity key, where its voting key should be.
pub(super) fn identity_as_voting_key(number: usize) -> Arc<VotingSecret> {
    let byte = u8::try_from(number + 1).expect("few servers");
    let key = VotingSecret::from_bytes(Zeroizing::new([byte; 32]));
    assert_eq!(key.public(), secret(number).public());
    Arc::new(key)
}

pub(super) fn set_of(servers: &[usize]) -> ServerSet {
    let voter = |&number: &usize| Voter {
        identity: secret(number).public(),
        key: Some(voting(number).public()),
    };
    ServerSet::new(servers.iter().map(voter)).expect("3f+1 servers")
}

/// A disk that may be full, or forget the write-ahead log.
#[derive(Default)]
struct Disk {
    committed: BTreeMap<Height, DecidedValue>,
    records: Vec<Vec<u8>>,
    /// How many more writes succeed.
    writes: Option<u32>,
    /// Whether it only says that it has written the write-ahead log.
    is_forgetful: bool,
}

impl Server {
    fn voting(&self) -> Arc<VotingSecret> {
        voting(if self.has_lost_key { self.key + 50 } else { self.key })
    }
}

/// A write to the disk failed.
struct Full;

impl Disk {
    fn write(&mut self) -> Result<(), Full> {
        match &mut self.writes {
            Some(0) => Err(Full),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn last(&self) -> Height {
        self.committed.last_key_value().map_or(Height(0), |(height, _)| *height)
    }
}

struct Server {
    key: usize,
    address: ValidatorAddress,
    /// `None` while it is down.
    engine: Option<ConsensusEngine>,
    disk: Disk,
    /// Records that are not on the disk yet.
    unwritten: Vec<Vec<u8>>,
    is_silent: bool,
    /// Whether it has another voting key than the others know.
    has_lost_key: bool,
}

pub(super) struct World {
    network: SimulatedNetwork<usize>,
    servers: Vec<Server>,
    links: BTreeMap<(usize, usize), SimulatedLinkId>,
    ends: BTreeMap<SimulatedLinkId, (usize, usize)>,
    sets: Box<dyn Fn(Height) -> ServerSet>,
    /// The check of a service that has applied these values. Without it, there is none.
    #[expect(clippy::type_complexity, reason = "it is its only use")]
    checks: Option<Box<dyn Fn(&[DecidedValue]) -> EntryCheck>>,
    pub(super) random: SeededRng,
    /// After how many in a thousand outputs a server crashes.
    pub(super) sudden: u64,
    /// What each server has signed: the same again is allowed, something else is not.
    signed: BTreeMap<(ValidatorAddress, u64, i64, u8), Sha256Digest>,
    pub(super) sent: u64,
    pub(super) sent_bytes: usize,
    /// How often the value of each height was sent to a server that had asked for it.
    pub(super) values_sent: BTreeMap<u64, usize>,
    /// When each height was committed first, and in which round.
    pub(super) committed_at: BTreeMap<u64, Duration>,
    pub(super) rounds: BTreeMap<u64, i64>,
    /// Records that were replayed after crashes.
    pub(super) replayed: usize,
    /// Servers that may sign anything.
    liars: Vec<ValidatorAddress>,
    /// Votes that were sent lately.
    pub(super) seen: Vec<SignedVote<ConsensusContext>>,
    /// How often a value was refused.
    pub(super) refused: u64,
    /// Why messages were refused.
    pub(super) refusals: BTreeSet<&'static str>,
    /// How often it was proven that a server had signed twice.
    pub(super) proofs: usize,
}

impl World {
    /// This many servers; beside them, second engines with the keys of some of them.
    pub(super) fn new(
        number: usize,
        twins: &[usize],
        seed: u64,
        sets: impl Fn(Height) -> ServerSet + 'static,
    ) -> Self {
        let address = |key: usize| ValidatorAddress::of(&secret(key).public());
        let server = |key| Server {
            key,
            address: address(key),
            engine: None,
            disk: Disk::default(),
            unwritten: Vec::new(),
            is_silent: false,
            has_lost_key: false,
        };
        let mut world = Self {
            network: SimulatedNetwork::new(seed),
            servers: (0..number).chain(twins.iter().copied()).map(server).collect(),
            links: BTreeMap::new(),
            ends: BTreeMap::new(),
            sets: Box::new(sets),
            checks: None,
            random: SeededRng::new(!seed),
            sudden: 0,
            signed: BTreeMap::new(),
            sent: 0,
            sent_bytes: 0,
            values_sent: BTreeMap::new(),
            committed_at: BTreeMap::new(),
            rounds: BTreeMap::new(),
            replayed: 0,
            liars: twins.iter().map(|key| address(*key)).collect(),
            seen: Vec::new(),
            refused: 0,
            refusals: BTreeSet::new(),
            proofs: 0,
        };
        for from in 0..world.servers.len() {
            for to in 0..world.servers.len() {
                let link = world.network.add_link(ms(1), ms(3));
                world.links.insert((from, to), link);
                world.ends.insert(link, (from, to));
            }
        }
        (0..world.servers.len()).for_each(|index| world.open(index));
        world
    }

    /// From the next height on, entries are checked by what was committed before.
    pub(super) fn set_checks(&mut self, checks: impl Fn(&[DecidedValue]) -> EntryCheck + 'static) {
        self.checks = Some(Box::new(checks));
    }

    fn entry_check(&self, index: usize) -> EntryCheck {
        self.checks.as_ref().map_or_else(EntryCheck::anything, |checks| checks(&self.log(index)))
    }

    pub(super) fn now(&self) -> Duration {
        self.network.now()
    }

    pub(super) fn address(&self, index: usize) -> ValidatorAddress {
        self.servers[index].address
    }

    /// From now on messages are lost, doubled and delayed.
    pub(super) fn disturb(&mut self, loss_permille: u64, max_delay: Duration) {
        for link in self.links.values() {
            let conditions = self.network.conditions_mut(*link);
            conditions.loss_permille = loss_permille;
            conditions.duplication_permille = loss_permille;
            conditions.max_delay = max_delay;
        }
    }

    /// Starts a server again, with its voting key or with another one.
    pub(super) fn lose_key(&mut self, index: usize, is_lost: bool) {
        self.servers[index].has_lost_key = is_lost;
        self.servers[index].engine = None;
        self.open(index);
    }

    pub(super) fn votes(&self, index: usize) -> bool {
        self.servers[index].engine.as_ref().is_some_and(ConsensusEngine::votes)
    }

    pub(super) fn silence(&mut self, index: usize, is_silent: bool) {
        self.servers[index].is_silent = is_silent;
        if !is_silent {
            self.link_up(index);
        }
    }

    /// Makes a server faulty: its own engine sends nothing any more.
    pub(super) fn corrupt(&mut self, index: usize) {
        self.servers[index].is_silent = true;
        self.liars.push(self.servers[index].address);
    }

    /// Sends a message in a server's name.
    pub(super) fn inject(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        self.network.inject(self.links[&(from, to)], bytes, ms(1));
    }

    fn open(&mut self, index: usize) {
        let (now, check) = (self.now(), self.entry_check(index));
        let server = &mut self.servers[index];
        let after = server.disk.last();
        self.replayed += server.disk.records.len();
        let opening = LogResumePoint {
            after,
            leader: server.disk.committed.get(&after).map(|decided| decided.value.leader()),
            records: server.disk.records.clone(),
        };
        let set = (self.sets)(after.next());
        let voters = (&set, Some(server.voting()));
        let engine = ConsensusEngine::open(signer(server.key), &opening, voters, check, now);
        server.engine = Some(engine.expect("a sound log"));
        self.settle(index);
        self.link_up(index);
    }

    fn link_up(&mut self, index: usize) {
        for other in 0..self.servers.len() {
            for (one, two) in [(index, other), (other, index)] {
                let address = self.servers[two].address;
                if self.servers[one].address != address
                    && let Some(engine) = &mut self.servers[one].engine
                {
                    engine.handle_link_up(address);
                    self.settle(one);
                }
            }
        }
    }

    /// A server ends: what it has written stays, all else is lost.
    pub(super) fn crash(&mut self, index: usize, down: Duration) {
        let server = &mut self.servers[index];
        if server.engine.take().is_some() {
            server.disk.writes = None;
            server.unwritten.clear();
            if server.disk.is_forgetful {
                server.disk.records.clear();
            }
            self.network.set_timer(self.network.now() + down, index);
        }
    }

    /// From now on only so many writes of a server succeed.
    pub(super) fn fill_disk(&mut self, index: usize, writes: u32) {
        self.servers[index].disk.writes = Some(writes);
    }

    /// From now on a server loses its write-ahead log with each crash.
    pub(super) fn forget(&mut self, index: usize) {
        self.servers[index].disk.is_forgetful = true;
    }

    fn call(
        &mut self,
        index: usize,
        step: impl FnOnce(&mut ConsensusEngine, Duration) -> Result<(), ConsensusEngineError>,
    ) {
        let now = self.now();
        let Some(engine) = &mut self.servers[index].engine else { return };
        step(engine, now).unwrap_or_else(|error| panic!("server {index} at {now:?}: {error}"));
        self.settle(index);
    }

    pub(super) fn submit(&mut self, index: usize, entry: Bytes) {
        self.call(index, |engine, now| {
            engine.submit(entry, now).map(|taken| taken.expect("not full"))
        });
    }

    pub(super) fn log(&self, index: usize) -> Vec<DecidedValue> {
        self.servers[index].disk.committed.values().cloned().collect()
    }

    pub(super) fn committed(&self, index: usize) -> u64 {
        self.servers[index].disk.last().0
    }

    /// `None` while the server is down.
    pub(super) fn engine(&self, index: usize) -> Option<&ConsensusEngine> {
        self.servers[index].engine.as_ref()
    }

    pub(super) fn round(&self, index: usize) -> Option<u32> {
        self.servers[index].engine.as_ref().map(ConsensusEngine::round)
    }

    /// Does what an engine wants. A server may crash after each step, and does when its disk is
    /// full.
    fn settle(&mut self, index: usize) {
        while let Some(engine) = &mut self.servers[index].engine {
            let outputs = engine.outputs();
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                let done = self.perform(index, output);
                if done.is_err() || self.random.below(1000) < self.sudden {
                    self.crash(index, ms(100));
                    return;
                }
            }
        }
    }

    fn perform(&mut self, index: usize, output: ConsensusOutput) -> Result<(), Full> {
        let server = &mut self.servers[index];
        match output {
            ConsensusOutput::Append(records) => server.unwritten.extend(records),
            ConsensusOutput::Commit(decided) => {
                server.disk.write()?;
                server.disk.records.clear();
                server.unwritten.clear();
                server.disk.committed.insert(decided.height(), decided.clone());
                self.apply(index, &decided);
            }
            ConsensusOutput::Broadcast(message) => {
                self.write_before(index, &message)?;
                (0..self.servers.len()).for_each(|to| self.send(index, to, &message));
            }
            ConsensusOutput::Send(address, message) | ConsensusOutput::Answer(address, message) => {
                self.write_before(index, &message)?;
                for to in 0..self.servers.len() {
                    if self.servers[to].address == address {
                        self.send(index, to, &message);
                    }
                }
            }
            ConsensusOutput::SendCommitted(address, height) => {
                if let Some(decided) = server.disk.committed.get(&height).cloned() {
                    return self.perform(
                        index,
                        ConsensusOutput::Send(address, ConsensusMessage::Decided(decided)),
                    );
                }
            }
            ConsensusOutput::Charged(..) => {}
            ConsensusOutput::Refused(server, why) => {
                assert!(self.liars.contains(&server), "a wrong accusation: {why}");
                self.refusals.insert(why);
            }
            ConsensusOutput::Checked { server, are_admitted, .. } => {
                assert!(are_admitted || self.liars.contains(&server), "a wrong accusation");
                self.refused += u64::from(!are_admitted);
            }
            ConsensusOutput::Equivocation(address) => {
                assert!(self.liars.contains(&address), "a wrong accusation");
                self.proofs += 1;
            }
        }
        Ok(())
    }

    fn write_before(&mut self, index: usize, message: &ConsensusMessage) -> Result<(), Full> {
        let server = &mut self.servers[index];
        if message.is_signed() && !server.unwritten.is_empty() {
            server.disk.write()?;
            server.disk.records.append(&mut server.unwritten);
        }
        Ok(())
    }

    fn apply(&mut self, index: usize, decided: &DecidedValue) {
        let (now, height) = (self.now(), decided.height());
        self.committed_at.entry(height.0).or_insert(now);
        self.rounds.entry(height.0).or_insert(decided.certificate.round.as_i64());
        let servers = ConsensusValidatorSet::new(&(self.sets)(height), height, None);
        signer(0).verifier().commit(&decided.certificate, &servers).expect("2f+1 signatures");
        let set = (self.sets)(height.next());
        let (key, check) = (self.servers[index].voting(), self.entry_check(index));
        if let Some(engine) = &mut self.servers[index].engine {
            engine.next((&set, Some(key)), check, now).expect("the next height begins");
        }
    }

    fn send(&mut self, from: usize, to: usize, message: &ConsensusMessage) {
        self.watch(message);
        let [one, two] = [from, to].map(|index| &self.servers[index]);
        if one.address != two.address && !one.is_silent && !two.is_silent {
            self.sent += 1;
            if let ConsensusMessage::Decided(decided) = message {
                *self.values_sent.entry(decided.height().0).or_default() += 1;
            }
            let bytes = message.to_bytes();
            self.sent_bytes += bytes.len();
            self.network.send_datagram(self.links[&(from, to)], bytes);
        }
    }

    /// No correct server signs two different things for the same step.
    fn watch(&mut self, message: &ConsensusMessage) {
        if let ConsensusMessage::Consensus(SignedConsensusMsg::Vote(vote)) = message {
            self.seen.push(vote.clone());
            if self.seen.len() > 100 {
                self.seen.remove(0);
            }
        }
        let (key, signed) = match message {
            ConsensusMessage::Consensus(SignedConsensusMsg::Vote(vote))
            | ConsensusMessage::Liveness(LivenessMsg::Vote(vote)) => {
                let id = match vote.message.value {
                    NilOrVal::Nil => Sha256Digest([0; 32]),
                    NilOrVal::Val(id) => id.0,
                };
                let vote = &vote.message;
                ((vote.voter, vote.height.0, vote.round.as_i64(), vote.kind as u8), id)
            }
            ConsensusMessage::Consensus(SignedConsensusMsg::Proposal(proposal)) => {
                let proposal = &proposal.message;
                let round = proposal.round.as_i64();
                ((proposal.proposer, proposal.height.0, round, 2), proposal.value.id().0)
            }
            ConsensusMessage::Compact(proposal) => {
                let round = proposal.round.as_i64();
                ((proposal.proposer, proposal.height.0, round, 2), proposal.value.0)
            }
            _ => return,
        };
        if !self.liars.contains(&key.0) {
            let first = *self.signed.entry(key).or_insert(signed);
            assert_eq!(first, signed, "a server signed twice: {key:?}");
        }
    }

    /// Lets the next thing happen, if it happens until then. Returns whether it does.
    pub(super) fn step(&mut self, until: Duration) -> bool {
        let engines = self.servers.iter().map(|server| server.engine.as_ref());
        let deadlines =
            engines.enumerate().filter_map(|(index, it)| Some((it?.deadline()?, index)));
        let timer = deadlines.min().filter(|(at, _)| *at <= until);
        let deadline = timer.map_or(until, |(at, _)| at.max(self.now()));
        match (self.network.next_event_until(deadline), timer) {
            (Some(SimulationEvent::Arrived { link, bytes }), _) => {
                let (from, to) = self.ends[&link];
                let address = self.servers[from].address;
                match ConsensusMessage::parse(&bytes.into()) {
                    Ok(message) => {
                        self.call(to, |engine, now| engine.receive(address, message, now));
                    }
                    Err(error) => {
                        assert!(self.liars.contains(&address), "{error}");
                        self.refusals.insert(error.0);
                    }
                }
            }
            (Some(SimulationEvent::Timer(index)), _) => self.open(index),
            (Some(event), _) => unreachable!("{event:?}"),
            (None, Some((_, index))) => self.call(index, ConsensusEngine::tick),
            (None, None) => return false,
        }
        true
    }

    pub(super) fn run_until(&mut self, until: Duration) {
        while self.step(until) {}
    }

    /// All logs agree as far as they go.
    pub(super) fn check(&self) {
        let mut values = BTreeMap::new();
        for server in &self.servers {
            for (height, decided) in &server.disk.committed {
                let value = values.entry(height).or_insert(&decided.value);
                assert_eq!(**value, decided.value, "two values at height {height}");
            }
        }
    }
}
