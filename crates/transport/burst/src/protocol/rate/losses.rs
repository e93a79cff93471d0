//! Tells congestion losses from noise. Losses are congestion if there are many, or if packets that
//! met a long queue are lost more often than those that met a short one. Loss that stays the same
//! at a lower rate is noise: the path's own.

/// Loss up to this fraction is always noise.
pub(super) const NOISE: f64 = 0.02;

/// Loss up to this multiple of what was lost at a lower rate is noise.
const MARGIN: f64 = 1.5;

/// Loss above this fraction is never noise.
const MAX_NOISE: f64 = 0.2;

/// The number of packets at a lower rate that show what the path itself loses.
const MIN_PACKETS: u64 = 100;

/// The factor by which the noise level falls after a round trip with hardly any loss.
const FORGETTING: f64 = 0.98;

/// The packets and losses assumed for a short queue before any are counted.
const ASSUMED: PacketLossCount = PacketLossCount { packets: 4000, lost: 1 };

/// Above this number of packets, the counts are halved, so that older packets count less.
const MAX_COUNTED: u64 = 100_000;

/// The number of packets, acknowledged or lost, and how many of them were lost.
#[derive(Clone, Copy, Debug, Default)]
struct PacketLossCount {
    packets: u64,
    lost: u64,
}

/// Counts losses, and decides whether they are congestion.
#[derive(Debug)]
pub(super) struct CongestionLossDetector {
    /// The packets of this round trip.
    round: PacketLossCount,
    /// Those of this round trip that met a long queue.
    round_in_long_queue: PacketLossCount,
    /// Those of all earlier round trips that met a short queue.
    in_short_queue: PacketLossCount,
    since_response: PacketsSinceResponse,
    /// The fraction of packets whose loss is noise.
    noise: f64,
    smoothed: f64,
}

/// Packets that were sent after the last response to congestion.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PacketsSinceResponse {
    all: PacketLossCount,
    /// How many of them met a long queue.
    in_long_queue: u64,
}

impl PacketsSinceResponse {
    /// The fraction that met a long queue.
    pub(super) fn part_in_long_queue(&self) -> f64 {
        self.in_long_queue as f64 / self.all.packets.max(1) as f64
    }
}

impl Default for CongestionLossDetector {
    fn default() -> Self {
        Self {
            round: PacketLossCount::default(),
            round_in_long_queue: PacketLossCount::default(),
            in_short_queue: ASSUMED,
            since_response: PacketsSinceResponse::default(),
            noise: NOISE,
            smoothed: 0.0,
        }
    }
}

impl CongestionLossDetector {
    /// Counts packets, `lost` of which were lost. `is_long`: they met a long queue. `is_new`: they
    /// were sent after the last response to congestion.
    pub(super) fn add(&mut self, packets: u64, lost: u64, is_long: bool, is_new: bool) {
        self.round.add(packets, lost);
        if is_long {
            self.round_in_long_queue.add(packets, lost);
        }
        if is_new {
            self.since_response.all.add(packets, lost);
            self.since_response.in_long_queue += if is_long { packets } else { 0 };
        }
    }

    /// Whether the losses of this round trip are congestion.
    pub(super) fn are_congestion(&self) -> bool {
        let PacketLossCount { packets, lost } = self.in_short_queue;
        let noise = lost as f64 / packets as f64;
        let long = self.round_in_long_queue;
        is_more(long.lost, noise * long.packets as f64)
            || is_more(self.round.lost, self.noise * self.round.packets.max(64) as f64)
    }

    /// Returns the counts since the last response, and resets them.
    pub(super) fn take_since_response(&mut self) -> PacketsSinceResponse {
        std::mem::take(&mut self.since_response)
    }

