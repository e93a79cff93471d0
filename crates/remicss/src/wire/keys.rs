//! What the two ends hold together after the handshake: points for the tag, and keys for the tokens.

use std::fmt;

use model::Subset;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::wire::datagram::MAX_CHANNELS;
use crate::wire::tokens::TokenKey;

/// The length of a point, in bytes.
pub const POINT_LEN: usize = 8;

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
