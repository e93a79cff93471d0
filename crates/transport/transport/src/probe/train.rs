//! A packet train in each direction.

use std::time::Duration;

use burst::train::PacketTrain;

use super::rate::MeasuredRate;

/// If more of a train is lost, its own packets have filled a queue, and only the first packets
/// count.
const MAX_LOST_SHARE: f64 = 0.2;
const FIRST: usize = 4;

/// The state of a train in each direction, with each of its packets.
#[derive(Debug)]
pub(super) struct ProbeTrain {
    started_at: Duration,
    length: u16,
    up: Vec<SentProbePacket>,
    down: Vec<SentProbePacket>,
    last_at: Option<Duration>,
    /// The round-trip times of the first packets.
    unqueued: Vec<Duration>,
    is_over: bool,
    /// Whether answers may still be in flight.
    ended_early: bool,
}

/// A packet that should be answered.
#[derive(Clone, Copy, Debug, Default)]
struct SentProbePacket {
    at: Duration,
    /// When it arrived at the end of the direction that it measures, by the clock there.
    arrived_at: Option<Duration>,
}

impl ProbeTrain {
    /// A train of this many packets up and down.
    pub(super) fn new(now: Duration, counts: [u16; 2], length: u16) -> Self {
        let [up, down] = counts.map(|count| vec![SentProbePacket::default(); usize::from(count)]);
        Self {
            started_at: now,
            length,
            up,
            down,
            last_at: None,
            unqueued: Vec::new(),
            is_over: false,
            ended_early: false,
        }
    }

    pub(super) fn on_sent(&mut self, now: Duration, number: u16, is_up: bool) {
        let packets = if is_up { &mut self.up } else { &mut self.down };
        if let Some(packet) = packets.get_mut(usize::from(number)) {
            packet.at = now;
        }
    }

    /// Handles the server's report of when a packet arrived there.
    pub(super) fn handle_up(&mut self, number: u16, at: Duration, length: u16, now: Duration) {
        let Some(packet) = self.up.get_mut(usize::from(number)) else { return };
        if self.is_over || length != self.length || packet.arrived_at.is_some() {
            return;
        }
        packet.arrived_at = Some(at);
        self.last_at = Some(now);
    }

    /// Records the arrival of a requested packet.
    pub(super) fn handle_down(&mut self, number: u16, length: u16, now: Duration) {
        let Some(packet) = self.down.get_mut(usize::from(number)) else { return };
        if self.is_over || length != self.length || packet.arrived_at.is_some() {
            return;
        }
        packet.arrived_at = Some(now);
        // No other packet of this probe precedes the first one.
        if number == 0 {
            self.unqueued.push(now.saturating_sub(packet.at));
        }
        self.last_at = Some(now);
    }

    pub(super) fn started_at(&self) -> Duration {
        self.started_at
    }

    /// When the last packet arrived.
    pub(super) fn last_at(&self) -> Option<Duration> {
        self.last_at
    }

    pub(super) fn is_complete(&self) -> bool {
        self.up.iter().chain(&self.down).all(|packet| packet.arrived_at.is_some())
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Ends the train. `is_cut`: answers may still be in flight.
    pub(super) fn end(&mut self, is_cut: bool) {
        self.is_over = true;
        self.ended_early = is_cut;
    }

    /// Round-trip times of packets that no other packet of this probe preceded.
    pub(super) fn unqueued(&self) -> impl Iterator<Item = &Duration> {
        self.unqueued.iter()
    }

    /// The number of packets that count, and of those not answered.
    pub(super) fn losses(&self) -> (u32, u32) {
        if self.ended_early {
            return (0, 0);
        }
        let (mut sent, mut lost) = (0, 0);
        for packets in [&self.up, &self.down] {
            let count = |packets: &[SentProbePacket]| {
                let lost = packets.iter().filter(|packet| packet.arrived_at.is_none()).count();
                (u32::try_from(packets.len()).unwrap_or(0), u32::try_from(lost).unwrap_or(0))
            };
            let (mut all, mut missing) = count(packets);
            if f64::from(missing) > MAX_LOST_SHARE * f64::from(all) {
                (all, missing) = count(&packets[..packets.len().min(FIRST)]);
            }
            sent += all;
            lost += missing;
        }
        (sent, lost)
    }

    /// The rate from the client to the server. `header`: length of the IP and UDP headers.
    pub(super) fn up(&self, header: usize) -> Option<MeasuredRate> {
        self.rate(&self.up, header)
    }

    /// The rate from the server to the client.
    pub(super) fn down(&self, header: usize) -> Option<MeasuredRate> {
        self.rate(&self.down, header)
    }

    fn rate(&self, packets: &[SentProbePacket], header: usize) -> Option<MeasuredRate> {
        let arrived = packets.iter().enumerate();
        let mut arrived: Vec<_> =
            arrived.filter_map(|(i, packet)| Some((packet.arrived_at?, i))).collect();
        arrived.sort_unstable();
        let mut train = PacketTrain::new();
        for (at, position) in arrived {
            let position = u32::try_from(position).unwrap_or(u32::MAX);
            train.add(position, at, usize::from(self.length) + header);
        }
        let estimate = train.estimate()?;
        Some(MeasuredRate { rate: estimate.rate, low: estimate.low, high: estimate.high })
    }
}
