//! Refreshes in memory, with all servers and a log that loses nothing. Links lose messages.

mod agreement;
mod dealings;
mod possession;
mod recovery;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use keys::IdentitySecretKey;
use random::RandomGenerator;
use rsa_arithmetic::dealer::DealerKey;
use rsa_arithmetic::fixture::tiny_key;
use rsa_arithmetic::integer::SecretInteger;
use sim::SeededRng;
use zeroize::Zeroizing;

use super::*;
use crate::protocol::combination::{CombinatorialSharing, Label, ServerIndex};
use crate::protocol::group::{GroupHeader, QuorumGroup};
use crate::protocol::share::ShareRange;
use crate::protocol::testing::{group, identity};
use crate::protocol::unix_seconds::UnixSeconds;

const TIME: UnixSeconds = UnixSeconds(1_800_000_000);

const DELAYS: RefreshDelays = RefreshDelays {
    need: Duration::from_secs(5),
    grace: Duration::from_secs(20),
    resend: Duration::from_secs(1),
};

/// What a run needs besides the servers.
struct Setting {
    key: DealerKey,
    parameters: Arc<RefreshParameters>,
    old: QuorumGroup,
    new: QuorumGroup,
    shares: Vec<Arc<LabeledShares>>,
    witnesses: Arc<ShareWitnesses>,
}

impl Setting {
    fn new(old_faulty: u8, new_faulty: u8, generator: &mut RandomGenerator) -> Self {
        let key = tiny_key();
        let range = ShareRange::new(key.group().modulus().bits());
        let (old, new) = (group(old_faulty, 1), group(new_faulty, 100));
        let split = range.split(key.private_exponent(), old.combination(), generator).unwrap();
        let parameters = Arc::new(RefreshParameters::new(key.group(), range));
        let share = |label| (label, split.share(label));
        let held = |server| Arc::new(old.combination().labels_of(server).map(share).collect());
        let shares = old.combination().servers().map(held).collect();
        let power = |label| parameters.power(&split.share(label));
        let witnesses =
            Arc::new(ShareWitnesses::new(old.combination().labels().map(power).collect()));
        Self { key, parameters, old, new, shares, witnesses }
    }
}

enum Machine {
    Old(Box<OldServer>),
    New(Box<NewServer>),
}

type Address = (RefreshRole, ServerIndex);

struct World {
    setting: Setting,
    agreement: RefreshAgreement,
    machines: BTreeMap<Address, Machine>,
    saved: BTreeMap<Address, BTreeMap<RunItemName, Zeroizing<Vec<u8>>>>,
    begun: BTreeMap<ServerIndex, (GroupHeader, Arc<ShareWitnesses>, Arc<LabeledShares>)>,
    /// The entries that changed something, with the agreement before each.
    history: Vec<(RefreshAgreement, LogEntry)>,
    /// Messages and their senders and receivers.
    links: VecDeque<(Address, Address, Vec<u8>)>,
    now: Duration,
    generator: RandomGenerator,
    rng: SeededRng,
    /// How many of 100 messages are lost, until the time when all arrive.
    loss: u64,
    heals_at: Duration,
    /// Servers that do not take part.
    silent: Vec<Address>,
    /// Dealers, and new servers that do not get their dealings.
    withheld: Vec<(ServerIndex, ServerIndex)>,
    /// Servers whose jobs for dealings still run when the epoch ends, and these jobs.
    slow: Vec<Address>,
    late_jobs: Vec<(Address, RefreshJob)>,
}

