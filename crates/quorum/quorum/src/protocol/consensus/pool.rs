//! Entries that wait to be committed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::context::{LogValue, MAX_ENTRIES, MAX_VALUE_LEN, ValidatorAddress};
use crate::protocol::admission::{EntryAdmission, EntryCheck, EntrySlot};
use crate::protocol::wire::Sha256Digest;

/// The largest number of one server's waiting entries, and of their bytes, so that none fills the
/// pool.
const MAX_WAITING: usize = 256;
const MAX_WAITING_BYTES: usize = 4 << 20;

/// How long a committed entry is remembered, so that a late copy is not committed again.
const MEMORY: Duration = Duration::from_secs(10);
/// The largest number of entries that are remembered.
const MAX_REMEMBERED: usize = 16_384;

/// How long the pool keeps an entry that may be committed at a later height.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Why an entry is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryPoolRefusal {
    /// Too many entries of its server wait.
    Full,
    /// It may not be committed.
    Refused,
}

#[derive(Debug)]
struct PooledEntry {
    digest: Sha256Digest,
    source: ValidatorAddress,
    /// When it arrived.
    since: Duration,
    /// `None` if it may not be committed at this height, but possibly at a later one.
    slot: Option<EntrySlot>,
    entry: Bytes,
}

/// The waiting entries, oldest first. At this height, one entry of each slot may be committed.
#[derive(Debug)]
pub(crate) struct EntryPool {
    /// The check of this height.
    check: EntryCheck,
    waiting: VecDeque<PooledEntry>,
    /// The waiting entries by their digests.
    digests: BTreeMap<Sha256Digest, Bytes>,
    /// The number of waiting entries and bytes of each server.
    usage: BTreeMap<ValidatorAddress, (usize, usize)>,
    /// The recently committed entries, and when they were committed.
    committed: VecDeque<(Duration, Sha256Digest)>,
    remembered: BTreeSet<Sha256Digest>,
}

impl EntryPool {
    pub(crate) fn new(check: EntryCheck) -> Self {
        Self {
            check,
            waiting: VecDeque::new(),
            digests: BTreeMap::new(),
            usage: BTreeMap::new(),
            committed: VecDeque::new(),
            remembered: BTreeSet::new(),
        }
    }

    /// Begins a height with its check, and drops entries that may not be committed any more.
    pub(crate) fn begin(&mut self, check: EntryCheck, now: Duration) {
        self.check = check;
        let mut slots = BTreeSet::new();
        self.waiting.retain_mut(|waiting| {
            let admission = match waiting.slot {
                Some(_) => self.check.check_again(&waiting.entry),
                None => self.check.check(&waiting.entry),
            };
            match admission {
                EntryAdmission::Admitted(slot) => {
                    waiting.slot = Some(slot);
                    slots.insert(slot)
                }
                EntryAdmission::Later => {
                    waiting.slot = None;
                    waiting.since + MAX_WAIT > now
                }
                EntryAdmission::Refused => false,
            }
        });
        self.count();
    }

    /// Adds an entry from another server, unless it is already waiting or was recently committed.
    ///
    /// # Errors
    /// If it may not be committed, or too many entries of that server wait.
    pub(crate) fn add(
        &mut self,
        source: ValidatorAddress,
        entry: Bytes,
        now: Duration,
    ) -> Result<(), EntryPoolRefusal> {
        let digest = Sha256Digest::of(&[&entry]);
        self.forget(now);
        if self.digests.contains_key(&digest) || self.remembered.contains(&digest) {
            return Ok(());
        }
        let slot = self.slot(&entry)?;
        if slot.is_some() && self.waiting.iter().any(|waiting| waiting.slot == slot) {
            return Ok(());
        }
        self.insert(PooledEntry { digest, source, since: now, slot, entry })
    }

    /// Adds an entry that was submitted here. It may be committed a second time, and it replaces
    /// another entry of its slot. Returns whether it must be sent to other servers.
    ///
    /// # Errors
    /// If it may not be committed, or too many entries that were submitted here wait.
    pub(crate) fn submit(
        &mut self,
        own: ValidatorAddress,
        entry: Bytes,
        now: Duration,
    ) -> Result<bool, EntryPoolRefusal> {
        let digest = Sha256Digest::of(&[&entry]);
        let mut known = self.waiting.iter().filter(|waiting| waiting.digest == digest);
        if known.any(|waiting| waiting.source == own) {
            return Ok(false);
        }
        let slot = self.slot(&entry)?;
        // Another server may have sent this entry, or another of its slot, to this server only.
        self.waiting.retain(|it| it.digest != digest && (slot.is_none() || it.slot != slot));
        self.count();
        self.insert(PooledEntry { digest, source: own, since: now, slot, entry }).map(|()| true)
    }

