//! The sending side: packets come in, shares of them go out on the channels.
//!
//! ```text
//! begin ─▶ packets are appended ─▶ finish ─▶ threshold ─▶ pace ─▶ tag ─▶ shares ─▶ batches
//! ```
//!
//! The caller empties the batches: it sends what is in them and clears them.

mod flows;
mod sharer;

use std::time::Duration;

use model::{Subset, Threshold};
use sharing::{Generator, SplitError};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::send::batch::Batch;
use crate::send::pace::{Limit, Pace};
use crate::send::schedule::{Readiness, Scheduler};
use crate::wire::datagram::Kind;
use crate::wire::datagram::MAX_CHANNELS;
use crate::wire::keys::Direction;
use crate::wire::tokens::KeyId;
use flows::Flows;
use sharer::Sharer;

/// The longest datagram there can be: UDP over IPv4.
pub const MAX_DATAGRAM_LEN: usize = 65_507;

/// For how long the channels' rates are made up for when the sender was late.
///
/// A sender that waits is woken late, by the timer, by other processes, or because it rather sends
/// many symbols at once. Buckets that are full by then would be rate lost. So the sender has a clock
/// of its own that stays behind as long as there is work: each symbol is sent as of the moment when
/// its channels were ready, as if nobody had been late. What leaves is never more than the rate
/// since the beginning and the depth of a bucket, so queues in the channels get no longer by it.
const CATCH_UP: Duration = Duration::from_millis(2);

/// The sending side of one direction.
pub struct Sender {
    sharer: Sharer,
    paces: Vec<Pace>,
    scheduler: Box<dyn Scheduler>,
    floor: usize,
    /// The channels that are in the association, and those of them that are up.
    members: Subset,
    up: Subset,
    max_datagram_len: usize,
    /// The symbol under way; nothing, not even its first byte, if there is none.
    symbol: Zeroizing<Vec<u8>>,
    /// Its threshold, as soon as it was chosen. One that waits is not chosen again, as then those
    /// that wait longer would be sent more seldom than they are chosen.
    chosen: Option<Threshold>,
    control: Zeroizing<Vec<u8>>,
    flows: Flows,
    next_number: u64,
    /// Where the sender is in time, if it did not rest.
    clock: Option<Duration>,
    counts: Counts,
}

/// A symbol was put into the batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its number.
    pub number: u64,
    /// What it was sent with.
    pub threshold: Threshold,
}

/// A symbol was not put into the batches.
#[derive(Clone, Copy, Debug, Error)]
pub enum NotSent {
    /// Its channels are ready from this time on. It is kept: finish it again then.
    #[error("the channels are busy until {0:?}")]
    Wait(Duration),
    /// A batch is full. The symbol is kept: finish it again when the batches were sent.
    #[error("a batch is full")]
    Full,
    /// Fewer channels are up than the privacy floor. The symbol is dropped.
    #[error("fewer channels are up than the privacy floor")]
    BelowFloor,
    /// Its datagrams would have this many bytes, which is too many. The symbol is dropped.
    #[error("a datagram of {0} bytes is too long")]
    TooLong(usize),
    /// No symbol is under way.
    #[error("no symbol is under way")]
    Nothing,
    /// There are no random bytes. The symbol is dropped.
    #[error(transparent)]
    Split(#[from] SplitError),
}

/// There can be no such sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SenderError {
    /// There are not 1 to [`MAX_CHANNELS`] channels, or not a pace for each.
    #[error("keys of {channels} channels and {paces} paces are not 1 to {MAX_CHANNELS} channels")]
    Channels {
        /// How many channels the keys are for.
        channels: usize,
        /// How many paces there are.
        paces: usize,
    },
    /// Symbols would be below the floor whatever is up.
    #[error("the privacy floor of {floor} is above {most}: {what}")]
    Floor {
        /// The floor.
        floor: usize,
        /// What it can be at most.
        most: usize,
        /// What that is.
        what: &'static str,
    },
}

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Symbols of packets.
    pub symbols: u64,
    /// The bytes of the packets in them.
    pub bytes: u64,
    /// The sum of their k: divided by `symbols`, the kappa that was achieved.
    pub k_sum: u64,
    /// The sum of their m, for mu.
    pub m_sum: u64,
    /// Control symbols.
    pub controls: u64,
    /// Datagrams put into each channel's batch.
    pub datagrams: [u64; MAX_CHANNELS],
    /// Their bytes, as IP packets.
    pub ip_bytes: [u64; MAX_CHANNELS],
    /// How many symbols waited for each channel, because all their others were ready before it. A
    /// channel for which some did was kept busy.
    pub waits: [u64; MAX_CHANNELS],
    /// Symbols that were dropped because fewer channels were up than the floor.
    pub below_floor: u64,
    /// Symbols that were dropped because they were too long.
    pub too_long: u64,
    /// Symbols of packets that were dropped because there were no random bytes.
    pub not_random: u64,
}

