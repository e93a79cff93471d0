//! Records: the units in which a stream is sent over the channels.
//!
//! Before it is shared, a record is
//!
//! ```text
//! point (16) | tag (16) | kind (1) | length (3, big-endian) | payload (length)
//! ```
//!
//! where point and tag are the tamper code ([`sharing::tamper`]) of everything after them. They
//! come first, at a position that does not depend on the length: if the tag came after the payload,
//! an attacker who knows the payload could shorten the record so that payload bytes of their choice
//! are read as point and tag.

use random::{RandomError, RandomGenerator};
use sharing::tamper::{self, OVERHEAD};

/// Bytes of a record before its payload.
pub const HEADER_LEN: usize = OVERHEAD + 4;

/// The longest payload of a record, in bytes.
pub const MAX_PAYLOAD: usize = (48 << 10) - HEADER_LEN;

/// The longest record, in bytes.
pub const MAX_RECORD: usize = HEADER_LEN + MAX_PAYLOAD;

/// The longest record that opens a stream. A request contains a name of at most 255 bytes.
pub const MAX_OPENING: usize = 512;

/// The length of each key, and of the stream's identifier, in the payload of
/// [`MicssRecordKind::Opened`].
pub(crate) const REJOIN_KEY_LEN: usize = 16;

/// The length of the payload of [`MicssRecordKind::Opened`] for this number of channels.
pub const fn opened_len(channels: usize) -> usize {
    REJOIN_KEY_LEN * (1 + channels)
}

/// The maximum length of a record until a stream proves to be a bulk transfer, in bytes.
pub(crate) const SMALL_RECORD: usize = 4 << 10;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MicssRecordKind {
    /// Bytes of the stream.
    Data = 0,
    /// Client to server, the first record: the service to connect to, a
    /// [`Target`](crate::protocol::target::ServiceTarget).
    Open = 1,
    /// Server to client: the service is connected. The payload is the keys by which
    /// connections are replaced (`RejoinKeys`), if there are records.
    Opened = 2,
    /// Server to client: the service is not connected. The payload is one byte, a
    /// [`Refusal`](crate::protocol::target::ServiceRefusal).
    Refused = 3,
    /// The sender has no more bytes (a half-close). It has no payload, and only acknowledgements
    /// follow.
    Finish = 4,
    /// The sender's application aborted: the stream is incomplete. It has no payload, and nothing
    /// follows.
    Abort = 5,
    /// Bytes of the stream, which the peer must acknowledge.
    DataAck = 6,
    /// The sender has consumed the peer's bytes up to a position. The payload is the 8 bytes of the
    /// position.
    Ack = 7,
}

impl MicssRecordKind {
    fn from_byte(byte: u8) -> Option<Self> {
        let all = [
            Self::Data,
            Self::Open,
            Self::Opened,
            Self::Refused,
            Self::Finish,
            Self::Abort,
            Self::DataAck,
            Self::Ack,
        ];
        all.into_iter().find(|&kind| kind as u8 == byte)
    }
}

/// Why received shares do not form a valid stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MicssRecordError {
    /// The record's code is wrong, or its length is impossible: at least one channel has carried
    /// changed bytes.
    #[error("a record was changed in transit")]
    Tampered,
    /// The code is right, but the peer sent a kind that this version does not know.
    #[error("the peer sent a record of the unknown kind {0}")]
    UnknownKind(u8),
    /// A channel ended before the stream.
    #[error("channel {} ended in mid-stream", .channel + 1)]
    Unfinished {
        /// The channel's index.
        channel: usize,
    },
    /// The record is long, and there is no memory for it.
    #[error("no memory for a long record: limit reached, see max_memory_mib")]
    NoMemory,
    /// Without records: the channels ended after different numbers of bytes.
    #[error("the channels ended after different numbers of bytes")]
    Uneven,
}

/// Fills in the header of the record whose payload is in `record` after `HEADER_LEN` bytes.
///
/// # Errors
/// If there are no random bytes.
pub(crate) fn protect(
    kind: MicssRecordKind,
    record: &mut [u8],
    generator: &mut RandomGenerator,
) -> Result<(), RandomError> {
    let (code, message) = record.split_at_mut(OVERHEAD);
    let len = u32::try_from(message.len() - 4).expect("at most MAX_PAYLOAD");
    message[..4].copy_from_slice(&len.to_be_bytes());
    message[0] = kind as u8;
    tamper::protect_into(code.try_into().expect("OVERHEAD bytes"), &[message], generator)?;
    Ok(())
}

/// The length of a whole record by its header, which may have been changed. `None` if it exceeds
/// `longest`, the maximum length of a record here.
pub(crate) fn length_within(header: &[u8; HEADER_LEN], longest: usize) -> Option<usize> {
    let [.., high, middle, low] = *header;
    let len = HEADER_LEN + u32::from_be_bytes([0, high, middle, low]) as usize;
    (len <= longest).then_some(len)
}

/// Verifies a whole record's code and returns its kind. The payload comes after `HEADER_LEN` bytes.
///
/// # Errors
/// If the record was changed or has an unknown kind.
pub(crate) fn verify(record: &[u8]) -> Result<MicssRecordKind, MicssRecordError> {
    let (code, message) = record.split_first_chunk().ok_or(MicssRecordError::Tampered)?;
    tamper::verify(code, &[message]).map_err(|_| MicssRecordError::Tampered)?;
    let &byte = message.first().ok_or(MicssRecordError::Tampered)?;
    MicssRecordKind::from_byte(byte).ok_or(MicssRecordError::UnknownKind(byte))
}
