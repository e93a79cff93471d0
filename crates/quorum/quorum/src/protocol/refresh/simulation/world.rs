//! The processes of both groups, their log, and the links between them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use random::RandomGenerator;
use rsa_arithmetic::dealer::DealerKey;
use rsa_arithmetic::fixture::tiny_key;
use sim::{SeededRng, SimulatedLinkId, SimulatedNetwork, SimulationEvent};

use super::super::{
    LabeledShares, LogEntry, LogEntryEffect, RefreshAgreement, RefreshMessage, RefreshParameters,
    RefreshRole, ShareWitnesses,
};
use super::adversary::Adversary;
use super::ms;
use super::process::{ProcessAction, ProcessStep, SimulatedProcess, group_of};
use super::scenario::{FIRST_IDENTITY, RefreshScenario, first};
use crate::log::AgreementLog as _;
use crate::log::memory::MemoryLog;
use crate::protocol::combination::ServerIndex;
use crate::protocol::group::{GroupHeader, QuorumGroup};
use crate::protocol::share::ShareRange;
use crate::protocol::testing::identity;

/// The interval at which an operator checks the run, and approves a group or cancels.
const OPERATOR_INTERVAL: Duration = Duration::from_secs(2);

/// The longest duration of a refresh after the network has healed.
const MAX_DURATION: Duration = Duration::from_secs(2_000);

/// How long the simulation continues after all servers have finished.
const AFTERWARDS: Duration = Duration::from_secs(60);

/// The key of all runs.
struct SimulationKey {
    dealer: DealerKey,
    parameters: Arc<RefreshParameters>,
}

fn key() -> &'static SimulationKey {
    static KEY: OnceLock<SimulationKey> = OnceLock::new();
    KEY.get_or_init(|| {
        let dealer = tiny_key();
        let range = ShareRange::new(dealer.group().modulus().bits());
        let parameters = Arc::new(RefreshParameters::new(dealer.group(), range));
        SimulationKey { dealer, parameters }
    })
}

pub(super) struct RefreshSimulation {
    pub(super) scenario: RefreshScenario,
    pub(super) processes: Vec<SimulatedProcess>,
    pub(super) adversary: Adversary,
    /// The old shares of correct servers, which must be gone at the end.
    old_shares: Vec<Weak<LabeledShares>>,
    /// The sum of all shares before the refresh.
    secret: Vec<u8>,
    network: SimulatedNetwork<()>,
    /// From each process to each.
    links: Vec<SimulatedLinkId>,
    log: MemoryLog,
    generator: RandomGenerator,
    rng: SeededRng,
    /// When each operator acts next.
    operators: Vec<Duration>,
    is_healed: bool,
    /// When run r was first seen open.
    opened: BTreeMap<u32, Duration>,
    /// The events, with their numbers.
    seen: BTreeMap<String, u64>,
}

impl RefreshSimulation {
    pub(super) fn new(scenario: RefreshScenario, seed: u64, mut rng: SeededRng) -> Self {
        let mut generator = RandomGenerator::seeded().unwrap();
        let SimulationKey { dealer, parameters } = key();
        let old = scenario.old.combination();
        let split = parameters.range.split(dealer.private_exponent(), old, &mut generator).unwrap();
        let powers = old.labels().map(|label| parameters.power(&split.share(label)));
        let witnesses = Arc::new(ShareWitnesses::new(powers.collect()));
        let all: Vec<_> = old.labels().map(|label| split.share(label)).collect();
        let voting = vec![None; scenario.old.members().len()];
        let set = scenario.old.voters(&voting);
        let header = GroupHeader::first(scenario.old.clone(), voting, witnesses.digest(), None);
        let agreement = RefreshAgreement::new(parameters.clone(), header);
        let process = |number: usize| {
            let secret = identity(FIRST_IDENTITY + u8::try_from(number).expect("it is small"));
            let shares = scenario.old.index_of(&secret.public()).map(|index| {
                Arc::new(old.labels_of(index).map(|label| (label, split.share(label))).collect())
            });
            SimulatedProcess::new(
                secret,
                seed.is_multiple_of(2),
                agreement.clone(),
                shares,
                witnesses.clone(),
            )
        };
        let processes: Vec<SimulatedProcess> = (0..scenario.processes).map(process).collect();
        let correct = (0..).zip(&processes).filter(|(it, _)| !scenario.byzantine.contains(it));
        let old_shares = correct.filter_map(|(_, it)| it.disk.shares.as_ref());
        let old_shares = old_shares.map(Arc::downgrade).collect();
        let mut network = SimulatedNetwork::new(seed);
        let count = processes.len() * processes.len();
        let links: Vec<_> =
            (0..count).map(|_| network.add_link(ms(0), scenario.max_delay)).collect();
        for &link in &links {
            let conditions = network.conditions_mut(link);
            conditions.loss_permille = scenario.loss_permille;
            conditions.duplication_permille = scenario.duplication_permille;
            let pair = [link.index() / processes.len(), link.index() % processes.len()];
            if scenario.isolated.is_some_and(|it| pair.contains(&it)) {
                conditions.loss_permille = 1000;
            }
        }
        let log = MemoryLog::new(seed, scenario.max_delay, &set);
        let mut world = Self {
            secret: parameters.range.sum(&all).to_be_bytes().to_vec(),
            adversary: Adversary::new(&scenario, &processes, &mut rng),
            operators: vec![ms(0); processes.len()],
            processes,
            old_shares,
            network,
            links,
            log,
            generator,
            rng,
            is_healed: false,
            opened: BTreeMap::new(),
            seen: BTreeMap::new(),
            scenario,
        };
        for process in &mut world.processes {
            process.start(&world.log, false);
        }
        world
    }

