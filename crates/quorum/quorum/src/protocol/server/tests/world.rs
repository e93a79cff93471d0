//! Whole servers in memory, over links that may lose messages and a log that loses nothing.

use super::attacks::Adversary;
use super::replicating::counting_service;
use super::*;

/// The time when the first epoch begins, which is zero on the clock of the world.
pub(super) const BEGINNING: UnixSeconds = UnixSeconds(1_800_000_000);

/// The ways in which a key is shared.
pub(super) const ALL_KINDS: [GroupKeyKind; 3] =
    [GroupKeyKind::Rsa, GroupKeyKind::RsaPolynomial, GroupKeyKind::Ed25519];

/// How long approvals wait.
pub(super) const APPROVAL_EXPIRES: Duration = Duration::from_secs(86_400);

/// A server's number is that of its identity key.
pub(super) type Number = u8;

pub(super) struct Node {
    pub(super) server: Option<QuorumServer>,
    pub(super) saved: SavedServerState,
    pub(super) registered: HashSet<MessageDigest>,
    /// The height that its log starts after; `None` until it follows one.
    pub(super) log: Option<Height>,
    /// Whether it has reported that the last height from its log is applied.
    pub(super) is_applied: bool,
    /// The life of its log's file.
    pub(super) life: LogIncarnation,
    /// The voting key with which it votes on the next height, if the set has it.
    pub(super) key: Option<IdentityPublicKey>,
    /// All voting keys that it has had.
    pub(super) keys: Vec<Weak<VotingSecret>>,
    pub(super) replies: BTreeMap<LocalRequestId, Result<Vec<u8>, SignRefusal>>,
    pub(super) events: Vec<QuorumServerEvent>,
    pub(super) peers: Vec<QuorumMember>,
    /// Whether it runs the replicated service of the tests.
    pub(super) service: bool,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            server: None,
            saved: SavedServerState::default(),
            registered: HashSet::new(),
            log: None,
            is_applied: false,
            life: LogIncarnation([0; 32]),
            key: None,
            keys: Vec::new(),
            replies: BTreeMap::new(),
            events: Vec::new(),
            peers: Vec::new(),
            service: false,
        }
    }
}

pub(super) struct World {
    pub(super) key: DealerKey,
    /// The founding header, if the group has an Ed25519 key.
    pub(super) founding: Option<GroupHeader>,
    pub(super) nodes: BTreeMap<Number, Node>,
    pub(super) links: VecDeque<(Number, Number, LinkTopic, Bytes)>,
    pub(super) log: Vec<CommittedEntries>,
    /// Who agrees on the height after each.
    pub(super) sets: BTreeMap<Height, ServerSet>,
    /// The last height that nobody has any more.
    pub(super) forgotten: Height,
    /// Servers that get no heights of the log.
    pub(super) stalled: BTreeSet<Number>,
    pub(super) now: Duration,
    /// How far the clocks of all servers were set back.
    pub(super) clock_back: Duration,
    pub(super) generator: RandomGenerator,
    pub(super) rng: SeededRng,
    /// How many of 100 messages are lost, with their link.
    pub(super) loss: u64,
    /// The links that are down: their senders learn it when they are up again.
    pub(super) down: BTreeSet<(Number, Number)>,
    /// How many of 10,000 steps stop and restart a server.
    pub(super) crashes: u64,
    /// The server of which these jobs are kept instead of being run.
    pub(super) slow: Option<Number>,
    pub(super) keeps: fn(&QuorumServerTask) -> bool,
    pub(super) jobs: Vec<QuorumServerJob>,
    /// How many of 100 jobs end late, and in any order.
    pub(super) late: u64,
    pub(super) late_jobs: Vec<(Number, QuorumServerJob)>,
    /// All messages of this topic are lost, but no link is.
    pub(super) lost: Option<LinkTopic>,
    /// The messages of refreshes that begin with this byte are kept here instead of being sent.
    pub(super) intercepted: Option<u8>,
    pub(super) kept: Vec<(Number, Number, Bytes)>,
    pub(super) adversary: Adversary,
}

