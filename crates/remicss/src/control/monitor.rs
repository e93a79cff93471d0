//! What one end knows of the channels, in both directions.

use std::time::Duration;

use model::Subset;

use super::incoming::{Came, Incoming, micros};
use super::outgoing::{Outgoing, Totals};
use crate::control::estimate::Estimate;
use crate::send::pace::Limit;
use crate::wire::control::{ControlError, LATEST_US, Message, State};

/// How often messages are sent: ten times a second, or fewer where that would take more than a
/// thousandth of the slowest channel's rate, but not fewer than five.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_millis(200);
const PART_OF_RATE: u64 = 1_000;

/// Messages do not follow each other faster, whatever changes.
const AT_ONCE: Duration = Duration::from_millis(10);

/// How long nothing has to verify for the peer to be held for gone.
const GONE: Duration = Duration::from_secs(3);

/// After so long without packets either way an end is at rest, unless the other is awake: what it
/// measures then is of use to nobody, and the channels may be paid for by the byte.
const REST_AFTER: Duration = Duration::from_secs(10);

/// How often it sends messages then, which keeps the ways through address translators open, and how
/// long nothing has to verify then.
const AT_REST: Duration = Duration::from_secs(3);
const GONE_AT_REST: Duration = Duration::from_secs(12);

/// What one end knows of the channels: it takes what the sender and the receiver count and what the
/// other end reports, and gives estimates, paces and the release window.
#[derive(Clone, Debug)]
pub struct Monitor {
    incoming: Incoming,
    outgoing: Outgoing,
    channels: usize,
    /// The states that the other end was last told.
    told: Vec<State>,
    /// And whether packets cross here.
    told_awake: bool,
    told_at: Option<Duration>,
    /// When the next message is due, or at rest when to look for packets again.
    due: Duration,
    activity: Activity,
    /// Whether this end wants new keys, and whether the other does.
    wants_keys: bool,
    peer_wants_keys: bool,
}

/// Whether packets cross the tunnel.
#[derive(Clone, Debug)]
struct Activity {
    /// How many were sent and have come here, as symbols, and when there was last a new one.
    packets: u64,
    last: Duration,
    /// Whether that was of late, and since when.
    is_awake: bool,
    since: Duration,
    /// Whether the other end is awake, as its newest message says.
    peer_is_awake: bool,
}

impl Monitor {
    /// A monitor of channels, each with the rate in bit/s of IP packets that was configured for what
    /// this end sends, or `None` if it is to be learnt. The first message is due at once.
    pub fn new(rates_bps: &[Option<u64>], now: Duration) -> Self {
        Self {
            incoming: Incoming::new(rates_bps.len(), now),
            outgoing: Outgoing::new(rates_bps, now),
            channels: rates_bps.len(),
            told: vec![State::Up; rates_bps.len()],
            told_awake: true,
            told_at: None,
            due: now,
            activity: Activity::new(now),
            wants_keys: false,
            peer_wants_keys: false,
        }
    }

    /// Says that this end wants new keys. The other end is told with the next message.
    pub fn want_keys(&mut self) {
        self.wants_keys = true;
    }

    /// Whether one of the ends wants new keys.
    pub fn wants_keys(&self) -> bool {
        self.wants_keys || self.peer_wants_keys
    }

    /// Says which channels are in the association. The others are down, and stay so.
    pub fn set_members(&mut self, members: Subset) {
        self.incoming.set_members(members);
        self.outgoing.set_members(members);
        self.told = self.incoming.states(Subset::EMPTY).collect();
    }

    /// Takes over what an association before has learnt of the rates.
    pub fn learn_from(&mut self, before: &Self) {
        self.outgoing.learn_from(&before.outgoing);
    }

    /// A right share of control symbol `symbol`, whose message was handled before, came at a time on a
    /// channel on which `received` datagrams had come before it. At most one for a channel and symbol.
    pub fn handle_share(&mut self, symbol: u64, channel: usize, received: u64, at: Duration) {
        self.incoming.handle_share(symbol, channel, received, at);
    }

    /// The message in control symbol `symbol`, which has verified.
    ///
    /// # Errors
    /// If the bytes are no message for as many channels. Nothing has changed then.
    pub fn handle_message(
        &mut self,
        symbol: u64,
        bytes: &[u8],
        now: Duration,
    ) -> Result<(), ControlError> {
        let message = Message::parse(bytes)?;
        if message.reports.len() != self.channels {
            let count = u8::try_from(message.reports.len()).unwrap_or(u8::MAX);
            return Err(ControlError::Channels(count));
        }
        self.incoming.handle_message(symbol, &message, now);
        if self.outgoing.handle_message(&message, now) {
            self.activity.peer_is_awake = message.is_awake;
            self.peer_wants_keys = message.wants_keys;
        }
        Ok(())
    }

