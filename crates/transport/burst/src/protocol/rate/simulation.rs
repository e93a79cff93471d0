//! A packet-level simulation of flows over one bottleneck with a drop-tail queue: small, fast and
//! deterministic.
//!
//! ```text
//! flows ─▶ queue ─▶ transmitter ─▶ random loss ─▶ receivers ─▶ acknowledgements, without loss
//! ```
//!
//! Each packet is acknowledged. A packet is lost when three later ones are acknowledged, and is
//! then retransmitted.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unchecked_time_subtraction,
    reason = "simulated numbers are small, and times in order"
)]

use std::collections::VecDeque;
use std::time::Duration;

/// The size of all packets, in bytes.
pub(super) const PACKET: u64 = 1500;

/// The bottleneck.
pub(super) struct SimulatedBottleneck {
    /// In bytes/s.
    pub(super) rate: f64,
    /// The longest queue, in bytes.
    pub(super) queue: f64,
    /// The fraction of packets that are lost at random after the queue.
    pub(super) loss: f64,
    /// When the rate changes, and to what.
    pub(super) changes: Vec<(Duration, f64)>,
}

impl SimulatedBottleneck {
    /// A path of `mbit` Mbit/s with a queue of `queue_ms`.
    pub(super) fn new(mbit: f64, queue_ms: f64) -> Self {
        let rate = mbit * 125_000.0;
        Self { rate, queue: rate * queue_ms / 1e3, loss: 0.0, changes: Vec::new() }
    }
}

/// What a sender stores about a packet.
#[derive(Clone, Copy)]
pub(super) struct SimulatedPacketRecord {
    pub(super) sent_at: Duration,
    /// The bytes acknowledged when it was sent, and the time of the last acknowledgement then.
    pub(super) delivered: u64,
    pub(super) delivered_at: Duration,
    /// What [`SimulatedCongestionControl::on_sent`] returned.
    pub(super) model: Option<super::PacketSendState>,
    /// The first packet of its burst, and whether this packet is the last one.
    burst: (u64, bool),
    is_open: bool,
}

/// An acknowledgement.
pub(super) struct SimulatedAck {
    pub(super) now: Duration,
    pub(super) record: SimulatedPacketRecord,
    pub(super) received_at: Duration,
    /// The bytes acknowledged so far, with this packet.
    pub(super) delivered: u64,
    /// The bytes in flight after this acknowledgement.
    pub(super) in_flight: u64,
    /// The measured rate of the burst that ends with this packet, if any.
    pub(super) train: Option<f64>,
}

/// A congestion control.
pub(super) trait SimulatedCongestionControl {
    fn on_sent(&mut self, now: Duration) -> Option<super::PacketSendState>;
    fn on_ack(&mut self, ack: &SimulatedAck);
    /// Records that there is nothing to send.
    fn on_idle(&mut self) {}
    /// Records lost packets; `newest` is the latest sent of them.
    fn on_loss(&mut self, now: Duration, newest: &SimulatedPacketRecord, packets: u64);
    /// In bytes/s; infinite without pacing.
    fn rate(&self) -> f64;
    /// The congestion window, in bytes.
    fn window(&self) -> u64;
    /// The bytes that are sent back to back.
    fn burst(&self) -> u64 {
        PACKET
    }
}

/// A sender and its receiver.
pub(super) struct SimulatedFlow {
    pub(super) control: Box<dyn SimulatedCongestionControl>,
    pub(super) start: Duration,
    pub(super) round_trip: Duration,
    /// How long the receiver may delay an acknowledgement, to combine it with later ones.
    ack_interval: Duration,
    ack_due: Duration,
    /// The bytes still to be sent.
    remaining: u64,
    total: u64,
    records: VecDeque<SimulatedPacketRecord>,
    /// The packet number of the first record.
    first: u64,
    acks: VecDeque<(Duration, u64, Duration)>,
    in_flight: u64,
    delivered: u64,
    delivered_at: Duration,
    next_send: Duration,
    wakeup: Option<Duration>,
    /// The number and the arrival of the first packet of the current burst.
    burst_began: (u64, Duration),
    /// All packets before this one are either acknowledged or lost.
    checked: u64,
    pub(super) lost: u64,
    pub(super) sent: u64,
    pub(super) smoothed: Duration,
    /// When 99 % of the bytes had arrived.
    pub(super) done_at: Option<Duration>,
    /// The bytes acknowledged in each second.
    pub(super) seconds: Vec<u64>,
}