    fn slot(&self, entry: &[u8]) -> Result<Option<EntrySlot>, EntryPoolRefusal> {
        match self.check.check(entry) {
            EntryAdmission::Admitted(slot) => Ok(Some(slot)),
            EntryAdmission::Later => Ok(None),
            EntryAdmission::Refused => Err(EntryPoolRefusal::Refused),
        }
    }

    fn insert(&mut self, new: PooledEntry) -> Result<(), EntryPoolRefusal> {
        let (number, bytes) = self.usage.entry(new.source).or_default();
        if *number == MAX_WAITING || *bytes + new.entry.len() > MAX_WAITING_BYTES {
            return Err(EntryPoolRefusal::Full);
        }
        *number += 1;
        *bytes += new.entry.len();
        self.digests.insert(new.digest, new.entry.clone());
        self.waiting.push_back(new);
        Ok(())
    }

    /// Whether all entries of a value may be committed at this height, in distinct slots, and how
    /// many of them this server had not checked before.
    pub(crate) fn admits(&self, value: &LogValue) -> (bool, usize) {
        let (mut slots, mut checked) = (BTreeSet::new(), 0);
        for entry in value.entries() {
            let digest = Sha256Digest::of(&[&entry]);
            let known = self.digests.contains_key(&digest);
            let known = known.then(|| self.waiting.iter().find(|it| it.digest == digest));
            let slot = known.flatten().map_or_else(
                || {
                    checked += 1;
                    self.slot(&entry).ok().flatten()
                },
                |known| known.slot,
            );
            if !slot.is_some_and(|slot| slots.insert(slot)) {
                return (false, checked);
            }
        }
        (true, checked)
    }

    /// The waiting entry with this digest.
    pub(crate) fn find(&self, digest: &Sha256Digest) -> Option<Bytes> {
        self.digests.get(digest).cloned()
    }

    /// Whether no entry may be committed.
    pub(crate) fn is_empty(&self) -> bool {
        self.admitted().next().is_none()
    }

    /// The number of entries that may be committed at this height.
    pub(crate) fn len(&self) -> usize {
        self.admitted().count()
    }

    /// The length of the entries that may be committed at this height.
    pub(crate) fn admitted_len(&self) -> usize {
        self.admitted().map(|waiting| waiting.entry.len()).sum()
    }

    fn admitted(&self) -> impl Iterator<Item = &PooledEntry> {
        self.waiting.iter().filter(|waiting| waiting.slot.is_some())
    }

    /// The entries that this server has submitted, oldest first.
    pub(crate) fn of(&self, source: ValidatorAddress) -> impl Iterator<Item = &Bytes> {
        let own = self.waiting.iter().filter(move |waiting| waiting.source == source);
        own.map(|waiting| &waiting.entry)
    }

    /// The arrival of a server's oldest entry that may be committed at this height. Many others
    /// never become committable, such as entries for a finished refresh.
    pub(crate) fn oldest_of(&self, source: ValidatorAddress) -> Option<Duration> {
        self.admitted().find(|waiting| waiting.source == source).map(|waiting| waiting.since)
    }

