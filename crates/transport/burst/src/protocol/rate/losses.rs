//! Which losses are congestion: many, or more in a long queue than those in a short one explain.
//! Those that stay when less is sent are the path's own.

/// A loss up to this is noise.
pub(super) const NOISE: f64 = 0.02;

/// So many times what was lost at a lower rate is noise.
const MARGIN: f64 = 1.5;

/// The most that is ever taken for noise.
const MAX_NOISE: f64 = 0.2;

/// So many packets at a lower rate show what the path loses by itself.
const MIN_PACKETS: u64 = 100;

/// How much less is taken for noise after a round trip with hardly any loss.
const FORGETTING: f64 = 0.98;

/// The packets and losses that are assumed in a short queue before there are any.
const ASSUMED: PacketLossCount = PacketLossCount { packets: 4000, lost: 1 };

/// With so many packets, old ones count half.
const MAX_COUNTED: u64 = 100_000;

/// Packets that were acknowledged or lost.
#[derive(Clone, Copy, Debug, Default)]
struct PacketLossCount {
    packets: u64,
    lost: u64,
}

/// What happened to packets.
#[derive(Debug)]
pub(super) struct CongestionLossDetector {
    /// In this round trip.
    round: PacketLossCount,
    /// Of them, those that met a long queue.
    round_in_long_queue: PacketLossCount,
    /// In all earlier round trips, those that met a short queue.
    in_short_queue: PacketLossCount,
    since_response: PacketsSinceResponse,
    /// The fraction that is noise.
    noise: f64,
    smoothed: f64,
}

/// What happened to packets that were sent since the last response to congestion.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PacketsSinceResponse {
    all: PacketLossCount,
    /// Of them, those that met a long queue.
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
    /// Counts packets, of which some are lost: whether they met a long queue, and whether they were
    /// sent after the last response to congestion.
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

    /// What happened since the last response; begins again.
    pub(super) fn take_since_response(&mut self) -> PacketsSinceResponse {
        std::mem::take(&mut self.since_response)
    }

    /// Takes what was lost since the last response, in which less was sent, for the path's own loss
    /// from now on. Whether that is possible: there were enough packets, and few of them met a long
    /// queue.
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

/// Whether losses are more than chance makes of the expected number.
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