impl SimulatedFlow {
    pub(super) fn new(control: Box<dyn SimulatedCongestionControl>, round_trip_ms: f64) -> Self {
        let round_trip = Duration::from_secs_f64(round_trip_ms / 1e3);
        Self {
            control,
            start: Duration::ZERO,
            round_trip,
            ack_interval: Duration::ZERO,
            ack_due: Duration::ZERO,
            remaining: u64::MAX / 2,
            total: u64::MAX / 2,
            records: VecDeque::new(),
            first: 0,
            acks: VecDeque::new(),
            in_flight: 0,
            delivered: 0,
            delivered_at: Duration::ZERO,
            next_send: Duration::ZERO,
            wakeup: None,
            burst_began: (u64::MAX, Duration::ZERO),
            checked: 0,
            lost: 0,
            sent: 0,
            smoothed: round_trip,
            done_at: None,
            seconds: Vec::new(),
        }
    }

    /// Limits the flow to this many bytes.
    pub(super) fn with_bytes(mut self, bytes: u64) -> Self {
        (self.remaining, self.total) = (bytes, bytes);
        self
    }

    pub(super) fn with_ack_interval(mut self, interval: Duration) -> Self {
        self.ack_interval = interval;
        self
    }

    pub(super) fn with_start(mut self, start_s: f64) -> Self {
        self.start = Duration::from_secs_f64(start_s);
        self
    }

    /// The mean rate from one second to another, in bytes/s.
    pub(super) fn mean_rate(&self, from: usize, to: usize) -> f64 {
        self.seconds.iter().take(to).skip(from).sum::<u64>() as f64 / (to - from) as f64
    }

    fn next_event(&self) -> Option<Duration> {
        let ack = self.acks.front().map(|&(at, ..)| at);
        ack.into_iter().chain(self.wakeup).min()
    }
}

/// The simulation.
pub(super) struct BottleneckSimulation {
    pub(super) path: SimulatedBottleneck,
    pub(super) flows: Vec<SimulatedFlow>,
    pub(super) now: Duration,
    free_at: f64,
    random: u64,
}

impl BottleneckSimulation {
    pub(super) fn new(path: SimulatedBottleneck, flows: Vec<SimulatedFlow>, seed: u64) -> Self {
        let mut flows = flows;
        for flow in &mut flows {
            flow.wakeup = Some(flow.start);
        }
        let random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        Self { path, flows, now: Duration::ZERO, free_at: 0.0, random }
    }

    /// Runs until the given time, or until all flows have sent everything.
    pub(super) fn run(&mut self, until: Duration) {
        loop {
            let next = |(i, flow): (usize, &SimulatedFlow)| flow.next_event().map(|at| (at, i));
            let Some((at, i)) = self.flows.iter().enumerate().filter_map(next).min() else {
                return;
            };
            if at > until || self.flows.iter().all(|flow| flow.done_at.is_some()) {
                return;
            }
            self.now = at;
            while let Some(&(from, rate)) = self.path.changes.first()
                && at >= from
            {
                self.path.queue *= rate / self.path.rate;
                self.path.rate = rate;
                self.path.changes.remove(0);
            }
            let flow = &mut self.flows[i];
            if flow.acks.front().is_some_and(|&(ack, ..)| ack <= at) {
                self.acknowledge(i);
            } else if flow.wakeup.is_some_and(|wakeup| wakeup <= at) {
                flow.wakeup = None;
                if flow.acks.is_empty() && flow.in_flight > 0 && at >= flow.next_send {
                    self.declare_lost(i, u64::MAX);
                }
            }
            self.send(i);
        }
    }

