//! Which messages a server signs.

use super::QuorumServer;
use crate::protocol::policy::{self, MessageDigest, MessageRefusal};
use crate::protocol::replication::SERVICE_MAGIC;
use crate::protocol::replication::replica::StatementTruth;

/// Why a server sends no partial signatures to another one.
#[derive(Debug, thiserror::Error)]
pub(super) enum PartialSignRefusal {
    #[error("a malformed request for a signature")]
    Malformed,
    #[error("a request for a signature of epoch {0}")]
    Epoch(u64),
    #[error("a request for a signature: {0}")]
    Policy(#[from] MessageRefusal),
    #[error("too many requests for signatures wait")]
    Busy,
    #[error("no shares")]
    NoShares,
    /// The other server is an epoch ahead or behind. This is normal for a moment.
    #[error("the next epoch or the one before")]
    Near,
}

impl PartialSignRefusal {
    /// Whether the other server asks again soon, because this one may answer then.
    pub(super) fn is_brief(&self) -> bool {
        matches!(self, Self::Busy | Self::Near)
    }

    /// Whether a correct server may cause this.
    pub(super) fn is_expected(&self) -> bool {
        match self {
            Self::Busy | Self::NoShares | Self::Near => true,
            // A client registers a message at one server after the other, so a server may be asked
            // for it before it has it.
            Self::Policy(refusal) => {
                matches!(refusal, MessageRefusal::Header | MessageRefusal::NotRegistered)
            }
            Self::Malformed | Self::Epoch(_) => false,
        }
    }
}

impl QuorumServer {
    /// Whether this server may sign a message now.
    pub(super) fn may_sign(&self, message: &[u8]) -> Result<(), PartialSignRefusal> {
        match self.is_known_statement(message) {
            Some(StatementTruth::True) => Ok(()),
            Some(StatementTruth::Unknown) => Err(PartialSignRefusal::Busy),
            Some(StatementTruth::False) => Err(MessageRefusal::Service.into()),
            None => Ok(self.check_policy(message)?),
        }
    }

    /// Whether a message is a true statement about the replicated service, if it is one.
    fn is_known_statement(&self, message: &[u8]) -> Option<StatementTruth> {
        message.starts_with(&SERVICE_MAGIC).then(|| self.judge_statement(message))
    }

    fn check_policy(&self, message: &[u8]) -> Result<(), MessageRefusal> {
        if self.is_own_header(message) { Ok(()) } else { self.check_users_message(message) }
    }

    /// Whether this server may sign a message for a user: it is registered, or a rule allows it.
    pub(super) fn check_users_message(&self, message: &[u8]) -> Result<(), MessageRefusal> {
        let is_registered = self.registered.contains(&MessageDigest::of(message));
        let (key, rules) = (self.settings.anchor.kind(), &self.settings.rules);
        policy::check_signable(message, key, rules, is_registered, self.time)
    }
}