    pub(super) fn now(&self) -> Duration {
        self.network.now()
    }

    fn is_correct(&self, process: usize) -> bool {
        !self.scenario.byzantine.contains(&process)
    }

    pub(super) fn correct(&self) -> impl Iterator<Item = &SimulatedProcess> {
        let all = self.processes.iter().enumerate();
        all.filter(|(it, _)| self.is_correct(*it)).map(|(_, process)| process)
    }

    fn count(&mut self, what: impl Into<String>) {
        *self.seen.entry(what.into()).or_default() += 1;
    }

    /// Runs until all correct servers have finished, and for some time after that.
    pub(super) fn run(&mut self) {
        let limit = self.scenario.heals_at + MAX_DURATION;
        let mut ends_at = None;
        loop {
            self.settle();
            if ends_at.is_none() && self.is_finished() {
                ends_at = Some(self.now() + AFTERWARDS);
            }
            let end = ends_at.unwrap_or(limit);
            if self.now() >= end {
                return;
            }
            let next = self.next_deadline().min(end).max(self.now());
            if let Some(SimulationEvent::Arrived { link, bytes }) =
                self.network.next_event_until(next)
            {
                let count = self.processes.len();
                self.deliver(link.index() / count, link.index() % count, &bytes);
            }
            self.log.advance(self.now());
            if self.now() >= self.scenario.heals_at && !self.is_healed {
                self.heal();
            }
        }
    }

    fn next_deadline(&self) -> Duration {
        let processes = self.processes.iter().filter_map(SimulatedProcess::deadline);
        let operators = self.operators.iter().copied();
        let heal = (!self.is_healed).then_some(self.scenario.heals_at);
        let others = [self.log.next_event(), heal, self.adversary.next_at()];
        let all = processes.chain(operators).chain(others.into_iter().flatten());
        all.min().expect("operators always have one")
    }

    /// Stops all faults of links and servers.
    fn heal(&mut self) {
        self.is_healed = true;
        for &link in &self.links {
            let conditions = self.network.conditions_mut(link);
            conditions.loss_permille = 0;
            conditions.duplication_permille = 0;
            conditions.max_delay = conditions.max_delay.min(ms(200));
        }
    }

    /// Processes everything that is due now.
    fn settle(&mut self) {
        let now = self.now();
        loop {
            let mut has_acted = false;
            for at in 0..self.processes.len() {
                if self.processes[at].memory.is_none() && self.processes[at].restarts_at <= now {
                    let from_first = self.rng.chance(30);
                    self.processes[at].start(&self.log, from_first);
                    self.count("restart");
                }
                if self.operators[at] <= now {
                    self.operators[at] = now + OPERATOR_INTERVAL;
                    self.operate(at);
                }
                while let Some(done) = self.processes[at].follow() {
                    has_acted = true;
                    for result in done {
                        self.count(match result {
                            Ok(LogEntryEffect::DealerExcluded { .. }) => "excluded".to_owned(),
                            Ok(LogEntryEffect::FalseComplaint { .. }) => {
                                "false complaint".to_owned()
                            }
                            Ok(LogEntryEffect::Faulty { why, .. }) => format!("faulty: {why:?}"),
                            Ok(change) => format!("{change:?}"),
                            Err(refusal) => format!("refused: {refusal:?}"),
                        });
                    }
                }
                has_acted |= self.poll(at, now);
            }
            let actions =
                self.adversary.act(now, &self.processes, &mut self.rng, &mut self.generator);
            for (process, action) in actions {
                has_acted = true;
                self.perform(process, action);
            }
            if !has_acted {
                return;
            }
        }
    }