    fn send(&mut self, i: usize) {
        let now = self.now;
        let flow = &mut self.flows[i];
        let mut burst = 0;
        while flow.remaining > 0 && flow.in_flight + PACKET <= flow.control.window() {
            if burst == 0 && flow.next_send > now {
                flow.wakeup = Some(flow.next_send);
                return;
            }
            flow.remaining = flow.remaining.saturating_sub(PACKET);
            flow.in_flight += PACKET;
            flow.sent += 1;
            burst += PACKET;
            let interval = PACKET as f64 / flow.control.rate();
            flow.next_send = flow.next_send.max(now) + Duration::from_secs_f64(interval);
            let number = flow.first + flow.records.len() as u64;
            let is_last = burst >= flow.control.burst();
            flow.records.push_back(SimulatedPacketRecord {
                sent_at: now,
                delivered: flow.delivered,
                delivered_at: if flow.records.is_empty() { now } else { flow.delivered_at },
                model: flow.control.on_sent(now),
                burst: (number + 1 - burst / PACKET, is_last),
                is_open: true,
            });
            let at = now.as_secs_f64();
            let waiting = (self.free_at - at).max(0.0) * self.path.rate;
            if waiting + PACKET as f64 <= self.path.queue.max(2.0 * PACKET as f64) {
                self.free_at = self.free_at.max(at) + PACKET as f64 / self.path.rate;
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                if (self.random >> 11) as f64 / (1_u64 << 53) as f64 >= self.path.loss {
                    let received = Duration::from_secs_f64(self.free_at) + flow.round_trip / 2;
                    if received > flow.ack_due {
                        flow.ack_due = received + flow.ack_interval;
                    }
                    flow.acks.push_back((flow.ack_due + flow.round_trip / 2, number, received));
                }
            }
            if is_last {
                burst = 0;
            }
        }
        if flow.remaining == 0 {
            flow.control.on_idle();
        }
        if flow.acks.is_empty() && flow.in_flight > 0 && flow.wakeup.is_none() {
            let late = now + flow.smoothed.max(flow.round_trip) * 3 / 2 + Duration::from_millis(10);
            flow.wakeup = Some(late);
            flow.next_send = flow.next_send.min(late);
        }
    }

    fn acknowledge(&mut self, i: usize) {
        let now = self.now;
        let flow = &mut self.flows[i];
        let Some((_, number, received_at)) = flow.acks.pop_front() else { return };
        let Some(index) = number.checked_sub(flow.first) else { return };
        let record = &mut flow.records[index as usize];
        let was_open = std::mem::take(&mut record.is_open);
        let record = *record;
        flow.delivered += PACKET;
        flow.delivered_at = now;
        if was_open {
            flow.in_flight -= PACKET;
        }
        let second = now.as_secs() as usize;
        flow.seconds.resize(second + 1, 0);
        flow.seconds[second] += PACKET;
        let round_trip = now - record.sent_at;
        flow.smoothed = flow.smoothed * 7 / 8 + round_trip / 8;
        if flow.done_at.is_none() && flow.delivered as f64 >= 0.99 * flow.total as f64 {
            flow.done_at = Some(received_at);
        }
        let (burst_first, is_last) = record.burst;
        if number == burst_first {
            flow.burst_began = (number, received_at);
        }
        let packets = number - burst_first;
        let train = (is_last && packets >= 15 && flow.burst_began.0 == burst_first).then(|| {
            let time = (received_at - flow.burst_began.1).as_secs_f64();
            (packets * PACKET) as f64 / time.max(1e-9)
        });
        let in_flight = flow.in_flight;
        let delivered = flow.delivered;
        flow.control.on_ack(&SimulatedAck {
            now,
            record,
            received_at,
            delivered,
            in_flight,
            train,
        });
        self.declare_lost(i, number);
        let flow = &mut self.flows[i];
        while flow.records.front().is_some_and(|record| !record.is_open)
            && flow.first + 8 < flow.checked
        {
            flow.records.pop_front();
            flow.first += 1;
        }
    }

    /// Declares lost the packets sent at least three packets before `number`.
    fn declare_lost(&mut self, i: usize, number: u64) {
        let flow = &mut self.flows[i];
        let next = flow.first + flow.records.len() as u64;
        let from = (flow.checked.max(flow.first) - flow.first) as usize;
        flow.checked = flow.checked.max(number.saturating_sub(2).min(next));
        let until = (flow.checked.max(flow.first) - flow.first) as usize;
        let mut newest = None;
        let mut packets = 0;
        for record in flow.records.range_mut(from..until.max(from)) {
            if std::mem::take(&mut record.is_open) {
                newest = Some(*record);
                packets += 1;
            }
        }
        flow.in_flight -= packets * PACKET;
        flow.remaining += packets * PACKET;
        flow.lost += packets;
        if let Some(newest) = newest {
            flow.control.on_loss(self.now, &newest, packets);
        }
    }

    /// The fraction of the path's capacity that is used from one second to another.
    pub(super) fn utilisation(&self, from: usize, to: usize) -> f64 {
        self.flows.iter().map(|flow| flow.mean_rate(from, to)).sum::<f64>() / self.path.rate
    }
}