impl World {
    fn new(old_faulty: u8, new_faulty: u8, seed: u64) -> Self {
        let mut generator = RandomGenerator::seeded().unwrap();
        let setting = Setting::new(old_faulty, new_faulty, &mut generator);
        let (old, voting) = (setting.old.clone(), vec![None; setting.old.members().len()]);
        let epoch = GroupHeader::first(old, voting, setting.witnesses.digest(), None);
        let mut agreement = RefreshAgreement::new(setting.parameters.clone(), epoch);
        let mut history = Vec::new();
        for i in 0..=old_faulty {
            let entry = agreement.approval(ServerIndex(i), setting.new.clone(), &identity(1 + i));
            history.push((agreement.clone(), entry.clone()));
            let change = agreement.apply(&LogEntry::parse(&entry.to_bytes()).unwrap()).unwrap();
            let expected =
                if i == old_faulty { LogEntryEffect::Opened } else { LogEntryEffect::Counted };
            assert_eq!(change, expected);
        }
        let mut world = Self {
            agreement,
            machines: BTreeMap::new(),
            saved: BTreeMap::new(),
            begun: BTreeMap::new(),
            history,
            links: VecDeque::new(),
            now: Duration::ZERO,
            generator,
            rng: SeededRng::new(seed),
            loss: 0,
            heals_at: Duration::from_secs(60),
            silent: Vec::new(),
            withheld: Vec::new(),
            slow: Vec::new(),
            late_jobs: Vec::new(),
            setting,
        };
        for address in world.addresses() {
            world.start(address);
        }
        world
    }

    fn addresses(&self) -> Vec<Address> {
        let all = |side, group: &QuorumGroup| {
            group.combination().servers().map(move |it| (side, it)).collect::<Vec<_>>()
        };
        [all(RefreshRole::Old, &self.setting.old), all(RefreshRole::New, &self.setting.new)]
            .concat()
    }

    /// Starts a server, or restarts it with what it saved.
    fn start(&mut self, address: Address) {
        let (side, index) = address;
        let saved = self.saved.entry(address).or_default();
        let machine = match side {
            RefreshRole::Old => {
                let identity = Arc::new(identity(1 + index.0));
                let shares = self.setting.shares[usize::from(index.0)].clone();
                let agreement = &self.agreement;
                let old = OldServer::new(index, identity, shares, &DELAYS, agreement, saved);
                Machine::Old(Box::new(old.unwrap()))
            }
            RefreshRole::New => {
                let identity: Arc<IdentitySecretKey> = Arc::new(identity(100 + index.0));
                let witnesses = self.setting.witnesses.clone();
                let agreement = &self.agreement;
                let new = NewServer::new(index, identity, witnesses, &DELAYS, agreement, saved);
                Machine::New(Box::new(new.unwrap()))
            }
        };
        self.machines.insert(address, machine);
    }

    /// Lets a server do all that it can do. Returns whether it did something.
    fn poll(&mut self, address: Address) -> bool {
        let mut has_acted = false;
        loop {
            let (now, agreement, generator) = (self.now, &self.agreement, &mut self.generator);
            let output = match self.machines.get_mut(&address).unwrap() {
                Machine::Old(server) => server.poll_output(now, agreement, generator),
                Machine::New(server) => server.poll_output(now, agreement, generator),
            };
            let Some(output) = output.unwrap() else { return has_acted };
            has_acted = true;
            match output {
                RefreshOutput::Send { to, message } => {
                    let is_lost = self.now < self.heals_at && self.rng.chance(self.loss);
                    if !is_lost {
                        self.links.push_back((address, to, message.to_bytes().to_vec()));
                    }
                }
                RefreshOutput::Submit(entry) => {
                    let parsed = LogEntry::parse(&entry.to_bytes());
                    assert_eq!(parsed.as_ref(), Ok(&entry));
                    let before = self.agreement.clone();
                    // Refused are repetitions only.
                    if let Err(refusal) = self.agreement.apply(&entry) {
                        let is_late =
                            matches!(refusal, LogEntryRefusal::Repeated | LogEntryRefusal::Ended);
                        assert!(is_late, "{address:?}: {refusal}");
                    } else {
                        self.history.push((before, entry));
                    }
                }
                RefreshOutput::Save { item, bytes } => {
                    self.saved.entry(address).or_default().insert(item, bytes);
                }
                RefreshOutput::Job(job) => {
                    let is_recovery = matches!(job.task, output::RefreshTask::Check { .. });
                    if self.slow.contains(&address) && !is_recovery {
                        self.late_jobs.push((address, job));
                    } else {
                        self.finish(address, job);
                    }
                }
                RefreshOutput::Begin { header, witnesses, shares } => {
                    self.begun.insert(address.1, (header, witnesses, shares));
                }
                RefreshOutput::Erase => {
                    self.saved.remove(&address);
                }
            }
        }
    }

