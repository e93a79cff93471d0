//! Measures at the sender how fast packets arrive at the peer.
//!
//! Acknowledgements contain the next packet in order, so that one lost packet hides all that arrive
//! after it. But the peer also sends a light acknowledgement for every 64 packets that arrive, and
//! a loss report shows that the packet after a gap has arrived. From both together the sender
//! counts arrivals.

#![expect(clippy::cast_precision_loss, reason = "estimates")]

use std::time::Duration;

/// A light acknowledgement is sent for this many packets (by UDT4 and by Sunder).
const LIGHT_ACK_PACKETS: u64 = 64;

/// A speed is measured over at least this many packets and this much time. On slow paths, fewer
/// packets are enough over a longer time.
const MIN_PACKETS: u64 = 192;
const MIN_TIME: Duration = Duration::from_millis(2);
const MIN_SLOW_PACKETS: u64 = 16;
const MIN_SLOW_TIME: Duration = Duration::from_millis(20);

/// A pause longer than both this and the following fraction of a round trip ends a measurement.
const MAX_PAUSE: Duration = Duration::from_millis(15);
const MAX_PAUSE_PART: u32 = 8;

/// After a shorter pause, a measurement ends if fewer packets have arrived than this fraction of
/// what the rate before the pause lets one expect.
const LATE_PART: f64 = 0.5;

/// Two measurements agree if their ratio is less than this.
const AGREEMENT: f64 = 1.5;

/// The number of measurements kept.
const SPEEDS: usize = 8;

/// Measures the delivery rate.
#[derive(Debug, Default)]
pub(super) struct SabulDeliveryMeter {
    /// The peer has all packets before this one, except those that it has reported lost.
    next: u64,
    /// The number of packets from `next` on that light acknowledgements have counted.
    ahead: u64,
    /// The packets of the current measurement.
    packets: u64,
    began_at: Duration,
    last_at: Duration,
    /// In packets/s.
    speeds: Vec<f64>,
}

impl SabulDeliveryMeter {
    /// Records that all packets before `next` have arrived, except those reported lost; if
    /// `counts_packets`, also that 64 packets have arrived since the last acknowledgement.
    pub(super) fn add(
        &mut self,
        now: Duration,
        next: u64,
        counts_packets: bool,
        round_trip: Duration,
    ) {
        let progress = if self.next == 0 { 0 } else { next.saturating_sub(self.next) };
        self.next = self.next.max(next);
        let mut arrived = progress.saturating_sub(self.ahead);
        self.ahead = self.ahead.saturating_sub(progress);
        if counts_packets && progress == 0 {
            self.ahead += LIGHT_ACK_PACKETS;
            arrived = LIGHT_ACK_PACKETS;
        }
        if arrived == 0 {
            return;
        }
        let pause = now.saturating_sub(self.last_at);
        let elapsed = self.last_at.saturating_sub(self.began_at);
        self.last_at = now;
        let is_pause = pause > MAX_PAUSE.max(round_trip / MAX_PAUSE_PART);
        // The end of a burst is acknowledged up to 10 ms after its arrival.
        let expected = self.packets as f64 * pause.as_secs_f64() / elapsed.as_secs_f64().max(1e-6);
        let is_late = pause > MIN_TIME && (arrived as f64) < expected * LATE_PART;
        if is_pause || is_late {
            (self.began_at, self.packets) = (now, 0);
            return;
        }
        self.packets += arrived;
        let elapsed = now.saturating_sub(self.began_at);
        let is_fast = self.packets >= MIN_PACKETS && elapsed >= MIN_TIME;
        let is_slow = self.packets >= MIN_SLOW_PACKETS && elapsed >= MIN_SLOW_TIME;
        if is_fast || is_slow {
            if self.speeds.len() == SPEEDS {
                self.speeds.remove(0);
            }
            self.speeds.push(self.packets as f64 / elapsed.as_secs_f64());
            (self.began_at, self.packets) = (now, 0);
        }
    }

    /// The delivery rate in packets/s: the second highest of the last measurements, because delayed
    /// acknowledgements that arrive together make the highest one too high. With fewer than three
    /// measurements, the smaller of the highest one and `at_peer`, the peer's own measurement (0 if
    /// unknown), if they agree. Otherwise `None`.
    pub(super) fn speed(&self, at_peer: f64) -> Option<f64> {
        let mut sorted = self.speeds.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let highest = *sorted.last()?;
        if sorted.len() >= 3 {
            return Some(sorted[sorted.len() - 2]);
        }
        (at_peer > 0.0 && highest * AGREEMENT > at_peer && highest < at_peer * AGREEMENT)
            .then(|| at_peer.min(highest))
    }
}
