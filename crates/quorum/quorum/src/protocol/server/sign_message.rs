//! The messages of servers in signing: their kind, the number of the request, and the rest.

use encoding::{FieldReader, FieldWrite as _};

use crate::protocol::wire::MalformedEncoding;

/// The kinds of messages in signing.
#[derive(Clone, Copy)]
pub(super) enum SignMessageKind {
    Ask = 1,
    Answer = 2,
    Refused = 3,
    /// The server is busy: ask again later.
    Busy = 4,
    /// The following ones are of a group with an Ed25519 key. Asks for commitments to nonces.
    AskCommitments = 7,
    Commitments = 8,
    /// Asks for the share of a signature in a session.
    AskShare = 9,
    Share = 10,
    /// The nonces of the session are lost. These are others.
    OtherCommitments = 11,
}

/// Splits a message into its kind, the asking server's number of its request, and the rest.
pub(super) fn parse(bytes: &[u8]) -> Result<(SignMessageKind, u64, &[u8]), MalformedEncoding> {
    let mut reader = FieldReader::new(bytes);
    let (kind, number) = (reader.u8()?, reader.u64()?);
    let kind = match kind {
        1 => SignMessageKind::Ask,
        2 => SignMessageKind::Answer,
        3 if reader.is_empty() => SignMessageKind::Refused,
        4 if reader.is_empty() => SignMessageKind::Busy,
        7 => SignMessageKind::AskCommitments,
        8 => SignMessageKind::Commitments,
        9 => SignMessageKind::AskShare,
        10 => SignMessageKind::Share,
        11 => SignMessageKind::OtherCommitments,
        _ => return Err(MalformedEncoding("unknown kind of message")),
    };
    Ok((kind, number, reader.rest()))
}

/// The bytes of a message.
pub(super) fn message(kind: SignMessageKind, number: u64, rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(9 + rest.len());
    out.push(kind as u8);
    out.put_u64(number);
    out.extend(rest);
    out
}
