//! Flows of packets: datagrams, and models of TCP connections that always have something to send.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use model::ShareSelection;

use super::MS;

/// A packet that is acknowledged this many packets later is taken for lost.
const REORDERING_THRESHOLD: u64 = 3;

/// A connection is not busy at first: it has one packet in flight until as many are acknowledged.
const IDLE_PACKETS: u64 = 10;

/// What a flow sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FlowKind {
    /// Datagrams, as many as fit.
    Datagrams,
    /// A datagram in each interval.
    Sparse(Duration),
    /// TCP that grows by a packet in a round trip, and shrinks after losses.
    LossBased,
    /// TCP by BBR: a model of the bottleneck's rate and of the shortest round trip.
    Bbr,
}

/// A packet of a flow.
#[derive(Clone, Copy)]
pub(crate) struct FlowPacket {
    pub(crate) flow: usize,
    number: u64,
    sent_us: u64,
}

/// A flow, and what became of it.
pub(crate) struct Flow {
    index: usize,
    kind: FlowKind,
    next_number: u64,
    /// When the next packet may be sent.
    next_at: Duration,
    in_flight: BTreeMap<u64, SentPacket>,
    window: f64,
    threshold: f64,
    reduced_at: Duration,
    acknowledged_at: Duration,
    acknowledged: u64,
    bbr: Bbr,
    /// The highest number that was delivered, and how many lower ones came after it.
    highest: Option<u64>,
    pub(crate) overtaken: u64,
    delays: Option<(Duration, Duration)>,
    k_sum: usize,
    m_sum: usize,
    symbols: usize,
}

#[derive(Clone, Copy)]
struct SentPacket {
    at: Duration,
    /// How many had been acknowledged then, and when the last one was.
    acknowledged: u64,
    acknowledged_at: Duration,
}

/// The state of BBR (version 1).
struct Bbr {
    /// The rate of each of the last ten rounds, in packets a second.
    rates: VecDeque<f64>,
    /// A round ends when a packet is acknowledged that was sent after this number of others.
    round_ends: u64,
    /// The shortest round trip, and when it was measured.
    shortest: Duration,
    shortest_at: Duration,
    /// Until when it is measured again, with few packets in flight.
    measures_until: Option<Duration>,
    phase: BbrPhase,
}

#[derive(Clone, Copy, PartialEq)]
enum BbrPhase {
    /// The rate doubles. `rounds` of them have not raised `rate`.
    Startup {
        rate: f64,
        rounds: u32,
    },
    Drain,
    /// The gain number, and since when it is used.
    Probe {
        gain: usize,
        since: Duration,
    },
}

const STARTUP_GAIN: f64 = 2.885;
const PROBE_GAINS: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const ROUNDS: usize = 10;
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(10);

impl FlowPacket {
    pub(crate) fn encode(self, len: usize) -> Vec<u8> {
        let Self { flow, number, sent_us } = self;
        let mut bytes = vec![0; len];
        for (place, field) in [flow as u64, number, sent_us].into_iter().enumerate() {
            bytes[8 * place..8 * place + 8].copy_from_slice(&field.to_be_bytes());
        }
        bytes
    }

    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let field =
            |place: usize| u64::from_be_bytes(bytes[8 * place..8 * place + 8].try_into().unwrap());
        Self { flow: field(0) as usize, number: field(1), sent_us: field(2) }
    }
}

impl Flow {
    pub(crate) fn new(index: usize, kind: FlowKind, now: Duration) -> Self {
        Self {
            index,
            kind,
            next_number: 0,
            next_at: now,
            in_flight: BTreeMap::new(),
            window: 1.0,
            threshold: f64::INFINITY,
            reduced_at: now,
            acknowledged_at: now,
            acknowledged: 0,
            bbr: Bbr {
                rates: VecDeque::new(),
                round_ends: 0,
                shortest: Duration::MAX,
                shortest_at: now,
                measures_until: None,
                phase: BbrPhase::Startup { rate: 0.0, rounds: 0 },
            },
            highest: None,
            overtaken: 0,
            delays: None,
            k_sum: 0,
            m_sum: 0,
            symbols: 0,
        }
    }

