//! The monitor of all channels, in both directions.

use std::time::Duration;

use model::ChannelSubset;

use super::incoming::{ArrivalCounts, IncomingDirectionMonitor, micros};
use super::outgoing::{OutgoingDirectionMonitor, SentCounts};
use crate::protocol::control::estimate::ChannelEstimate;
use crate::protocol::recv::delay_equalizer::ChannelLateness;
use crate::protocol::send::similar_delays::longest_similar_ms;
use crate::protocol::wire::control::{
    ControlMessage, ControlMessageError, LATEST_US, TunnelChannelState,
};
use udp::PacerRateLimit;

/// The interval of messages: 100 ms, or longer if that would use more than a thousandth of the
/// slowest channel's rate, but at most 200 ms.
const MIN_REPORT_INTERVAL: Duration = Duration::from_millis(100);
const MAX_REPORT_INTERVAL: Duration = Duration::from_millis(200);
const RATE_DIVISOR: u64 = 1_000;

/// The minimum interval of messages after a change.
const MIN_MESSAGE_INTERVAL: Duration = Duration::from_millis(10);

/// The peer is considered gone after this time without a verified message.
const PEER_TIMEOUT: Duration = Duration::from_secs(3);

/// After this time without packets in either direction an end is idle, unless the other is active.
/// Measurements are not needed then, and channels may be charged by the byte.
const IDLE_AFTER: Duration = Duration::from_secs(10);

/// The interval of messages when idle, which keeps mappings of address translators alive, and the
/// time after which the peer is considered gone then.
const IDLE_REPORT_INTERVAL: Duration = Duration::from_secs(3);
const IDLE_PEER_TIMEOUT: Duration = Duration::from_secs(12);

/// Monitors the channels: from the counts of sender and receiver and from the other end's reports
/// it computes estimates, rate limits and the reorder window.
#[derive(Clone, Debug)]
pub struct ChannelMonitor {
    incoming: IncomingDirectionMonitor,
    outgoing: OutgoingDirectionMonitor,
    channels: usize,
    /// The states that were last reported to the other end.
    reported: Vec<TunnelChannelState>,
    /// Whether this end was active, as last reported.
    reported_active: bool,
    reported_at: Option<Duration>,
    /// When the next message is due, or when idle, when to check for packets again.
    due: Duration,
    activity: TunnelActivity,
    /// Whether this end requests new keys, and whether the other end does.
    wants_keys: bool,
    peer_wants_keys: bool,
    /// The channels that are reported as down, whether or not shares arrive on them.
    left_out: ChannelSubset,
}

/// Whether packets are sent or received.
#[derive(Clone, Debug)]
struct TunnelActivity {
    /// The number of symbols of packets that were sent and received, and when it last increased.
    packets: u64,
    last: Duration,
    /// Whether that was recently, and since when.
    is_active: bool,
    since: Duration,
    /// Whether the other end is active, by its newest message.
    peer_is_active: bool,
}

impl ChannelMonitor {
    /// A monitor of channels, each with the configured rate of what this end sends, in bit/s of IP
    /// packets, or `None` if it is to be learnt. The first message is due at once.
    pub fn new(rates_bps: &[Option<u64>], now: Duration) -> Self {
        Self {
            incoming: IncomingDirectionMonitor::new(rates_bps.len(), now),
            outgoing: OutgoingDirectionMonitor::new(rates_bps, now),
            channels: rates_bps.len(),
            reported: vec![TunnelChannelState::Up; rates_bps.len()],
            reported_active: true,
            reported_at: None,
            due: now,
            activity: TunnelActivity::new(now),
            wants_keys: false,
            peer_wants_keys: false,
            left_out: ChannelSubset::EMPTY,
        }
    }

    /// Reports these channels to the other end as down from now on, so that it sends no packets on
    /// them.
    pub fn set_left_out(&mut self, left_out: ChannelSubset) {
        self.left_out = left_out;
    }

    /// Requests new keys. The next message reports it to the other end.
    pub fn request_keys(&mut self) {
        self.wants_keys = true;
    }

    /// Whether one of the ends requests new keys.
    pub fn are_keys_requested(&self) -> bool {
        self.wants_keys || self.peer_wants_keys
    }

