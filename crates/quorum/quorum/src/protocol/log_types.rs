//! Types of the agreement log: heights, their entries, and the servers that vote on a height.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use keys::IdentityPublicKey;

/// The largest number of faulty servers that a group may tolerate. With an RSA key it is 4.
pub const MAX_FAULTY: u8 = 10;

/// The largest length of an entry, in bytes.
pub const MAX_ENTRY_LEN: usize = 1 << 20;

/// A position in the log. The first is 1, and 0 is the state before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Height(pub u64);

impl Height {
    /// The next height.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Height {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// A server of the set that agrees on a height.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voter {
    /// Its identity key.
    pub identity: IdentityPublicKey,
    /// The key that signs its votes at this height. Without a key, the server has no vote.
    pub key: Option<IdentityPublicKey>,
}

/// The servers that agree on a height, in the order of their group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSet(Arc<[Voter]>);

/// Why keys do not form a set of servers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerSetError {
    /// Their number is not 3f+1 for an f from 1 to 10.
    #[error("{0} servers: a group has 4, 7, 10 and so on up to 31")]
    Number(usize),
    /// A key occurs twice.
    #[error("the key {0} is listed twice")]
    Twice(Box<IdentityPublicKey>),
}

impl ServerSet {
    /// The set of these servers.
    ///
    /// # Errors
    /// If there are not 4, 7, 10 and so on up to 31 servers, or two have the same identity key.
    pub fn new(voters: impl IntoIterator<Item = Voter>) -> Result<Self, ServerSetError> {
        let voters: Arc<[Voter]> = voters.into_iter().collect();
        let faulty = voters.len().saturating_sub(1) / 3;
        if voters.len() != 3 * faulty + 1 || !(1..=usize::from(MAX_FAULTY)).contains(&faulty) {
            return Err(ServerSetError::Number(voters.len()));
        }
        let mut seen = BTreeSet::new();
        match voters.iter().find(|voter| !seen.insert(voter.identity.to_bytes())) {
            Some(twice) => Err(ServerSetError::Twice(Box::new(twice.identity))),
            None => Ok(Self(voters)),
        }
    }

    /// The servers, in the group's order.
    pub fn voters(&self) -> &[Voter] {
        &self.0
    }

    /// The number of faulty servers that the set tolerates, f.
    pub fn faulty(&self) -> usize {
        (self.0.len() - 1) / 3
    }

    /// The number of servers that must agree to commit a height, 2f+1.
    pub fn quorum(&self) -> usize {
        2 * self.faulty() + 1
    }
}

/// Identifies a log file from its creation until it is lost. A voting key belongs to one file,
/// because that file records the votes that the key has signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogIncarnation(pub [u8; 32]);

/// The entries of one height, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedEntries {
    /// The height, which follows the last committed one.
    pub height: Height,
    /// At least one entry. The log does not record the submitter: an entry that needs an author is
    /// signed.
    pub entries: Vec<Bytes>,
}
