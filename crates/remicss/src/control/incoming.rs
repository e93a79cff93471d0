//! The channels as they bring: when control shares came, which channels are down, and how far their
//! delays are apart.

use std::collections::VecDeque;
use std::time::Duration;

use model::Subset;

use crate::control::estimate::Sliding;
use crate::wire::control::{Arrival, MAX_ARRIVALS, Message, Report, State};

/// How long a channel has to be silent to be down, and how many messages others have to bring.
const SILENCE: Duration = Duration::from_millis(300);
const MISSED: u32 = 4;

/// How many messages others have to bring for it to be down if it is not silent, but brings nothing that
/// is right.
const WRONG: u32 = 16;

/// How many messages are remembered for their later shares: six seconds of them. Shares that come later
/// still are not told of.
const HEARD: usize = 64;

/// The longest that packets wait for earlier ones.
const MOST_WINDOW: Duration = Duration::from_millis(200);

/// What has come on one channel so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Came {
    /// Datagrams with right tokens: the peer sent them, and what they carry may be wrong.
    pub datagrams: u64,
    /// Shares that are known to be right.
    pub right: u64,
}

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
    /// Arrivals that were not told of yet.
    arrivals: VecDeque<Share>,
    /// How long shares took, in µs, by two clocks.
    transit: Sliding,
    /// What has come so far, and when there was last more.
    came: Came,
    came_at: Duration,
    /// How many messages have verified since the last right share.
    missed: u32,
    is_down: bool,
}

/// A control share that came.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// The message's number.
    number: u32,
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
            arrivals: VecDeque::new(),
            transit: Sliding::default(),
            came: Came::default(),
            came_at: now,
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

    /// Says which channels are in the association. Nothing comes on the others.
    pub(super) fn set_members(&mut self, members: Subset) {
        for (index, channel) in self.channels.iter_mut().enumerate() {
            channel.is_down = !members.contains(index);
        }
    }

    /// A right share of a message that has verified came, after so many datagrams on its channel.
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

    /// A message has verified.
    pub(super) fn handle_message(&mut self, symbol: u64, message: &Message, now: Duration) {
        let (number, sent_us) = (message.number, message.sent_us);
        let heard = Heard { symbol, number, sent_us, at: now };
        self.heard_at = now;
        self.transit.push(now, heard.transit(now));
        push_bounded(&mut self.heard, heard, HEARD);
        for channel in &mut self.channels {
            channel.missed = channel.missed.saturating_add(1);
        }
    }

    /// Looks at what has come on each channel.
    pub(super) fn look(&mut self, came: &[Came], now: Duration) {
        for (channel, came) in self.channels.iter_mut().zip(came) {
            if came.right > channel.came.right {
                channel.hear(now);
            }
            if came.datagrams > channel.came.datagrams {
                channel.came_at = now;
            }
            channel.came = *came;
            let is_silent = now.saturating_sub(channel.came_at) >= SILENCE;
            let missed = if is_silent { MISSED } else { WRONG };
            channel.is_down |= channel.missed >= missed;
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
    /// A right share has come.
    fn hear(&mut self, at: Duration) {
        self.came_at = self.came_at.max(at);
        self.missed = 0;
        self.is_down = false;
    }

    /// A share of a verified message has come. What came before the message verified counts as having
    /// come then: no symbol is complete earlier.
    fn arrive(&mut self, heard: Heard, received: u64, at: Duration) {
        let at = at.max(heard.at);
        self.transit.push(at, heard.transit(at));
        if self.arrivals.back().is_none_or(|last| last.number < heard.number) {
            let arrival = Share { number: heard.number, received, at };
            push_bounded(&mut self.arrivals, arrival, MAX_ARRIVALS);
        }
    }

    fn take_report(&mut self, state: State, now: Duration) -> Report {
        #[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
        let arrivals = self.arrivals.drain(..).map(|share| Arrival {
            number: share.number,
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
