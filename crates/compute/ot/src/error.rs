//! Why a step of a transfer fails.

/// Why a step of a transfer fails. The state is then unchanged, except after
/// [`Error::Inconsistent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A message of the peer has the wrong length.
    #[error("the peer's message has {found} bytes, not {expected}")]
    Length {
        /// The required length in bytes.
        expected: usize,
        /// The length in bytes.
        found: usize,
    },
    /// The length of an argument does not fit the number of transfers.
    #[error("{what}: {found} where {expected} belong")]
    Argument {
        /// The argument.
        what: &'static str,
        /// The required length.
        expected: usize,
        /// Its length.
        found: usize,
    },
    /// The caller chose a message that does not exist.
    #[error("message {chosen} is chosen, where there are {count}")]
    Choice {
        /// The number of the chosen message, from 0.
        chosen: usize,
        /// The number of messages.
        count: usize,
    },
    /// Bytes of the peer are not the encoding of a point of the group (RFC 9496, 4.3.1).
    #[error("element {0} of the peer's message is not a point")]
    Point(usize),
    /// The peer's point or number is the identity, for which everybody knows the keys.
    #[error("the peer's element is the identity")]
    Identity,
    /// The peer's modulus is not an odd number of the required size.
    #[error("the peer's modulus is not an odd number of {0} bits")]
    Modulus(u32),
    /// Bytes of the peer are not an element of the group: a number below N that has an inverse or,
    /// modulo a prime, a number from 1 to half of the prime.
    #[error("element {0} of the peer's message is not a number of the group")]
    Number(usize),
    /// The receiver did not use the same choices in all columns, or built its trees wrongly: it
    /// tries to learn the offset. The state cannot be used any more, because each attempt can
    /// reveal bits of the offset.
    #[error("the receiver's message is inconsistent: it does not follow the protocol")]
    Inconsistent,
    /// A message was inconsistent earlier.
    #[error("an earlier message was inconsistent, so this transfer has ended")]
    Ended,
}

/// Checks the length of a peer's message.
pub(crate) fn check_len(message: &[u8], expected: usize) -> Result<(), Error> {
    let found = message.len();
    if found == expected { Ok(()) } else { Err(Error::Length { expected, found }) }
}

/// Checks the length of a buffer of the caller.
pub(crate) fn check_argument(
    what: &'static str,
    found: usize,
    expected: usize,
) -> Result<(), Error> {
    if found == expected { Ok(()) } else { Err(Error::Argument { what, expected, found }) }
}