    /// Whether it has no congestion control: what finds no room is not sent.
    pub(crate) fn is_backlogged(&self) -> bool {
        self.kind == FlowKind::Datagrams
    }

    /// When it will send a packet by itself, if it waits for a time.
    pub(crate) fn next_packet_at(&self, now: Duration) -> Option<Duration> {
        let is_timed = match self.kind {
            FlowKind::Datagrams | FlowKind::LossBased => false,
            FlowKind::Sparse(_) => true,
            FlowKind::Bbr => (self.in_flight.len() as f64) < self.window,
        };
        (is_timed && self.next_at > now).then_some(self.next_at)
    }

    /// The next packet that it sends now.
    pub(crate) fn next_packet(&mut self, now: Duration) -> Option<FlowPacket> {
        match self.kind {
            FlowKind::Datagrams => {}
            FlowKind::Sparse(interval) => {
                if self.next_at > now {
                    return None;
                }
                self.next_at += interval;
            }
            FlowKind::LossBased | FlowKind::Bbr => {
                if now > self.acknowledged_at + 1000 * MS {
                    self.in_flight.clear();
                    (self.window, self.acknowledged_at) = (1.0, now);
                }
                if self.in_flight.len() as f64 >= self.window || self.next_at > now {
                    return None;
                }
                if let Some(interval) = self.pacing_interval() {
                    self.next_at = self.next_at.max(now.saturating_sub(MS)) + interval;
                }
                let Self { acknowledged, acknowledged_at, .. } = *self;
                let sent = SentPacket { at: now, acknowledged, acknowledged_at };
                self.in_flight.insert(self.next_number, sent);
            }
        }
        let number = self.next_number;
        self.next_number += 1;
        Some(FlowPacket { flow: self.index, number, sent_us: now.as_micros() as u64 })
    }

    pub(crate) fn record_threshold(&mut self, threshold: ShareSelection) {
        self.symbols += 1;
        self.k_sum += threshold.k();
        self.m_sum += threshold.m();
    }

    /// The mean threshold and multiplicity of its packets.
    pub(crate) fn means(&self) -> (f64, f64) {
        let mean = |sum: usize| sum as f64 / self.symbols as f64;
        (mean(self.k_sum), mean(self.m_sum))
    }

    pub(crate) fn forget_delays(&mut self) {
        self.delays = None;
    }

    /// The shortest and the longest delay of its packets.
    pub(crate) fn delays(&self) -> (Duration, Duration) {
        self.delays.unwrap()
    }

    /// A packet has come out of the tunnel.
    pub(crate) fn handle_delivery(&mut self, packet: FlowPacket, now: Duration) {
        if self.highest.is_some_and(|highest| packet.number < highest) {
            self.overtaken += 1;
        }
        self.highest = self.highest.max(Some(packet.number));
        let delay = now.saturating_sub(Duration::from_micros(packet.sent_us));
        let (shortest, longest) = self.delays.unwrap_or((delay, delay));
        self.delays = Some((shortest.min(delay), longest.max(delay)));
    }

