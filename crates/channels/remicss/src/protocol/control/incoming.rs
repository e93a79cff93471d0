//! The incoming direction of the channels: arrivals of control shares, channels that are down, and
//! the spread of delays.

use std::collections::VecDeque;
use std::time::Duration;

use model::ChannelSubset;

use crate::protocol::control::estimate::SlidingWindow;
use crate::protocol::wire::control::{
    ChannelReport, ControlMessage, ControlShareArrival, MAX_ARRIVALS, TunnelChannelState,
};

/// A channel is down after this time without datagrams, if this number of messages has verified
/// without it.
const DOWN_TIMEOUT: Duration = Duration::from_millis(300);
const MAX_MISSED: u32 = 4;

/// A channel that is not silent, but delivers no right share, is down after this number of
/// messages.
const MAX_MISSED_IF_NOT_SILENT: u32 = 16;

/// The number of messages that are remembered for their later shares: six seconds of them. Even
/// later shares are not reported.
const MAX_REMEMBERED: usize = 64;

/// The maximum reorder window.
const MAX_REORDER_WINDOW: Duration = Duration::from_millis(200);

/// Counts of what has arrived on one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrivalCounts {
    /// Datagrams with right tokens: the peer sent them, but their shares may be wrong.
    pub datagrams: u64,
    /// Shares that are known to be right.
    pub right: u64,
}

/// The state of the incoming direction.
#[derive(Clone, Debug)]
pub(super) struct IncomingDirectionMonitor {
    channels: Vec<IncomingChannelMonitor>,
    /// The verified messages, the newest last.
    heard: VecDeque<ReceivedControlMessage>,
    /// The time from sending to verification of messages, in µs, with the offset of the two clocks.
    transit: SlidingWindow,
    last_message_at: Duration,
}

#[derive(Clone, Debug)]
struct IncomingChannelMonitor {
    /// Arrivals that were not reported yet.
    arrivals: VecDeque<ArrivedControlShare>,
    /// The time from sending to arrival of shares, in µs, with the offset of the two clocks.
    transit: SlidingWindow,
    /// The counts so far, and when they last increased.
    arrived: ArrivalCounts,
    arrived_at: Duration,
    /// The number of messages that have verified since the last right share.
    missed: u32,
    is_down: bool,
}

/// A control share that has arrived.
#[derive(Clone, Copy, Debug)]
struct ArrivedControlShare {
    /// The message's number.
    number: u32,
    received: u64,
    at: Duration,
}

#[derive(Clone, Copy, Debug)]
struct ReceivedControlMessage {
    symbol: u64,
    number: u32,
    sent_us: u64,
    at: Duration,
}

impl IncomingDirectionMonitor {
    pub(super) fn new(channels: usize, now: Duration) -> Self {
        let channel = IncomingChannelMonitor {
            arrivals: VecDeque::new(),
            transit: SlidingWindow::default(),
            arrived: ArrivalCounts::default(),
            arrived_at: now,
            missed: 0,
            is_down: false,
        };
        Self {
            channels: vec![channel; channels],
            heard: VecDeque::new(),
            transit: SlidingWindow::default(),
            last_message_at: now,
        }
    }

    /// Sets the members of the association. Nothing arrives on other channels.
    pub(super) fn set_members(&mut self, members: ChannelSubset) {
        for (index, channel) in self.channels.iter_mut().enumerate() {
            channel.is_down = !members.contains(index);
        }
    }

    /// Records that a right share of a verified message has arrived, after `received` datagrams on
    /// its channel.
    pub(super) fn handle_share(
        &mut self,
        symbol: u64,
        channel: usize,
        received: u64,
        at: Duration,
    ) {
        let (Some(channel), Some(heard)) = (
            self.channels.get_mut(channel),
            self.heard.iter().rev().find(|heard| heard.symbol == symbol),
        ) else {
            return;
        };
        channel.hear(at);
        channel.arrive(*heard, received, at);
    }

    /// Handles a message that has verified.
    pub(super) fn handle_message(&mut self, symbol: u64, message: &ControlMessage, now: Duration) {
        let (number, sent_us) = (message.number, message.sent_us);
        let heard = ReceivedControlMessage { symbol, number, sent_us, at: now };
        self.last_message_at = now;
        self.transit.push(now, heard.transit(now));
        push_bounded(&mut self.heard, heard, MAX_REMEMBERED);
        for channel in &mut self.channels {
            channel.missed = channel.missed.saturating_add(1);
        }
    }

