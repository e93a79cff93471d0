//! Congestion control: the sending rate and the congestion window.

mod delivery;
mod native;

use std::fmt::Debug;
use std::time::Duration;

pub use native::UdtCongestionControl;

/// A congestion control. A connection calls it at each event, and then reads
/// [`limits`](Self::limits).
pub trait SabulCongestionControl: Debug + Send {
    /// A packet was sent or retransmitted. `next_number` is the number of the next new packet.
    fn on_sent(&mut self, now: Duration, next_number: u64);

    /// The peer has acknowledged packets.
    fn on_ack(&mut self, now: Duration, ack: &SabulAckEvent);

    /// The peer has reported packets as lost.
    fn on_loss(&mut self, now: Duration, loss: &SabulLossEvent);

    /// Nothing was received from the peer for so long that all packets count as lost.
    fn on_timeout(&mut self, now: Duration);

    /// The current limits.
    fn limits(&self) -> SabulSendLimits;

    /// Its state, for statistics.
    fn metrics(&self) -> SabulCongestionMetrics;
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SabulAckEvent {
    /// All packets before this one have arrived.
    pub next: u64,
    /// How many of them are newly acknowledged.
    pub packets: u64,
    /// Whether this is a light acknowledgement, which is sent for every 64 packets.
    pub is_light: bool,
    /// The smoothed round-trip time.
    pub round_trip: Duration,
    /// The min RTT.
    pub min_rtt: Duration,
    /// How fast packets arrive at the peer, in packets/s. 0 if unknown.
    pub arrival_speed: f64,
    /// How fast the path could carry packets, in packets/s. 0 if unknown.
    pub capacity: f64,
    /// Whether the sender had packets that it was not allowed to send.
    pub is_limited: bool,
}

/// A loss report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SabulLossEvent {
    /// The first packet that is lost.
    pub first: u64,
    /// The packet after the last one that is lost. It has arrived.
    pub end: u64,
    /// How many packets are newly lost.
    pub packets: u64,
    /// The number of the next new packet.
    pub next_number: u64,
    /// As in [`SabulAckEvent`].
    pub round_trip: Duration,
    /// As in [`SabulAckEvent`].
    pub min_rtt: Duration,
    /// As in [`SabulAckEvent`].
    pub arrival_speed: f64,
}

/// The limits on how fast a connection may send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SabulSendLimits {
    /// The time between packets, in ns, at least 0.
    pub interval_ns: f64,
    /// The congestion window, in packets.
    pub window: u64,
}

/// The state of a congestion control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SabulCongestionMetrics {
    /// Whether it still doubles its window each round trip.
    pub in_slow_start: bool,
    /// The fraction of lost packets in the last round trips: 0 to 1.
    pub loss: f64,
}
