//! The client's end of a probe.

use std::collections::VecDeque;
use std::time::Duration;

use super::packet::{HostCapabilities, MAX_PACKET_LEN, ProbeCookie, ProbePacket, ProbePacketBody};
use super::rate::MeasuredRate;
use super::train::ProbeTrain;

/// When hellos are sent, relative to the start, until one is answered.
const HELLOS_AT: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(3),
    Duration::from_millis(250),
    Duration::from_millis(750),
    Duration::from_millis(1750),
];
/// If no hello is answered within this time, UDP does not pass.
const HELLO_TIMEOUT: Duration = Duration::from_secs(3);
/// The number of packets of the first train in each direction, and the bounds for the second one.
const FIRST_TRAIN: u16 = 16;
const SECOND_TRAIN: (u16, u16) = (64, 256);
/// The second train takes about this long. It is sent only if it takes longer than the first one.
const SECOND_TRAIN_TIME: f64 = 4e-3;
/// A train has ended after half a round trip plus this long without a packet.
const MIN_SILENCE: Duration = Duration::from_millis(5);
/// The longest duration of a probe, plus four round trips.
const MIN_BUDGET: Duration = Duration::from_millis(20);

/// The measurements of a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeMeasurement {
    /// The min RTT.
    pub round_trip: Duration,
    /// The mean difference of round-trip times from the min RTT, without packets that waited in a
    /// queue of the probe's own.
    pub variation: Duration,
    /// The number of packets that were sent and should be answered. Each of them, and its answer,
    /// crossed the path.
    pub sent: u32,
    /// The number of them that were not answered.
    pub lost: u32,
    /// The rate from the client to the server.
    pub up: Option<MeasuredRate>,
    /// The rate from the server to the client.
    pub down: Option<MeasuredRate>,
    /// The server's capabilities.
    pub host: HostCapabilities,
}

/// The client's end of a probe. First the two ends exchange a hello and a welcome, with a cookie
/// ([`PathProbeClient::is_welcome`]); then the client measures the rates, if it is asked to.
#[derive(Debug)]
pub struct PathProbeClient {
    nonce: u64,
    header: usize,
    started_at: Duration,
    hellos: Vec<(Duration, bool)>,
    welcome: Option<(ProbeCookie, HostCapabilities)>,
    round_trips: Vec<Duration>,
    /// Packets that are to be sent.
    queue: VecDeque<ProbePacket>,
    trains: Vec<ProbeTrain>,
    is_over: bool,
}

impl PathProbeClient {
    /// Starts a probe. `nonce` must be random, so that an off-path attacker cannot answer. `header`
    /// is the length of the IP and UDP headers.
    pub fn new(nonce: u64, header: usize, now: Duration) -> Self {
        Self {
            nonce,
            header,
            started_at: now,
            hellos: Vec::new(),
            welcome: None,
            round_trips: Vec::new(),
            queue: VecDeque::new(),
            trains: Vec::new(),
            is_over: false,
        }
    }

    /// Handles a datagram from the server's address, which arrived at `arrived_at`, not after
    /// `now`.
    pub fn handle_datagram(&mut self, now: Duration, arrived_at: Duration, datagram: &[u8]) {
        let Some(ProbePacket { nonce, number, body }) = ProbePacket::parse(datagram) else {
            return;
        };
        if nonce != self.nonce {
            return;
        }
        match body {
            ProbePacketBody::Welcome { cookie, host } => {
                let Some((sent_at, is_answered @ false)) = self.hellos.get_mut(usize::from(number))
                else {
                    return;
                };
                *is_answered = true;
                self.round_trips.push(arrived_at.saturating_sub(*sent_at));
                self.welcome.get_or_insert((cookie, host));
            }
            ProbePacketBody::Arrival { at_ns, length } => {
                if let Some(train) = self.trains.get_mut(usize::from(number >> 8)) {
                    let at = Duration::from_nanos(at_ns);
                    train.handle_up(number & 0xff, at, length, arrived_at);
                }
            }
            ProbePacketBody::Filler { length } => {
                if let Some(train) = self.trains.get_mut(usize::from(number >> 8)) {
                    train.handle_down(number & 0xff, length, arrived_at);
                }
            }
            ProbePacketBody::Hello
            | ProbePacketBody::Train { .. }
            | ProbePacketBody::Request { .. } => {}
        }
        self.advance_trains(now);
    }

