//! Entries that wait to be committed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::context::{Address, MAX_ENTRIES, MAX_VALUE_LEN, Value};
use crate::protocol::wire::Digest;

/// The largest number of entries of one server that wait, and of their bytes: none fills the pool.
const MAX_WAITING: usize = 256;
const MAX_WAITING_BYTES: usize = 4 << 20;

/// For how long a committed entry is remembered, so that a copy which arrives late is not committed
/// again.
const MEMORY: Duration = Duration::from_secs(10);
/// The largest number of entries that are remembered.
const MAX_REMEMBERED: usize = 16_384;

/// Too many entries of one server wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolFull;

#[derive(Debug)]
struct Waiting {
    digest: Digest,
    source: Address,
    entry: Bytes,
    /// When it came.
    since: Duration,
}

/// The entries that wait, oldest first.
#[derive(Debug, Default)]
pub(super) struct Pool {
    waiting: VecDeque<Waiting>,
    /// The digests of these.
    digests: BTreeSet<Digest>,
    /// How many entries and bytes of each server wait.
    usage: BTreeMap<Address, (usize, usize)>,
    /// What was committed lately, and when.
    committed: VecDeque<(Duration, Digest)>,
    remembered: BTreeSet<Digest>,
}

impl Pool {
    /// Adds an entry that another server has sent, unless it waits already or was committed lately.
    ///
    /// # Errors
    /// When too many of that server wait.
    pub(super) fn add(
        &mut self,
        source: Address,
        entry: Bytes,
        now: Duration,
    ) -> Result<(), PoolFull> {
        let digest = Digest::of(&[&entry]);
        self.forget(now);
        if self.digests.contains(&digest) || self.remembered.contains(&digest) {
            return Ok(());
        }
        self.insert(source, entry, digest, now)
    }

    /// Adds an entry that was submitted here: it is committed again if it was before. Returns
    /// whether other servers have to get it.
    ///
    /// # Errors
    /// When too many wait that were submitted here.
    pub(super) fn submit(
        &mut self,
        own: Address,
        entry: Bytes,
        now: Duration,
    ) -> Result<bool, PoolFull> {
        let digest = Digest::of(&[&entry]);
        match self.waiting.iter().position(|waiting| waiting.digest == digest) {
            Some(index) if self.waiting[index].source == own => Ok(false),
            // The other server may have sent it to this one only.
            Some(index) => {
                self.waiting.remove(index);
                self.digests.remove(&digest);
                self.count();
                self.insert(own, entry, digest, now).map(|()| true)
            }
            None => self.insert(own, entry, digest, now).map(|()| true),
        }
    }

    fn insert(
        &mut self,
        source: Address,
        entry: Bytes,
        digest: Digest,
        since: Duration,
    ) -> Result<(), PoolFull> {
        let (number, bytes) = self.usage.entry(source).or_default();
        if *number == MAX_WAITING || *bytes + entry.len() > MAX_WAITING_BYTES {
            return Err(PoolFull);
        }
        *number += 1;
        *bytes += entry.len();
        self.digests.insert(digest);
        self.waiting.push_back(Waiting { digest, source, entry, since });
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The entries that this server has submitted, oldest first.
    pub(super) fn of(&self, source: Address) -> impl Iterator<Item = &Bytes> {
        let own = self.waiting.iter().filter(move |waiting| waiting.source == source);
        own.map(|waiting| &waiting.entry)
    }

    /// Since when the oldest entry of a server has waited.
    pub(super) fn oldest_of(&self, source: Address) -> Option<Duration> {
        self.waiting.iter().find(|waiting| waiting.source == source).map(|waiting| waiting.since)
    }

    /// As many of the oldest entries as fit in one value.
    pub(super) fn batch(&self) -> Vec<Bytes> {
        let mut left = MAX_VALUE_LEN - 32;
        let entries = self.waiting.iter().map(|waiting| &waiting.entry).take(MAX_ENTRIES);
        let fitting = entries.take_while(|entry| match left.checked_sub(entry.len() + 4) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        });
        fitting.cloned().collect()
    }

