//! The handshake: one round trip, which also measures the path's rate (docs/protocols/burst.md,
//! *Handshake*).

mod client;
mod crypt;
mod server;

use std::time::Duration;

use keys::IdentityPublicKey;

pub(super) use client::{BurstClientHandshake, BurstHandshakeSecurity, random_connection_id};
pub(super) use crypt::BurstPacketCipher;
pub(super) use server::{BurstServerHandshake, MeasuredTrain, RefusedBurstHello};

use super::packet::BurstConnectionId;

/// The bytes that IPv4 and UDP add to a datagram. IPv6 adds 20 more, which hardly change the
/// measured rate.
pub(super) const IP_OVERHEAD: usize = 28;

/// The result of a handshake.
pub(super) struct BurstHandshakeResult {
    pub(super) crypt: BurstPacketCipher,
    /// The connection id in packets to the peer.
    pub(super) peer_id: BurstConnectionId,
    /// The peer's initial window: how far the stream may be sent.
    pub(super) window: u64,
    /// The measured rate in bytes/s.
    pub(super) rate: Option<f64>,
    /// The longest datagram that the path is known to carry.
    pub(super) longest: usize,
    pub(super) round_trip: Option<Duration>,
    pub(super) peer_key: Option<IdentityPublicKey>,
}
