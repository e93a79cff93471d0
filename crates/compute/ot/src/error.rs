//! Why a step of a transfer fails.

/// Why a step of a transfer fails. Nothing has changed then, except after [`Error::Inconsistent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A message of the peer has another length.
    #[error("the peer's message has {found} bytes, not {expected}")]
    Length {
        /// What it must have, in bytes.
        expected: usize,
        /// What it has, in bytes.
        found: usize,
    },
    /// A buffer of the caller has another length than the number of transfers requires.
    #[error("{what}: {found} where {expected} belong")]
    Argument {
        /// Which one.
        what: &'static str,
        /// The length it must have.
        expected: usize,
        /// The length it has.
        found: usize,
    },
    /// The caller chose a message that is not there.
    #[error("message {chosen} is chosen, where there are {count}")]
    Choice {
        /// Its number, from 0 on.
        chosen: usize,
        /// How many messages there are.
        count: usize,
    },
    /// Bytes of the peer are not the encoding of a point of the group (RFC 9496, 4.3.1).
    #[error("element {0} of the peer's message is not a point")]
    Point(usize),
    /// The peer's point is the identity, with which everybody knows the keys.
    #[error("the peer's point is the identity")]
    Identity,
    /// The peer's modulus is not an odd number of the size that is used.
    #[error("the peer's modulus is not an odd number of {0} bits")]
    Modulus(u32),
    /// Bytes of the peer are not a number below the modulus that has an inverse.
    #[error("element {0} of the peer's message is not an invertible number modulo N")]
    Number(usize),
    /// The receiver did not use the same choices in all columns, or made its trees wrong: it tries
    /// to learn the offset. The state cannot be used any more, because each try can give away bits
    /// of the offset.
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
