//! What the two ends hold together after the handshake: points for the tag, tokens for the channels.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::MAX_CHANNELS;

/// The length of a token, in bytes.
pub const TOKEN_LEN: usize = 3;

/// The length of a point, in bytes.
pub const POINT_LEN: usize = 8;

/// What a datagram on one channel and in one direction has to begin with, so that who cannot see the
/// channel is turned away before any work. Seen by all who see the channel.
#[derive(Clone, Copy)]
pub struct Token([u8; TOKEN_LEN]);

impl Token {
    /// A token of random bytes.
    pub fn new(random: [u8; TOKEN_LEN]) -> Self {
        Self(random)
    }

    /// Its bytes.
    pub fn bytes(self) -> [u8; TOKEN_LEN] {
        self.0
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The points `r_1` to `r_16` of one direction, one for each threshold. Secret.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Points(Box<[[u8; POINT_LEN]; MAX_CHANNELS]>);

impl Points {
    /// Points of random bytes.
    pub fn new(random: [[u8; POINT_LEN]; MAX_CHANNELS]) -> Self {
        Self(Box::new(random))
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
    /// A token for each channel.
    pub tokens: Vec<Token>,
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
}
