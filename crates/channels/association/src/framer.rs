//! Splits a stream, which arrives in pieces, into whole messages.
//!
//! A framer never consumes a byte beyond the end of a message. It buffers at most one message with
//! the largest body that it allows.

use crate::message::{
    AssociationMessage, AssociationMessageError, AssociationMessageHeader, AssociationMessageKind,
    HEADER_LEN,
};

/// The beginning of the next message on one stream.
#[derive(Debug)]
pub(crate) struct AssociationFramer {
    buffer: PartialMessage,
    max_body_len: usize,
}

impl AssociationFramer {
    pub(crate) fn new(max_body_len: usize) -> Self {
        Self { buffer: PartialMessage(Vec::new()), max_body_len }
    }

    /// Consumes bytes up to the end of the message at most, and returns those after it.
    ///
    /// # Errors
    /// As soon as the header or the body is complete and invalid. The stream then has no framing
    /// any more and must be closed.
    pub(crate) fn push<'a>(
        &mut self,
        bytes: &'a [u8],
    ) -> Result<(Option<AssociationMessage>, &'a [u8]), AssociationMessageError> {
        let rest = self.buffer.fill_to(HEADER_LEN, bytes);
        let Some(header) = self.buffer.0.first_chunk() else {
            return Ok((None, rest));
        };
        let AssociationMessageHeader { kind, body_len } = AssociationMessageHeader::parse(*header)?;
        // Messages of the other kinds have a fixed length.
        let is_list =
            matches!(kind, AssociationMessageKind::List | AssociationMessageKind::Confirm);
        if is_list && body_len > self.max_body_len {
            return Err(AssociationMessageError::BodyLength { kind, body_len });
        }
        let rest = self.buffer.fill_to(HEADER_LEN + body_len, rest);
        let body = &self.buffer.0[HEADER_LEN..];
        if body.len() < body_len {
            return Ok((None, rest));
        }
        let message = AssociationMessage::parse_body(kind, body)?;
        self.buffer.0.clear();
        Ok((Some(message), rest))
    }
}

/// Bytes that may contain cookies, so `Debug` does not show them.
struct PartialMessage(Vec<u8>);

impl PartialMessage {
    fn fill_to<'a>(&mut self, len: usize, bytes: &'a [u8]) -> &'a [u8] {
        let missing = len.saturating_sub(self.0.len()).min(bytes.len());
        let (taken, rest) = bytes.split_at(missing);
        self.0.extend_from_slice(taken);
        rest
    }
}

impl std::fmt::Debug for PartialMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{COOKIE_LEN, ConnectionCookie};

    fn cookie() -> Vec<u8> {
        AssociationMessage::Cookie(ConnectionCookie::new([7; COOKIE_LEN])).encode()
    }

    #[test]
    fn any_cut_gives_the_same_messages() {
        let stream = [cookie(), cookie()].concat();
        for cut in 0..stream.len() {
            let mut framer = AssociationFramer::new(COOKIE_LEN);
            let mut messages = 0;
            for mut piece in [&stream[..cut], &stream[cut..]] {
                while !piece.is_empty() {
                    let (message, rest) = framer.push(piece).unwrap();
                    messages += usize::from(message.is_some());
                    piece = rest;
                }
            }
            assert_eq!(messages, 2, "cut at {cut}");
        }
    }

    #[test]
    fn bytes_after_a_message_are_returned() {
        let bytes = [&cookie()[..], b"transport"].concat();
        let (message, rest) = AssociationFramer::new(COOKIE_LEN).push(&bytes).unwrap();
        assert!(matches!(message, Some(AssociationMessage::Cookie(_))));
        assert_eq!(rest, b"transport");
    }

    #[test]
    fn refuses_a_long_body_from_the_header_alone() {
        let error = AssociationFramer::new(72).push(b"SNDR\x01\x02\x00\x68").unwrap_err();
        assert_eq!(
            error,
            AssociationMessageError::BodyLength {
                kind: AssociationMessageKind::List,
                body_len: 104
            }
        );
    }

    #[test]
    fn debug_shows_no_bytes() {
        let mut framer = AssociationFramer::new(COOKIE_LEN);
        framer.push(&cookie()[..23]).unwrap();
        assert!(format!("{framer:?}").contains("23 bytes"));
    }
}