    /// An acknowledgement of a packet has come back.
    pub(crate) fn handle_acknowledgement(&mut self, packet: FlowPacket, now: Duration) {
        let Some(sent) = self.in_flight.remove(&packet.number) else { return };
        self.acknowledged += 1;
        self.acknowledged_at = now;
        let lost_below = packet.number.saturating_sub(REORDERING_THRESHOLD - 1);
        let later = self.in_flight.split_off(&lost_below);
        let lost = std::mem::replace(&mut self.in_flight, later).len();
        let round_trip = now.saturating_sub(sent.at);
        match self.kind {
            FlowKind::LossBased if lost > 0 => {
                if sent.at >= self.reduced_at {
                    self.window = (0.7 * self.window).max(2.0);
                    (self.threshold, self.reduced_at) = (self.window, now);
                }
            }
            FlowKind::LossBased if self.window < self.threshold => self.window += 1.0,
            FlowKind::LossBased => self.window += 1.0 / self.window,
            FlowKind::Bbr => self.handle_bbr(sent, round_trip, now),
            FlowKind::Datagrams | FlowKind::Sparse(_) => {}
        }
        if self.acknowledged < IDLE_PACKETS {
            self.window = 1.0;
        }
    }

    fn handle_bbr(&mut self, sent: SentPacket, round_trip: Duration, now: Duration) {
        let time = now.saturating_sub(sent.acknowledged_at).as_secs_f64();
        let rate = (self.acknowledged - sent.acknowledged) as f64 / time;
        let bbr = &mut self.bbr;
        let is_round = sent.acknowledged >= bbr.round_ends;
        if is_round {
            bbr.round_ends = self.acknowledged;
            bbr.rates.push_front(0.0);
            bbr.rates.truncate(ROUNDS);
        }
        bbr.rates[0] = bbr.rates[0].max(rate);
        if round_trip <= bbr.shortest {
            (bbr.shortest, bbr.shortest_at) = (round_trip, now);
        } else if bbr.measures_until.is_none() && now > bbr.shortest_at + SHORTEST_TIMEOUT {
            bbr.measures_until = Some(now + round_trip + 200 * MS);
            (bbr.shortest, bbr.shortest_at) = (round_trip, now);
        }
        bbr.measures_until = bbr.measures_until.filter(|until| now < *until);
        if self.acknowledged < IDLE_PACKETS {
            // The connection, and not the path, limits the rate.
            return;
        }
        let highest = bbr.highest();
        bbr.phase = match bbr.phase {
            BbrPhase::Startup { rate, .. } if highest >= 1.25 * rate => {
                BbrPhase::Startup { rate: highest, rounds: 0 }
            }
            BbrPhase::Startup { rounds: 2, .. } if is_round => BbrPhase::Drain,
            BbrPhase::Startup { rate, rounds } => {
                BbrPhase::Startup { rate, rounds: rounds + u32::from(is_round) }
            }
            BbrPhase::Drain if self.in_flight.len() as f64 <= bbr.product() => {
                BbrPhase::Probe { gain: 2 + self.index % 6, since: now }
            }
            BbrPhase::Probe { gain, since } if now > since + bbr.shortest => {
                BbrPhase::Probe { gain: (gain + 1) % PROBE_GAINS.len(), since: now }
            }
            phase => phase,
        };
        self.window = match (bbr.measures_until, bbr.phase) {
            (Some(_), _) => 4.0,
            (None, BbrPhase::Startup { .. } | BbrPhase::Drain) => {
                STARTUP_GAIN * bbr.product() + 3.0
            }
            (None, BbrPhase::Probe { .. }) => 2.0 * bbr.product() + 3.0,
        }
        .max(4.0);
    }

    fn pacing_interval(&self) -> Option<Duration> {
        let gain = match self.bbr.phase {
            BbrPhase::Startup { .. } => STARTUP_GAIN,
            BbrPhase::Drain => 1.0 / STARTUP_GAIN,
            BbrPhase::Probe { gain, .. } => PROBE_GAINS[gain],
        };
        let rate = gain * self.bbr.highest();
        (self.kind == FlowKind::Bbr && rate > 0.0).then(|| Duration::from_secs_f64(1.0 / rate))
    }
}

impl Bbr {
    /// The highest rate of the last rounds.
    fn highest(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    /// The bandwidth-delay product, in packets.
    fn product(&self) -> f64 {
        self.highest() * self.shortest.as_secs_f64()
    }
}