    /// Updates the channels with the counts of what has arrived.
    pub(super) fn update(&mut self, arrived: &[ArrivalCounts], now: Duration) {
        for (channel, arrived) in self.channels.iter_mut().zip(arrived) {
            if arrived.right > channel.arrived.right {
                channel.hear(now);
            }
            if arrived.datagrams > channel.arrived.datagrams {
                channel.arrived_at = now;
            }
            channel.arrived = *arrived;
            let is_silent = now.saturating_sub(channel.arrived_at) >= DOWN_TIMEOUT;
            let missed = if is_silent { MAX_MISSED } else { MAX_MISSED_IF_NOT_SILENT };
            channel.is_down |= channel.missed >= missed;
        }
    }

    /// Each channel's state.
    pub(super) fn states(
        &self,
        quarantined: ChannelSubset,
    ) -> impl Iterator<Item = TunnelChannelState> {
        self.channels.iter().enumerate().map(move |(index, channel)| {
            if channel.is_down {
                TunnelChannelState::Down
            } else if quarantined.contains(index) {
                TunnelChannelState::Quarantine
            } else {
                TunnelChannelState::Up
            }
        })
    }

    /// The reports for the other end, each arrival once.
    pub(super) fn take_reports(
        &mut self,
        quarantined: ChannelSubset,
        now: Duration,
    ) -> Vec<ChannelReport> {
        let states: Vec<TunnelChannelState> = self.states(quarantined).collect();
        let channels = self.channels.iter_mut().zip(states);
        channels.map(|(channel, state)| channel.take_report(state, now)).collect()
    }

    /// The reorder window: from the fastest message in ten seconds to the slowest share on a
    /// channel that is up, and a quarter more, as only messages are measured. The maximum, until
    /// there is a measurement.
    pub(super) fn reorder_window(&self, now: Duration) -> Duration {
        let slowest = self.channels.iter().filter(|channel| !channel.is_down);
        let slowest = slowest.filter_map(|channel| channel.transit.max(now)).max();
        let (Some(fastest), Some(slowest)) = (self.transit.min(now), slowest) else {
            return MAX_REORDER_WINDOW;
        };
        let spread = u64::try_from(slowest.saturating_sub(fastest)).unwrap_or(0);
        MAX_REORDER_WINDOW.min(Duration::from_micros(spread.saturating_add(spread / 4)))
    }

    /// By how much each channel that is up delivers shares later than the fastest, by the medians
    /// of ten seconds. `None` for other channels, and those without a measurement.
    pub(super) fn lateness(&self, now: Duration) -> Vec<Option<Duration>> {
        let typical = |channel: &IncomingChannelMonitor| {
            channel.transit.median(now).filter(|_| !channel.is_down)
        };
        let typical: Vec<Option<i64>> = self.channels.iter().map(typical).collect();
        let fastest = typical.iter().flatten().min().copied().unwrap_or(0);
        let later = |transit: i64| u64::try_from(transit.saturating_sub(fastest)).unwrap_or(0);
        let late = |transit: Option<i64>| transit.map(|it| Duration::from_micros(later(it)));
        typical.into_iter().map(late).collect()
    }

    /// When a message last verified, or the start.
    pub(super) fn last_message_at(&self) -> Duration {
        self.last_message_at
    }
}

impl IncomingChannelMonitor {
    /// Records the arrival of a right share.
    fn hear(&mut self, at: Duration) {
        self.arrived_at = self.arrived_at.max(at);
        self.missed = 0;
        self.is_down = false;
    }

    /// Records that a share of a verified message has arrived. If it arrived before the message
    /// verified, its transit ends at verification: no symbol is complete earlier.
    fn arrive(&mut self, heard: ReceivedControlMessage, received: u64, at: Duration) {
        let complete_at = at.max(heard.at);
        self.transit.push(complete_at, heard.transit(complete_at));
        if self.arrivals.back().is_none_or(|last| last.number < heard.number) {
            let arrival = ArrivedControlShare { number: heard.number, received, at };
            push_bounded(&mut self.arrivals, arrival, MAX_ARRIVALS);
        }
    }

    fn take_report(&mut self, state: TunnelChannelState, now: Duration) -> ChannelReport {
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
        let arrivals = self.arrivals.drain(..).map(|share| ControlShareArrival {
            number: share.number,
            age_us: u32::try_from(now.saturating_sub(share.at).as_micros()).unwrap_or(u32::MAX),
            received: share.received as u32,
        });
        ChannelReport { state, arrivals: arrivals.collect() }
    }
}

impl ReceivedControlMessage {
    /// The time from sending to `at`, in µs, with the offset of the two clocks.
    fn transit(&self, at: Duration) -> i64 {
        micros(at) - i64::try_from(self.sent_us).unwrap_or(i64::MAX)
    }
}

/// A time in µs, below 2^62.
pub(super) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX).min(1 << 62)
}

fn push_bounded<T>(queue: &mut VecDeque<T>, item: T, most: usize) {
    if queue.len() >= most {
        queue.pop_front();
    }
    queue.push_back(item);
}