    fn finish(&mut self, address: Address, job: RefreshJob) {
        let result = job.run(&mut self.generator).unwrap();
        match self.machines.get_mut(&address).unwrap() {
            Machine::Old(server) => server.handle_job(result),
            Machine::New(server) => server.handle_job(result, TIME),
        }
    }

    fn run(&mut self) {
        let limit = Duration::from_secs(1000);
        while self.now < limit {
            let mut has_acted = false;
            for address in self.addresses() {
                if !self.silent.contains(&address) {
                    has_acted |= self.poll(address);
                }
            }
            if let Some((from, to, bytes)) = self.links.pop_front() {
                has_acted = true;
                self.deliver(from, to, &bytes);
            }
            if !has_acted {
                let is_heard = |it: &&Address| !self.silent.contains(it);
                let addresses = self.addresses();
                let deadlines =
                    addresses.iter().filter(is_heard).filter_map(|it| match &self.machines[it] {
                        Machine::Old(server) => server.deadline(),
                        Machine::New(server) => server.deadline(),
                    });
                let Some(next) = deadlines.min() else { return };
                self.now = next.max(self.now + Duration::from_millis(1));
            }
        }
        panic!("not finished");
    }

    fn deliver(&mut self, from: Address, to: Address, bytes: &[u8]) {
        if self.silent.contains(&to) {
            return;
        }
        let message = RefreshMessage::parse(bytes).unwrap();
        let is_withheld = self.withheld.contains(&(from.1, to.1));
        if is_withheld && matches!(message, RefreshMessage::Dealing(_)) {
            return;
        }
        // Servers of the new epoch answer from their shares.
        if let RefreshMessage::Ask { epoch, witnesses: with_witnesses } = message
            && let Some((header, witnesses, shares)) = self.begun.get(&to.1)
        {
            assert_eq!(epoch, header.epoch);
            let witnesses = with_witnesses.then_some(&**witnesses);
            let new = self.setting.new.combination();
            let message = answer(epoch, witnesses, shares, from.1, new);
            self.links.push_back((to, from, message.to_bytes().to_vec()));
            return;
        }
        match self.machines.get_mut(&to).unwrap() {
            Machine::Old(server) => server.handle_message(from.1, &message, &self.agreement),
            Machine::New(server) => server.handle_message(from, message, &self.agreement),
        }
    }

    /// Asserts that these many new servers have right shares, which sum to d.
    fn assert_refreshed(&self, expected: usize) {
        assert_eq!(self.begun.len(), expected, "at {:?}", self.now);
        let mut all = BTreeMap::<Label, &SecretInteger>::new();
        for (header, witnesses, shares) in self.begun.values() {
            assert_eq!(header, self.agreement.run().unwrap().next_epoch().unwrap());
            assert_eq!(witnesses.digest(), header.witnesses);
            for (&label, share) in &**shares {
                let power = self.setting.parameters.power(share);
                assert!(power.has_same_square(witnesses.witness(label)), "wrong share");
                all.insert(label, share);
            }
        }
        let sum = self.setting.parameters.range.sum(all.into_values());
        // g^d = g_0.
        let group = self.setting.key.group();
        assert!(self.setting.parameters.power(&sum).has_same_square(group.g_0()));
        let run = self.agreement.run().unwrap();
        assert!(run.excluded().is_empty() && run.faulty().is_empty());
    }

    fn old_shares(&mut self) -> Vec<Weak<LabeledShares>> {
        let shares = std::mem::take(&mut self.setting.shares);
        shares.iter().map(Arc::downgrade).collect()
    }
}

#[test]
fn a_refresh_gives_the_new_group_shares_of_the_same_key() {
    for (old, new) in [(1, 1), (2, 2), (1, 2), (2, 1)] {
        let mut world = World::new(old, new, 1);
        let old_shares = world.old_shares();
        world.run();
        assert_eq!(world.now, Duration::ZERO, "nothing waits");
        world.assert_refreshed(CombinatorialSharing::new(new).unwrap().server_count());
        assert!(world.saved.is_empty(), "everything saved is erased");
        assert!(old_shares.iter().all(|it| it.upgrade().is_none()), "old shares are dropped");
    }
}

