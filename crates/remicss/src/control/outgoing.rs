//! The channels as they are sent on: what the other end reports, put together with what was sent.

use std::array;
use std::collections::VecDeque;
use std::time::Duration;

use model::Subset;

use super::incoming::micros;
use crate::control::estimate::{Estimate, Interval, Learner, Loss, Phase, Prober, Sliding, Source};
use crate::send::pace::Limit;
use crate::wire::control::{Arrival, Message, State};
use crate::wire::datagram::MAX_CHANNELS;

/// How many bytes of IP packets may leave at once on a channel whose bottleneck is not known, so that what
/// an idle tunnel is given in one piece waits for no estimate: some 90 full packets.
const BURST: usize = 128 << 10;

/// How many messages are remembered for what is reported of them: more than 6 s of them.
const SENT: usize = 64;

/// What was sent on one channel so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Datagrams, those with control shares included.
    pub datagrams: u64,
    /// Their bytes, as IP packets.
    pub bytes: u64,
}

/// What goes out.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    channels: Vec<Channel>,
    /// Messages that were sent, with consecutive numbers, the newest last.
    sent: VecDeque<Sent>,
    /// The number of the newest message from the other end.
    newest: u32,
    /// Least round trips, by the fastest channels either way, in µs.
    round_trips: Sliding,
    prober: Prober,
    /// When the prober's interval began, and what had been sent then.
    began: Duration,
    began_with: [Totals; MAX_CHANNELS],
}

#[derive(Clone, Debug)]
struct Channel {
    state: State,
    rate: Rate,
    loss: Loss,
    /// How much later shares came than on the fastest channel, in µs.
    distance: Sliding,
    last: Option<Point>,
}

#[derive(Clone, Debug)]
enum Rate {
    Configured(u64),
    Learnt(Learner),
}

/// A message that was sent, and what had been sent on each channel before it.
#[derive(Clone, Debug)]
struct Sent {
    number: u32,
    at: Duration,
    totals: [Totals; MAX_CHANNELS],
    /// The prober's turns before and after it.
    turns: (u64, u64),
    /// When its first share came, in µs of the other end's clock, as far as is known.
    first_us: i64,
}

/// A control share that came, as both ends know it.
#[derive(Clone, Copy, Debug)]
struct Point {
    number: u32,
    sent_at: Duration,
    totals: Totals,
    turns: (u64, u64),
    arrived_us: i64,
    received: u32,
}

impl Outgoing {
    pub(super) fn new(rates: &[Option<u64>], now: Duration) -> Self {
        let channel = |rate: &Option<u64>| Channel {
            state: State::Up,
            rate: rate.map_or_else(|| Rate::Learnt(Learner::new()), Rate::Configured),
            loss: Loss::new(now),
            distance: Sliding::default(),
            last: None,
        };
        Self {
            channels: rates.iter().map(channel).collect(),
            sent: VecDeque::new(),
            newest: 0,
            round_trips: Sliding::default(),
            prober: Prober::new(),
            began: now,
            began_with: [Totals::default(); MAX_CHANNELS],
        }
    }

    /// Says which channels are in the association. Nothing is sent on the others.
    pub(super) fn set_members(&mut self, members: Subset) {
        for (index, channel) in self.channels.iter_mut().enumerate() {
            channel.state = if members.contains(index) { State::Up } else { State::Down };
        }
    }

    /// Takes over the rates, of which some were learnt before.
    pub(super) fn learn_from(&mut self, before: &Self) {
        for (channel, before) in self.channels.iter_mut().zip(&before.channels) {
            channel.rate = before.rate.clone();
        }
        // Rates know its turns.
        self.prober = before.prober.clone();
    }

    /// A message is about to be sent, after all that `totals` counts: returns its number. The
    /// messages before it were sent about every `interval`.
    pub(super) fn send(&mut self, now: Duration, totals: &[Totals], interval: Duration) -> u32 {
        let totals = array::from_fn(|index| totals.get(index).copied().unwrap_or_default());
        let before = self.prober.turn();
        let passed = now.saturating_sub(self.began);
        // A message out of turn does not cut a phase short.
        if passed >= interval * 4 / 5 {
            self.prober.advance(self.is_busy(&totals, passed));
            (self.began, self.began_with) = (now, totals);
        }
        let number = self.sent.back().map_or(1, |last| last.number.saturating_add(1));
        if self.sent.len() >= SENT {
            self.sent.pop_front();
        }
        let turns = (before, self.prober.turn());
        self.sent.push_back(Sent { number, at: now, totals, turns, first_us: i64::MAX });
        number
    }

    /// The other end reports. Returns whether that is its newest message.
    pub(super) fn handle_message(&mut self, message: &Message, now: Duration) -> bool {
        let is_newest = message.number > self.newest;
        self.newest = self.newest.max(message.number);
        self.find_first(message);
        for index in 0..self.channels.len().min(message.reports.len()) {
            let report = &message.reports[index];
            if is_newest {
                self.channels[index].set_state(report.state);
            }
            for arrival in &report.arrivals {
                self.handle_arrival(index, message, *arrival, now);
            }
        }
        is_newest
    }

