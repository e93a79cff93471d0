//! Which entries may be committed at a height. The service decides, and the log calls its check.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::log_types::ServerSet;
use super::wire::Sha256Digest;

/// What an entry would change. A value of the log contains at most one entry per slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntrySlot(pub u64);

/// Whether an entry may be committed at a height.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryAdmission {
    /// Yes: applied alone, it changes the state.
    Admitted(EntrySlot),
    /// Not at this height, but possibly at a later one.
    Later,
    /// No.
    Refused,
}

/// What a server knows of an entry before it checks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryTrust {
    /// Nothing.
    Unknown,
    /// It was admitted at an earlier height, so its author has signed it.
    Admitted,
}

/// The service's check of entries for one height, based on its state after the previous height.
///
/// The check depends only on the entry and on that state, so all correct servers decide the same
/// about an entry at a height. Once an admitted entry has been applied, or another entry of its
/// slot, no entry of that slot is admitted until the service opens the slot again. This limits a
/// server's entries to the number of its slots.
#[derive(Clone)]
pub struct EntryCheck {
    check: Arc<CheckFunction>,
    next: Option<Arc<NextSetFunction>>,
}

type CheckFunction = dyn Fn(&[u8], EntryTrust) -> EntryAdmission + Send + Sync;
type NextSetFunction = dyn Fn(&[Bytes]) -> ServerSet + Send + Sync;

impl EntryCheck {
    /// A check by this function.
    pub fn new(check: impl Fn(&[u8]) -> EntryAdmission + Send + Sync + 'static) -> Self {
        Self { check: Arc::new(move |entry, _| check(entry)), next: None }
    }

    /// A check by this function, which need not verify again what an earlier height has verified.
    pub(crate) fn with_trust(
        check: impl Fn(&[u8], EntryTrust) -> EntryAdmission + Send + Sync + 'static,
    ) -> Self {
        Self { check: Arc::new(check), next: None }
    }

    /// The same check, with a function that says which servers agree on the heights after one with
    /// these entries.
    #[must_use]
    pub(crate) fn with_next_set(
        self,
        next: impl Fn(&[Bytes]) -> ServerSet + Send + Sync + 'static,
    ) -> Self {
        Self { next: Some(Arc::new(next)), ..self }
    }

    /// The servers that agree after a height with these entries. `None` if they do not change.
    pub(crate) fn next_set(&self, entries: &[Bytes]) -> Option<ServerSet> {
        self.next.as_ref().map(|next| next(entries))
    }

    /// Admits every entry, each in its own slot: for tests and benchmarks of a log.
    pub fn anything() -> Self {
        Self::new(|entry| {
            let Sha256Digest(digest) = Sha256Digest::of(&[entry]);
            let slot = std::array::from_fn(|index| digest[index]);
            EntryAdmission::Admitted(EntrySlot(u64::from_be_bytes(slot)))
        })
    }

    /// Whether an entry may be committed.
    pub fn check(&self, entry: &[u8]) -> EntryAdmission {
        (self.check)(entry, EntryTrust::Unknown)
    }

    /// Whether an entry that was admitted at an earlier height may be committed now.
    pub(crate) fn check_again(&self, entry: &[u8]) -> EntryAdmission {
        (self.check)(entry, EntryTrust::Admitted)
    }
}

impl fmt::Debug for EntryCheck {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("EntryCheck")
    }
}
