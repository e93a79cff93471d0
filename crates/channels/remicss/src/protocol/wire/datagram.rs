//! The first bytes of every datagram, and the header of those that carry a share.

use thiserror::Error;

use crate::protocol::wire::tokens::{DatagramToken, ShareTokens, TOKEN_LEN};

/// The maximum number of channels: a threshold fits into half a byte.
pub const MAX_CHANNELS: usize = 16;

/// The length of a full packet, in bits.
pub const FULL_PACKET_BITS: f64 = 12_000.0;

/// The length of a share's header, in bytes.
pub const HEADER_LEN: usize = 4 + TOKEN_LEN;

/// The number of bits of a symbol's number that are sent.
pub const SEQUENCE_BITS: u32 = 24;

/// What a symbol contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SymbolKind {
    /// IP packets whose checksums are complete.
    Packet = 0,
    /// IP packets whose transport checksum is still to be computed: its field has the
    /// pseudo-header's sum.
    PartialPacket = 1,
    /// A control message.
    Control = 2,
    /// One of the two parts of packets that do not fit one datagram.
    Part = 7,
}

/// The class of a datagram, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramClass {
    /// A share of a symbol.
    Share,
    /// A path datagram: a probe of the MTU, a challenge, or the answer to one of them.
    Path,
    /// A datagram of the handshake.
    Handshake,
}

impl DatagramClass {
    /// The class of a datagram. `None` if it is unknown.
    pub fn of(datagram: &[u8]) -> Option<Self> {
        match datagram.first()? >> 4 {
            0..=2 | 7 => Some(Self::Share),
            3..=6 => Some(Self::Path),
            8..=11 => Some(Self::Handshake),
            _ => None,
        }
    }
}

/// The header of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymbolShareHeader {
    /// The content of the symbol.
    pub kind: SymbolKind,
    /// The threshold k, from 1 to [`MAX_CHANNELS`].
    pub threshold: u8,
    /// The low [`SEQUENCE_BITS`] bits of the symbol's number.
    pub sequence: u32,
    /// The token of this datagram.
    pub token: DatagramToken,
}

/// Bytes that are not a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SymbolShareHeaderError {
    /// Too few bytes for a header and a byte of share.
    #[error("a share of {0} bytes is too short")]
    Length(usize),
    /// Not the kind of a share.
    #[error("kind {0} is not a share")]
    Kind(u8),
}

impl SymbolShareHeader {
    /// The header of a share of symbol `number` on a channel.
    ///
    /// # Panics
    /// If the threshold is not from 1 to [`MAX_CHANNELS`], or there is no such channel.
    pub fn new(
        kind: SymbolKind,
        threshold: u8,
        number: u64,
        channel: usize,
        tokens: &mut ShareTokens,
    ) -> Self {
        let token = tokens.token(channel, first(kind, threshold), number);
        Self { kind, threshold, sequence: sequence(number), token }
    }

    /// The first byte: kind and threshold.
    pub fn first(self) -> u8 {
        first(self.kind, self.threshold)
    }

    /// The header's bytes.
    ///
    /// # Panics
    /// If the threshold is not from 1 to [`MAX_CHANNELS`].
    pub fn encode(self) -> [u8; HEADER_LEN] {
        let [_, s0, s1, s2] = self.sequence.to_be_bytes();
        let mut bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(&[self.first(), s0, s1, s2]);
        bytes[4..].copy_from_slice(&self.token.bytes());
        bytes
    }

    /// Parses a datagram into header and share.
    ///
    /// # Errors
    /// If it is too short, or not a share.
    pub fn parse(datagram: &[u8]) -> Result<(Self, &[u8]), SymbolShareHeaderError> {
        let too_short = SymbolShareHeaderError::Length(datagram.len());
        let (header, share) = datagram.split_first_chunk::<HEADER_LEN>().ok_or(too_short)?;
        if share.is_empty() {
            return Err(too_short);
        }
        let [first, s0, s1, s2, token @ ..] = *header;
        let kind = match first >> 4 {
            0 => SymbolKind::Packet,
            1 => SymbolKind::PartialPacket,
            2 => SymbolKind::Control,
            7 => SymbolKind::Part,
            other => return Err(SymbolShareHeaderError::Kind(other)),
        };
        let sequence = u32::from_be_bytes([0, s0, s1, s2]);
        let threshold = (first & 0x0f) + 1;
        Ok((Self { kind, threshold, sequence, token: DatagramToken::new(token) }, share))
    }
}

/// The first byte of a share: its kind and threshold.
///
/// # Panics
/// If the threshold is not from 1 to [`MAX_CHANNELS`].
pub fn first(kind: SymbolKind, threshold: u8) -> u8 {
    assert!((1..=MAX_CHANNELS).contains(&usize::from(threshold)), "1 <= k <= 16");
    (kind as u8) << 4 | (threshold - 1)
}

/// The bits of a symbol's number that are sent.
pub fn sequence(number: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
    let low = number as u32;
    low & (u32::MAX >> (32 - SEQUENCE_BITS))
}

/// The number nearest to `near` whose low bits are `sequence`.
pub fn expand_sequence(near: u64, sequence: u32) -> u64 {
    // The difference as a signed number of `SEQUENCE_BITS` bits.
    let unused = 32 - SEQUENCE_BITS;
    let distance = sequence.wrapping_sub(self::sequence(near)) << unused;
    let distance = i64::from(distance.cast_signed() >> unused);
    let number = near.wrapping_add_signed(distance);
    // Numbers below 0 do not exist.
    if distance < 0 && number > near { number.wrapping_add(1 << SEQUENCE_BITS) } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_are_as_specified() {
        let header = SymbolShareHeader {
            kind: SymbolKind::PartialPacket,
            threshold: 3,
            sequence: 0x02_0304,
            token: DatagramToken::new([11, 12, 13, 14, 15, 16, 17, 18]),
        };
        assert_eq!(header.encode(), [0x12, 2, 3, 4, 11, 12, 13, 14, 15, 16, 17, 18]);
    }

    #[test]
    fn malformed_shares_are_rejected() {
        assert_eq!(SymbolShareHeader::parse(&[0; 12]), Err(SymbolShareHeaderError::Length(12)));
        assert_eq!(SymbolShareHeader::parse(&[]), Err(SymbolShareHeaderError::Length(0)));
        assert_eq!(SymbolShareHeader::parse(&[0x30; 19]), Err(SymbolShareHeaderError::Kind(3)));
    }

    proptest! {
        #[test]
        fn a_parsed_header_encodes_to_the_same_bytes(first in 0_u8..0x30, rest: [u8; 11], share: [u8; 5]) {
            let bytes = [&[first][..], &rest, &share].concat();
            let (header, payload) = SymbolShareHeader::parse(&bytes).unwrap();
            prop_assert_eq!(&header.encode()[..], &bytes[..HEADER_LEN]);
            prop_assert_eq!(payload, &share);
        }

        #[test]
        fn truncated_numbers_are_expanded(near: u64, step in -0x80_0000_i64..0x80_0000) {
            if let Some(number) = near.checked_add_signed(step) {
                prop_assert_eq!(expand_sequence(near, sequence(number)), number);
            }
        }
    }
}
