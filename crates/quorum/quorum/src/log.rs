//! The agreement log, as the service sees it: it submits entries and gets committed ones in the
//! same order at every server. Which engine is behind it, the service does not know.
//!
//! An adapter starts with the height that its service has applied. The service says which servers
//! agree on the next one ([`AgreementLog::applied`]). It then applies one height after the other:
//! it takes a [`CommittedEntries`], applies its entries, and says so with the set of servers of the
//! next height. What it has applied and the height it keeps together, in one transaction: after a
//! restart the log goes on from there.
//!
//! A server outside the set follows the log and submits entries, but does not vote.

pub mod memory;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;

pub use crate::protocol::admission::{EntryAdmission, EntryCheck, EntrySlot};
pub use crate::protocol::log_types::{
    CommittedEntries, Height, LogIncarnation, MAX_ENTRY_LEN, ServerSet, ServerSetError, Voter,
};
use crate::protocol::voting::VotingSecret;

/// An entry is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// It is empty, or longer than [`MAX_ENTRY_LEN`].
    #[error("an entry of {0} bytes: it has 1 to {MAX_ENTRY_LEN}")]
    Length(usize),
    /// Too many entries wait already.
    #[error("too many entries wait to be committed")]
    Full,
    /// The log has failed.
    #[error("the agreement log has failed")]
    Failed,
}

/// The log has failed and commits nothing more. The process must start again; if the reason is in
/// its storage, an operator must act.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the agreement log has failed: {0}")]
pub struct LogFailed(pub Arc<dyn std::error::Error + Send + Sync>);

/// How far a log is, from which the health of a server follows: entries that wait while the height
/// stays the same, or while entries of others are committed, are what is wrong, not a process that
/// has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogProgress {
    /// The last height that was committed.
    pub committed: Height,
    /// The entries that this server knows to wait.
    pub waiting: usize,
    /// For how long the oldest of those has waited that this server has submitted.
    pub oldest: Option<Duration>,
}

/// A replicated log, at one server.
pub trait AgreementLog {
    /// Submits an entry. If this server and 2f+1 of the set keep running, it is committed some
    /// time, at least once, unless the check of a height refuses it or another entry of its slot is
    /// committed. It is lost if this server stops before.
    ///
    /// # Errors
    /// When the entry is not accepted.
    fn submit(&mut self, entry: Bytes) -> Result<(), SubmitError>;

    /// The next height. It is ready once it is committed, and the one before has been applied.
    ///
    /// # Errors
    /// When the log has failed.
    fn poll_committed(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<CommittedEntries, LogFailed>>;

    /// As [`Self::poll_committed`], in a future. Nothing is lost if it is dropped.
    fn committed(&mut self) -> impl Future<Output = Result<CommittedEntries, LogFailed>> + Send
    where
        Self: Send,
    {
        poll_fn(|context| self.poll_committed(context))
    }

    /// Names the file with what this server has voted for. A server uses a voting key with one file
    /// only: with another one, it could vote twice in a height.
    fn incarnation(&self) -> LogIncarnation;

    /// Says that the service has applied a height, which servers agree on the next one, and which
    /// entries may be committed there. All servers must say the same: a correct server votes for no
    /// value with an entry that the check does not admit. With `key` this server votes, if it is
    /// the one that the set has. Said first of the height with which the log was opened.
    fn applied(
        &mut self,
        height: Height,
        next: &ServerSet,
        check: EntryCheck,
        key: Option<Arc<VotingSecret>>,
    );

    /// Allows the log to forget the heights up to this one. A server that has not applied them can
    /// then not catch up from this one: it needs the service's state from elsewhere.
    fn prune(&mut self, through: Height);

    /// How far the log is.
    fn progress(&self) -> LogProgress;
}

/// Whether an entry may be submitted.
pub(crate) fn check_length(entry: &[u8]) -> Result<(), SubmitError> {
    if (1..=MAX_ENTRY_LEN).contains(&entry.len()) {
        Ok(())
    } else {
        Err(SubmitError::Length(entry.len()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use keys::IdentitySecretKey;
    use zeroize::Zeroizing;

    use super::*;

    /// The key of the server with this number.
    pub(crate) fn secret(number: u8) -> IdentitySecretKey {
        IdentitySecretKey::new(&[number; 32])
    }

    /// The voting key of the server with this number.
    pub(crate) fn voting(number: u8) -> Arc<VotingSecret> {
        Arc::new(VotingSecret::from_bytes(Zeroizing::new([number ^ 0x80; 32])))
    }

    /// The server with this number.
    fn voter(number: u8) -> Voter {
        Voter { identity: secret(number).public(), key: Some(voting(number).public()) }
    }

    /// The set of the servers with these numbers.
    pub(crate) fn set(numbers: impl IntoIterator<Item = u8>) -> ServerSet {
        ServerSet::new(numbers.into_iter().map(voter)).unwrap()
    }

    #[test]
    fn sets_have_the_sizes_of_groups_and_distinct_keys() {
        for count in 0..20u8 {
            let made = ServerSet::new((0..count).map(voter));
            match count {
                4 | 7 | 10 | 13 => {
                    let made = made.unwrap();
                    assert_eq!(made.voters().len(), 3 * made.faulty() + 1);
                    assert_eq!(made.quorum(), 2 * made.faulty() + 1);
                }
                _ => assert_eq!(made, Err(ServerSetError::Number(count.into()))),
            }
        }
        let twice = ServerSet::new([1, 2, 3, 2].map(voter));
        assert_eq!(twice, Err(ServerSetError::Twice(Box::new(secret(2).public()))));
    }
}