impl Sender {
    /// Sends with these keys and never with a k below `floor` (0 counts as 1), at `paces`, which are
    /// the channels', all of which are up.
    ///
    /// # Errors
    /// If there is not a pace for each of 1 to [`MAX_CHANNELS`] channels, or the floor
    /// is above the number of channels or the scheduler's least k.
    pub fn new(
        direction: &Direction,
        floor: u8,
        paces: Vec<Pace>,
        scheduler: Box<dyn Scheduler>,
        generator: Generator,
    ) -> Result<Self, SenderError> {
        let n = paces.len();
        if direction.channels != n || !(1..=MAX_CHANNELS).contains(&n) {
            return Err(SenderError::Channels { channels: direction.channels, paces: n });
        }
        let floor = usize::from(floor).max(1);
        check_floor(floor, n, "the number of channels")?;
        check_floor(floor, scheduler.least_k(), "the scheduler's least threshold")?;
        Ok(Self {
            sharer: Sharer::new(direction, generator),
            paces,
            scheduler,
            floor,
            members: Subset::first(n),
            up: Subset::first(n),
            max_datagram_len: MAX_DATAGRAM_LEN,
            symbol: Zeroizing::new(Vec::with_capacity(MAX_DATAGRAM_LEN)),
            chosen: None,
            control: Zeroizing::new(Vec::with_capacity(MAX_DATAGRAM_LEN)),
            flows: Flows::new(),
            next_number: 1,
            clock: None,
            counts: Counts::default(),
        })
    }

    /// The same where only these channels are in the association: at least as many as the floor. Nothing is
    /// sent on others.
    #[must_use]
    pub fn over(mut self, members: Subset) -> Self {
        (self.members, self.up) = (members, members);
        self
    }

    /// Takes over the symbol that is under way at another sender, if one is, to send it under its own keys.
    pub fn adopt(&mut self, before: &mut Self) {
        std::mem::swap(&mut self.symbol, &mut before.symbol);
    }

    /// Begins a symbol, in place of one that may be under way. The caller appends IP packets, and
    /// changes nothing that is there.
    pub fn begin(&mut self) -> &mut Vec<u8> {
        self.symbol.clear();
        self.symbol.push(0);
        &mut self.symbol
    }

    /// The symbol under way, to which the caller may append more packets, and how many more bytes fit
    /// it. `None` if there is none.
    pub fn symbol(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        if self.symbol.is_empty() {
            return None;
        }
        let room = self.max_datagram_len.saturating_sub(self.sharer.datagram_len(&self.symbol));
        Some((&mut self.symbol, room))
    }

    /// Puts the symbol under way into the batches, one for each channel, if its channels are ready.
    /// `flow` is the same for packets that should stay in order.
    ///
    /// # Errors
    /// If it cannot be sent now, or not at all. See [`NotSent`] for which.
    ///
    /// # Panics
    /// If there is not a batch for each channel.
    pub fn finish(
        &mut self,
        kind: Kind,
        flow: u16,
        now: Duration,
        batches: &mut [Batch],
    ) -> Result<Sent, NotSent> {
        assert_eq!(batches.len(), self.paces.len(), "a batch for each channel");
        if self.symbol.is_empty() {
            return Err(NotSent::Nothing);
        }
        let len = self.sharer.datagram_len(&self.symbol);
        if len > self.max_datagram_len {
            self.symbol.clear();
            self.counts.too_long += 1;
            return Err(NotSent::TooLong(len));
        }
        let clock = self.time(now);
        self.clock = Some(clock);
        let Some(threshold) = self.chosen.or_else(|| self.choose(len, clock)) else {
            self.symbol.clear();
            self.counts.below_floor += 1;
            return Err(NotSent::BelowFloor);
        };
        self.chosen = Some(threshold);
        let (ready, last) = self.ready_at(threshold, len);
        if ready > now {
            return Err(NotSent::Wait(ready));
        }
        if threshold.channels().iter().any(|channel| batches[channel].is_full()) {
            return Err(NotSent::Full);
        }

        if ready > clock {
            self.counts.waits[last] += 1;
        }
        self.clock = Some(clock.max(ready));
        let number = self.next_number;
        self.symbol[0] = self.flows.previous(flow, number, now);
        self.put(kind, threshold, batches)?;
        self.account(threshold, clock.max(ready), len);
        self.flows.sent(flow, number, now);
        Ok(Sent { number, threshold })
    }

    /// Puts a control message into the batches of all members, whether they are up or ready, with
    /// the floor as k. Leaves the symbol under way alone.
    ///
    /// # Errors
    /// If a batch is full, the message too long, or there are no random bytes.
    ///
    /// # Panics
    /// If there is not a batch for each channel.
    pub fn control(
        &mut self,
        message: &[u8],
        now: Duration,
        batches: &mut [Batch],
    ) -> Result<Sent, NotSent> {
        assert_eq!(batches.len(), self.paces.len(), "a batch for each channel");
        self.control.clear();
        self.control.push(0);
        self.control.extend_from_slice(message);
        let len = self.sharer.datagram_len(&self.control);
        if len > self.max_datagram_len {
            return Err(NotSent::TooLong(len));
        }
        if batches.iter().any(Batch::is_full) {
            return Err(NotSent::Full);
        }
        let threshold = Threshold::new(self.floor, self.members)
            .expect("the floor is not above the number of members");
        let number = self.next_number;
        self.sharer.share(Kind::Control, threshold, number, &mut self.control, batches)?;
        self.counts.controls += 1;
        self.account(threshold, self.time(now), len);
        Ok(Sent { number, threshold })
    }