#[test]
fn a_refresh_finishes_without_f_servers_of_either_group() {
    for faulty in 1..=2 {
        let mut world = World::new(faulty, faulty, 2);
        for i in 0..faulty {
            world.silent.push((RefreshRole::Old, ServerIndex(2 * i)));
            world.silent.push((RefreshRole::New, ServerIndex(i)));
        }
        world.run();
        let expected = CombinatorialSharing::new(faulty).unwrap().quorum();
        world.assert_refreshed(expected);
    }
}

#[test]
fn need_waits_for_the_last_dealers_as_long_as_for_the_others() {
    let need = |world: &World| {
        world.links.iter().any(|(.., bytes)| {
            matches!(RefreshMessage::parse(bytes), Ok(RefreshMessage::Need { .. }))
        })
    };
    let seconds = Duration::from_secs;
    for (took, waited) in [(0, Duration::from_millis(500)), (3, seconds(3)), (9, DELAYS.need)] {
        let mut world = World::new(1, 1, 9);
        world.silent.push((RefreshRole::Old, ServerIndex(3)));
        // The new servers register, and see that all have.
        for address in world.addresses().repeat(2) {
            if !world.silent.contains(&address) {
                world.poll(address);
            }
        }
        world.now = seconds(took);
        for address in world.addresses() {
            if address.0 == RefreshRole::New {
                world.poll(address);
            }
        }
        assert!(!need(&world), "without dealings there is nothing to wait for");
        world.run();
        world.assert_refreshed(4);
        assert_eq!(world.now, seconds(took) + waited);
    }
}

#[test]
fn a_refresh_finishes_if_no_server_gets_all_dealings() {
    for faulty in 1..=2 {
        let mut world = World::new(faulty, faulty, 7);
        // Each dealing gets to 2f+1 servers, but no server gets all.
        world.withheld = (0..=3 * faulty).map(|i| (ServerIndex(i), ServerIndex(i))).collect();
        world.run();
        world.assert_refreshed((3 * faulty + 1).into());
    }
}

#[test]
fn jobs_that_end_after_the_epoch_restore_no_secrets() {
    let mut world = World::new(1, 1, 8);
    let old_shares = world.old_shares();
    world.slow = vec![(RefreshRole::Old, ServerIndex(1)), (RefreshRole::New, ServerIndex(2))];
    world.run();
    world.assert_refreshed(4);
    let late = std::mem::take(&mut world.late_jobs);
    for address in world.slow.clone() {
        assert!(late.iter().any(|(it, _)| *it == address), "{address:?} has jobs");
    }
    for (address, job) in late {
        world.finish(address, job);
        assert!(!world.poll(address), "it has nothing to do");
    }
    assert!(world.saved.is_empty(), "everything saved is erased");
    assert!(old_shares.iter().all(|it| it.upgrade().is_none()), "old shares are dropped");
}

#[test]
fn a_refresh_finishes_when_messages_are_lost() {
    sim::run_seeds(10, |seed| {
        let mut world = World::new(1, 1, seed);
        world.loss = 60;
        world.run();
        world.assert_refreshed(4);
    });
}

