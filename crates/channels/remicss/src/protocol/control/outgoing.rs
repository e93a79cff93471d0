//! The outgoing direction of the channels: combines the other end's reports with what was sent.

use std::array;
use std::collections::VecDeque;
use std::time::Duration;

use model::ChannelSubset;

use super::incoming::micros;
use crate::protocol::control::estimate::{
    ChannelEstimate, LossEstimator, MeasurementInterval, ProbeCycle, ProbePhase, RateEstimator,
    RateSource, SlidingWindow,
};
use crate::protocol::wire::control::{ControlMessage, ControlShareArrival, TunnelChannelState};
use crate::protocol::wire::datagram::MAX_CHANNELS;
use udp::PacerRateLimit;

/// The bytes of IP packets that may leave at once on a channel without a known bottleneck, so that
/// the first burst in an idle tunnel does not wait for an estimate: about 90 full packets.
const INITIAL_BURST: usize = 128 << 10;

/// The number of messages that are remembered until they are reported on: more than 6 s of them.
const MAX_SENT_MESSAGES: usize = 64;

/// A channel is silent if this many messages have arrived on others and not on it, and at least as
/// many datagrams were sent on it meanwhile.
const SILENT_MESSAGES: u32 = 3;
const SILENT_DATAGRAMS: u64 = 10;

/// Counts of what was sent on one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentCounts {
    /// Datagrams, including those with control shares.
    pub datagrams: u64,
    /// Their bytes, as IP packets.
    pub bytes: u64,
}

/// The state of the outgoing direction.
#[derive(Clone, Debug)]
pub(super) struct OutgoingDirectionMonitor {
    channels: Vec<OutgoingChannelMonitor>,
    /// The number of shares that complete a message.
    floor: usize,
    /// The messages that were sent, with consecutive numbers, the newest last.
    sent: VecDeque<SentControlMessage>,
    /// The number of the newest message from the other end.
    newest: u32,
    /// Round trips over the fastest channels of each direction, in µs.
    round_trips: SlidingWindow,
    prober: ProbeCycle,
    /// When the current interval of the probe cycle began, and what had been sent by then.
    began: Duration,
    began_with: [SentCounts; MAX_CHANNELS],
}

#[derive(Clone, Debug)]
struct OutgoingChannelMonitor {
    state: TunnelChannelState,
    rate: ChannelRate,
    loss: LossEstimator,
    /// The delay of shares behind the fastest channel, in µs.
    lag: SlidingWindow,
    last: Option<ControlShareReport>,
}

#[derive(Clone, Debug)]
enum ChannelRate {
    Configured(u64),
    Learnt(Box<RateEstimator>),
}

/// A message that was sent, and what had been sent on each channel before it.
#[derive(Clone, Debug)]
struct SentControlMessage {
    number: u32,
    at: Duration,
    totals: [SentCounts; MAX_CHANNELS],
    /// The numbers of the phases before and after it.
    phase_numbers: (u64, u64),
    /// When its share arrived on each channel, in µs of the other end's clock; `i64::MAX` if that
    /// is not known.
    arrived_us: [i64; MAX_CHANNELS],
}

/// A control share that has arrived, as both ends know it.
#[derive(Clone, Copy, Debug)]
struct ControlShareReport {
    number: u32,
    sent_at: Duration,
    totals: SentCounts,
    phase_numbers: (u64, u64),
    arrived_us: i64,
    received: u32,
}

impl OutgoingDirectionMonitor {
    pub(super) fn new(rates: &[Option<u64>], now: Duration) -> Self {
        let channel = |rate: &Option<u64>| OutgoingChannelMonitor {
            state: TunnelChannelState::Up,
            rate: rate.map_or_else(|| ChannelRate::Learnt(Box::default()), ChannelRate::Configured),
            loss: LossEstimator::new(now),
            lag: SlidingWindow::default(),
            last: None,
        };
        Self {
            channels: rates.iter().map(channel).collect(),
            floor: 1,
            sent: VecDeque::new(),
            newest: 0,
            round_trips: SlidingWindow::default(),
            prober: ProbeCycle::new(),
            began: now,
            began_with: [SentCounts::default(); MAX_CHANNELS],
        }
    }