    /// The next message, if it is due: every 100 to 200 ms, or every 3 s if neither end has sent or
    /// received packets for 10 s, or at once if that, or a channel's state, is another than the other end
    /// was told. It is to be sent on all channels now. `sent` is what was sent on each channel before it,
    /// `came` what has come on each, `quarantined` are the channels whose shares are
    /// not used, and `packets` is how many symbols of packets were sent and have verified.
    pub fn poll_message(
        &mut self,
        now: Duration,
        sent: &[Totals],
        came: &[Came],
        quarantined: Subset,
        packets: u64,
    ) -> Option<Vec<u8>> {
        self.incoming.look(came, now);
        let states: Vec<State> = self.incoming.states(quarantined).collect();
        self.activity.notice(packets, now);
        let is_within = |time| self.told_at.is_some_and(|at| now < at.saturating_add(time));
        let waits = now < self.due || (self.rests(now) && is_within(AT_REST));
        let interval = self.interval();
        if now >= self.due {
            self.due = now.saturating_add(interval);
        }
        let is_awake = self.activity.is_awake;
        let is_news = states != self.told || is_awake != self.told_awake;
        if is_within(AT_ONCE) || (waits && !is_news) {
            return None;
        }
        (self.told, self.told_awake, self.told_at) = (states, is_awake, Some(now));
        self.due = now.saturating_add(interval);
        let message = Message {
            number: self.outgoing.send(now, sent, interval),
            sent_us: micros(now).unsigned_abs().min(LATEST_US - 1),
            is_awake,
            wants_keys: self.wants_keys,
            reports: self.incoming.take_reports(quarantined, now),
        };
        Some(message.encode())
    }

    /// When to call [`Self::poll_message`] next, at the latest, also at rest. After a share that was the
    /// first on a channel for long it may have something to say at once.
    pub fn poll_timeout(&self) -> Duration {
        self.due
    }

    /// What the channels are like for what this end sends, as far as the other end has reported. A
    /// channel of which nothing is known has no loss, no delay, and is up.
    pub fn estimates(&self, now: Duration) -> Vec<Estimate> {
        self.outgoing.estimates(now)
    }

    /// How fast to send on a channel for now. Changes with every message if it is learnt. `None` if there
    /// is no such channel.
    pub fn limit(&self, channel: usize) -> Option<Limit> {
        self.outgoing.limit(channel)
    }

    /// How long packets had better wait for those that were sent before: the spread of the channels'
    /// delays and their variation in ten seconds, at most 200 ms.
    pub fn release_window(&self, now: Duration) -> Duration {
        self.incoming.window(now)
    }

    /// The channels' states for what comes from the other end, as far as [`Self::poll_message`] has
    /// looked.
    pub fn incoming(&self, quarantined: Subset) -> Vec<State> {
        self.incoming.states(quarantined).collect()
    }

    /// The channels that are up among [`Self::incoming`].
    pub fn up(&self, quarantined: Subset) -> Subset {
        let states = self.incoming.states(quarantined).enumerate();
        states.filter(|(_, state)| *state == State::Up).map(|(channel, _)| channel).collect()
    }

    /// The channels that are up either way, as far as this end knows.
    pub fn up_both_ways(&self, now: Duration) -> Subset {
        let estimates = self.estimates(now);
        let up = self.up(Subset::EMPTY);
        up.iter().filter(|channel| estimates[*channel].state == State::Up).collect()
    }

    /// True if no message has verified for 3 s, or for 12 s at rest: the other end does not have this
    /// association.
    pub fn is_peer_gone(&self, now: Duration) -> bool {
        now >= self.gone_at()
    }

    /// When that will be so, if no message verifies before.
    pub fn gone_at(&self) -> Duration {
        let heard_at = self.incoming.heard_at();
        if self.activity.is_awake {
            // It hears of that with the next message, and speaks as often from then on.
            heard_at.max(self.activity.since).saturating_add(GONE)
        } else {
            heard_at.saturating_add(GONE_AT_REST)
        }
    }

    /// Whether no packets cross, neither here nor, for all that was heard, at the other end.
    fn rests(&self, now: Duration) -> bool {
        let is_heard = now < self.incoming.heard_at().saturating_add(GONE);
        !(self.activity.is_awake || self.activity.peer_is_awake && is_heard)
    }

    fn interval(&self) -> Duration {
        // With IP, UDP, the share's header, what is inside the sharing, and one arrival a channel.
        let bits = 8 * (28 + 12 + 9 + 13 + 13 * self.channels as u64);
        let slowest = self.outgoing.slowest_bps().max(1);
        let nanos = bits.saturating_mul(PART_OF_RATE * 1_000_000_000) / slowest;
        Duration::from_nanos(nanos).clamp(SHORTEST, LONGEST)
    }
}

impl Activity {
    fn new(now: Duration) -> Self {
        Self { packets: 0, last: now, is_awake: true, since: now, peer_is_awake: false }
    }

    /// So many packets have crossed by now.
    fn notice(&mut self, packets: u64, now: Duration) {
        if packets > self.packets {
            (self.packets, self.last) = (packets, now);
        }
        let is_awake = now < self.last.saturating_add(REST_AFTER);
        if is_awake && !self.is_awake {
            self.since = now;
        }
        self.is_awake = is_awake;
    }
}