    /// Handles the timeout that [`PathProbeClient::poll_timeout`] returned.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.advance_trains(now);
        if self.welcome.is_none() && now >= self.started_at + HELLO_TIMEOUT {
            self.is_over = true;
        }
    }

    /// Appends the next datagram to send, if there is one.
    pub fn poll_transmit(&mut self, now: Duration, datagram: &mut Vec<u8>) -> bool {
        if self.is_hello_due(now) {
            let number = u16::try_from(self.hellos.len()).unwrap_or(u16::MAX);
            self.hellos.push((now, false));
            ProbePacket { nonce: self.nonce, number, body: ProbePacketBody::Hello }.write(datagram);
            return true;
        }
        let Some(packet) = self.queue.pop_front() else { return false };
        if let Some(train) = self.trains.last_mut() {
            train.on_sent(
                now,
                packet.number & 0xff,
                matches!(packet.body, ProbePacketBody::Train { .. }),
            );
        }
        packet.write(datagram);
        true
    }

    /// When [`PathProbeClient::handle_timeout`] or [`PathProbeClient::poll_transmit`] is to be
    /// called; `None` if the probe waits for nothing.
    pub fn poll_timeout(&self) -> Option<Duration> {
        if self.is_over {
            return None;
        }
        if !self.queue.is_empty() {
            return Some(Duration::ZERO);
        }
        if self.welcome.is_none() {
            let next = HELLOS_AT.get(self.hellos.len()).copied().unwrap_or(HELLO_TIMEOUT);
            return Some(self.started_at + next);
        }
        self.trains.last().filter(|train| !train.is_over()).map(|train| self.end_of(train))
    }

    /// Whether the server has answered, so that its capabilities and the round-trip time are known.
    pub fn is_welcome(&self) -> bool {
        self.welcome.is_some()
    }

    /// Whether the probe has ended: the server did not answer, or the rates were measured.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Begins to measure the rates, if the server has answered.
    pub fn measure_rates(&mut self, now: Duration) {
        if self.trains.is_empty() {
            self.start_train(now, [FIRST_TRAIN; 2]);
        }
    }

    /// The measurements so far; `None` if the server has not answered.
    pub fn measured(&self) -> Option<ProbeMeasurement> {
        let (_, host) = self.welcome?;
        let round_trip = self.round_trip()?;
        let samples =
            self.round_trips.iter().chain(self.trains.iter().flat_map(ProbeTrain::unqueued));
        let (mut total, mut count) = (Duration::ZERO, 0);
        for sample in samples {
            total += sample.saturating_sub(round_trip);
            count += 1;
        }
        let answered = |train: &&ProbeTrain| train.is_over();
        let (sent, lost) = self
            .trains
            .iter()
            .filter(answered)
            .map(ProbeTrain::losses)
            .fold((0, 0), |(sent, lost), (more_sent, more_lost)| {
                (sent + more_sent, lost + more_lost)
            });
        let last = |rate: fn(&ProbeTrain, usize) -> Option<MeasuredRate>| {
            self.trains.iter().rev().find_map(|train| rate(train, self.header))
        };
        Some(ProbeMeasurement {
            round_trip,
            variation: total / count.max(1),
            sent,
            lost,
            up: last(ProbeTrain::up),
            down: last(ProbeTrain::down),
            host,
        })
    }

    fn is_hello_due(&self, now: Duration) -> bool {
        let next = HELLOS_AT.get(self.hellos.len());
        self.welcome.is_none()
            && !self.is_over
            && next.is_some_and(|at| self.started_at + *at <= now)
    }

    fn round_trip(&self) -> Option<Duration> {
        let samples = self.trains.iter().flat_map(ProbeTrain::unqueued);
        self.round_trips.iter().copied().chain(samples.copied()).min()
    }

    /// When the rest of a train counts as lost because nothing has arrived for long enough.
    fn silent_at(&self, train: &ProbeTrain) -> Duration {
        let silence = (self.round_trip().unwrap_or_default() / 2).max(MIN_SILENCE);
        train.last_at().map_or(Duration::MAX, |at| at + silence)
    }

    /// Until when to wait for the rest of a train. A lost hello does not count.
    fn end_of(&self, train: &ProbeTrain) -> Duration {
        let round_trip = self.round_trip().unwrap_or(HELLO_TIMEOUT);
        let budget = self.trains[0].started_at() + 3 * round_trip + MIN_BUDGET;
        let end = train.started_at() + 2 * round_trip + MIN_BUDGET;
        end.min(budget).min(self.silent_at(train))
    }

    /// Ends a train that is over, and starts the next one.
    fn advance_trains(&mut self, now: Duration) {
        let Some(train) = self.trains.last().filter(|train| !train.is_over()) else { return };
        let is_complete = train.is_complete();
        if !self.queue.is_empty() || (!is_complete && now < self.end_of(train)) {
            return;
        }
        let is_cut = !is_complete && now < self.silent_at(train);
        let rates =
            [train.up(self.header), train.down(self.header)].map(|rate| (rate, self.header));
        if let Some(train) = self.trains.last_mut() {
            train.end(is_cut);
        }
        let counts = rates.map(second_train);
        if self.trains.len() == 1 && counts != [0, 0] {
            self.start_train(now, counts);
        } else {
            self.is_over = true;
        }
    }

    /// Sends the requests first, so that the requested packets precede the answers to the train.
    fn start_train(&mut self, now: Duration, [up, down]: [u16; 2]) {
        let Some((cookie, _)) = self.welcome else { return };
        let first = u16::try_from(self.trains.len() << 8).unwrap_or_default();
        let length = u16::try_from(MAX_PACKET_LEN).unwrap_or_default();
        let bodies = [
            ProbePacketBody::Request { cookie, length },
            ProbePacketBody::Train { cookie, length },
        ];
        for (count, body) in [down, up].into_iter().zip(bodies) {
            let packet = |i| ProbePacket { nonce: self.nonce, number: first + i, body };
            self.queue.extend((0..count).map(packet));
        }
        self.trains.push(ProbeTrain::new(now, [up, down], length));
    }
}

/// The number of packets of the second train in a direction: none if the first one took long
/// enough.
fn second_train((rate, header): (Option<MeasuredRate>, usize)) -> u16 {
    let rate = rate.map_or(0.0, |rate| rate.rate);
    let wanted = rate * SECOND_TRAIN_TIME / as_f64(MAX_PACKET_LEN + header);
    if wanted <= f64::from(FIRST_TRAIN) {
        return 0;
    }
    let (least, most) = SECOND_TRAIN;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let count = wanted.clamp(f64::from(least), f64::from(most)) as u16;
    count
}

#[expect(clippy::cast_precision_loss, reason = "a length")]
fn as_f64(length: usize) -> f64 {
    length as f64
}