    /// Sets the members of the association and its privacy floor. Nothing is sent on other
    /// channels.
    pub(super) fn set_terms(&mut self, members: ChannelSubset, floor: usize) {
        self.floor = floor;
        for (index, channel) in self.channels.iter_mut().enumerate() {
            channel.state = if members.contains(index) {
                TunnelChannelState::Up
            } else {
                TunnelChannelState::Down
            };
        }
    }

    /// Takes over the rates of the previous association.
    pub(super) fn inherit_rates(&mut self, before: &Self) {
        for (channel, before) in self.channels.iter_mut().zip(&before.channels) {
            channel.rate = before.rate.clone();
        }
        // Rates refer to its phase numbers.
        self.prober = before.prober.clone();
    }

    /// Records a message that is about to be sent, and returns its number. `totals` counts what was
    /// sent before it, and `interval` is the usual interval of messages.
    pub(super) fn send(&mut self, now: Duration, totals: &[SentCounts], interval: Duration) -> u32 {
        let totals = array::from_fn(|index| totals.get(index).copied().unwrap_or_default());
        let before = self.prober.phase_number();
        let passed = now.saturating_sub(self.began);
        // An additional message does not shorten a phase.
        if passed >= interval * 4 / 5 {
            let has_fallen = self.channels.iter().any(OutgoingChannelMonitor::has_fallen);
            self.prober.advance(self.is_busy(&totals, passed), has_fallen);
            (self.began, self.began_with) = (now, totals);
        }
        let number = self.sent.back().map_or(1, |last| last.number.saturating_add(1));
        if self.sent.len() >= MAX_SENT_MESSAGES {
            self.sent.pop_front();
        }
        let phase_numbers = (before, self.prober.phase_number());
        self.sent.push_back(SentControlMessage {
            number,
            at: now,
            totals,
            phase_numbers,
            arrived_us: [i64::MAX; MAX_CHANNELS],
        });
        number
    }

    /// Handles a report of the other end. Returns whether it is its newest message.
    pub(super) fn handle_message(&mut self, message: &ControlMessage, now: Duration) -> bool {
        let is_newest = message.number > self.newest;
        self.newest = self.newest.max(message.number);
        self.note_arrivals(message);
        for index in 0..self.channels.len().min(message.reports.len()) {
            let report = &message.reports[index];
            if is_newest {
                self.channels[index].set_state(report.state);
            }
            for arrival in &report.arrivals {
                self.handle_arrival(index, message, *arrival, now);
            }
        }
        self.find_silence(message, now);
        is_newest
    }

    /// Half the lowest round trip of ten seconds, in ms; 0 if there is no measurement.
    pub(super) fn half_round_trip_ms(&self, now: Duration) -> f64 {
        milliseconds(self.round_trips.min(now).unwrap_or(0)) / 2.0
    }

    pub(super) fn estimates(&self, now: Duration) -> Vec<ChannelEstimate> {
        let half_ms = self.half_round_trip_ms(now);
        // If the rates of all channels change together, their proportions stay. A channel that has
        // fallen needs more of a load that does not fill the others.
        let are_together = self.channels.iter().all(OutgoingChannelMonitor::is_probed);
        let phase = ProbeCycle::phase(self.prober.phase_number());
        let phase_of = |channel: &OutgoingChannelMonitor| {
            if are_together && !channel.has_fallen() { ProbePhase::Cruise } else { phase }
        };
        let estimate = |channel: &OutgoingChannelMonitor| ChannelEstimate {
            loss: channel.rate.lasting_loss(channel.loss.value()),
            measured: channel.loss.measured(),
            delay_ms: half_ms + milliseconds(channel.lag.median(now).unwrap_or(0)),
            rate_bps: channel.rate.planned_bps(phase_of(channel)),
            known_bps: channel.rate.known_bps(),
            source: channel.rate.source(),
            state: channel.state,
        };
        self.channels.iter().map(estimate).collect()
    }

