//! What the engine has its driver do.

use super::super::codec::{ConsensusMessage, DecidedValue};
use super::super::context::ValidatorAddress;
use crate::protocol::log_types::Height;
use crate::protocol::wire::MalformedEncoding;

/// Outputs of the engine for its driver, in this order. A record must be durable before any vote,
/// proposal or certificate that follows it is sent.
#[derive(Debug)]
pub(crate) enum ConsensusOutput {
    /// Append records to the height's write-ahead log.
    Append(Vec<Vec<u8>>),
    /// Store the committed value, and delete the write-ahead log, in one transaction. Then the
    /// service applies it, and [`super::ConsensusEngine::next`] begins the next height.
    Commit(DecidedValue),
    /// Send a message to all other servers, of the old and the new group.
    Broadcast(ConsensusMessage),
    /// Send a message to a server.
    Send(ValidatorAddress, ConsensusMessage),
    /// Send a server what it has asked for. It counts as if the server had sent it.
    Answer(ValidatorAddress, ConsensusMessage),
    /// Send a server the committed value of a height, if it is stored. It counts, too.
    SendCommitted(ValidatorAddress, Height),
    /// A proposal by digests of this server had entries of this length, which count as if the
    /// server had sent them.
    Charged(ValidatorAddress, usize),
    /// A message of this server was rejected.
    Refused(ValidatorAddress, &'static str),
    /// This server has proposed a value with entries that had to be checked. If they are not
    /// admitted, the server is faulty, because all correct servers admit the same at a height.
    Checked {
        /// The server.
        server: ValidatorAddress,
        /// The number of checked entries.
        entries: usize,
        /// Whether the value may be committed.
        are_admitted: bool,
    },
    /// This server provably has voted or proposed twice in a round.
    Equivocation(ValidatorAddress),
}

/// Why the engine has stopped. It signs and sends nothing more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConsensusEngineError {
    /// The write-ahead log is damaged.
    #[error("a record of the write-ahead log is damaged: {0}")]
    Record(#[from] MalformedEncoding),
    /// Malachite cannot continue, for example because a replay differs from the write-ahead log.
    #[error("the consensus has failed: {0}")]
    Consensus(String),
}
