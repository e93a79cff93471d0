//! Path measurements: min RTT, queueing delay and delivery rate.

use std::collections::VecDeque;
use std::time::Duration;

use super::delays::QueueDelayHistogram;

/// The shortest time over which a rate is measured. Over a shorter time, the result depends on how
/// interrupts and system calls batch packets.
const MIN_SPAN: Duration = Duration::from_millis(2);

/// The approximate number of snapshots in a span.
const POINTS: u32 = 8;

/// The largest number of snapshots kept. Few are needed, unless packets are rare.
const MAX_POINTS: usize = 64;

/// The smallest number of packets over which a rate is measured.
const MIN_PACKETS: u64 = 8;

/// The shortest time for which a min RTT is valid; the longest is twice this.
const MIN_RTT_EXPIRY: Duration = Duration::from_secs(5);

/// The state of the connection at an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeliverySnapshot {
    /// When the newest acknowledged packet was sent.
    pub(super) sent_at: Duration,
    /// When it arrived, by the peer's clock.
    pub(super) received_at: Duration,
    /// The bytes sent up to and including it.
    pub(super) sent: u64,
    /// The bytes acknowledged.
    pub(super) delivered: u64,
    /// The shortest round-trip time since the snapshot before.
    pub(super) round_trip: Duration,
}

/// A measurement over the packets of about a quarter of a round trip.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeliveryRateSample {
    /// How fast the packets arrived, or were sent if that is slower, in bytes/s.
    pub(super) rate: f64,
    /// How fast they were sent, in bytes/s.
    pub(super) sent_rate: f64,
    /// The shortest queueing delay.
    pub(super) queue: Duration,
    /// The bytes sent, and those of them that did not arrive.
    pub(super) sent: u64,
    pub(super) missing: u64,
    /// When the first and the last of them were sent.
    pub(super) first_sent_at: Duration,
    pub(super) last_sent_at: Duration,
}

/// The measurements of the path.
#[derive(Debug, Default)]
pub(super) struct PathMeasurements {
    points: VecDeque<DeliverySnapshot>,
    smoothed: Option<Duration>,
    latest: Duration,
    /// The shortest round-trip times of the current period and of the one before.
    least: [Option<Duration>; 2],
    delays: QueueDelayHistogram,
    period_began: Duration,
}

impl PathMeasurements {
    pub(super) fn on_round_trip(&mut self, now: Duration, round_trip: Duration) {
        self.latest = round_trip;
        let smoothed = self.smoothed.get_or_insert(round_trip);
        *smoothed = *smoothed * 7 / 8 + round_trip / 8;
        if now > self.period_began + MIN_RTT_EXPIRY {
            self.period_began = now;
            self.least = [None, self.least[0]];
            self.delays.begin();
        }
        let least = self.least[0].get_or_insert(round_trip);
        *least = round_trip.min(*least);
    }

    /// The smoothed round-trip time; zero before the first one.
    pub(super) fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or_default()
    }

    /// The shortest round-trip time of the last 5 to 10 s. `None` before the first one.
    pub(super) fn min_rtt(&self) -> Option<Duration> {
        self.least.into_iter().flatten().min()
    }

    /// The queueing delay at the last acknowledgement.
    pub(super) fn queue(&self) -> Duration {
        self.queue_of(self.latest)
    }

    fn queue_of(&self, round_trip: Duration) -> Duration {
        round_trip.saturating_sub(self.min_rtt().unwrap_or(round_trip))
    }

    /// Whether a packet with this queueing delay met a queue that is nearly as long as it gets, and
    /// longer than our own pulses make it.
    pub(super) fn is_queue_nearly_full(&self, queue: Duration) -> bool {
        let by_pulses = self.span() * 5 / 16;
        self.delays.is_long(queue, by_pulses)
    }

    /// The time over which a rate is measured.
    pub(super) fn span(&self) -> Duration {
        self.min_rtt().map_or(MIN_SPAN, |least| MIN_SPAN.max(least / 4))
    }

    /// Adds a snapshot. Returns a measurement if the snapshot is newer than the earlier ones and
    /// there are enough packets.
    pub(super) fn on_point(
        &mut self,
        point: DeliverySnapshot,
        datagram: u64,
    ) -> Option<DeliveryRateSample> {
        if self.points.back().is_some_and(|last| last.sent >= point.sent) {
            return None;
        }
        let span = self.span();
        let recent = self.points.iter().rev();
        let recent = recent.take_while(|it| it.received_at + span >= point.received_at);
        let round_trip = recent.map(|it| it.round_trip).fold(point.round_trip, Duration::min);
        let elapsed = |since: &DeliverySnapshot| {
            let receiving = point.received_at.saturating_sub(since.received_at);
            receiving.max(point.sent_at.saturating_sub(since.sent_at))
        };
        let is_enough = |since: &&DeliverySnapshot| {
            let sent = point.sent.saturating_sub(since.sent);
            elapsed(since) >= span && sent >= MIN_PACKETS * datagram
        };
        let since = self.points.iter().rev().find(is_enough).copied();
        match self.points.back_mut() {
            Some(last) if point.received_at < last.received_at + span / POINTS => {
                last.round_trip = last.round_trip.min(point.round_trip);
            }
            _ => {
                // The shortest delay of a span: a busy host may add delay to single packets.
                self.delays.add(self.queue_of(round_trip));
                self.points.push_back(point);
            }
        }
        if self.points.len() > MAX_POINTS {
            self.points.pop_front();
        }
        let since = since?;
        while self.points.front().is_some_and(|it| it.sent < since.sent) {
            self.points.pop_front();
        }
        let sent = point.sent.saturating_sub(since.sent);
        let delivered = point.delivered.saturating_sub(since.delivered);
        let sending = point.sent_at.saturating_sub(since.sent_at).max(Duration::from_nanos(1));
        Some(DeliveryRateSample {
            rate: delivered as f64 / elapsed(&since).as_secs_f64(),
            sent_rate: sent as f64 / sending.as_secs_f64(),
            queue: self.queue_of(round_trip),
            sent,
            missing: sent.saturating_sub(delivered),
            first_sent_at: since.sent_at,
            last_sent_at: point.sent_at,
        })
    }
}
