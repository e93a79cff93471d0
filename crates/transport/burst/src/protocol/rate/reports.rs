//! The input and output types of the congestion model.

use std::time::Duration;

/// What the model needs to know about a packet. It is returned when the packet is sent, and passed
/// back when the packet is acknowledged or lost.
#[derive(Clone, Copy, Debug)]
pub struct PacketSendState {
    pub(super) at: Duration,
    /// The bytes sent up to and including this packet.
    pub(super) total: u64,
    /// Whether it was application-limited: the application had provided less than could be sent.
    pub(super) is_limited: bool,
}

/// An acknowledgement of at least one packet.
#[derive(Clone, Copy, Debug)]
pub struct BurstAckEvent {
    /// The latest sent of the packets.
    pub newest: PacketSendState,
    /// How many packets are newly acknowledged.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the latest sent packet arrived, by the peer's clock.
    pub received_at: Duration,
    /// The round-trip time of the latest sent packet, without the peer's acknowledgement delay.
    pub round_trip: Duration,
}

/// Packets that count as lost.
#[derive(Clone, Copy, Debug)]
pub struct BurstLossEvent {
    /// The latest sent of them.
    pub newest: PacketSendState,
    /// How many packets are lost.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The state of the model, for statistics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstCongestionMetrics {
    /// The phase: start, drain, cruise, compete, queue probe or hold rate.
    pub phase: &'static str,
    /// The delivery rate of the path, in bytes/s; 0 if unknown.
    pub delivery_rate: f64,
    /// The rate at which packets that were sent back to back arrive, in bytes/s; 0 if unknown. If
    /// it is much higher than the delivery rate, something limits the rate without building a
    /// queue.
    pub link_rate: f64,
    /// The smoothed round-trip time; zero before the first one.
    pub round_trip: Duration,
    /// The shortest round-trip time of the last 5 to 10 s; zero before the first one.
    pub min_rtt: Duration,
    /// The smoothed fraction of packets that are lost: 0 to 1.
    pub loss: f64,
}