    /// Removes what was committed, and remembers it.
    pub(super) fn committed(&mut self, value: &Value, now: Duration) {
        let digests: BTreeSet<_> =
            value.entries().iter().map(|entry| Digest::of(&[entry])).collect();
        self.waiting.retain(|waiting| !digests.contains(&waiting.digest));
        self.count();
        for digest in digests {
            self.digests.remove(&digest);
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

    fn count(&mut self) {
        self.usage.clear();
        for waiting in &self.waiting {
            let (number, bytes) = self.usage.entry(waiting.source).or_default();
            *number += 1;
            *bytes += waiting.entry.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Address = Address([1; 32]);
    const OTHER: Address = Address([2; 32]);

    fn entry(text: &str) -> Bytes {
        Bytes::from(text.to_owned())
    }

    #[test]
    fn one_server_does_not_fill_the_pool() {
        let mut pool = Pool::default();
        for number in 0..MAX_WAITING {
            pool.add(OTHER, entry(&format!("{number}")), Duration::ZERO).unwrap();
        }
        assert_eq!(pool.add(OTHER, entry("one more"), Duration::ZERO), Err(PoolFull));
        assert_eq!(pool.submit(OWN, entry("one more"), Duration::ZERO), Ok(true));
        // Nor with the bytes of few.
        let mut pool = Pool::default();
        for number in 0..4 {
            let large = vec![number; crate::protocol::agreed::MAX_ENTRY_LEN];
            pool.add(OTHER, large.into(), Duration::ZERO).unwrap();
        }
        assert_eq!(pool.add(OTHER, entry("one more"), Duration::ZERO), Err(PoolFull));
        // One of the largest length fits in a value; with their lengths, two do not.
        assert_eq!(pool.batch().len(), 1);
    }

    #[test]
    fn late_copies_are_dropped_and_own_entries_are_committed_again() {
        let mut pool = Pool::default();
        assert_eq!(pool.submit(OWN, entry("a"), Duration::ZERO), Ok(true));
        assert_eq!(pool.submit(OWN, entry("a"), Duration::ZERO), Ok(false));
        let value = Value::new(OWN, &pool.batch()).unwrap();
        pool.committed(&value, Duration::ZERO);
        pool.add(OTHER, entry("a"), MEMORY).unwrap();
        assert!(pool.is_empty());
        assert_eq!(pool.submit(OWN, entry("a"), Duration::ZERO), Ok(true));
        pool.committed(&value, MEMORY);
        pool.add(OTHER, entry("a"), MEMORY * 3).unwrap();
        assert_eq!(pool.len(), 1);
    }

    /// Another server that sends this server's entry first does not keep it from being sent to all.
    #[test]
    fn an_entry_that_waits_already_becomes_this_servers_own() {
        let mut pool = Pool::default();
        pool.add(OTHER, entry("a"), Duration::ZERO).unwrap();
        assert_eq!(pool.submit(OWN, entry("a"), Duration::ZERO), Ok(true));
        assert_eq!((pool.len(), pool.of(OWN).count(), pool.of(OTHER).count()), (1, 1, 0));
    }

    #[test]
    fn the_age_of_an_own_entry_does_not_depend_on_what_is_committed_meanwhile() {
        let (mut pool, second) = (Pool::default(), Duration::from_secs);
        pool.submit(OWN, entry("a"), second(1)).unwrap();
        pool.submit(OWN, entry("b"), second(2)).unwrap();
        pool.submit(OWN, entry("a"), second(9)).unwrap();
        pool.add(OTHER, entry("c"), second(3)).unwrap();
        pool.committed(&Value::new(OTHER, &[entry("c")]).unwrap(), second(4));
        assert_eq!(pool.oldest_of(OWN), Some(second(1)));
        pool.committed(&Value::new(OTHER, &[entry("a")]).unwrap(), second(5));
        assert_eq!(pool.oldest_of(OWN), Some(second(2)));
        assert_eq!(pool.oldest_of(OTHER), None);
    }
}