    /// Sets the members of the association, and its privacy floor, which is the threshold of
    /// control messages. Other channels are down.
    pub fn set_terms(&mut self, members: ChannelSubset, floor: u8) {
        self.incoming.set_members(members);
        self.outgoing.set_terms(members, usize::from(floor).max(1));
        self.reported = self.incoming.states(ChannelSubset::EMPTY).collect();
    }

    /// Takes over the learnt rates of the previous association.
    pub fn inherit_rates(&mut self, before: &Self) {
        self.outgoing.inherit_rates(&before.outgoing);
    }

    /// Handles a right share of control symbol `symbol`, whose message was handled before. It has
    /// arrived on a channel, after `received` datagrams. Call it at most once for each channel and
    /// symbol.
    pub fn handle_share(&mut self, symbol: u64, channel: usize, received: u64, at: Duration) {
        self.incoming.handle_share(symbol, channel, received, at);
    }

    /// Handles the message in control symbol `symbol`, which has verified.
    ///
    /// # Errors
    /// If the bytes are not a message for this number of channels. Nothing changes then.
    pub fn handle_message(
        &mut self,
        symbol: u64,
        bytes: &[u8],
        now: Duration,
    ) -> Result<(), ControlMessageError> {
        let message = ControlMessage::parse(bytes)?;
        if message.reports.len() != self.channels {
            let count = u8::try_from(message.reports.len()).unwrap_or(u8::MAX);
            return Err(ControlMessageError::Channels(count));
        }
        self.incoming.handle_message(symbol, &message, now);
        if self.outgoing.handle_message(&message, now) {
            self.activity.peer_is_active = message.is_active;
            self.peer_wants_keys = message.wants_keys;
        }
        Ok(())
    }

    /// The next message, if it is due: every 100 to 200 ms; every 3 s if neither end has sent or
    /// received packets for 10 s; at once if this, or a channel's state, has changed since the last
    /// report. It must be sent on all channels now. `sent` counts what was sent on each channel
    /// before it, `arrived` what has arrived on each, `quarantined` are the channels whose shares
    /// are not used, and `packets` is the number of symbols of packets that were sent or have
    /// verified.
    pub fn poll_message(
        &mut self,
        now: Duration,
        sent: &[SentCounts],
        arrived: &[ArrivalCounts],
        quarantined: ChannelSubset,
        packets: u64,
    ) -> Option<Vec<u8>> {
        self.incoming.update(arrived, now);
        let mut states: Vec<TunnelChannelState> = self.incoming.states(quarantined).collect();
        self.left_out.iter().for_each(|channel| states[channel] = TunnelChannelState::Down);
        self.activity.notice(packets, now);
        let is_within = |time| self.reported_at.is_some_and(|at| now < at.saturating_add(time));
        let waits = now < self.due || (self.is_idle(now) && is_within(IDLE_REPORT_INTERVAL));
        let interval = self.interval();
        if now >= self.due {
            self.due = now.saturating_add(interval);
        }
        let is_active = self.activity.is_active;
        let has_changed = states != self.reported || is_active != self.reported_active;
        if is_within(MIN_MESSAGE_INTERVAL) || (waits && !has_changed) {
            return None;
        }
        self.due = now.saturating_add(interval);
        let mut reports = self.incoming.take_reports(quarantined, now);
        reports.iter_mut().zip(&states).for_each(|(report, state)| report.state = *state);
        (self.reported, self.reported_active, self.reported_at) = (states, is_active, Some(now));
        let message = ControlMessage {
            number: self.outgoing.send(now, sent, interval),
            sent_us: micros(now).unsigned_abs().min(LATEST_US - 1),
            is_active,
            wants_keys: self.wants_keys,
            reports,
        };
        Some(message.encode())
    }

    /// When to call [`Self::poll_message`] next, at the latest, even when idle. When a channel is
    /// up again, a message may be due at once.
    pub fn poll_timeout(&self) -> Duration {
        self.due
    }

    /// The estimates of the outgoing direction, from the other end's reports. Initially a channel
    /// has no loss, no delay, and is up.
    pub fn estimates(&self, now: Duration) -> Vec<ChannelEstimate> {
        self.outgoing.estimates(now)
    }