#[test]
fn a_wrong_subshare_excludes_its_dealer_and_a_false_complaint_its_author() {
    let mut world = World::new(1, 1, 3);
    // The dealer changes a ciphertext after it has been made, and signs that.
    let dealer = (RefreshRole::Old, ServerIndex(0));
    let (mut changed, mut right) = (false, None);
    for _ in 0..200 {
        for address in world.addresses() {
            world.poll(address);
        }
        let Some((from, to, bytes)) = world.links.pop_front() else { continue };
        let mut bytes = bytes;
        if from == dealer
            && let RefreshMessage::Dealing(mut dealing) = RefreshMessage::parse(&bytes).unwrap()
        {
            let mut delivery = (*dealing.delivery).clone();
            delivery.ciphertexts[0][3] ^= 1;
            let digest = dealing.proofs.digest;
            let message = manifest::DealingManifest::delivery(digest, to.1, &delivery.digests());
            delivery.signature = identity(1).sign(&message);
            dealing.delivery = Arc::new(delivery);
            bytes = RefreshMessage::Dealing(dealing).to_bytes().to_vec();
            changed = true;
        } else if let RefreshMessage::Dealing(dealing) = RefreshMessage::parse(&bytes).unwrap()
            && to == (RefreshRole::New, ServerIndex(0))
            && right.is_none()
        {
            // This new server complains about a right subshare of another dealer.
            let saved = &world.saved[&to][&RunItemName::SessionKey];
            let session = session::SessionSecret::from_bytes(saved.first_chunk().unwrap()).unwrap();
            let about = (dealing.proofs.manifest.rows[0].0, Label(1));
            let generator = &mut world.generator;
            let complaint =
                new_server::complaint(&dealing, about, to.1, &session, generator).unwrap();
            let run = world.agreement.run().unwrap().id();
            let body = LogEntryBody::Complaint { run, complaint: Box::new(complaint) };
            right = Some(LogEntry::new(to.1, body, &identity(100)));
        }
        if changed && let Some(false_complaint) = right.take_if(|_| from.1 != ServerIndex(0)) {
            let change = world.agreement.clone().apply(&false_complaint);
            assert_eq!(change, Ok(LogEntryEffect::FalseComplaint { complainant: ServerIndex(0) }));
        }
        world.deliver(from, to, &bytes);
    }
    assert!(changed);
    let run = world.agreement.run().unwrap();
    assert!(run.excluded().iter().eq([&ServerIndex(0)]), "{:?}", run.excluded());
    assert!(run.faulty().is_empty());
}

#[test]
fn servers_restart_at_any_message() {
    sim::run_seeds(10, |seed| {
        let mut world = World::new(1, 1, seed);
        let mut left = 6;
        for _ in 0..100_000 {
            for address in world.addresses() {
                world.poll(address);
            }
            if world.agreement.run().unwrap().next_epoch().is_some() {
                break;
            }
            if left > 0 && world.rng.chance(10) {
                left -= 1;
                let addresses = world.addresses();
                let address = *world.rng.pick(&addresses).unwrap();
                world.start(address);
                world.links.retain(|(_, to, _)| *to != address);
            }
            match world.links.pop_front() {
                Some((from, to, bytes)) => world.deliver(from, to, &bytes),
                None => world.now += Duration::from_secs(1),
            }
        }
        world.run();
        world.assert_refreshed(4);
    });
}

#[test]
fn cut_messages_and_entries_are_refused() {
    let mut world = World::new(1, 1, 4);
    for address in world.addresses() {
        world.poll(address);
    }
    for address in world.addresses() {
        world.poll(address);
    }
    assert!(!world.links.is_empty());
    for (_, _, bytes) in world.links.iter().take(3) {
        for len in 0..bytes.len() {
            assert!(RefreshMessage::parse(&bytes[..len]).is_err());
        }
    }
    let agreement = world.agreement.clone();
    let cancel = |i: u8| agreement.cancellation(ServerIndex(i), &identity(1 + i));
    let bytes = cancel(0).to_bytes();
    for len in 0..bytes.len() {
        assert!(LogEntry::parse(&bytes[..len]).is_err());
    }
    let forged = agreement.cancellation(ServerIndex(0), &identity(2));
    assert_eq!(world.agreement.apply(&forged), Err(LogEntryRefusal::Signature));
    assert_eq!(world.agreement.apply(&cancel(0)), Ok(LogEntryEffect::Counted));
    assert_eq!(world.agreement.apply(&cancel(0)), Err(LogEntryRefusal::Repeated));
    assert_eq!(world.agreement.apply(&cancel(1)), Ok(LogEntryEffect::Cancelled));
    assert_eq!(world.agreement.apply(&cancel(2)), Err(LogEntryRefusal::OtherRun));
    world.run();
    assert!(world.begun.is_empty() && world.saved.is_empty());
}
