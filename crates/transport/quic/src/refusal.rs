//! Tells a client that the listener has another key, or does not encrypt.
//!
//! First packets are encrypted with the listener's key, so a listener with another key cannot read
//! them, and the client could not read a QUIC close from it. So the refusal is an unencrypted
//! Version Negotiation packet (RFC 9000, 17.2.1) with a single version that does not exist.

use crate::initial_keys::VERSION;

/// Why a listener rejects a client, as the version in its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuicRefusalReason {
    /// The listener has another key: "SNDK".
    OtherKey = 0x534e_444b,
    /// The listener is insecure: "SNDI".
    Insecure = 0x534e_4449,
}

/// The first bit of a long header, and the fixed bit.
const LONG_HEADER: u8 = 0xc0;

/// The bits of the packet type in a long header. They are not encrypted, and are zero for Initial.
const PACKET_TYPE: u8 = 0x30;

/// The minimum length of a client's first datagram (RFC 9000, 14.1).
const MIN_FIRST_LEN: usize = 1200;

/// The maximum length of a connection identifier in QUIC version 1.
const MAX_ID_LEN: usize = 20;

/// The connection identifiers in a datagram's first header: of the receiver and of the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuicConnectionIds {
    receiver: Vec<u8>,
    sender: Vec<u8>,
}

impl QuicConnectionIds {
    /// The version, the identifiers and the rest of the datagram. `None` without a long header.
    fn parse(datagram: &[u8]) -> Option<(u32, Self, &[u8])> {
        let (first, rest) = datagram.split_first()?;
        let (version, rest) = rest.split_first_chunk()?;
        let (receiver, rest) = identifier(rest)?;
        let (sender, rest) = identifier(rest)?;
        let ids = Self { receiver: receiver.to_vec(), sender: sender.to_vec() };
        let is_long = first & LONG_HEADER == LONG_HEADER;
        is_long.then_some((u32::from_be_bytes(*version), ids, rest))
    }

    /// The identifiers of a client's first datagram; `None` if this is not a padded Initial packet.
    pub(crate) fn from_initial(datagram: &[u8]) -> Option<Self> {
        let is_initial = datagram.first()? & PACKET_TYPE == 0 && datagram.len() >= MIN_FIRST_LEN;
        let (version, ids, _) = Self::parse(datagram)?;
        (is_initial && version == VERSION).then_some(ids)
    }

    /// Makes the refusal for a connection whose first datagram had these identifiers.
    pub(crate) fn refusal(&self, reason: QuicRefusalReason) -> Vec<u8> {
        let mut refusal = vec![LONG_HEADER, 0, 0, 0, 0];
        for id in [&self.sender, &self.receiver] {
            refusal.extend(u8::try_from(id.len()));
            refusal.extend(id);
        }
        refusal.extend((reason as u32).to_be_bytes());
        refusal
    }

    /// The reason, if a datagram is a refusal of the connection whose first datagram had these
    /// identifiers.
    pub(crate) fn parse_refusal(&self, datagram: &[u8]) -> Option<QuicRefusalReason> {
        let (version, answer, rest) = Self::parse(datagram)?;
        let is_for_this = answer.receiver == self.sender && answer.sender == self.receiver;
        let all = [QuicRefusalReason::OtherKey, QuicRefusalReason::Insecure];
        let reason = all.into_iter().find(|reason| rest == (*reason as u32).to_be_bytes());
        reason.filter(|_| version == 0 && is_for_this)
    }
}

/// Reads a length and a connection identifier. Returns the identifier and the rest.
fn identifier(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*len)).filter(|(id, _)| id.len() <= MAX_ID_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_for_one_connection() {
        let first = |ids: &[u8]| [&[0xc3, 0, 0, 0, 1][..], ids, &[0; 1200]].concat();
        let ids = QuicConnectionIds::from_initial(&first(&[2, 7, 8, 3, 4, 5, 6])).unwrap();
        let other = QuicConnectionIds::from_initial(&first(&[2, 7, 9, 3, 4, 5, 6])).unwrap();
        let refusal = ids.refusal(QuicRefusalReason::OtherKey);
        assert_eq!(refusal, b"\xc0\0\0\0\0\x03\x04\x05\x06\x02\x07\x08SNDK");
        assert_eq!(ids.parse_refusal(&refusal), Some(QuicRefusalReason::OtherKey));
        assert_eq!(
            ids.parse_refusal(&ids.refusal(QuicRefusalReason::Insecure)),
            Some(QuicRefusalReason::Insecure)
        );
        assert_eq!(other.parse_refusal(&refusal), None);
        for len in 0..refusal.len() {
            assert_eq!(ids.parse_refusal(&refusal[..len]), None, "{len}");
        }
        assert_eq!(QuicConnectionIds::from_initial(&first(&[21; 60])), None);
    }
}
