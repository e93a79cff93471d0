//! An in-memory log for tests and demonstrations in one process. The same seed yields the same
//! order of entries.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use keys::IdentityPublicKey;

use super::{
    AgreementLog, CommittedEntries, EntryAdmission, EntryCheck, Height, LogFailed, LogIncarnation,
    LogProgress, ServerSet, SubmitError, Voter, check_length,
};
use crate::protocol::voting::VotingSecret;

/// The largest number of entries of a height.
const MAX_ENTRIES: usize = 16;

/// How long the log keeps an entry that may be committed at a later height.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// A log that all servers of a process share. It uses virtual time, set by [`MemoryLog::advance`].
///
/// A height is committed when entries have arrived and 2f+1 servers of the set are open and have
/// applied the height before.
#[derive(Clone, Debug)]
pub(crate) struct MemoryLog(Arc<Mutex<MemoryLogState>>);

/// One server's handle of a [`MemoryLog`]. Dropping it simulates a crash of the server.
#[derive(Debug)]
pub(crate) struct MemoryLogServer {
    log: MemoryLog,
    key: IdentityPublicKey,
    /// Distinguishes successive handles of one server.
    opened: u64,
}

#[derive(Debug)]
struct MemoryLogState {
    random: u64,
    max_delay: Duration,
    now: Duration,
    /// The waiting entries by time of arrival. The number distinguishes entries of the same time.
    waiting: BTreeMap<(Duration, u64), Bytes>,
    submitted: u64,
    /// The committed heights that are not pruned.
    heights: VecDeque<CommittedEntries>,
    /// The height before them.
    forgotten: Height,
    /// The servers that agree on each height, as reported by [`AgreementLog::applied`].
    sets: BTreeMap<Height, ServerSet>,
    /// Which entries the next height may have, once a server has reported it.
    check: Option<EntryCheck>,
    servers: BTreeMap<[u8; 32], MemoryLogReplica>,
    opened: u64,
}

/// A server whose handle is open.
#[derive(Debug)]
struct MemoryLogReplica {
    opened: u64,
    applied: Height,
    /// The last height that it has taken.
    taken: Height,
    /// When it gets the next height.
    delivery: Duration,
    waker: Option<Waker>,
}

impl MemoryLog {
    /// An empty log, with the servers of its first height. Each submission and each delivery of a
    /// height is delayed by up to `max_delay`. The seed determines the delays, and so the order.
    pub(crate) fn new(seed: u64, max_delay: Duration, servers: &ServerSet) -> Self {
        Self(Arc::new(Mutex::new(MemoryLogState {
            random: seed,
            max_delay,
            now: Duration::ZERO,
            waiting: BTreeMap::new(),
            submitted: 0,
            heights: VecDeque::new(),
            forgotten: Height(0),
            sets: BTreeMap::from([(Height(1), servers.clone())]),
            check: None,
            servers: BTreeMap::new(),
            opened: 0,
        })))
    }

    /// A log without delays. Entries keep the order in which they were submitted.
    pub(crate) fn immediate(servers: &ServerSet) -> Self {
        Self::new(0, Duration::ZERO, servers)
    }

    /// Opens the log at the server with this key, which has applied this height. An earlier handle
    /// of the server is closed.
    pub(crate) fn open(&self, key: IdentityPublicKey, applied: Height) -> MemoryLogServer {
        let mut shared = self.lock();
        shared.opened += 1;
        let opened = shared.opened;
        let delivery = shared.now;
        let server = MemoryLogReplica { opened, applied, taken: applied, delivery, waker: None };
        shared.servers.insert(key.to_bytes(), server);
        shared.commit();
        MemoryLogServer { log: self.clone(), key, opened }
    }

    /// Sets the time. It must not go back.
    pub(crate) fn advance(&self, now: Duration) {
        let mut shared = self.lock();
        shared.now = shared.now.max(now);
        shared.commit();
        shared.wake_all();
    }

    /// The time of the next event, if it is known.
    pub(crate) fn next_event(&self) -> Option<Duration> {
        let shared = self.lock();
        let arrival = shared.waiting.keys().map(|&(at, _)| at).find(|&at| at > shared.now);
        let deliveries = shared.servers.values().map(|server| server.delivery);
        arrival.into_iter().chain(deliveries.filter(|&at| at > shared.now)).min()
    }

