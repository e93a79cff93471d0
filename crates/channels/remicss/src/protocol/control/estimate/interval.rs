//! The datagrams sent on a channel between two control messages, and how many of them arrived.

use std::time::Duration;

/// The datagrams sent on a channel between two control messages, and how many of them arrived.
/// Control shares do not count, except for their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeasurementInterval {
    /// When the first of the two control shares was sent.
    pub began: Duration,
    /// Datagrams sent.
    pub sent: u64,
    /// The bytes of those, as IP packets.
    pub sent_bytes: u64,
    /// Datagrams that arrived.
    pub received: u64,
    /// The time from sending one control share to sending the other.
    pub sending: Duration,
    /// The time from the arrival of one to the arrival of the other.
    pub arriving: Duration,
    /// The number of messages from the first share to the second: more than one if shares between
    /// them were lost.
    pub messages: u64,
}

impl MeasurementInterval {
    /// This interval and the next one, as one.
    pub(super) fn followed_by(self, next: Self) -> Self {
        Self {
            began: if self.messages == 0 { next.began } else { self.began },
            sent: self.sent.saturating_add(next.sent),
            sent_bytes: self.sent_bytes.saturating_add(next.sent_bytes),
            received: self.received.saturating_add(next.received),
            sending: self.sending.saturating_add(next.sending),
            arriving: self.arriving.saturating_add(next.arriving),
            messages: self.messages.saturating_add(next.messages),
        }
    }

    pub(super) fn sent_bps(self) -> f64 {
        bits_per_second(self.sent_bytes, self.sending)
    }

    /// The sent bytes, divided by the time that they took to leave or to arrive, whichever was
    /// longer, so that a burst from a queue does not count as a rate.
    pub(super) fn bounded_send_bps(self) -> f64 {
        bits_per_second(self.sent_bytes, self.sending.max(self.arriving))
    }

    pub(super) fn missing(self) -> u64 {
        self.sent.saturating_sub(self.received)
    }

    /// The part of [`Self::bounded_send_bps`] that arrived.
    pub(super) fn arriving_bps(self) -> f64 {
        self.bounded_send_bps() * self.arrived_fraction()
    }

    pub(super) fn arrived_fraction(self) -> f64 {
        (from_count(self.received) / from_count(self.sent.max(1))).min(1.0)
    }
}

pub(super) fn bits_per_second(bytes: u64, time: Duration) -> f64 {
    // A microsecond is the resolution of control messages.
    8.0 * from_count(bytes) / time.as_secs_f64().max(1e-6)
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
pub(super) fn from_count(count: u64) -> f64 {
    count as f64
}