    pub(super) fn limit(&self, channel: usize) -> Option<PacerRateLimit> {
        let rate = &self.channels.get(channel)?.rate;
        let rate_bps = rate.pace_bps(ProbeCycle::phase(self.prober.phase_number()));
        Some(PacerRateLimit { rate_bps, burst: rate.burst() })
    }

    pub(super) fn channels_under_test(&self) -> ChannelSubset {
        let channels = self.channels.iter().enumerate();
        channels.filter(|(_, channel)| channel.is_tested()).map(|(index, _)| index).collect()
    }

    pub(super) fn slowest_bps(&self) -> u64 {
        self.channels.iter().map(|channel| channel.rate.measuring_bps()).min().unwrap_or(u64::MAX)
    }

    fn is_busy(&self, totals: &[SentCounts], passed: Duration) -> bool {
        let phase = ProbeCycle::phase(self.prober.phase_number());
        self.channels.iter().enumerate().any(|(index, channel)| match &channel.rate {
            ChannelRate::Learnt(learner) if learner.is_probed() => {
                let bytes = totals[index].bytes.saturating_sub(self.began_with[index].bytes);
                learner.is_busy(phase, bytes, passed)
            }
            _ => false,
        })
    }

    /// Finds channels on which no control share has arrived for some messages.
    fn find_silence(&mut self, message: &ControlMessage, now: Duration) {
        let arrivals = message.reports.iter().flat_map(|report| &report.arrivals);
        let Some(newest) = arrivals.map(|arrival| arrival.number).max() else { return };
        let Some(place) = self.place_of(newest) else { return };
        let totals = &self.sent[place].totals;
        for (channel, totals) in self.channels.iter_mut().zip(totals) {
            let Some(last) = channel.last else { continue };
            let sent = totals.datagrams.saturating_sub(last.totals.datagrams);
            if newest >= last.number.saturating_add(SILENT_MESSAGES)
                && sent >= SILENT_DATAGRAMS
                && let ChannelRate::Learnt(learner) = &mut channel.rate
            {
                learner.handle_silence(now);
            }
        }
    }

    /// Records when the shares of each message arrived, which are compared with each other.
    fn note_arrivals(&mut self, message: &ControlMessage) {
        for (channel, report) in message.reports.iter().enumerate().take(MAX_CHANNELS) {
            for arrival in &report.arrivals {
                if let Some(place) = self.place_of(arrival.number) {
                    self.sent[place].arrived_us[channel] = arrived_us(message, *arrival);
                }
            }
        }
    }

