//! Which entries may be committed at a height. The service decides that, and the log asks it.

use std::fmt;
use std::sync::Arc;

use super::wire::Sha256Digest;

/// What an entry would change: of the entries of one slot, a value has one at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntrySlot(pub u64);

/// Whether an entry may be committed at a height.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryAdmission {
    /// It may: applied alone, it changes the state.
    Admitted(EntrySlot),
    /// Not at this height, but possibly at a later one.
    Later,
    /// No.
    Refused,
}

/// The service's check of entries against its state after a height, for the height that follows.
///
/// It is a function of the entry and of that state alone, so that all correct servers say the same
/// of an entry at a height. Once an entry that it admits has been applied, or another of its slot,
/// it admits none of that slot again until the service opens the slot again: so a server's entries
/// are as many as it has slots.
#[derive(Clone)]
#[expect(clippy::type_complexity, reason = "it is this type's only use")]
pub struct EntryCheck(Arc<dyn Fn(&[u8]) -> EntryAdmission + Send + Sync>);

impl EntryCheck {
    /// The check by a function.
    pub fn new(check: impl Fn(&[u8]) -> EntryAdmission + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    /// Admits every entry, each in a slot of its own: for tests and measurements of a log.
    pub fn anything() -> Self {
        Self::new(|entry| {
            let Sha256Digest(digest) = Sha256Digest::of(&[entry]);
            let slot = std::array::from_fn(|index| digest[index]);
            EntryAdmission::Admitted(EntrySlot(u64::from_be_bytes(slot)))
        })
    }

    /// Whether an entry may be committed.
    pub fn check(&self, entry: &[u8]) -> EntryAdmission {
        (self.0)(entry)
    }
}

impl fmt::Debug for EntryCheck {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("EntryCheck")
    }
}
