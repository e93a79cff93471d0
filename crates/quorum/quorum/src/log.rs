//! The agreement log as seen by the service, which submits entries and receives committed entries
//! in the same order at every server. The service does not depend on the consensus engine.
//!
//! An adapter starts at the height that its service has applied. The service states which servers
//! agree on the next height ([`AgreementLog::applied`]). It then processes one height after
//! another: it takes a [`CommittedEntries`], applies its entries, and calls
//! [`AgreementLog::applied`] with the set of servers for the next height. The service stores its
//! state and the height in one transaction, so that the log continues from there after a restart.
//!
//! A server outside the set follows the log and submits entries, but does not vote.

#[cfg(test)]
pub(crate) mod memory;

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

/// Why an entry is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// It is empty, or longer than [`MAX_ENTRY_LEN`].
    #[error("an entry has {0} bytes, and must have 1 to {MAX_ENTRY_LEN}")]
    Length(usize),
    /// Too many entries are waiting.
    #[error("too many entries are waiting to be committed")]
    Full,
    /// The log has failed.
    #[error("the agreement log has failed")]
    Failed,
}

/// The log has failed and commits nothing more. The process must be restarted. If the storage is
/// the cause, an operator must act.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the agreement log has failed: {0}")]
pub struct LogFailed(pub Arc<dyn std::error::Error + Send + Sync>);

/// The progress of a log, for health checks. A log that runs is still unhealthy if entries wait
/// while no height is committed, or while only entries of other servers are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogProgress {
    /// The last height that was committed.
    pub committed: Height,
    /// The number of entries that are known to this server and wait.
    pub waiting: usize,
    /// How long the oldest waiting entry that this server submitted has waited.
    pub oldest: Option<Duration>,
    /// The engine, if it is a process of its own.
    pub engine: Option<OperatedEngine>,
}

/// The state of an engine that an operator runs beside the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperatedEngine {
    /// Whether it is connected with this server.
    pub is_connected: bool,
    /// How long that has been so.
    pub since: Duration,
    /// The number of engines of other servers with which it is connected.
    pub peers: usize,
}

/// A replicated log, at one server.
pub trait AgreementLog {
    /// Submits an entry. If this server and 2f+1 of the set keep running, it is eventually
    /// committed at least once, unless the check of a height refuses it or another entry of its
    /// slot is committed. It is lost if this server stops first.
    ///
    /// # Errors
    /// If the entry is not accepted.
    fn submit(&mut self, entry: Bytes) -> Result<(), SubmitError>;

    /// The next height. Ready once it is committed and the previous height has been applied.
    ///
    /// # Errors
    /// If the log has failed.
    fn poll_committed(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<CommittedEntries, LogFailed>>;

    /// As [`Self::poll_committed`], as a future. Dropping it loses nothing.
    fn committed(&mut self) -> impl Future<Output = Result<CommittedEntries, LogFailed>> + Send
    where
        Self: Send,
    {
        poll_fn(|context| self.poll_committed(context))
    }

    /// Identifies the file that records this server's votes. A server uses a voting key with one
    /// file only. With another file, it could vote twice at a height.
    fn incarnation(&self) -> LogIncarnation;

    /// Reports that the service has applied a height, which servers agree on the next one, and
    /// which entries may be committed there. All servers must report the same, because a correct
    /// server does not vote for a value with an entry that the check does not admit. This server
    /// votes if `key` is its voting key in the set. The first call is for the height with which the
    /// log was opened.
    fn applied(
        &mut self,
        height: Height,
        next: &ServerSet,
        check: EntryCheck,
        key: Option<Arc<VotingSecret>>,
    );

    /// Allows the log to delete the heights up to this one. A server that has not applied them can
    /// then not catch up from this log. It needs the service's state from elsewhere.
    fn prune(&mut self, through: Height);

    /// The progress of the log.
    fn progress(&self) -> LogProgress;
}

/// Checks the length of an entry.
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
