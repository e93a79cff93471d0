//! How fast packets arrive at the peer, as the sender sees it.
//!
//! Acknowledgements name the next packet in order, so that one lost packet hides all that arrive
//! after it. But a light one is sent for every 64 packets that arrive, and a loss report says that
//! the packet after a gap has arrived. Together they count what arrives.

#![expect(clippy::cast_precision_loss, reason = "estimates")]

use std::time::Duration;

/// A light acknowledgement is sent for so many packets (UDT4, and Sunder).
const LIGHT_ACK_PACKETS: u64 = 64;

/// A speed is measured over so many packets and so much time at least, or over fewer packets of a
/// slow path.
const MIN_PACKETS: u64 = 192;
const MIN_TIME: Duration = Duration::from_millis(2);
const MIN_SLOW_PACKETS: u64 = 16;
const MIN_SLOW_TIME: Duration = Duration::from_millis(20);

/// A longer pause, or one of this part of a round trip, is not part of a measurement.
const MAX_PAUSE: Duration = Duration::from_millis(15);
const MAX_PAUSE_PART: u32 = 8;

/// After a shorter one a measurement has ended if fewer packets have arrived than this part of what
/// the rate before it makes likely.
const LATE_PART: f64 = 0.5;

/// Two measurements agree if neither is larger by this factor.
const AGREEMENT: f64 = 1.5;

/// The last so many measurements count.
const SPEEDS: usize = 8;

/// Counts what arrives.
#[derive(Debug, Default)]
pub(super) struct SabulDeliveryMeter {
    /// The packet before which the peer is known to have all but those that it has reported lost.
    next: u64,
    /// Packets from `next` on that light acknowledgements have counted.
    ahead: u64,
    /// Since the measurement began.
    packets: u64,
    began_at: Duration,
    last_at: Duration,
    /// In packets/s.
    speeds: Vec<f64>,
}

impl SabulDeliveryMeter {
    /// All packets before `next` have arrived, those apart that were reported lost; if
    /// `counts_packets`, also 64 since the last acknowledgement.
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
        // The end of a burst is acknowledged up to 10 ms after it has arrived.
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

    /// In packets/s: the second highest of the last measurements, as acknowledgements that were
    /// delayed and come together make the highest one too high. With less than three, what the
    /// peer measures (0 if unknown), if the highest agrees. Else `None`.
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