    fn lock(&self) -> MutexGuard<'_, MemoryLogState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryLogState {
    fn last(&self) -> Height {
        Height(self.forgotten.0 + self.heights.len() as u64)
    }

    /// A random delay (`SplitMix64`).
    fn delay(&mut self) -> Duration {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let part = f64::from((z >> 32) as u32) / f64::from(u32::MAX);
        self.max_delay.mul_f64(part)
    }

    /// Commits the next height if entries wait and 2f+1 servers of its set have applied the last
    /// height.
    fn commit(&mut self) {
        let last = self.last();
        let Some(set) = self.sets.get(&last.next()) else { return };
        let applied = |voter: &&Voter| {
            let server = self.servers.get(&voter.identity.to_bytes());
            server.is_some_and(|server| server.applied >= last)
        };
        if set.voters().iter().filter(applied).count() < set.quorum() {
            return;
        }
        let Some(check) = &self.check else { return };
        let (mut entries, mut slots) = (Vec::new(), BTreeSet::new());
        let now = self.now;
        self.waiting.retain(|&(arrived, _), entry| {
            if entries.len() == MAX_ENTRIES || arrived > now {
                return true;
            }
            match check.check(entry) {
                EntryAdmission::Admitted(slot) => {
                    if slots.insert(slot) {
                        entries.push(entry.clone());
                    }
                    false
                }
                EntryAdmission::Later => arrived + MAX_WAIT > now,
                EntryAdmission::Refused => false,
            }
        });
        if entries.is_empty() {
            return;
        }
        self.heights.push_back(CommittedEntries { height: last.next(), entries });
        let keys: Vec<_> = self.servers.keys().copied().collect();
        for key in keys {
            let delivery = self.now + self.delay();
            if let Some(server) = self.servers.get_mut(&key)
                && server.taken == last
            {
                server.delivery = delivery;
            }
        }
        self.wake_all();
    }

    fn wake_all(&mut self) {
        let wakers = self.servers.values_mut().filter_map(|server| server.waker.take());
        wakers.for_each(Waker::wake);
    }
}

impl MemoryLogServer {
    /// The server's state, unless a newer handle has been opened.
    fn server<'a>(&self, shared: &'a mut MemoryLogState) -> Option<&'a mut MemoryLogReplica> {
        let server = shared.servers.get_mut(&self.key.to_bytes());
        server.filter(|server| server.opened == self.opened)
    }
}

impl AgreementLog for MemoryLogServer {
    fn submit(&mut self, entry: Bytes) -> Result<(), SubmitError> {
        check_length(&entry)?;
        let mut shared = self.log.lock();
        self.server(&mut shared).ok_or(SubmitError::Failed)?;
        let at = shared.now + shared.delay();
        shared.submitted += 1;
        let number = shared.submitted;
        shared.waiting.insert((at, number), entry);
        shared.commit();
        Ok(())
    }