impl World {
    /// A group of the servers `1..=3f+1` after the ceremony, and servers without a start.
    pub(super) fn new(faulty: u8, others: impl IntoIterator<Item = Number>, seed: u64) -> Self {
        Self::with_service(faulty, others, seed, false)
    }

    /// As [`Self::new`], with the replicated service of the tests if `service`.
    pub(super) fn with_service(
        faulty: u8,
        others: impl IntoIterator<Item = Number>,
        seed: u64,
        service: bool,
    ) -> Self {
        let mut world = Self::dealt(GroupKeyKind::Rsa, faulty, seed);
        world.nodes.extend(others.into_iter().map(|number| (number, Node::default())));
        for number in world.numbers() {
            world.nodes.get_mut(&number).unwrap().service = service;
            world.start(number);
        }
        world
    }

    /// Servers `1..=3f+1` after the ceremony of an RSA key, none of which runs.
    pub(super) fn dealt(kind: GroupKeyKind, faulty: u8, seed: u64) -> Self {
        let mut generator = RandomGenerator::seeded().unwrap();
        let (key, group) = (short_key(), group(faulty, 1));
        let files = if kind == GroupKeyKind::RsaPolynomial {
            QuorumShareFile::deal_polynomial(&key, &group, BEGINNING, &mut generator)
        } else {
            QuorumShareFile::deal(&key, &group, BEGINNING, &mut generator)
        };
        let node = |file: QuorumShareFile| {
            let mut saved = SavedServerState::default();
            let start = GroupStart::first(file.header.clone(), file.witnesses.clone());
            saved.apply(SavedStateChange::Start(start));
            saved.apply(SavedStateChange::Shares { epoch: 1, shares: file.shares });
            let secret = Zeroizing::new(*file.voting.to_bytes());
            saved.apply(SavedStateChange::Voting { epoch: 1, life: None, secret });
            (1 + file.server.0, Node { saved, ..Node::default() })
        };
        let nodes = files.unwrap().into_iter().map(node).collect();
        Self::of(key, None, nodes, generator, seed)
    }

    /// Servers `1..=3f+1` that are to generate an Ed25519 key, none of which runs.
    pub(super) fn founding(faulty: u8, seed: u64) -> Self {
        let header = GroupHeader::founding(group(faulty, 1), BEGINNING);
        let node = |number: Number| {
            let mut saved = SavedServerState::default();
            saved.apply(SavedStateChange::Start(GroupStart::founding(header.clone())));
            let secret = Zeroizing::new([number; 32]);
            saved.apply(SavedStateChange::Voting { epoch: 0, life: None, secret });
            (number, Node { saved, ..Node::default() })
        };
        let nodes = (1..=3 * faulty + 1).map(node).collect();
        let generator = RandomGenerator::seeded().unwrap();
        Self::of(short_key(), Some(header), nodes, generator, seed)
    }

    fn of(
        key: DealerKey,
        founding: Option<GroupHeader>,
        nodes: BTreeMap<Number, Node>,
        generator: RandomGenerator,
        seed: u64,
    ) -> Self {
        Self {
            key,
            founding,
            nodes,
            links: VecDeque::new(),
            log: Vec::new(),
            sets: BTreeMap::new(),
            forgotten: Height(0),
            stalled: BTreeSet::new(),
            now: Duration::ZERO,
            clock_back: Duration::ZERO,
            generator,
            rng: SeededRng::new(seed),
            loss: 0,
            down: BTreeSet::new(),
            crashes: 0,
            slow: None,
            keeps: |_| true,
            jobs: Vec::new(),
            late: 0,
            late_jobs: Vec::new(),
            lost: None,
            intercepted: None,
            kept: Vec::new(),
            adversary: Adversary::default(),
        }
    }

    /// The group's public key.
    pub(super) fn public(&self) -> AnyPublicKey {
        if self.founding.is_none() {
            return self.key.group().public().clone().into();
        }
        let mut servers = self.nodes.values().filter_map(|node| node.server.as_ref());
        servers.find_map(QuorumServer::public).expect("a server knows the key")
    }

