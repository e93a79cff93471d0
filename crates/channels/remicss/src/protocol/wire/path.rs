//! Path datagrams: probes of the path MTU, challenges to an address, and the answers to both.
//!
//! | offset | length | field |
//! |---|---|---|
//! | 0 | 1 | kind: 3 probe, 4 its answer, 5 challenge, 6 its answer; the low half 0 |
//! | 1 | 8 | identifier |
//! | 9 | 2 | length of the probe as UDP's payload; 0 for challenges |
//! | 11 | 8 | token |
//! | 19 | | zeros, up to a probe's length |

use thiserror::Error;

use crate::protocol::wire::tokens::{DatagramToken, PathTokenInput, TOKEN_LEN, TokenKey};

/// The length of all path datagrams except probes, in bytes.
const LEN: usize = 11 + TOKEN_LEN;

/// The content of a path datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathDatagram {
    /// The kind.
    pub kind: PathDatagramKind,
    /// The identifier, which an answer copies.
    pub id: u64,
    /// The length of the probe as UDP payload; 0 for challenges.
    pub length: u16,
}

/// The kind of a path datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PathDatagramKind {
    /// Asks whether a datagram of this length arrives.
    Probe = 3,
    /// The answer to a probe.
    ProbeAnswer = 4,
    /// Asks whether the peer is at this address.
    Challenge = 5,
    /// The answer to a challenge.
    ChallengeAnswer = 6,
}

/// Bytes that are not a path datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PathDatagramError {
    /// They are malformed.
    #[error("{0} bytes are not a path datagram")]
    Malformed(usize),
    /// The token is wrong: the peer did not send it on this channel.
    #[error("the token is wrong")]
    Token,
}

impl PathDatagram {
    /// The minimum length of a path datagram, in bytes.
    pub const MIN_LEN: usize = LEN;

    /// Encodes it, with the token for a channel.
    pub fn seal(self, tokens: &TokenKey, channel: usize) -> Vec<u8> {
        let mut bytes = vec![self.first()];
        bytes.extend(self.id.to_be_bytes());
        bytes.extend(self.length.to_be_bytes());
        bytes.extend(tokens.token(self.stamp(channel)).bytes());
        if self.kind == PathDatagramKind::Probe {
            bytes.resize(usize::from(self.length).max(LEN), 0);
        }
        bytes
    }

    /// Parses a datagram that arrived on a channel, and checks its token.
    ///
    /// # Errors
    /// If it is malformed or its token is wrong.
    pub fn open(
        bytes: &[u8],
        tokens: &TokenKey,
        channel: usize,
    ) -> Result<Self, PathDatagramError> {
        let malformed = PathDatagramError::Malformed(bytes.len());
        let (header, rest) = bytes.split_first_chunk::<LEN>().ok_or(malformed)?;
        let [first, i0, i1, i2, i3, i4, i5, i6, i7, l0, l1, token @ ..] = *header;
        let kind = PathDatagramKind::of(first).ok_or(malformed)?;
        let id = u64::from_be_bytes([i0, i1, i2, i3, i4, i5, i6, i7]);
        let datagram = Self { kind, id, length: u16::from_be_bytes([l0, l1]) };
        let is_formed = match kind {
            PathDatagramKind::Probe => usize::from(datagram.length) == bytes.len(),
            PathDatagramKind::ProbeAnswer => rest.is_empty() && usize::from(datagram.length) >= LEN,
            PathDatagramKind::Challenge | PathDatagramKind::ChallengeAnswer => {
                rest.is_empty() && datagram.length == 0
            }
        };
        if !is_formed {
            return Err(malformed);
        }
        if tokens.token(datagram.stamp(channel)) != DatagramToken::new(token) {
            return Err(PathDatagramError::Token);
        }
        Ok(datagram)
    }

    /// The answer to it; `None` if it is an answer.
    #[must_use]
    pub fn answer(self) -> Option<Self> {
        let kind = match self.kind {
            PathDatagramKind::Probe => PathDatagramKind::ProbeAnswer,
            PathDatagramKind::Challenge => PathDatagramKind::ChallengeAnswer,
            PathDatagramKind::ProbeAnswer | PathDatagramKind::ChallengeAnswer => return None,
        };
        Some(Self { kind, ..self })
    }

    fn first(self) -> u8 {
        (self.kind as u8) << 4
    }

    fn stamp(self, channel: usize) -> PathTokenInput {
        PathTokenInput { first: self.first(), channel, length: self.length, id: self.id }
    }
}

impl PathDatagramKind {
    /// The kind of a datagram with this first byte.
    pub fn of(first: u8) -> Option<Self> {
        match first {
            0x30 => Some(Self::Probe),
            0x40 => Some(Self::ProbeAnswer),
            0x50 => Some(Self::Challenge),
            0x60 => Some(Self::ChallengeAnswer),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tokens() -> TokenKey {
        TokenKey::new(&[3; 16])
    }

    fn datagrams() -> [PathDatagram; 4] {
        let probe =
            PathDatagram { kind: PathDatagramKind::Probe, id: 0x0102_0304_0506_0708, length: 1472 };
        let challenge = PathDatagram { kind: PathDatagramKind::Challenge, length: 0, ..probe };
        [probe, probe.answer().unwrap(), challenge, challenge.answer().unwrap()]
    }

    #[test]
    fn bytes_are_as_specified() {
        for (datagram, kind) in datagrams().into_iter().zip([0x30, 0x40, 0x50, 0x60]) {
            let bytes = datagram.seal(&tokens(), 2);
            assert_eq!(bytes[..9], [kind, 1, 2, 3, 4, 5, 6, 7, 8]);
            let (length, total) = if kind < 0x50 { ([5, 192], 1472) } else { ([0, 0], LEN) };
            assert_eq!(bytes[9..11], length);
            assert_eq!(bytes.len(), if kind == 0x30 { total } else { 19 });
            assert!(bytes[19..].iter().all(|byte| *byte == 0));
            assert_eq!(PathDatagram::open(&bytes, &tokens(), 2), Ok(datagram));
        }
        assert_eq!(datagrams()[1].answer(), None);
        assert_eq!(datagrams()[3].answer(), None);
    }

    #[test]
    fn a_datagram_is_for_its_channel_and_key() {
        for datagram in datagrams() {
            let bytes = datagram.seal(&tokens(), 2);
            assert_eq!(PathDatagram::open(&bytes, &tokens(), 1), Err(PathDatagramError::Token));
            let other = TokenKey::new(&[4; 16]);
            assert_eq!(PathDatagram::open(&bytes, &other, 2), Err(PathDatagramError::Token));
        }
    }

    proptest! {
        #[test]
        fn any_change_is_refused(which in 0_usize..4, place in 0_usize..19, bit in 0..8_u8) {
            let mut bytes = datagrams()[which].seal(&tokens(), 0);
            bytes[place] ^= 1 << bit;
            prop_assert!(PathDatagram::open(&bytes, &tokens(), 0).is_err());
            prop_assert!(PathDatagram::open(&bytes[..place], &tokens(), 0).is_err());
        }
    }
}