    /// Polls a process as far as possible. Returns whether it did something.
    fn poll(&mut self, at: usize, now: Duration) -> bool {
        let mut has_acted = false;
        let is_correct = self.is_correct(at);
        loop {
            let RefreshScenario { slow_jobs, max_job, crash_permille, .. } = self.scenario;
            let rng = &mut self.rng;
            let job_time = || {
                if rng.chance(slow_jobs) {
                    rng.duration_between(ms(1), max_job)
                } else {
                    Duration::ZERO
                }
            };
            match self.processes[at].poll(now, &mut self.generator, job_time) {
                ProcessStep::Nothing => return has_acted,
                ProcessStep::Internal => {}
                ProcessStep::Act(action) if is_correct => self.perform(at, action),
                ProcessStep::Act(action) => {
                    for action in self.adversary.change(at, action, &mut self.rng) {
                        self.perform(at, action);
                    }
                }
            }
            has_acted = true;
            if is_correct && !self.is_healed && self.rng.below(1000) < crash_permille {
                let down = self.rng.duration_between(ms(0), ms(10_000));
                self.processes[at].crash(now + down);
                self.count("crash");
            }
        }
    }

    fn perform(&mut self, from: usize, action: ProcessAction) {
        match action {
            ProcessAction::Send { from: side, to: (to_side, to), bytes } => {
                let group = group_of(self.processes[from].agreement(), to_side).cloned();
                let Some(to) = group.and_then(|group| Self::process_of(&group, to)) else { return };
                let sides = [side, to_side].map(|side| u8::from(side == RefreshRole::New));
                let link = self.links[from * self.processes.len() + to];
                let bytes = [&sides[..], &bytes];
                self.network.send_datagram(link, bytes.concat());
            }
            ProcessAction::Submit(bytes) => {
                self.adversary.see_entry(&bytes);
                // Where the log uses the check, rejected entries are seen only here.
                let process = &self.processes[from];
                if process.is_log_checked
                    && let Ok(entry) = LogEntry::parse(&bytes)
                    && let Err(refusal) = process.agreement().check(&entry)
                {
                    self.count(format!("refused: {refusal:?}"));
                }
                let is_lost = !self.is_healed
                    && self.is_correct(from)
                    && self.rng.below(1000) < self.scenario.loss_permille;
                let is_cut_off = !self.is_healed && self.scenario.isolated == Some(from);
                if let Some(memory) = &mut self.processes[from].memory
                    && !is_lost
                    && !is_cut_off
                {
                    memory.log.submit(Bytes::from(bytes)).ok();
                }
            }
        }
    }

    /// The process of a server, if the group has it.
    fn process_of(group: &QuorumGroup, index: ServerIndex) -> Option<usize> {
        let process = first(group) + usize::from(index.0);
        (usize::from(index.0) < group.members().len()).then_some(process)
    }

    fn deliver(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let [from_side, to_side] = [bytes[0], bytes[1]].map(|is_new| match is_new {
            0 => RefreshRole::Old,
            _ => RefreshRole::New,
        });
        let Ok(message) = RefreshMessage::parse(&bytes[2..]) else { return };
        if self.is_correct(from) && self.is_correct(to) {
            self.count(match message {
                RefreshMessage::Dealing(_) => "message: Dealing",
                RefreshMessage::Confirmation { .. } => "message: Confirmation",
                RefreshMessage::Need { .. } => "message: Need",
                RefreshMessage::Fetch { .. } => "message: Fetch",
                RefreshMessage::Proofs(_) => "message: Proofs",
                RefreshMessage::Ask { .. } => "message: Ask",
                RefreshMessage::Shares(_) => "message: Shares",
                RefreshMessage::AskSum { .. } => "message: AskSum",
                RefreshMessage::Sum(_) => "message: Sum",
            });
        }
        if !self.is_correct(to) {
            let from = (from_side, self.processes[from].public);
            self.adversary.see_message((to, &self.processes[to]), from, &message, &bytes[2..]);
        }
        let key = self.processes[from].public;
        let answer = self.processes[to].handle((from_side, &key), to_side, message);
        let Some(answer) = answer else { return };
        let group = group_of(self.processes[to].agreement(), from_side);
        let index = group.and_then(|group| group.index_of(&key)).expect("it was a member");
        let to_back = (from_side, index);
        let action =
            ProcessAction::Send { from: to_side, to: to_back, bytes: answer.to_bytes().to_vec() };
        if self.is_correct(to) {
            self.perform(to, action);
        } else {
            for action in self.adversary.change(to, action, &mut self.rng) {
                self.perform(to, action);
            }
        }
    }