    /// There is nothing to send, so that the channels' rest begins. To be called whenever nothing
    /// is left to read: otherwise up to 2 ms of rest are made up for as if the sender had been late.
    pub fn rest(&mut self) {
        self.clock = None;
    }

    /// Chooses thresholds by another scheduler from the next symbol on, one that waits included.
    ///
    /// # Errors
    /// If the floor is above its least k. Nothing is changed then.
    pub fn set_scheduler(&mut self, scheduler: Box<dyn Scheduler>) -> Result<(), SenderError> {
        check_floor(self.floor, scheduler.least_k(), "the scheduler's least threshold")?;
        self.scheduler = scheduler;
        self.chosen = None;
        Ok(())
    }

    /// Sends packets on these channels only, one that waits included.
    pub fn set_up(&mut self, up: Subset) {
        self.up = self.members.iter().filter(|channel| up.contains(*channel)).collect();
        self.chosen = None;
    }

    /// Sets how fast a channel is sent on; `None` for no limit. Does nothing if there is no such channel.
    pub fn set_limit(&mut self, channel: usize, limit: Option<Limit>, now: Duration) {
        let time = self.time(now);
        if let Some(pace) = self.paces.get_mut(channel) {
            pace.set_limit(time, limit);
        }
    }

    /// Sets how many bytes a datagram has at most, as UDP's payload. [`MAX_DATAGRAM_LEN`] is the
    /// most, and what it is at first.
    pub fn set_max_datagram_len(&mut self, len: usize) {
        self.max_datagram_len = len.min(MAX_DATAGRAM_LEN);
    }

    /// Which keys it sends with.
    pub fn key_id(&self) -> KeyId {
        self.sharer.tokens().id()
    }

    /// What was done so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// How many symbols of packets each threshold was used for: since the beginning, or since there
    /// were more than a thousand different ones.
    pub fn uses(&self) -> impl Iterator<Item = (Threshold, u64)> {
        self.sharer.uses()
    }

    /// The next symbol's threshold, unless it is below the floor. *Everything that is sent of
    /// packets passes here: nothing else keeps the floor.*
    fn choose(&mut self, len: usize, now: Duration) -> Option<Threshold> {
        let channels = Paced { paces: &self.paces, len, now };
        let threshold = self.scheduler.next_threshold(self.up, &channels)?;
        let is_allowed = threshold.k() >= self.floor && self.up.includes(threshold.channels());
        is_allowed.then_some(threshold)
    }

    /// When the last of a threshold's channels is ready, and which that is.
    fn ready_at(&self, threshold: Threshold, len: usize) -> (Duration, usize) {
        let channels = threshold.channels().iter();
        let ready = channels.map(|channel| (self.paces[channel].ready_at(len), channel));
        ready.max().expect("a threshold has a channel")
    }

    /// Where the sender is in time.
    fn time(&self, now: Duration) -> Duration {
        let earliest = now.saturating_sub(CATCH_UP);
        self.clock.map_or(now, |clock| clock.clamp(earliest, now))
    }

    /// Puts the symbol under way into the batches.
    fn put(
        &mut self,
        kind: Kind,
        threshold: Threshold,
        batches: &mut [Batch],
    ) -> Result<(), SplitError> {
        let bytes = self.symbol.len() - 1;
        let number = self.next_number;
        let shared = self.sharer.share(kind, threshold, number, &mut self.symbol, batches);
        self.symbol.clear();
        self.chosen = None;
        if shared.is_ok() {
            self.counts.symbols += 1;
            self.counts.bytes += bytes as u64;
            self.counts.k_sum += threshold.k() as u64;
            self.counts.m_sum += threshold.m() as u64;
        } else {
            self.counts.not_random += 1;
        }
        shared
    }

    /// A symbol was sent as of a time, in datagrams of `len` bytes.
    fn account(&mut self, threshold: Threshold, time: Duration, len: usize) {
        self.next_number += 1;
        for channel in threshold.channels().iter() {
            self.paces[channel].take(time, len);
            self.counts.datagrams[channel] += 1;
            self.counts.ip_bytes[channel] += self.paces[channel].packet_len(len) as u64;
        }
    }
}

/// Channels at a time, for a datagram of a length.
struct Paced<'a> {
    paces: &'a [Pace],
    len: usize,
    now: Duration,
}

impl Readiness for Paced<'_> {
    fn ready_at(&self, channel: usize) -> Duration {
        self.paces.get(channel).map_or(Duration::ZERO, |pace| pace.ready_at(self.len))
    }

    fn busy_for(&self, channel: usize) -> Duration {
        self.paces.get(channel).map_or(Duration::ZERO, |pace| pace.busy_for(self.now))
    }
}

fn check_floor(floor: usize, most: usize, what: &'static str) -> Result<(), SenderError> {
    if floor > most { Err(SenderError::Floor { floor, most, what }) } else { Ok(()) }
}
