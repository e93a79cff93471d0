//! How fast to send: a model of the path.

use std::time::Duration;

/// What the model says of a packet at the time it is sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    bytes: u64,
}

/// An acknowledgement of at least one packet.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// Of the newest of these packets.
    pub newest: Sent,
    /// How many packets are newly acknowledged.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the newest arrived, by the peer's clock.
    pub received_at: Duration,
    /// The newest one's round-trip time, without the time that the peer waited.
    pub round_trip: Duration,
}

/// Packets that count as lost.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// Of the newest of them.
    pub newest: Sent,
    /// How many.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The model.
#[derive(Debug)]
pub struct Model {
    rate: f64,
    round_trip: Duration,
    in_flight: u64,
}

impl Model {
    /// A model that starts at a rate in bytes/s.
    pub fn new(start: Option<f64>, _datagram: usize) -> Self {
        Self { rate: start.unwrap_or(1e6), round_trip: Duration::from_millis(300), in_flight: 0 }
    }

    /// A packet is sent.
    pub fn on_sent(&mut self, _now: Duration, bytes: usize) -> Sent {
        self.in_flight += bytes as u64;
        Sent { bytes: bytes as u64 }
    }

    /// There is nothing to send.
    pub fn on_idle(&mut self) {}

    /// A train had this rate.
    pub fn on_train(&mut self, rate: f64) {
        self.rate = rate;
    }

    /// Packets have arrived.
    pub fn on_ack(&mut self, _now: Duration, acked: &Acked) {
        debug_assert!(acked.newest.bytes <= acked.bytes);
        self.in_flight = self.in_flight.saturating_sub(acked.bytes);
        self.round_trip = acked.round_trip;
    }

    /// Packets were lost.
    pub fn on_loss(&mut self, _now: Duration, lost: &Lost) {
        self.in_flight = self.in_flight.saturating_sub(lost.bytes);
    }

    /// The rate in bytes/s.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The bytes that may be in flight.
    pub fn window(&self) -> u64 {
        super::to_u64(self.rate * self.round_trip.as_secs_f64() * 2.0) + 100_000
    }

    /// The bytes of a train.
    pub fn burst(&self) -> u64 {
        super::to_u64(self.rate * 0.5e-3).clamp(1500, 64_000)
    }

    /// The bytes in flight.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }
}