    fn poll_committed(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<CommittedEntries, LogFailed>> {
        let mut shared = self.log.lock();
        let (now, forgotten) = (shared.now, shared.forgotten);
        let Some(server) = self.server(&mut shared) else { return Poll::Pending };
        let next = server.taken.0.checked_sub(forgotten.0).and_then(|i| usize::try_from(i).ok());
        server.waker = Some(context.waker().clone());
        if server.taken != server.applied || server.delivery > now {
            return Poll::Pending;
        }
        let committed = next.and_then(|next| shared.heights.get(next).cloned());
        if let (Some(committed), Some(server)) = (&committed, self.server(&mut shared)) {
            server.taken = committed.height;
        }
        committed.map_or(Poll::Pending, |committed| Poll::Ready(Ok(committed)))
    }

    fn incarnation(&self) -> LogIncarnation {
        LogIncarnation([0; 32])
    }

    /// # Panics
    /// If another server has reported other servers for the next height: the service is not
    /// deterministic.
    fn applied(
        &mut self,
        height: Height,
        next: &ServerSet,
        check: EntryCheck,
        _: Option<Arc<VotingSecret>>,
    ) {
        let mut shared = self.log.lock();
        let delivery = shared.now + shared.delay();
        let Some(server) = self.server(&mut shared) else { return };
        server.applied = height;
        server.delivery = delivery;
        if height == shared.last() {
            let agreed = shared.sets.entry(height.next()).or_insert_with(|| next.clone());
            assert_eq!(agreed, next, "servers differ in who agrees on height {}", height.next());
            shared.sets.retain(|of, _| *of >= height);
            shared.check = Some(check);
        }
        shared.commit();
    }

    fn prune(&mut self, through: Height) {
        // All servers share one log, which deletes what all open ones have applied.
        let mut shared = self.log.lock();
        let applied = shared.servers.values().map(|server| server.applied).min();
        while shared.forgotten < through.min(applied.unwrap_or_default())
            && shared.heights.pop_front().is_some()
        {
            shared.forgotten = shared.forgotten.next();
        }
    }

    fn progress(&self) -> LogProgress {
        let shared = self.log.lock();
        let (committed, waiting) = (shared.last(), shared.waiting.len());
        LogProgress { committed, waiting, ..LogProgress::default() }
    }
}

impl Drop for MemoryLogServer {
    fn drop(&mut self) {
        let mut shared = self.log.lock();
        if self.server(&mut shared).is_some() {
            shared.servers.remove(&self.key.to_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::EntrySlot;
    use super::super::tests::{secret, set};
    use super::*;

    /// Takes the next height, if it is there, and applies it.
    fn take(server: &mut MemoryLogServer, next: &ServerSet) -> Option<CommittedEntries> {
        match server.poll_committed(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(committed) => {
                let committed = committed.unwrap();
                server.applied(committed.height, next, EntryCheck::anything(), None);
                Some(committed)
            }
            Poll::Pending => None,
        }
    }

    fn open_one(log: &MemoryLog, number: u8, check: EntryCheck) -> MemoryLogServer {
        let mut server = log.open(secret(number).public(), Height(0));
        let first = log.lock().sets.get(&Height(1)).cloned();
        if let Some(first) = first {
            server.applied(Height(0), &first, check, None);
        }
        server
    }

    fn open(log: &MemoryLog, numbers: impl IntoIterator<Item = u8>) -> Vec<MemoryLogServer> {
        let servers = numbers.into_iter().map(|it| open_one(log, it, EntryCheck::anything()));
        servers.collect()
    }

    /// Advances time until nothing happens any more. Returns what each server received.
    fn run(
        log: &MemoryLog,
        servers: &mut [MemoryLogServer],
        next: &ServerSet,
    ) -> Vec<Vec<CommittedEntries>> {
        let mut got = vec![Vec::new(); servers.len()];
        loop {
            let mut some = false;
            for (server, got) in servers.iter_mut().zip(&mut got) {
                while let Some(committed) = take(server, next) {
                    got.push(committed);
                    some = true;
                }
            }
            match log.next_event() {
                Some(at) => log.advance(at),
                None if some => {}
                None => return got,
            }
        }
    }

    fn entries(heights: &[CommittedEntries]) -> Vec<Bytes> {
        heights.iter().flat_map(|it| it.entries.clone()).collect()
    }

    #[test]
    fn without_delays_entries_keep_their_order() {
        let four = set(0..4);
        let log = MemoryLog::immediate(&four);
        let mut servers = open(&log, 0..5);
        for entry in 0..40u8 {
            servers[usize::from(entry % 5)].submit(Bytes::from(vec![entry])).unwrap();
        }
        let got = run(&log, &mut servers, &four);
        let expected: Vec<_> = (0..40u8).map(|entry| Bytes::from(vec![entry])).collect();
        for heights in got {
            assert_eq!(entries(&heights), expected);
            assert!(heights.iter().map(|it| it.height.0).eq(1..=heights.len() as u64));
        }
    }

    #[test]
    fn memory_log_order_depends_on_the_seed_and_is_the_same_at_all_servers() {
        let four = set(0..4);
        let order = |seed| {
            let log = MemoryLog::new(seed, Duration::from_millis(10), &four);
            let mut servers = open(&log, 0..5);
            for entry in 0..40u8 {
                servers[usize::from(entry % 5)].submit(Bytes::from(vec![entry])).unwrap();
            }
            let got = run(&log, &mut servers, &four);
            assert!(got.iter().all(|other| *other == got[0]));
            let entries = entries(&got[0]);
            assert_eq!(entries.len(), 40);
            entries
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn nothing_is_committed_without_2f_plus_1_servers() {
        let four = set(0..4);
        let log = MemoryLog::immediate(&four);
        let mut servers = open(&log, [0, 1, 8, 9]);
        servers[0].submit(Bytes::from_static(b"entry")).unwrap();
        assert!(run(&log, &mut servers, &four).iter().all(Vec::is_empty));
        assert_eq!(servers[0].progress(), LogProgress { waiting: 1, ..LogProgress::default() });
        servers.extend(open(&log, [2]));
        assert!(run(&log, &mut servers, &four).iter().all(|got| got.len() == 1));
        // One of them crashes: what it has not applied waits for it.
        servers.pop();
        servers[0].submit(Bytes::from_static(b"another")).unwrap();
        assert!(run(&log, &mut servers, &four).iter().all(Vec::is_empty));
        servers.push(open_one(&log, 2, EntryCheck::anything()));
        let got = run(&log, &mut servers, &four);
        assert_eq!(got[4].len(), 2);
    }

    #[test]
    fn a_flood_leaves_no_more_in_the_log_than_its_author_has_slots() {
        let four = set(0..4);
        let log = MemoryLog::new(3, Duration::from_millis(10), &four);
        // An entry that begins with a digit belongs to the slot of that digit.
        let check = |taken: &[EntrySlot]| {
            let taken = taken.to_vec();
            EntryCheck::new(move |entry| {
                let slot = EntrySlot(entry[0].into());
                let is_free = entry[0].is_ascii_digit() && !taken.contains(&slot);
                if is_free { EntryAdmission::Admitted(slot) } else { EntryAdmission::Refused }
            })
        };
        let mut servers: Vec<_> = (0..4).map(|it| open_one(&log, it, check(&[]))).collect();
        for variant in 0..1000 {
            servers[3].submit(format!("junk {variant}").into()).unwrap();
            servers[3].submit(format!("9 {variant}").into()).unwrap();
            if variant % 250 == 0 {
                servers[0].submit(format!("{}", variant / 250).into()).unwrap();
            }
        }
        let (mut taken, mut heights) = (Vec::new(), 0);
        while let Some(at) = log.next_event() {
            log.advance(at);
            for server in &mut servers {
                let context = &mut Context::from_waker(Waker::noop());
                if let Poll::Ready(committed) = server.poll_committed(context) {
                    let committed = committed.unwrap();
                    if committed.height > Height(heights) {
                        heights = committed.height.0;
                        taken.extend(committed.entries.iter().map(|it| EntrySlot(it[0].into())));
                    }
                    server.applied(committed.height, &four, check(&taken), None);
                }
            }
        }
        taken.sort();
        assert_eq!(taken, [b'0', b'1', b'2', b'3', b'9'].map(|it| EntrySlot(it.into())));
        assert!(heights <= 5);
    }

    #[test]
    fn another_set_of_servers_agrees_from_the_next_height_on() {
        let (old, new) = (set(0..4), set(4..8));
        let log = MemoryLog::immediate(&old);
        let mut servers = open(&log, 0..8);
        servers[7].submit(Bytes::from_static(b"final")).unwrap();
        assert!(run(&log, &mut servers, &new).iter().all(|got| got.len() == 1));
        servers.drain(..4);
        servers[0].submit(Bytes::from_static(b"first of the new group")).unwrap();
        assert!(run(&log, &mut servers, &new).iter().all(|got| got.len() == 1));
    }

    #[test]
    fn entries_of_impossible_lengths_are_refused() {
        let log = MemoryLog::immediate(&set(0..4));
        let mut server = open(&log, 0..1).remove(0);
        for len in [0, super::super::MAX_ENTRY_LEN + 1] {
            assert_eq!(server.submit(vec![0; len].into()), Err(SubmitError::Length(len)));
        }
    }
}