    /// From now on counts as noise the loss since the last response, after which less was sent.
    /// Returns whether it does: there must be enough packets, few of which met a long queue.
    pub(super) fn accept_as_noise(&mut self, since: &PacketsSinceResponse) -> bool {
        let PacketLossCount { packets, lost } = since.all;
        let noise = MARGIN * lost as f64 / packets.max(1) as f64;
        let is_known = packets >= MIN_PACKETS && since.part_in_long_queue() < 0.1;
        let is_more = is_known && noise > self.noise && self.noise < MAX_NOISE;
        if is_more {
            self.noise = noise.min(MAX_NOISE);
        }
        is_more
    }

    /// The fraction of packets whose loss is noise.
    pub(super) fn noise(&self) -> f64 {
        self.noise
    }

    /// Ends a round trip. Returns the fraction of its packets that were lost.
    pub(super) fn end_round(&mut self) -> f64 {
        let round = std::mem::take(&mut self.round);
        let long = std::mem::take(&mut self.round_in_long_queue);
        self.in_short_queue.add(round.packets - long.packets, round.lost - long.lost);
        if self.in_short_queue.packets > MAX_COUNTED {
            self.in_short_queue.packets /= 2;
            self.in_short_queue.lost = self.in_short_queue.lost.div_ceil(2);
        }
        let fraction = round.lost as f64 / round.packets.max(1) as f64;
        if fraction < NOISE / 4.0 {
            self.noise = NOISE.max(self.noise * FORGETTING);
        }
        self.smoothed += (round.packets as f64 / 1000.0).min(0.25) * (fraction - self.smoothed);
        fraction
    }

    /// The smoothed fraction of packets that are lost.
    pub(super) fn smoothed(&self) -> f64 {
        self.smoothed
    }
}

/// Whether there are significantly more losses than expected.
fn is_more(lost: u64, expected: f64) -> bool {
    lost as f64 > expected + 3.0 * expected.sqrt() + 0.5
}

impl PacketLossCount {
    fn add(&mut self, packets: u64, lost: u64) {
        self.packets += packets;
        self.lost += lost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_loss_is_noise_in_any_queue() {
        let mut losses = CongestionLossDetector::default();
        losses.add(4000, 40, false, true);
        losses.end_round();
        for _ in 0..100 {
            losses.add(900, 9, false, true);
            losses.add(100, 1, true, true);
            assert!(!losses.are_congestion());
            losses.end_round();
        }
        assert!((losses.smoothed() - 0.01).abs() < 1e-3);
    }

    #[test]
    fn loss_in_a_long_queue_only_is_congestion() {
        let mut losses = CongestionLossDetector::default();
        for _ in 0..10 {
            losses.add(900, 0, false, true);
            losses.add(100, 0, true, true);
            losses.end_round();
        }
        losses.add(900, 0, false, true);
        assert!(!losses.are_congestion());
        losses.add(100, 2, true, true);
        assert!(losses.are_congestion());
        let since = losses.take_since_response();
        assert!((since.part_in_long_queue() - 0.1).abs() < 1e-9);
        assert!(!losses.accept_as_noise(&since), "it may be the queue's");
    }

    #[test]
    fn much_loss_is_congestion() {
        let mut losses = CongestionLossDetector::default();
        losses.add(1000, 20, false, true);
        assert!(!losses.are_congestion());
        losses.add(1000, 60, false, true);
        assert!(losses.are_congestion());
    }

    #[test]
    fn loss_that_stays_at_a_lower_rate_is_noise_until_it_ends() {
        let mut losses = CongestionLossDetector::default();
        losses.add(1000, 60, false, true);
        let since = losses.take_since_response();
        losses.end_round();
        assert!(losses.accept_as_noise(&since));
        losses.add(1000, 60, false, true);
        assert!(!losses.are_congestion());
        losses.end_round();
        losses.add(1000, 200, false, true);
        assert!(losses.are_congestion());
        for _ in 0..200 {
            losses.end_round();
            losses.add(1000, 1, false, true);
        }
        losses.add(1000, 60, false, true);
        assert!(losses.are_congestion());
    }
}