    /// The actions of the operator of a correct old server.
    fn operate(&mut self, at: usize) {
        let process = &self.processes[at];
        let Some(index) = process.index(RefreshRole::Old) else { return };
        if !self.is_correct(at) || process.memory.is_none() {
            return;
        }
        let (agreement, now) = (process.agreement(), self.now());
        let number = agreement.run_number();
        let candidates = &self.scenario.candidates;
        let last = u32::try_from(candidates.len()).expect("there are few");
        let entry = if agreement.run().is_none() {
            let group = &candidates[(number.min(last) - 1) as usize];
            agreement.approval(index, group.clone(), &process.secret)
        } else {
            let opened = *self.opened.entry(number).or_insert(now);
            if number >= last || now < opened + self.scenario.cancel_after {
                return;
            }
            agreement.cancellation(index, &process.secret)
        };
        self.perform(at, ProcessAction::Submit(entry.to_bytes()));
    }

    /// Whether all correct servers have finished.
    fn is_finished(&self) -> bool {
        self.correct().all(|process| {
            let Some(run) = process.agreement().run().filter(|run| run.next_epoch().is_some())
            else {
                return false;
            };
            let is_new = run.group().index_of(&process.public).is_some();
            process.memory.is_some()
                && process.disk.shares.is_none()
                && (!is_new || process.disk.begun.is_some())
        })
    }

    /// The events, with their numbers.
    pub(super) fn seen(mut self) -> BTreeMap<String, u64> {
        let attacks = &self.adversary.attacks;
        self.seen.extend(attacks.iter().map(|(name, count)| (format!("attack: {name}"), *count)));
        self.seen
    }

    /// The progress of correct servers, for a failure message.
    fn state(&self) -> String {
        let state = |process: &SimulatedProcess| {
            let run = process.agreement().run();
            let old = process.agreement().epoch().group.combination();
            let chosen = old.labels().filter(|&it| run.is_some_and(|it2| it2.chosen(it).is_some()));
            format!(
                "{:?} {:?}: run {}, {} labels chosen, final {}, has begun {}, up {}",
                process.index(RefreshRole::Old),
                process.index(RefreshRole::New),
                process.agreement().run_number(),
                chosen.count(),
                run.is_some_and(|run| run.next_epoch().is_some()),
                process.disk.begun.is_some(),
                process.memory.is_some(),
            )
        };
        self.correct().map(state).collect::<Vec<_>>().join("\n")
    }

    /// Panics unless the properties of the specification hold.
    pub(super) fn check(&self) {
        let parameters = &key().parameters;
        assert!(self.is_finished(), "not finished at {:?}: {}", self.now(), self.state());
        let first = self.correct().next().expect("most are correct").agreement();
        let run = first.run().expect("it is finished");
        let header = run.next_epoch().expect("it is finished");
        let old = first.epoch().group.combination();
        let chosen = run.read_chosen(old).expect("all labels are chosen");
        let mut all = LabeledShares::new();
        for process in self.correct() {
            // One new group, with one set of dealings.
            let run = process.agreement().run().expect("it is finished");
            assert_eq!(run.next_epoch(), Some(header), "another epoch");
            assert_eq!(run.read_chosen(old).as_ref(), Some(&chosen), "another chosen set");
            // No correct server is accused.
            for (side, accused) in
                [(RefreshRole::Old, run.excluded()), (RefreshRole::New, run.faulty())]
            {
                let group = group_of(process.agreement(), side).expect("a run is open");
                for &index in accused {
                    let process = Self::process_of(group, index).expect("it is a member");
                    assert!(!self.is_correct(process), "{side:?} {index} is accused");
                }
            }
            // Everything of the ended run is wiped.
            assert!(process.is_idle(), "something is left of the run");
            let Some(begun) = &process.disk.begun else { continue };
            // Shares of correct servers are right.
            assert_eq!(begun.header, *header);
            assert_eq!(begun.witnesses.digest(), header.witnesses);
            let new = header.group.combination();
            let index = header.group.index_of(&process.public).expect("it has begun");
            assert!(begun.shares.keys().copied().eq(new.labels_of(index)), "other labels");
            for (&label, share) in &*begun.shares {
                let power = parameters.power(share);
                assert!(power.has_same_square(begun.witnesses.witness(label)), "a wrong share");
                let copy = parameters.range.sum([share]);
                if let Some(other) = all.insert(label, copy) {
                    assert_eq!(other.to_be_bytes(), share.to_be_bytes(), "different shares");
                }
            }
        }
        assert_eq!(parameters.range.sum(all.values()).to_be_bytes()[..], self.secret[..]);
        assert!(self.old_shares.iter().all(|it| it.upgrade().is_none()), "old shares are left");
    }
}