    /// What a server knows of the key at first.
    fn anchor(&self, number: Number) -> GroupKeyAnchor {
        match &self.founding {
            Some(header) if header.group.index_of(&identity(number).public()).is_some() => {
                GroupKeyAnchor::Founding(header.digest())
            }
            _ => GroupKeyAnchor::of(self.public()),
        }
    }

    /// Adds servers without a start.
    pub(super) fn join(&mut self, numbers: impl IntoIterator<Item = Number>) {
        for number in numbers {
            self.nodes.insert(number, Node::default());
            self.start(number);
        }
    }

    pub(super) fn numbers(&self) -> Vec<Number> {
        self.nodes.keys().copied().collect()
    }

    /// Starts a server with what it saved.
    pub(super) fn start(&mut self, number: Number) {
        let anchor = self.anchor(number);
        let node = self.nodes.get_mut(&number).unwrap();
        let settings = QuorumServerSettings {
            identity: Arc::new(identity(number)),
            anchor,
            rules: Vec::new(),
            delays: DELAYS,
            timeouts: TIMEOUTS,
            processors: 2,
            refresh_every: None,
            approval_expires: APPROVAL_EXPIRES,
            service: node.service.then(counting_service),
        };
        let (saved, registered) = (node.saved.clone(), node.registered.clone());
        node.server = Some(QuorumServer::new(settings, saved, registered, self.now).unwrap());
        node.log = None;
        for other in self.numbers().into_iter().filter(|it| *it != number) {
            self.link_up(number, other);
            self.link_up(other, number);
        }
    }

    pub(super) fn stop(&mut self, number: Number) {
        self.nodes.get_mut(&number).unwrap().server = None;
        self.links.retain(|(from, to, ..)| ![*from, *to].contains(&number));
        self.late_jobs.retain(|(at, _)| *at != number);
    }

    pub(super) fn link_up(&mut self, at: Number, to: Number) {
        let now = self.now;
        if let Some(server) = &mut self.nodes.get_mut(&at).unwrap().server {
            server.handle_link_up(now, &identity(to).public());
        }
    }

    pub(super) fn server(&mut self, number: Number) -> &mut QuorumServer {
        self.nodes.get_mut(&number).unwrap().server.as_mut().unwrap()
    }

