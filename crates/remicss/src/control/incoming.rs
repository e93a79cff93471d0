//! The channels as they bring: when control shares came, which channels are down, and how far their
//! delays are apart.

use std::collections::VecDeque;
use std::time::Duration;

use model::Subset;

use super::message::{Arrival, MAX_ARRIVALS, Message, Report};
use crate::estimate::{Sliding, State};

/// How long a channel has to be silent to be down, and how many messages others have to bring.
const SILENCE: Duration = Duration::from_millis(300);
const MISSED: u32 = 4;

/// How many messages are remembered for their later shares: six seconds of them. Shares that come later
/// still are not told of.
const HEARD: usize = 64;

/// How many shares of a channel wait for their message to be verified. Each channel has its own, so
/// that one which brings shares of no message forgets no other's.
const EARLY: usize = 8;

/// The longest that packets wait for earlier ones.
const MOST_WINDOW: Duration = Duration::from_millis(200);

/// What comes in.
#[derive(Clone, Debug)]
pub(super) struct Incoming {
    channels: Vec<Channel>,
    /// The messages that verified, the newest last.
    heard: VecDeque<Heard>,
    /// How long messages took until they verified, in µs, by two clocks.
    transit: Sliding,
    heard_at: Duration,
}

#[derive(Clone, Debug)]
struct Channel {
    early: VecDeque<Share>,
    /// Arrivals that were not told of yet.
    arrivals: VecDeque<Share>,
    /// How long shares took, in µs, by two clocks.
    transit: Sliding,
    /// The last count of datagrams, and when it changed.
    received: u64,
    changed_at: Duration,
    /// How many messages have verified since.
    missed: u32,
    is_down: bool,
}

/// A control share that came.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// The symbol's number, or the message's once that is known.
    number: u64,
    received: u64,
    at: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    symbol: u64,
    number: u32,
    sent_us: u64,
    at: Duration,
}

impl Incoming {
    pub(super) fn new(channels: usize, now: Duration) -> Self {
        let channel = Channel {
            early: VecDeque::new(),
            arrivals: VecDeque::new(),
            transit: Sliding::default(),
            received: 0,
            changed_at: now,
            missed: 0,
            is_down: false,
        };
        Self {
            channels: vec![channel; channels],
            heard: VecDeque::new(),
            transit: Sliding::default(),
            heard_at: now,
        }
    }

    /// A control share came, after so many datagrams on its channel. Its message may verify later,
    /// or never.
    pub(super) fn handle_share(
        &mut self,
        symbol: u64,
        channel: usize,
        received: u64,
        now: Duration,
    ) {
        let Some(channel) = self.channels.get_mut(channel) else {
            return;
        };
        // The share itself is one more than before it.
        channel.hear(received.saturating_add(1), now);
        let share = Share { number: symbol, received, at: now };
        match self.heard.iter().find(|heard| heard.symbol == symbol) {
            Some(heard) => channel.arrive(*heard, share),
            None => push_bounded(&mut channel.early, share, EARLY),
        }
    }

    /// A message has verified.
    pub(super) fn handle_message(&mut self, symbol: u64, message: &Message, now: Duration) {
        let (number, sent_us) = (message.number, message.sent_us);
        let heard = Heard { symbol, number, sent_us, at: now };
        self.heard_at = now;
        self.transit.push(now, heard.transit(now));
        push_bounded(&mut self.heard, heard, HEARD);
        for channel in &mut self.channels {
            channel.missed = channel.missed.saturating_add(1);
            let early = channel.early.iter().position(|share| share.number == symbol);
            if let Some(share) = early.and_then(|place| channel.early.remove(place)) {
                channel.missed = 0;
                channel.arrive(heard, share);
            }
        }
    }

    /// Looks at how many datagrams have come on each channel.
    pub(super) fn look(&mut self, received: &[u64], now: Duration) {
        for (channel, received) in self.channels.iter_mut().zip(received) {
            channel.hear(*received, now);
            let silence = now.saturating_sub(channel.changed_at);
            channel.is_down |= channel.missed >= MISSED && silence >= SILENCE;
        }
    }

    /// Each channel's state.
    pub(super) fn states(&self, quarantined: Subset) -> impl Iterator<Item = State> {
        self.channels.iter().enumerate().map(move |(index, channel)| {
            if channel.is_down {
                State::Down
            } else if quarantined.contains(index) {
                State::Quarantine
            } else {
                State::Up
            }
        })
    }

    /// What to tell the other end, once.
    pub(super) fn take_reports(&mut self, quarantined: Subset, now: Duration) -> Vec<Report> {
        let states: Vec<State> = self.states(quarantined).collect();
        let channels = self.channels.iter_mut().zip(states);
        channels.map(|(channel, state)| channel.take_report(state, now)).collect()
    }

    /// How long to wait for packets that were sent earlier: from the fastest message of ten seconds
    /// to the slowest share on a channel that is up, and a quarter more, as only messages are
    /// measured. As long as nothing is known, the most that is allowed.
    pub(super) fn window(&self, now: Duration) -> Duration {
        let slowest = self.channels.iter().filter(|channel| !channel.is_down);
        let slowest = slowest.filter_map(|channel| channel.transit.most(now)).max();
        let (Some(fastest), Some(slowest)) = (self.transit.least(now), slowest) else {
            return MOST_WINDOW;
        };
        let spread = u64::try_from(slowest.saturating_sub(fastest)).unwrap_or(0);
        MOST_WINDOW.min(Duration::from_micros(spread.saturating_add(spread / 4)))
    }

    /// When a message last verified, or the beginning.
    pub(super) fn heard_at(&self) -> Duration {
        self.heard_at
    }
}

impl Channel {
    /// So many datagrams have come so far.
    fn hear(&mut self, received: u64, now: Duration) {
        if received > self.received {
            (self.received, self.changed_at) = (received, now);
            self.missed = 0;
            self.is_down = false;
        }
    }

    /// A share of a verified message has come. What came before the message verified counts as having
    /// come then: no symbol is complete earlier, and so no channel seems fast by sending what is no
    /// share of anything.
    fn arrive(&mut self, heard: Heard, share: Share) {
        let at = share.at.max(heard.at);
        self.transit.push(at, heard.transit(at));
        if self.arrivals.back().is_none_or(|last| last.number < u64::from(heard.number)) {
            let arrival = Share { number: heard.number.into(), at, ..share };
            push_bounded(&mut self.arrivals, arrival, MAX_ARRIVALS);
        }
    }

    fn take_report(&mut self, state: State, now: Duration) -> Report {
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
        let arrivals = self.arrivals.drain(..).map(|share| Arrival {
            number: share.number as u32,
            age_us: u32::try_from(now.saturating_sub(share.at).as_micros()).unwrap_or(u32::MAX),
            received: share.received as u32,
        });
        Report { state, arrivals: arrivals.collect() }
    }
}

impl Heard {
    /// How long it took until `at`, in µs, up to what the two clocks differ by.
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
