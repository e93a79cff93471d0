//! The secrets that both ends share after the handshake: points for the tags, and keys for the
//! tokens.

use std::fmt;

use model::ChannelSubset;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::protocol::wire::datagram::MAX_CHANNELS;
use crate::protocol::wire::tokens::TokenKey;

/// The length of a point, in bytes.
pub const POINT_LEN: usize = 8;

/// The points `r_1` to `r_16` of one direction, one for each threshold. Secret.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct TagPoints(Box<[[u8; POINT_LEN]; MAX_CHANNELS]>);

impl TagPoints {
    /// Points of random bytes.
    pub fn new(random: &[[u8; POINT_LEN]; MAX_CHANNELS]) -> Self {
        // Boxing a copy would leave the copy on the stack.
        let mut points = Self(Box::new([[0; POINT_LEN]; MAX_CHANNELS]));
        points.0.copy_from_slice(random);
        points
    }

    /// The point of a threshold k, from 1 to [`MAX_CHANNELS`].
    ///
    /// # Panics
    /// If it is outside this range.
    pub fn point(&self, threshold: u8) -> [u8; POINT_LEN] {
        self.0[usize::from(threshold) - 1]
    }
}

impl fmt::Debug for TagPoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TagPoints(..)")
    }
}

/// The keys of one direction of an association.
#[derive(Clone, Debug)]
pub struct DirectionKeys {
    /// The number of channels: n.
    pub channels: usize,
    /// The key of its tokens.
    pub tokens: TokenKey,
    /// The points of the tags; `None` if the ends agreed on no tags.
    pub points: Option<TagPoints>,
}

/// The keys of one end after the handshake.
#[derive(Clone, Debug)]
pub struct TunnelKeys {
    /// The direction in which it sends.
    pub outgoing: DirectionKeys,
    /// The direction in which it receives.
    pub incoming: DirectionKeys,
    /// The privacy floor f: no symbol of either direction has a lower threshold.
    pub floor: u8,
    /// The channels of the association. Nothing is sent on others, or accepted from them.
    pub members: ChannelSubset,
}
