//! Errors.

use std::io;

use random::RandomError;

use crate::terms::PsiRole;

/// Why there is no result. Each text is one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection has failed.
    #[error("{0}")]
    Io(io::Error),
    /// The other party has closed the connection.
    #[error("the other party has ended the connection")]
    Ended,
    /// The other party does not respond.
    #[error("nothing from the other party for too long (--timeout)")]
    Silent,
    /// The received bytes are not of this protocol.
    #[error("the other end does not speak this protocol: is it sunder compute psi?")]
    NotThisProtocol,
    /// The other party has another version.
    #[error(
        "the other party has version {theirs} of the protocol, this one version {ours}: use the \
         same release"
    )]
    Version {
        /// This party's.
        ours: u8,
        /// The other's.
        theirs: u8,
    },
    /// Both parties have the same role.
    #[error("both parties are the {role}: one must be the {}", .role.other())]
    SameRole {
        /// Of both.
        role: PsiRole,
    },
    /// The parties have not agreed on what is computed.
    #[error("{what} is not the same at both parties; nothing was computed")]
    Differs {
        /// The difference.
        what: &'static str,
    },
    /// This party has too many items.
    #[error("there are {given} items, and at most {most} are possible")]
    TooMany {
        /// How many there are.
        given: usize,
        /// How many there may be.
        most: usize,
    },
    /// This party's numbers are too large.
    #[error("the numbers are too large: their absolute values are more than {most} in all")]
    TooLarge {
        /// The maximum sum of absolute values, in units of the last decimal place.
        most: i64,
    },
    /// The other party could ask with more items than this party allows.
    #[error(
        "the other party could ask with {guesses} values in this run, and {most} are allowed; \
         nothing was computed"
    )]
    TooManyGuesses {
        /// With how many it could ask.
        guesses: u64,
        /// How many are allowed.
        most: u64,
    },
    /// The other party has sent an invalid message.
    #[error("the other party sends {0}")]
    Malformed(&'static str),
    /// The transfers have failed.
    #[error("{0}")]
    Transfer(#[from] ot::Error),
    /// No place was found for an item: this is unlikely, and another run uses other places.
    #[error("no bin was found for an item, which is unlikely: try again")]
    NoBin,
    /// The system gives no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Self::Silent,
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => Self::Ended,
            _ => Self::Io(error),
        }
    }
}
