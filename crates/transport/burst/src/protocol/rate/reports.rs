//! What the model is told and tells.

use std::time::Duration;

/// What the model says of a packet when it is sent. It comes back when the packet is acknowledged
/// or lost.
#[derive(Clone, Copy, Debug)]
pub struct PacketSendState {
    pub(super) at: Duration,
    /// The bytes sent until then, with it.
    pub(super) total: u64,
    /// Whether the application had given less than might have been sent.
    pub(super) is_limited: bool,
}

/// An acknowledgement of at least one packet.
#[derive(Clone, Copy, Debug)]
pub struct BurstAckEvent {
    /// The newest of the packets.
    pub newest: PacketSendState,
    /// How many packets are newly acknowledged.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the newest one arrived, by the peer's clock.
    pub received_at: Duration,
    /// The newest one's round-trip time, without the time for which the peer waited.
    pub round_trip: Duration,
}

/// Packets that count as lost.
#[derive(Clone, Copy, Debug)]
pub struct BurstLossEvent {
    /// The newest of them.
    pub newest: PacketSendState,
    /// How many.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What the model believes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstCongestionMetrics {
    /// The phase: start, drain, cruise, compete, dip or insist.
    pub phase: &'static str,
    /// How fast the path delivers, in bytes/s; 0 if unknown.
    pub delivery_rate: f64,
    /// At what rate packets arrive that were sent without gaps, in bytes/s; 0 if unknown. If it is
    /// much more than the rate of delivery, something limits the rate without a queue.
    pub link_rate: f64,
    /// The smoothed round-trip time; zero before the first one.
    pub round_trip: Duration,
    /// The shortest round-trip time of the last 5 to 10 s; zero before the first one.
    pub min_rtt: Duration,
    /// The smoothed fraction of packets that are lost: 0 to 1.
    pub loss: f64,
}
