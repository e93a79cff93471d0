//! What the two ends hold together after the handshake: points for the tag, and keys for the tokens.

use std::fmt;

use model::Subset;
use siphasher::sip::SipHasher24;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::MAX_CHANNELS;

/// The length of a token, in bytes.
pub const TOKEN_LEN: usize = 8;

/// The length of the key of a direction's tokens, in bytes.
pub const TOKEN_KEY_LEN: usize = 16;

/// The length of a point, in bytes.
pub const POINT_LEN: usize = 8;

/// The first byte of what is no datagram: what else is made of a token key.
const NO_DATAGRAM: u8 = 0xff;

/// What shows that the peer sent a datagram with this header on this channel. It is another for each
/// datagram, so whoever has seen those of one channel, or earlier ones, cannot make the next.
#[derive(Clone, Copy, Default)]
pub struct Token([u8; TOKEN_LEN]);

/// What a token is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The first byte of the datagram.
    pub first: u8,
    /// The channel's index.
    pub channel: usize,
    /// The length that a datagram about a path names; 0 for shares.
    pub length: u16,
    /// The number of a share's symbol, in full, or the identifier of a datagram about a path.
    pub number: u64,
}

/// Makes the tokens of one direction of an association. Secret: it is shared over all channels as the
/// points are, so whoever is on fewer does not have it.
///
/// A token is SipHash-2-4 of the stamp. Nothing but availability and addresses rests on
/// it: secrecy and integrity of packets do not.
#[derive(Clone)]
pub struct TokenKey {
    /// Boxed, so that the key stays in one place when this is moved.
    key: Box<Zeroizing<[u8; TOKEN_KEY_LEN]>>,
    id: KeyId,
}

/// Tells token keys apart. It says nothing about the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyId([u8; TOKEN_LEN]);

impl Token {
    /// A token that a datagram has.
    pub fn new(bytes: [u8; TOKEN_LEN]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub fn bytes(self) -> [u8; TOKEN_LEN] {
        self.0
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        u64::from_ne_bytes(self.0).ct_eq(&u64::from_ne_bytes(other.0)).into()
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Stamp {
    fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[0] = self.first;
        bytes[1] = u8::try_from(self.channel).unwrap_or(u8::MAX);
        bytes[2..4].copy_from_slice(&self.length.to_be_bytes());
        bytes[8..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }
}

impl TokenKey {
    /// A key of random bytes.
    pub fn new(random: &[u8; TOKEN_KEY_LEN]) -> Self {
        // A box of a copy would leave the copy on the stack.
        let mut key = Box::new(Zeroizing::new([0; TOKEN_KEY_LEN]));
        key.copy_from_slice(random);
        let mut key = Self { key, id: KeyId([0; TOKEN_LEN]) };
        key.id = KeyId(key.derived(0));
        key
    }

    /// The token of one datagram.
    pub fn token(&self, stamp: Stamp) -> Token {
        let hasher = SipHasher24::new_with_key(&self.key);
        Token(hasher.hash(&stamp.bytes()).to_le_bytes())
    }

    /// What tells this key from others.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// A number that only those know who have the key.
    pub(crate) fn seed(&self) -> u64 {
        u64::from_be_bytes(self.derived(1))
    }

    fn derived(&self, number: u64) -> [u8; TOKEN_LEN] {
        self.token(Stamp { first: NO_DATAGRAM, channel: 0, length: 0, number }).0
    }
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(..)")
    }
}

/// The points `r_1` to `r_16` of one direction, one for each threshold. Secret.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Points(Box<[[u8; POINT_LEN]; MAX_CHANNELS]>);

impl Points {
    /// Points of random bytes.
    pub fn new(random: &[[u8; POINT_LEN]; MAX_CHANNELS]) -> Self {
        // A box of a copy would leave the copy on the stack.
        let mut points = Self(Box::new([[0; POINT_LEN]; MAX_CHANNELS]));
        points.0.copy_from_slice(random);
        points
    }

    /// The point of a threshold k, from 1 to [`MAX_CHANNELS`].
    ///
    /// # Panics
    /// If it is outside that.
    pub fn of(&self, threshold: u8) -> [u8; POINT_LEN] {
        self.0[usize::from(threshold) - 1]
    }
}

impl fmt::Debug for Points {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Points(..)")
    }
}

/// What one direction of an association needs at either end.
#[derive(Clone, Debug)]
pub struct Direction {
    /// The number of channels: n.
    pub channels: usize,
    /// What makes the tokens of its datagrams.
    pub tokens: TokenKey,
    /// The points of the tag; `None` if the ends agreed to do without it.
    pub points: Option<Points>,
}

/// What an end holds after the handshake.
#[derive(Clone, Debug)]
pub struct Keys {
    /// For what it sends.
    pub outgoing: Direction,
    /// For what it receives.
    pub incoming: Direction,
    /// The privacy floor f: no symbol has a lower threshold, either way.
    pub floor: u8,
    /// The channels that are in the association. Nothing is sent or taken on others.
    pub members: Subset,
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp =
        Stamp { first: 0x21, channel: 2, length: 0, number: 0x0102_0304_0506_0708 };

    /// Aumasson and Bernstein, "`SipHash`: a fast short-input PRF", appendix A.
    #[test]
    fn the_hash_is_the_published_one() {
        let bytes: [u8; 16] = std::array::from_fn(|i| u8::try_from(i).unwrap());
        assert_eq!(SipHasher24::new_with_key(&bytes).hash(&bytes[..15]), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn stamps_are_as_specified() {
        let bytes = Stamp { length: 0x0A0B, ..STAMP }.bytes();
        assert_eq!(bytes, [0x21, 2, 0x0A, 0x0B, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_token_is_for_one_datagram_and_key() {
        let key = TokenKey::new(&[7; 16]);
        let token = key.token(STAMP);
        assert_eq!(key.token(STAMP), token);
        assert_ne!(TokenKey::new(&[8; 16]).token(STAMP), token);
        for other in [
            Stamp { first: 0x22, ..STAMP },
            Stamp { channel: 1, ..STAMP },
            Stamp { length: 1, ..STAMP },
            // The same low 24 bits, which are all that is sent.
            Stamp { number: STAMP.number + (1 << 24), ..STAMP },
        ] {
            assert_ne!(key.token(other), token);
        }
    }
}