    /// Lets a server do one thing. Returns whether it did something.
    pub(super) fn poll(&mut self, number: Number) -> bool {
        let now = self.now;
        let clock = now.saturating_sub(self.clock_back);
        let node = self.nodes.get_mut(&number).unwrap();
        let Some(server) = &mut node.server else { return false };
        server.set_time(UnixSeconds(BEGINNING.0 + clock.as_secs()));
        if let Some(applied) = node.log.filter(|it| *it >= self.forgotten)
            && node.is_applied
            && !self.stalled.contains(&number)
            && let Some(committed) = self.log.get(usize::try_from(applied.0).unwrap())
        {
            (node.log, node.is_applied) = (Some(committed.height), false);
            server.handle_committed(now, committed, &mut self.generator).unwrap();
        }
        let Some(output) = server.poll_output(now, &mut self.generator).unwrap() else {
            return false;
        };
        match output {
            QuorumServerOutput::Send { to, topic, bytes, .. } => {
                let to = self.nodes.keys().find(|it| identity(**it).public() == to).copied();
                let to = to.expect("a server sends to those of its groups");
                if self.adversary.servers.contains(&number) {
                    self.send_as_faulty(number, to, topic, bytes);
                    return true;
                }
                let link = (number, to);
                if self.rng.chance(self.loss) {
                    self.down.insert(link);
                }
                let is_refresh = topic == LinkTopic::Refresh;
                if is_refresh && self.intercepted == bytes.first().copied() {
                    self.kept.push((number, to, bytes));
                } else if self.lost != Some(topic) && !self.down.contains(&link) {
                    self.links.push_back((number, to, topic, bytes));
                }
            }
            QuorumServerOutput::Submit(entry) if self.adversary.servers.contains(&number) => {
                self.submit_as_faulty(number, entry);
            }
            QuorumServerOutput::Submit(entry) => {
                let height = Height(self.log.len() as u64 + 1);
                self.log.push(CommittedEntries { height, entries: vec![entry] });
            }
            QuorumServerOutput::Save(changes) => {
                for change in changes {
                    node.saved.apply(change);
                }
            }
            QuorumServerOutput::Job(job) if self.slow == Some(number) && (self.keeps)(&job.0) => {
                self.jobs.push(job);
            }
            QuorumServerOutput::Job(job) if self.late > 0 && self.rng.chance(self.late) => {
                self.late_jobs.push((number, job));
            }
            QuorumServerOutput::Job(job) => {
                let result = job.run(&mut self.generator).unwrap();
                server.handle_job(now, result);
            }
            QuorumServerOutput::Reply { id, result } => {
                assert!(node.replies.insert(id, result).is_none(), "one reply");
            }
            QuorumServerOutput::Peers(peers) => node.peers = peers,
            QuorumServerOutput::Log { name, applied } => {
                let expected = self.founding.as_ref().map(GroupHeader::digest);
                assert!(expected.is_none_or(|expected| name == expected), "one name of the log");
                let is_invited =
                    node.events.iter().any(|it| matches!(it, QuorumServerEvent::Invited { .. }));
                assert!(node.log.is_none() || is_invited, "once, unless it begins again");
                node.log = Some(applied);
                server.handle_log_opened(node.life);
            }
            QuorumServerOutput::Applied { height, set, key, .. } => {
                let agreed = self.sets.entry(height).or_insert_with(|| set.clone());
                assert_eq!(*agreed, set, "servers differ in who agrees after height {height}");
                node.is_applied = node.log == Some(height);
                node.key = key.as_ref().map(|key| key.public());
                node.keys.extend(key.iter().map(Arc::downgrade));
            }
            QuorumServerOutput::PruneLog { through } => {
                assert!(through < node.saved.height, "only applied heights are deleted");
            }
            QuorumServerOutput::Event(event) => node.events.push(event),
        }
        true
    }