    /// The entries for a value, as many as fit. Servers take turns, each with its oldest entry
    /// first.
    pub(crate) fn batch(&self) -> Vec<Bytes> {
        let mut turns = BTreeMap::<ValidatorAddress, usize>::new();
        let mut entries = Vec::new();
        for waiting in self.admitted() {
            let turn = turns.entry(waiting.source).or_default();
            *turn += 1;
            entries.push((*turn, waiting));
        }
        entries.sort_by_key(|(turn, _)| *turn);
        let mut left = MAX_VALUE_LEN - 32;
        let entries = entries.into_iter().map(|(_, waiting)| &waiting.entry).take(MAX_ENTRIES);
        let fitting = entries.take_while(|entry| match left.checked_sub(entry.len() + 4) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        });
        fitting.cloned().collect()
    }

    /// Removes committed entries, and remembers them.
    pub(crate) fn committed(&mut self, value: &LogValue, now: Duration) {
        let digests: BTreeSet<_> =
            value.entries().iter().map(|entry| Sha256Digest::of(&[entry])).collect();
        self.waiting.retain(|waiting| !digests.contains(&waiting.digest));
        self.count();
        for digest in digests {
            if self.remembered.insert(digest) {
                self.committed.push_back((now, digest));
            }
        }
        self.forget(now);
    }

    fn forget(&mut self, now: Duration) {
        while let Some(&(at, digest)) = self.committed.front()
            && (at + MEMORY < now || self.committed.len() > MAX_REMEMBERED)
        {
            self.committed.pop_front();
            self.remembered.remove(&digest);
        }
    }

    /// Counts the waiting entries.
    fn count(&mut self) {
        self.usage.clear();
        self.digests.clear();
        for waiting in &self.waiting {
            self.digests.insert(waiting.digest, waiting.entry.clone());
            let (number, bytes) = self.usage.entry(waiting.source).or_default();
            *number += 1;
            *bytes += waiting.entry.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: ValidatorAddress = ValidatorAddress([1; 32]);
    const OTHER: ValidatorAddress = ValidatorAddress([2; 32]);

    fn entry(text: &str) -> Bytes {
        Bytes::from(text.to_owned())
    }

    #[test]
    fn one_server_does_not_fill_the_pool() {
        let mut pool = EntryPool::new(EntryCheck::anything());
        for number in 0..MAX_WAITING {
            pool.add(OTHER, entry(&format!("{number}")), Duration::ZERO).unwrap();
        }
        assert_eq!(pool.add(OTHER, entry("one more"), Duration::ZERO), Err(EntryPoolRefusal::Full));
        assert_eq!(pool.submit(OWN, entry("one more"), Duration::ZERO), Ok(true));
        // It does not fill the pool with a few long entries either.
        let mut pool = EntryPool::new(EntryCheck::anything());
        for number in 0..4 {
            let large = vec![number; crate::protocol::log_types::MAX_ENTRY_LEN];
            pool.add(OTHER, large.into(), Duration::ZERO).unwrap();
        }
        assert_eq!(pool.add(OTHER, entry("one more"), Duration::ZERO), Err(EntryPoolRefusal::Full));
        // One entry of the largest length fits in a value. Two do not.
        assert_eq!(pool.batch().len(), 1);
    }

    /// An entry that can be committed only at a later height, if at all, does not count as waiting.
    #[test]
    fn entries_of_other_heights_do_not_wait() {
        let mut pool = EntryPool::new(EntryCheck::new(|_| EntryAdmission::Later));
        assert_eq!(pool.submit(OWN, entry("a"), Duration::ZERO), Ok(true));
        assert_eq!((pool.len(), pool.oldest_of(OWN)), (0, None));
        pool.begin(EntryCheck::anything(), Duration::ZERO);
        assert_eq!((pool.len(), pool.oldest_of(OWN)), (1, Some(Duration::ZERO)));
    }

    #[test]
    fn late_copies_are_dropped_and_own_entries_are_committed_again() {
        let mut pool = EntryPool::new(EntryCheck::anything());
        assert_eq!(pool.submit(OWN, entry("a"), Duration::ZERO), Ok(true));
        assert_eq!(pool.submit(OWN, entry("a"), Duration::ZERO), Ok(false));
        let value = LogValue::new(OWN, &pool.batch()).unwrap();
        pool.committed(&value, Duration::ZERO);
        pool.add(OTHER, entry("a"), MEMORY).unwrap();
        assert!(pool.is_empty());
        assert_eq!(pool.submit(OWN, entry("a"), Duration::ZERO), Ok(true));
        pool.committed(&value, MEMORY);
        pool.add(OTHER, entry("a"), MEMORY * 3).unwrap();
        assert_eq!(pool.len(), 1);
    }

    /// If another server sends this server's entry first, it is still sent to all.
    #[test]
    fn an_entry_that_waits_already_becomes_this_servers_own() {
        let mut pool = EntryPool::new(EntryCheck::anything());
        pool.add(OTHER, entry("a"), Duration::ZERO).unwrap();
        assert_eq!(pool.submit(OWN, entry("a"), Duration::ZERO), Ok(true));
        assert_eq!((pool.len(), pool.of(OWN).count(), pool.of(OTHER).count()), (1, 1, 0));
    }

    #[test]
    fn age_of_an_own_entry_is_independent_of_other_commits() {
        let (mut pool, second) = (EntryPool::new(EntryCheck::anything()), Duration::from_secs);
        pool.submit(OWN, entry("a"), second(1)).unwrap();
        pool.submit(OWN, entry("b"), second(2)).unwrap();
        pool.submit(OWN, entry("a"), second(9)).unwrap();
        pool.add(OTHER, entry("c"), second(3)).unwrap();
        pool.committed(&LogValue::new(OTHER, &[entry("c")]).unwrap(), second(4));
        assert_eq!(pool.oldest_of(OWN), Some(second(1)));
        pool.committed(&LogValue::new(OTHER, &[entry("a")]).unwrap(), second(5));
        assert_eq!(pool.oldest_of(OWN), Some(second(2)));
        assert_eq!(pool.oldest_of(OTHER), None);
    }

    /// Admits `number/text` for the numbers of a height, in a slot for each number.
    fn numbered(range: std::ops::Range<u64>) -> EntryCheck {
        EntryCheck::new(move |entry| {
            let number = std::str::from_utf8(entry).ok().and_then(|it| it.split_once('/'));
            match number.and_then(|(number, _)| number.parse().ok()) {
                Some(number) if range.contains(&number) => {
                    EntryAdmission::Admitted(EntrySlot(number))
                }
                Some(number) if number >= range.end => EntryAdmission::Later,
                _ => EntryAdmission::Refused,
            }
        })
    }

    #[test]
    fn pool_rejects_inadmissible_entries_and_keeps_one_per_slot() {
        let mut pool = EntryPool::new(numbered(2..4));
        let add = |pool: &mut EntryPool, text| pool.add(OTHER, entry(text), Duration::ZERO);
        assert_eq!(add(&mut pool, "junk"), Err(EntryPoolRefusal::Refused));
        assert_eq!(add(&mut pool, "1/a"), Err(EntryPoolRefusal::Refused));
        assert_eq!(pool.submit(OWN, entry("1/a"), Duration::ZERO), Err(EntryPoolRefusal::Refused));
        for text in ["2/a", "2/b", "4/a", "4/b", "3/a"] {
            add(&mut pool, text).unwrap();
        }
        assert_eq!(pool.batch(), [entry("2/a"), entry("3/a")]);
        assert_eq!(pool.submit(OWN, entry("2/c"), Duration::ZERO), Ok(true));
        assert_eq!(pool.batch(), [entry("3/a"), entry("2/c")]);
        // An early entry becomes committable at its height, and is not kept for ever.
        pool.begin(numbered(3..5), MAX_WAIT / 2);
        assert_eq!(pool.batch(), [entry("4/a"), entry("3/a")]);
        add(&mut pool, "9/a").unwrap();
        pool.begin(numbered(5..6), MAX_WAIT * 2);
        assert!(pool.is_empty() && pool.waiting.is_empty() && pool.usage.is_empty());
    }

    #[test]
    fn value_is_admitted_only_with_one_admissible_entry_per_slot() {
        let mut pool = EntryPool::new(numbered(2..4));
        pool.add(OTHER, entry("2/a"), Duration::ZERO).unwrap();
        let admits = |pool: &EntryPool, texts: &[&str]| {
            let entries: Vec<_> = texts.iter().map(|text| entry(text)).collect();
            pool.admits(&LogValue::new(OTHER, &entries).unwrap())
        };
        assert_eq!(admits(&pool, &["2/a", "3/a"]), (true, 1));
        assert_eq!(admits(&pool, &["2/a", "2/b"]), (false, 1));
        assert_eq!(admits(&pool, &["2/a", "2/a"]), (false, 0));
        assert_eq!(admits(&pool, &["4/a", "2/a"]), (false, 1));
        assert_eq!(admits(&pool, &["junk", "2/b", "3/b"]), (false, 1));
    }

    #[test]
    fn servers_take_turns_in_a_value() {
        let mut pool = EntryPool::new(EntryCheck::anything());
        for number in 0..MAX_WAITING {
            pool.add(OTHER, entry(&format!("{number}")), Duration::ZERO).unwrap();
        }
        pool.add(ValidatorAddress([3; 32]), entry("a"), Duration::ZERO).unwrap();
        pool.submit(OWN, entry("b"), Duration::ZERO).unwrap();
        assert_eq!(pool.batch()[..4], ["0", "a", "b", "1"].map(entry));
    }
}