    /// The current rate limit of a channel. It changes with every message if it is learnt. `None`
    /// if there is no such channel.
    pub fn limit(&self, channel: usize) -> Option<PacerRateLimit> {
        self.outgoing.limit(channel)
    }

    /// The channels that are currently given less than their rate, to test whether losses are
    /// random. They change with every message.
    pub fn channels_under_test(&self) -> ChannelSubset {
        self.outgoing.channels_under_test()
    }

    /// The reorder window: the spread of the channels' delays and their variation in ten seconds,
    /// at most 200 ms.
    pub fn reorder_window(&self, now: Duration) -> Duration {
        self.incoming.reorder_window(now)
    }

    /// By how much the channels of the incoming direction are later than the fastest, at whose
    /// delay half the lowest round trip is taken.
    pub fn incoming_lateness(&self, now: Duration) -> ChannelLateness {
        let shortest_ms = self.outgoing.half_round_trip_ms(now);
        let tolerated_ms = longest_similar_ms(shortest_ms) - shortest_ms;
        ChannelLateness {
            channels: self.incoming.lateness(now),
            tolerated: Duration::from_secs_f64(tolerated_ms / 1000.0),
        }
    }

    /// The states of the incoming direction, as of the last [`Self::poll_message`].
    pub fn incoming(&self, quarantined: ChannelSubset) -> Vec<TunnelChannelState> {
        self.incoming.states(quarantined).collect()
    }

    /// The channels that are up among [`Self::incoming`].
    pub fn up(&self, quarantined: ChannelSubset) -> ChannelSubset {
        let states = self.incoming.states(quarantined).enumerate();
        states
            .filter(|(_, state)| *state == TunnelChannelState::Up)
            .map(|(channel, _)| channel)
            .collect()
    }

    /// The channels that are up in both directions, as far as this end knows.
    pub fn up_in_both_directions(&self, now: Duration) -> ChannelSubset {
        let estimates = self.estimates(now);
        let up = self.up(ChannelSubset::EMPTY);
        up.iter().filter(|channel| estimates[*channel].state == TunnelChannelState::Up).collect()
    }

    /// Whether no message has verified for 3 s, or for 12 s when idle: the other end does not have
    /// this association.
    pub fn is_peer_gone(&self, now: Duration) -> bool {
        now >= self.gone_at()
    }

    /// When the peer will be considered gone, if no message verifies before.
    pub fn gone_at(&self) -> Duration {
        let heard_at = self.incoming.last_message_at();
        if self.activity.is_active {
            // The peer learns of the activity with the next message, and sends as often from then
            // on.
            heard_at.max(self.activity.since).saturating_add(PEER_TIMEOUT)
        } else {
            heard_at.saturating_add(IDLE_PEER_TIMEOUT)
        }
    }

    /// Whether this end is idle and, as far as is known, the other end, too.
    fn is_idle(&self, now: Duration) -> bool {
        let is_heard = now < self.incoming.last_message_at().saturating_add(PEER_TIMEOUT);
        !(self.activity.is_active || self.activity.peer_is_active && is_heard)
    }

    fn interval(&self) -> Duration {
        // With IP, UDP, the share's header, the overhead in the symbol, and one arrival a channel.
        let bits = 8 * (28 + 12 + 9 + 13 + 13 * self.channels as u64);
        let slowest = self.outgoing.slowest_bps().max(1);
        let nanos = bits.saturating_mul(RATE_DIVISOR * 1_000_000_000) / slowest;
        Duration::from_nanos(nanos).clamp(MIN_REPORT_INTERVAL, MAX_REPORT_INTERVAL)
    }
}

impl TunnelActivity {
    fn new(now: Duration) -> Self {
        Self { packets: 0, last: now, is_active: true, since: now, peer_is_active: false }
    }

    /// Updates the number of packets.
    fn notice(&mut self, packets: u64, now: Duration) {
        if packets > self.packets {
            (self.packets, self.last) = (packets, now);
        }
        let is_active = now < self.last.saturating_add(IDLE_AFTER);
        if is_active && !self.is_active {
            self.since = now;
        }
        self.is_active = is_active;
    }
}