    pub(super) fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        assert!(self.run(done), "not finished: {:?}", self.statuses());
    }

    /// Runs until `done`, and returns true; or until nothing happens any more.
    pub(super) fn run(&mut self, done: impl Fn(&Self) -> bool) -> bool {
        let limit = self.now + Duration::from_secs(1000);
        while self.now < limit && !done(self) {
            let mut has_acted = false;
            for number in self.numbers() {
                has_acted |= self.poll(number);
                let is_running = self.nodes[&number].server.is_some();
                if self.rng.next_u64() % 10_000 < self.crashes && is_running {
                    self.stop(number);
                    self.start(number);
                }
            }
            let place = self.rng.below(self.links.len().max(1) as u64);
            if let Some(message) = self.links.remove(usize::try_from(place).unwrap()) {
                has_acted = true;
                let (from, to, topic, bytes) = message;
                if self.adversary.servers.contains(&to) {
                    self.adversary.overhear(topic, bytes.clone());
                }
                let now = self.now;
                if let Some(server) = &mut self.nodes.get_mut(&to).unwrap().server {
                    server.handle_message(now, &identity(from).public(), topic, &bytes, 0);
                }
            }
            if !self.adversary.servers.is_empty() && self.rng.chance(3) {
                self.attack();
            }
            if !self.late_jobs.is_empty() && (!has_acted || self.rng.chance(20)) {
                has_acted = true;
                let place = self.rng.below(self.late_jobs.len() as u64);
                let (at, job) = self.late_jobs.swap_remove(usize::try_from(place).unwrap());
                self.finish_job(at, job);
            }
            if (!has_acted || self.rng.chance(5))
                && let Some((from, to)) = self.down.pop_first()
            {
                self.link_up(from, to);
            } else if !has_acted {
                let servers = self.nodes.values().filter_map(|node| node.server.as_ref());
                let Some(next) = servers.filter_map(QuorumServer::deadline).min() else { break };
                self.now = next.max(self.now + Duration::from_millis(1));
            }
        }
        done(self)
    }

    fn finish_job(&mut self, at: Number, job: QuorumServerJob) {
        let (now, result) = (self.now, job.run(&mut self.generator).unwrap());
        self.server(at).handle_job(now, result);
    }

    /// Ends the kept jobs. No others are kept afterwards.
    pub(super) fn finish_jobs(&mut self) {
        let slow = self.slow.take().expect("a server is slow");
        for job in std::mem::take(&mut self.jobs) {
            self.finish_job(slow, job);
        }
    }

    /// Whether a server has reported that the shares of an epoch are wiped.
    pub(super) fn is_wiped(&self, number: Number, ended: u64) -> bool {
        let events = &self.nodes[&number].events;
        events.iter().any(|it| matches!(it, QuorumServerEvent::Wiped { epoch } if *epoch == ended))
    }

    pub(super) fn statuses(&self) -> Vec<(Number, Option<QuorumServerStatus>)> {
        let status = |node: &Node| node.server.as_ref().map(QuorumServer::status);
        self.nodes.iter().map(|(&number, node)| (number, status(node))).collect()
    }

    /// Whether these servers have the shares of an epoch whose header is signed.
    pub(super) fn have_epoch(&self, number: u64, servers: &[Number]) -> bool {
        servers.iter().all(|server| {
            let status = self.nodes[server].server.as_ref().and_then(|it| it.status().epoch);
            status.is_some_and(|it| it.epoch == number && it.has_shares && it.is_header_signed)
        })
    }

    /// Has a message signed at one server, and checks the signature.
    pub(super) fn sign(&mut self, at: Number, message: &[u8]) {
        for number in self.numbers() {
            let digest = MessageDigest::of(message);
            let node = self.nodes.get_mut(&number).unwrap();
            node.registered.insert(digest);
            if let Some(server) = &mut node.server {
                server.registered(digest);
            }
        }
        let id = LocalRequestId(self.nodes[&at].replies.len() as u64);
        let now = self.now;
        let encoding = self.server(at).own_encoding();
        self.server(at).sign(now, id, message.to_vec(), encoding);
        self.run_until(|world| world.nodes[&at].replies.contains_key(&id));
        let signature = self.nodes[&at].replies[&id].clone().unwrap();
        assert!(self.public().verify(message, &signature));
    }

    /// How many messages servers have refused as malformed or unexpected.
    pub(super) fn refused_messages(&self) -> usize {
        let events = self.nodes.values().flat_map(|node| &node.events);
        events.filter(|it| matches!(it, QuorumServerEvent::MessageRefused { .. })).count()
    }

    /// Whether a server votes on the next height.
    pub(super) fn has_vote(&self, number: Number) -> bool {
        let node = &self.nodes[&number];
        let set = node.log.and_then(|height| self.sets.get(&height));
        let is_own = |voter: &&Voter| voter.identity == identity(number).public();
        let own = set.and_then(|set| set.voters().iter().find(is_own));
        node.server.is_some() && node.key.is_some() && own.is_some_and(|own| own.key == node.key)
    }

    pub(super) fn refresh(&mut self, from: &[Number], to: &QuorumGroup) {
        let now = self.now;
        for &number in from {
            self.server(number).start_refresh(to.clone(), now).unwrap();
        }
    }

    /// Asserts that no server has saved anything of an epoch or run but the current one's shares.
    pub(super) fn assert_wiped(&self, epoch: u64, members: &[Number]) {
        for (number, node) in &self.nodes {
            let kept: Vec<u64> = node.saved.shares.keys().copied().collect();
            let voting: Vec<u64> = node.saved.voting.keys().copied().collect();
            let expected = if members.contains(number) { vec![epoch] } else { vec![] };
            assert_eq!(kept, expected, "server {number}");
            assert_eq!(voting, expected, "server {number}");
            let left: Vec<_> = node.keys.iter().filter_map(Weak::upgrade).collect();
            assert!(left.iter().all(|key| Some(key.public()) == node.key), "server {number}");
            assert!(node.saved.items.is_empty(), "server {number}");
        }
    }
}
