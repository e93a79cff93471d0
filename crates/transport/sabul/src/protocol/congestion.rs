//! Congestion control: how fast packets are sent, and how many may be unacknowledged.

mod delivery;
mod native;

use std::fmt::Debug;
use std::time::Duration;

pub use native::UdtCongestionControl;

/// Decides how fast a connection sends. A connection calls it for each event, and reads
/// [`limits`](Self::limits) afterwards.
pub trait SabulCongestionControl: Debug + Send {
    /// A packet was sent, new or again. `next_number` is the number of the next new packet.
    fn on_sent(&mut self, now: Duration, next_number: u64);

    /// The peer has acknowledged packets.
    fn on_ack(&mut self, now: Duration, ack: &SabulAckEvent);

    /// The peer lacks packets.
    fn on_loss(&mut self, now: Duration, loss: &SabulLossEvent);

    /// Nothing was heard from the peer for so long that all packets count as lost.
    fn on_timeout(&mut self, now: Duration);

    /// The limits from now on.
    fn limits(&self) -> SabulSendLimits;

    /// What it believes, for people.
    fn metrics(&self) -> SabulCongestionMetrics;
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SabulAckEvent {
    /// All packets before this one have arrived.
    pub next: u64,
    /// How many of them are new.
    pub packets: u64,
    /// Whether it is a light one, which is sent for every 64 packets.
    pub is_light: bool,
    /// The mean round-trip time.
    pub round_trip: Duration,
    /// The shortest round-trip time that was measured.
    pub min_rtt: Duration,
    /// How fast packets arrive at the peer, in packets/s. 0 if unknown.
    pub arrival_speed: f64,
    /// How fast the path could carry packets, in packets/s. 0 if unknown.
    pub capacity: f64,
    /// Whether the sender had packets that it was not allowed to send.
    pub is_limited: bool,
}

/// What a loss report says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SabulLossEvent {
    /// The first packet that is lost.
    pub first: u64,
    /// The packet after the last one that is lost: it has arrived.
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

/// How fast a connection may send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SabulSendLimits {
    /// The time from one packet to the next, in ns, 0 or more.
    pub interval_ns: f64,
    /// The packets that may be unacknowledged.
    pub window: u64,
}

/// What a congestion control believes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SabulCongestionMetrics {
    /// Whether it still doubles its window each round trip.
    pub in_slow_start: bool,
    /// The part of the packets that is lost, of those sent in the last round trips: 0 to 1.
    pub loss: f64,
}