    fn handle_arrival(
        &mut self,
        index: usize,
        message: &ControlMessage,
        arrival: ControlShareArrival,
        now: Duration,
    ) {
        let Some(place) = self.place_of(arrival.number) else {
            return;
        };
        let complete_us = self.sent[place].complete_us(self.floor);
        let SentControlMessage { number, at, totals, phase_numbers, .. } = self.sent[place];
        let channel = &mut self.channels[index];
        if channel.last.is_some_and(|last| last.number >= number) {
            return;
        }
        let arrived_us = arrived_us(message, arrival);
        // No symbol is complete before the floor-th share: earlier ones count as arriving then.
        let early_us = complete_us.saturating_sub(arrived_us).max(0);
        channel.lag.push(now, (arrived_us - complete_us).max(0));
        let round_trip = micros(now) - micros(at) - i64::from(arrival.age_us) + early_us;
        self.round_trips.push(now, round_trip.max(0));

        let point = ControlShareReport {
            number,
            sent_at: at,
            totals: totals[index],
            phase_numbers,
            arrived_us,
            received: arrival.received,
        };
        // Losses while a channel is down do not count.
        if let Some(last) = channel.last.replace(point)
            && channel.state != TunnelChannelState::Down
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

impl SentControlMessage {
    /// When it was complete, as far as its arrivals are known, in µs of the other end's clock.
    fn complete_us(&self, floor: usize) -> i64 {
        let mut arrivals = self.arrived_us;
        arrivals.sort_unstable();
        let known = arrivals.partition_point(|at| *at < i64::MAX);
        arrivals[floor.min(known).saturating_sub(1)]
    }
}

impl ChannelRate {
    fn planned_bps(&self, phase: ProbePhase) -> u64 {
        match self {
            Self::Configured(rate) => *rate,
            Self::Learnt(learner) => learner.planned_bps(phase),
        }
    }

    fn pace_bps(&self, phase: ProbePhase) -> u64 {
        match self {
            Self::Configured(rate) => *rate,
            Self::Learnt(learner) => learner.pace_bps(phase),
        }
    }

    /// The part of a measured loss that is not due to a rate that was too high for a moment.
    fn lasting_loss(&self, measured: f64) -> f64 {
        match self {
            Self::Configured(_) => measured,
            Self::Learnt(learner) => measured.min(learner.random_loss()),
        }
    }

    fn known_bps(&self) -> u64 {
        match self {
            Self::Configured(rate) => *rate,
            Self::Learnt(learner) => learner.rate_bps(),
        }
    }

    fn measuring_bps(&self) -> u64 {
        match self {
            Self::Configured(rate) => *rate,
            Self::Learnt(learner) => learner.measuring_bps(),
        }
    }

    fn source(&self) -> RateSource {
        match self {
            Self::Configured(_) => RateSource::Configured,
            Self::Learnt(learner) => learner.source(),
        }
    }

    /// The minimum number of bytes that may leave at once.
    fn burst(&self) -> usize {
        match self {
            Self::Learnt(learner) if learner.is_unlimited() && !learner.is_tested() => {
                INITIAL_BURST
            }
            _ => 0,
        }
    }
}

impl OutgoingChannelMonitor {
    /// Whether it follows the phases of the probe cycle.
    fn is_probed(&self) -> bool {
        matches!(&self.rate, ChannelRate::Learnt(learner) if learner.is_probed())
    }

    fn has_fallen(&self) -> bool {
        matches!(&self.rate, ChannelRate::Learnt(learner) if learner.is_below_usual())
    }

    fn is_tested(&self) -> bool {
        matches!(&self.rate, ChannelRate::Learnt(learner) if learner.is_tested())
    }

    fn set_state(&mut self, state: TunnelChannelState) {
        if state == TunnelChannelState::Down {
            self.last = None;
            if let ChannelRate::Learnt(learner) = &mut self.rate {
                learner.handle_outage();
            }
        }
        self.state = state;
    }

    fn measure(
        &mut self,
        from: ControlShareReport,
        to: ControlShareReport,
        prober: &mut ProbeCycle,
        now: Duration,
    ) {
        let sent = to.totals.datagrams.saturating_sub(from.totals.datagrams);
        let received = u64::from(to.received.wrapping_sub(from.received));
        let messages = u64::from(to.number.saturating_sub(from.number));
        self.loss.add(now, sent, received.min(sent));
        // Control shares are short, and may arrive where packets do not. Of those in the interval,
        // the first has arrived.
        let interval = MeasurementInterval {
            began: from.sent_at,
            sent: sent.saturating_sub(messages),
            sent_bytes: to.totals.bytes.saturating_sub(from.totals.bytes),
            received: received.saturating_sub(1),
            sending: to.sent_at.saturating_sub(from.sent_at),
            arriving: elapsed(from.arrived_us, to.arrived_us),
            messages,
        };
        let last = to.phase_numbers.0;
        let phase_number = (from.phase_numbers.1 == last).then_some(last);
        if let ChannelRate::Learnt(learner) = &mut self.rate
            && let Some(result) = learner.handle(now, phase_number, interval)
        {
            prober.handle_result(last, result);
        }
    }
}

fn arrived_us(message: &ControlMessage, arrival: ControlShareArrival) -> i64 {
    i64::try_from(message.sent_us).unwrap_or(i64::MAX) - i64::from(arrival.age_us)
}

fn elapsed(from_us: i64, to_us: i64) -> Duration {
    Duration::from_micros(u64::try_from(to_us - from_us).unwrap_or(0))
}

#[expect(clippy::cast_precision_loss, reason = "delays are far below 2^53 µs")]
fn milliseconds(micros: i64) -> f64 {
    micros as f64 / 1e3
}
