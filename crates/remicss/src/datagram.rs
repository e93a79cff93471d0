//! The first bytes of every datagram, and the header of those that carry a share.

use thiserror::Error;

use crate::MAX_CHANNELS;
use crate::keys::{TOKEN_LEN, Token};

/// The length of a share's header, in bytes.
pub const HEADER_LEN: usize = 7;

/// How many bits of a symbol's number are sent.
pub const SEQUENCE_BITS: u32 = 24;

/// What the shares of a symbol say about what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// IP packets whose checksums are complete.
    Packet = 0,
    /// IP packets whose transport checksum is still to be done: its field has the pseudo-header's sum.
    PartialPacket = 1,
    /// A control message.
    Control = 2,
}

/// What a datagram is, as its first byte says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A share of a symbol.
    Share,
    /// A probe of the path's MTU, or the answer to one.
    Probe,
    /// A datagram of the handshake.
    Handshake,
}

impl Class {
    /// What a datagram is. `None` if it is nothing known.
    pub fn of(datagram: &[u8]) -> Option<Self> {
        match datagram.first()? >> 4 {
            0..=2 => Some(Self::Share),
            3 | 4 => Some(Self::Probe),
            8..=11 => Some(Self::Handshake),
            _ => None,
        }
    }
}

/// The header of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What is shared.
    pub kind: Kind,
    /// How many shares give the symbol back: k, from 1 to [`MAX_CHANNELS`].
    pub threshold: u8,
    /// The token of the channel and direction.
    pub token: Token,
    /// The low [`SEQUENCE_BITS`] bits of the symbol's number.
    pub sequence: u32,
}

/// Bytes are no share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// They are too few for a header and a byte of share.
    #[error("a share of {0} bytes is too short")]
    Length(usize),
    /// The kind is that of no share.
    #[error("kind {0} is no share's")]
    Kind(u8),
}

impl Header {
    /// The header's bytes.
    ///
    /// # Panics
    /// If the threshold is not from 1 to [`MAX_CHANNELS`].
    pub fn encode(self) -> [u8; HEADER_LEN] {
        assert!((1..=MAX_CHANNELS).contains(&usize::from(self.threshold)), "1 <= k <= 16");
        let [t0, t1, t2] = self.token.bytes();
        let [_, s0, s1, s2] = self.sequence.to_be_bytes();
        [(self.kind as u8) << 4 | (self.threshold - 1), t0, t1, t2, s0, s1, s2]
    }

    /// The header and the share of a datagram.
    ///
    /// # Errors
    /// If it is too short, or of another kind.
    pub fn parse(datagram: &[u8]) -> Result<(Self, &[u8]), HeaderError> {
        let too_short = HeaderError::Length(datagram.len());
        let (header, share) = datagram.split_first_chunk::<HEADER_LEN>().ok_or(too_short)?;
        if share.is_empty() {
            return Err(too_short);
        }
        let [first, t0, t1, t2, s0, s1, s2] = *header;
        let kind = match first >> 4 {
            0 => Kind::Packet,
            1 => Kind::PartialPacket,
            2 => Kind::Control,
            other => return Err(HeaderError::Kind(other)),
        };
        let token: [u8; TOKEN_LEN] = [t0, t1, t2];
        let sequence = u32::from_be_bytes([0, s0, s1, s2]);
        let threshold = (first & 0x0f) + 1;
        Ok((Self { kind, threshold, token: Token::new(token), sequence }, share))
    }
}

/// What is sent of a symbol's number.
pub fn sequence(number: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
    let low = number as u32;
    low & (u32::MAX >> (32 - SEQUENCE_BITS))
}

/// The number of which `sequence` is sent that is nearest to `near`.
pub fn nearest(near: u64, sequence: u32) -> u64 {
    // The difference as a number with a sign, of as many bits as are sent.
    let unused = 32 - SEQUENCE_BITS;
    let distance = sequence.wrapping_sub(self::sequence(near)) << unused;
    let distance = i64::from(distance.cast_signed() >> unused);
    let number = near.wrapping_add_signed(distance);
    // Nothing comes before number 0.
    if distance < 0 && number > near { number.wrapping_add(1 << SEQUENCE_BITS) } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_are_as_specified() {
        let header = Header {
            kind: Kind::PartialPacket,
            threshold: 3,
            token: Token::new([0xa, 0xb, 0xc]),
            sequence: 0x02_0304,
        };
        assert_eq!(header.encode(), [0x12, 0xa, 0xb, 0xc, 2, 3, 4]);
    }

    #[test]
    fn what_is_no_share_is_refused() {
        assert_eq!(Header::parse(&[0; 7]), Err(HeaderError::Length(7)));
        assert_eq!(Header::parse(&[]), Err(HeaderError::Length(0)));
        assert_eq!(Header::parse(&[0x30; 9]), Err(HeaderError::Kind(3)));
    }

    proptest! {
        #[test]
        fn a_header_that_is_read_is_the_one_written(first in 0_u8..0x30, rest: [u8; 6], share: [u8; 5]) {
            let bytes = [&[first][..], &rest, &share].concat();
            let (header, payload) = Header::parse(&bytes).unwrap();
            prop_assert_eq!(&header.encode()[..], &bytes[..7]);
            prop_assert_eq!(payload, &share);
        }

        #[test]
        fn numbers_are_found_again(near: u64, step in -0x80_0000_i64..0x80_0000) {
            if let Some(number) = near.checked_add_signed(step) {
                prop_assert_eq!(nearest(near, sequence(number)), number);
            }
        }
    }
}
