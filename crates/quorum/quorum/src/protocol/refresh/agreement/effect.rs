//! The effects of entries, and why an entry has none.

use handover::{HandoverFault, HandoverRefusal};

use super::super::entry::RefreshRole;
use crate::protocol::combination::ServerIndex;
use crate::protocol::wire::MalformedEncoding;

/// Why an entry changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogEntryRefusal {
    /// The refresh is over.
    #[error("the epoch has ended")]
    Ended,
    /// There is no open run, or the entry belongs to another run or epoch.
    #[error("for another run")]
    OtherRun,
    /// The author is not a member of the group, or did not sign the entry.
    #[error("the author's signature is wrong")]
    Signature,
    /// The author is known to be faulty.
    #[error("the author is faulty")]
    Faulty,
    /// The same entry has been committed already.
    #[error("there is one already")]
    Repeated,
    /// The dealer does not hold all the labels.
    #[error("the dealer does not hold these shares")]
    Labels,
    /// There are fewer than 2f'+1 confirmations of different new servers, or one is invalid.
    #[error("the confirmations are not those of 2f+1 new servers")]
    Confirmations,
    /// No dealings have been chosen for some labels.
    #[error("not all labels have a dealing")]
    NotChosen,
    /// The group has no replicated service.
    #[error("the group has no replicated service")]
    NoService,
    /// The author's earlier batches of commands are missing.
    #[error("an earlier batch of commands is missing")]
    Early,
    /// The author's part of this segment of the log is full.
    #[error("too many commands of one server")]
    CommandsFull,
    /// The author has not registered its session key yet.
    #[error("the author has no session key yet")]
    NoSessionKey,
    /// A voting key has no valid proof, or the entry does not name the server's current key as
    /// replaced.
    #[error("the voting key is not proven, or replaces another one")]
    VotingKey,
    /// The new server's proof of possession does not match the witnesses.
    #[error("the proof of possession is wrong")]
    Possession,
    /// The approved group is too large for the kind of key.
    #[error("the group is too large for the key")]
    GroupSize,
    /// The entry belongs to a refresh of another kind of key.
    #[error("for another kind of key")]
    OtherKey,
    /// The group generates its key, and cannot cancel that.
    #[error("the group generates its key")]
    Founding,
    /// A step of a handover is wrong.
    #[error("a step of the handover is wrong: {0}")]
    Handover(#[from] HandoverFault),
    /// A step of the handover cannot be decoded.
    #[error("a step of the handover is {0}")]
    Malformed(#[from] MalformedEncoding),
}

/// The effect of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEntryEffect {
    /// It was counted.
    Counted,
    /// f+1 old servers have approved a group: the run is open.
    Opened,
    /// f+1 old servers have cancelled the run. The next run gets another number.
    Cancelled,
    /// A dealer has been proven faulty.
    DealerExcluded {
        /// Its index in the old group.
        dealer: ServerIndex,
        /// The new server that has proven it faulty.
        by: ServerIndex,
    },
    /// A new server's complaint was unfounded.
    FalseComplaint {
        /// Its index in the new group.
        complainant: ServerIndex,
    },
    /// A server is proven faulty because it has signed an invalid entry.
    Faulty {
        /// The group that it belongs to.
        side: RefreshRole,
        /// Its index in that group.
        author: ServerIndex,
        /// What is wrong.
        why: LogEntryRefusal,
    },
    /// The new epoch has begun.
    Final,
}

impl From<HandoverRefusal> for LogEntryRefusal {
    fn from(refusal: HandoverRefusal) -> Self {
        match refusal {
            HandoverRefusal::Ended => Self::Ended,
            HandoverRefusal::OtherRun => Self::OtherRun,
            HandoverRefusal::Author => Self::Signature,
            HandoverRefusal::Faulty => Self::Faulty,
            HandoverRefusal::Repeated => Self::Repeated,
            HandoverRefusal::Early => Self::Early,
        }
    }
}