    pub(super) fn estimates(&self, now: Duration) -> Vec<Estimate> {
        let half_us = self.round_trips.least(now).unwrap_or(0) / 2;
        // Where all channels' paces change together, their proportions stay.
        let phase = if self.channels.iter().all(Channel::is_probed) {
            Phase::Cruise
        } else {
            Prober::phase(self.prober.turn())
        };
        let estimate = |channel: &Channel| Estimate {
            loss: channel.loss.value(),
            measured: channel.loss.measured(),
            delay_ms: milliseconds(half_us + channel.distance.median(now).unwrap_or(0)),
            rate_bps: channel.rate.pace_bps(phase),
            known_bps: channel.rate.known_bps(),
            source: channel.rate.source(),
            state: channel.state,
        };
        self.channels.iter().map(estimate).collect()
    }

    pub(super) fn limit(&self, channel: usize) -> Option<Limit> {
        let rate = &self.channels.get(channel)?.rate;
        let rate_bps = rate.pace_bps(Prober::phase(self.prober.turn()));
        Some(Limit { rate_bps, burst: rate.burst() })
    }

    pub(super) fn slowest_bps(&self) -> u64 {
        self.channels.iter().map(|channel| channel.rate.known_bps()).min().unwrap_or(u64::MAX)
    }

    fn is_busy(&self, totals: &[Totals], passed: Duration) -> bool {
        let phase = Prober::phase(self.prober.turn());
        self.channels.iter().enumerate().any(|(index, channel)| match &channel.rate {
            Rate::Learnt(learner) if learner.is_probed() => {
                let bytes = totals[index].bytes.saturating_sub(self.began_with[index].bytes);
                learner.is_busy(phase, bytes, passed)
            }
            _ => false,
        })
    }

    /// Notes when the first share of each message came, which is what the others are compared with.
    fn find_first(&mut self, message: &Message) {
        for arrival in message.reports.iter().flat_map(|report| &report.arrivals) {
            if let Some(place) = self.place_of(arrival.number) {
                let first = &mut self.sent[place].first_us;
                *first = (*first).min(arrived_us(message, *arrival));
            }
        }
    }

    fn handle_arrival(&mut self, index: usize, message: &Message, arrival: Arrival, now: Duration) {
        let Some(place) = self.place_of(arrival.number) else {
            return;
        };
        let Sent { number, at, totals, turns, first_us } = self.sent[place];
        let channel = &mut self.channels[index];
        if channel.last.is_some_and(|last| last.number >= number) {
            return;
        }
        let arrived_us = arrived_us(message, arrival);
        channel.distance.push(now, arrived_us - first_us);
        let round_trip = micros(now) - micros(at) - i64::from(arrival.age_us);
        self.round_trips.push(now, round_trip.max(0));

        let point = Point {
            number,
            sent_at: at,
            totals: totals[index],
            turns,
            arrived_us,
            received: arrival.received,
        };
        // What is lost while a channel is down says nothing about the channel.
        if let Some(last) = channel.last.replace(point)
            && channel.state != State::Down
        {
            channel.measure(last, point, &mut self.prober, now);
        }
    }

    fn place_of(&self, number: u32) -> Option<usize> {
        let first = self.sent.front()?.number;
        let place = usize::try_from(number.checked_sub(first)?).ok()?;
        (place < self.sent.len()).then_some(place)
    }
}

impl Rate {
    fn pace_bps(&self, phase: Phase) -> u64 {
        match self {
            Self::Configured(rate) => *rate,
            Self::Learnt(learner) => learner.pace_bps(phase),
        }
    }

    fn known_bps(&self) -> u64 {
        match self {
            Self::Configured(rate) => *rate,
            Self::Learnt(learner) => learner.rate_bps(),
        }
    }

    fn source(&self) -> Source {
        match self {
            Self::Configured(_) => Source::Configured,
            Self::Learnt(learner) => learner.source(),
        }
    }

    /// How many bytes may leave at once at least.
    fn burst(&self) -> usize {
        match self {
            Self::Learnt(learner) if learner.is_unlimited() => BURST,
            _ => 0,
        }
    }
}

impl Channel {
    /// Whether its pace follows the prober's phases.
    fn is_probed(&self) -> bool {
        matches!(&self.rate, Rate::Learnt(learner) if learner.is_probed())
    }

    fn set_state(&mut self, state: State) {
        if state == State::Down {
            self.last = None;
        }
        self.state = state;
    }

    fn measure(&mut self, from: Point, to: Point, prober: &mut Prober, now: Duration) {
        let interval = Interval {
            sent: to.totals.datagrams.saturating_sub(from.totals.datagrams),
            sent_bytes: to.totals.bytes.saturating_sub(from.totals.bytes),
            received: to.received.wrapping_sub(from.received).into(),
            sending: to.sent_at.saturating_sub(from.sent_at),
            arriving: elapsed(from.arrived_us, to.arrived_us),
            messages: to.number.saturating_sub(from.number).into(),
        };
        self.loss.add(now, interval.sent, interval.received.min(interval.sent));
        let last = to.turns.0;
        let turn = (from.turns.1 == last).then_some(last);
        if let Rate::Learnt(learner) = &mut self.rate
            && let Some(verdict) = learner.handle(turn, interval)
        {
            prober.handle_verdict(last, verdict);
        }
    }
}

fn arrived_us(message: &Message, arrival: Arrival) -> i64 {
    i64::try_from(message.sent_us).unwrap_or(i64::MAX) - i64::from(arrival.age_us)
}

fn elapsed(from_us: i64, to_us: i64) -> Duration {
    Duration::from_micros(u64::try_from(to_us - from_us).unwrap_or(0))
}

#[expect(clippy::cast_precision_loss, reason = "delays are far below 2^53 µs")]
fn milliseconds(micros: i64) -> f64 {
    micros as f64 / 1e3
}
