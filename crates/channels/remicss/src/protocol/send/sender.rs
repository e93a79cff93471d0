//! The sending side: packets come in, shares of them go out on the channels.
//!
//! ```text
//! begin ─▶ packets are appended ─▶ finish ─▶ threshold ─▶ pace ─▶ tag ─▶ shares ─▶ batches
//! ```
//!
//! The caller empties the batches: it sends what is in them and clears them.

mod encoder;
mod flows;

use std::time::Duration;

use model::{ChannelSubset, ShareSelection};
use random::RandomGenerator;
use sharing::ShareSplitError;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::protocol::send::schedule::{ChannelReadiness, SymbolScheduler};
use crate::protocol::send::spare::SpareChannels;
use crate::protocol::wire::datagram::MAX_CHANNELS;
use crate::protocol::wire::datagram::SymbolKind;
use crate::protocol::wire::keys::DirectionKeys;
use crate::protocol::wire::tokens::TokenKeyId;
use encoder::SymbolEncoder;
use flows::FlowTable;
use udp::{DatagramBatch, MIN_MTU, PacerRateLimit, TokenBucketPacer};

/// The maximum length of a datagram: UDP over IPv4.
pub const MAX_DATAGRAM_LEN: usize = 65_507;

/// How far the sender catches up with the channels' rates after it was late.
///
/// A sender that waits is woken late: by the timer, by other processes, or because it prefers to
/// send many symbols at once. Token buckets that are full by then lose rate. So the sender has its
/// own clock, which stays behind as long as there is work: each symbol is charged at the time when
/// its channels were ready. The bytes sent never exceed the rate since the start plus the depth of
/// a bucket, so queues in the channels do not get longer.
const MAX_CATCH_UP: Duration = Duration::from_millis(2);

/// The maximum number of shares by which spare channels may catch up.
const MAX_SPARE_CREDIT: f64 = 4.0;

/// The sending side of one direction.
pub struct SymbolSender {
    encoder: SymbolEncoder,
    pacers: Vec<TokenBucketPacer>,
    scheduler: Box<dyn SymbolScheduler>,
    floor: usize,
    /// The minimum threshold of symbols of packets: the floor, or more.
    packet_floor: usize,
    /// The members of the association, and those of them that are up.
    members: ChannelSubset,
    up: ChannelSubset,
    spare: SpareChannels,
    /// The number of shares that spare channels may get now.
    spare_credit: f64,
    /// Channels that are used only when they are ready.
    tested: ChannelSubset,
    max_datagram_len: usize,
    /// The current symbol; empty, without even its first byte, if there is none.
    symbol: Zeroizing<Vec<u8>>,
    /// Its threshold, once it is selected. It is not selected again while the symbol waits:
    /// otherwise thresholds that wait longer would be used less often than they are selected.
    selected: Option<ShareSelection>,
    control: Zeroizing<Vec<u8>>,
    flows: FlowTable,
    next_number: u64,
    /// The sender's clock, unless it is idle.
    clock: Option<Duration>,
    counts: SymbolSenderCounts,
}

/// A symbol that was put into the batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentSymbol {
    /// Its number.
    pub number: u64,
    /// The threshold that it was sent with.
    pub threshold: ShareSelection,
}

/// Why a symbol was not put into the batches.
#[derive(Clone, Copy, Debug, Error)]
pub enum SymbolSendError {
    /// Its channels are ready at this time. The symbol is kept: call `finish` again then.
    #[error("the channels are busy until {0:?}")]
    Wait(Duration),
    /// A batch is full. The symbol is kept: call `finish` again after the batches are sent.
    #[error("a batch is full")]
    Full,
    /// Fewer channels are up than the privacy floor. The symbol is dropped.
    #[error("fewer channels are up than the privacy floor")]
    BelowFloor,
    /// Its datagrams would have this length in bytes, which is too long. The symbol is dropped.
    #[error("a datagram of {0} bytes is too long")]
    TooLong(usize),
    /// There is no current symbol.
    #[error("there is no current symbol")]
    Nothing,
    /// The random source failed. The symbol is dropped.
    #[error(transparent)]
    Split(#[from] ShareSplitError),
}

/// Invalid parameters of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SymbolSenderError {
    /// There are not 1 to [`MAX_CHANNELS`] channels, or not a pacer for each.
    #[error(
        "{channels} channels and {pacers} pacers: both numbers must be equal, and 1 to {MAX_CHANNELS}"
    )]
    Channels {
        /// How many channels the keys are for.
        channels: usize,
        /// How many pacers there are.
        pacers: usize,
    },
    /// The floor cannot be kept.
    #[error("the privacy floor of {floor} is above {most}: {what}")]
    Floor {
        /// The floor.
        floor: usize,
        /// Its maximum.
        most: usize,
        /// What sets the maximum.
        what: &'static str,
    },
}

/// Counts of what was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SymbolSenderCounts {
    /// Symbols of packets.
    pub symbols: u64,
    /// The bytes of the packets in them.
    pub bytes: u64,
    /// The sum of their k: divided by `symbols`, the achieved kappa.
    pub k_sum: u64,
    /// The sum of their m, for mu.
    pub m_sum: u64,
    /// Control symbols.
    pub controls: u64,
    /// Datagrams put into each channel's batch.
    pub datagrams: [u64; MAX_CHANNELS],
    /// Their bytes, as IP packets.
    pub ip_bytes: [u64; MAX_CHANNELS],
    /// Those of them that were longer than [`MIN_MTU`], as IP packets.
    pub long_datagrams: [u64; MAX_CHANNELS],
    /// How many symbols waited for each channel, because their other channels were ready before it.
    /// A channel with a count above 0 was kept busy.
    pub waits: [u64; MAX_CHANNELS],
    /// Symbols that were dropped because fewer channels were up than the floor.
    pub below_floor: u64,
    /// Symbols that were dropped because they were too long.
    pub too_long: u64,
    /// Symbols of packets that were dropped because the random source failed.
    pub random_failures: u64,
}

impl SymbolSender {
    /// A sender with these keys, a privacy floor (0 counts as 1) and a pacer for each channel. All
    /// channels are up.
    ///
    /// # Errors
    /// If there is not a pacer for each of 1 to [`MAX_CHANNELS`] channels, or the floor is above
    /// the number of channels or the scheduler's least k.
    pub fn new(
        direction: &DirectionKeys,
        floor: u8,
        pacers: Vec<TokenBucketPacer>,
        scheduler: Box<dyn SymbolScheduler>,
        generator: RandomGenerator,
    ) -> Result<Self, SymbolSenderError> {
        let n = pacers.len();
        if direction.channels != n || !(1..=MAX_CHANNELS).contains(&n) {
            return Err(SymbolSenderError::Channels { channels: direction.channels, pacers: n });
        }
        let floor = usize::from(floor).max(1);
        check_floor(floor, n, "the number of channels")?;
        check_floor(floor, scheduler.min_k(), "the scheduler's least threshold")?;
        Ok(Self {
            encoder: SymbolEncoder::new(direction, generator),
            pacers,
            scheduler,
            floor,
            packet_floor: floor,
            members: ChannelSubset::first(n),
            up: ChannelSubset::first(n),
            spare: SpareChannels::default(),
            spare_credit: 0.0,
            tested: ChannelSubset::EMPTY,
            max_datagram_len: MAX_DATAGRAM_LEN,
            symbol: Zeroizing::new(Vec::with_capacity(MAX_DATAGRAM_LEN)),
            selected: None,
            control: Zeroizing::new(Vec::with_capacity(MAX_DATAGRAM_LEN)),
            flows: FlowTable::new(),
            next_number: 1,
            clock: None,
            counts: SymbolSenderCounts::default(),
        })
    }

    /// The same, but only these channels are members of the association, at least as many as the
    /// floor. Nothing is sent on others.
    #[must_use]
    pub fn with_members(mut self, members: ChannelSubset) -> Self {
        (self.members, self.up) = (members, members);
        self
    }

    /// Takes over the current symbol of another sender, if there is one, to send it under its own
    /// keys.
    pub fn take_over_symbol(&mut self, before: &mut Self) {
        std::mem::swap(&mut self.symbol, &mut before.symbol);
    }

    /// Begins a symbol, and discards the current one if there is one. The caller appends IP
    /// packets.
    pub fn begin(&mut self) -> &mut Vec<u8> {
        self.symbol.clear();
        self.symbol.push(0);
        &mut self.symbol
    }

    /// The current symbol, to which the caller may append more packets, and the number of bytes
    /// that fit. `None` if there is none.
    pub fn symbol(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        if self.symbol.is_empty() {
            return None;
        }
        let room = self.max_datagram_len.saturating_sub(self.encoder.datagram_len(&self.symbol));
        Some((&mut self.symbol, room))
    }

    /// The bytes of the current symbol's packets, if they do not fit one datagram, and how many do.
    pub fn too_long(&self) -> Option<(&[u8], usize)> {
        let excess =
            self.encoder.datagram_len(&self.symbol).checked_sub(self.max_datagram_len + 1)? + 1;
        let packets = self.symbol.get(1..)?;
        Some((packets, packets.len().saturating_sub(excess)))
    }

    /// Adds the shares of the current symbol to the batches, one for each channel, if its channels
    /// are ready. `flow` is the same for packets that should stay in order.
    ///
    /// # Errors
    /// If it cannot be sent now, or not at all: see [`SymbolSendError`].
    ///
    /// # Panics
    /// If there is not a batch for each channel.
    pub fn finish(
        &mut self,
        kind: SymbolKind,
        flow: u16,
        now: Duration,
        batches: &mut [DatagramBatch],
    ) -> Result<SentSymbol, SymbolSendError> {
        assert_eq!(batches.len(), self.pacers.len(), "a batch for each channel");
        if self.symbol.is_empty() {
            return Err(SymbolSendError::Nothing);
        }
        let len = self.encoder.datagram_len(&self.symbol);
        if len > self.max_datagram_len {
            self.symbol.clear();
            self.counts.too_long += 1;
            return Err(SymbolSendError::TooLong(len));
        }
        let clock = self.clamped_clock(now);
        self.clock = Some(clock);
        let Some(threshold) = self.selected.or_else(|| self.select_threshold(len, clock)) else {
            self.symbol.clear();
            self.counts.below_floor += 1;
            return Err(SymbolSendError::BelowFloor);
        };
        self.selected = Some(threshold);
        let (ready, last) = self.ready_at(threshold, len);
        if ready > now {
            return Err(SymbolSendError::Wait(ready));
        }
        if threshold.channels().iter().any(|channel| batches[channel].is_full()) {
            return Err(SymbolSendError::Full);
        }

        if ready > clock {
            self.counts.waits[last] += 1;
        }
        self.clock = Some(clock.max(ready));
        let threshold = self.with_spare_channels(threshold, len, now, batches);
        let number = self.next_number;
        self.symbol[0] = self.flows.distance_to_previous(flow, number, now);
        self.encode_symbol(kind, threshold, batches)?;
        self.charge(threshold, clock.max(ready), len);
        self.flows.record(flow, number, now);
        Ok(SentSymbol { number, threshold })
    }

    /// Adds the shares of a control message to the batches of all members, whether they are up or
    /// ready, with the floor as k. The current symbol is not affected.
    ///
    /// # Errors
    /// If a batch is full, the message is too long, or the random source fails.
    ///
    /// # Panics
    /// If there is not a batch for each channel.
    pub fn control(
        &mut self,
        message: &[u8],
        now: Duration,
        batches: &mut [DatagramBatch],
    ) -> Result<SentSymbol, SymbolSendError> {
        assert_eq!(batches.len(), self.pacers.len(), "a batch for each channel");
        self.control.clear();
        self.control.push(0);
        self.control.extend_from_slice(message);
        let len = self.encoder.datagram_len(&self.control);
        if len > self.max_datagram_len {
            return Err(SymbolSendError::TooLong(len));
        }
        if batches.iter().any(DatagramBatch::is_full) {
            return Err(SymbolSendError::Full);
        }
        let threshold = ShareSelection::new(self.floor, self.members)
            .expect("the floor is not above the number of members");
        let number = self.next_number;
        self.encoder.encode(SymbolKind::Control, threshold, number, &mut self.control, batches)?;
        self.counts.controls += 1;
        self.charge(threshold, self.clamped_clock(now), len);
        Ok(SentSymbol { number, threshold })
    }

    /// Reports that there is nothing to send. Must be called whenever nothing is left to read:
    /// otherwise the sender catches up by as much as 2 ms of idle time.
    pub fn set_idle(&mut self) {
        self.clock = None;
    }

    /// Sets the minimum threshold of symbols of packets, even for a symbol that waits. It is never
    /// below the floor, on which the ends have agreed.
    pub fn set_packet_floor(&mut self, floor: u8) {
        self.packet_floor = self.floor.max(floor.into());
        self.selected = None;
    }

    /// Replaces the scheduler, even for a symbol that waits.
    ///
    /// # Errors
    /// If the floor is above its minimum k. Nothing changes then.
    pub fn set_scheduler(
        &mut self,
        scheduler: Box<dyn SymbolScheduler>,
    ) -> Result<(), SymbolSenderError> {
        check_floor(self.floor, scheduler.min_k(), "the scheduler's least threshold")?;
        self.scheduler = scheduler;
        self.selected = None;
        Ok(())
    }

    /// Sets the channels that are up, even for a symbol that waits.
    pub fn set_up(&mut self, up: ChannelSubset) {
        self.up = self.members.iter().filter(|channel| up.contains(*channel)).collect();
        self.selected = None;
    }

    /// Sets the channels that get a further share of a symbol if they are ready.
    pub fn set_spare(&mut self, spare: SpareChannels) {
        self.spare = spare;
    }

    /// Sets the channels that are used only when they are ready, as long as enough others are up:
    /// no symbol waits for them.
    pub fn set_channels_under_test(&mut self, tested: ChannelSubset) {
        self.tested = tested;
    }

    /// Sets the rate limit of a channel; `None` for no limit. Does nothing if there is no such
    /// channel.
    pub fn set_limit(&mut self, channel: usize, limit: Option<PacerRateLimit>, now: Duration) {
        let time = self.clamped_clock(now);
        if let Some(pacer) = self.pacers.get_mut(channel) {
            pacer.set_limit(time, limit);
        }
    }

    /// Sets the maximum length of a datagram, as UDP payload in bytes. Initially, and at most, it
    /// is [`MAX_DATAGRAM_LEN`].
    pub fn set_max_datagram_len(&mut self, len: usize) {
        self.max_datagram_len = len.min(MAX_DATAGRAM_LEN);
    }

    /// The identifier of its keys.
    pub fn key_id(&self) -> TokenKeyId {
        self.encoder.tokens().id()
    }

    /// Counts of what was sent.
    pub fn counts(&self) -> &SymbolSenderCounts {
        &self.counts
    }

    /// The number of symbols of packets for each threshold, since the start, or since there were
    /// more than a thousand different thresholds.
    pub fn threshold_uses(&self) -> impl Iterator<Item = (ShareSelection, u64)> {
        self.encoder.threshold_uses()
    }

    /// The next symbol's threshold, unless it is below the floor. *Every symbol of packets passes
    /// here: nothing else enforces the floor.*
    fn select_threshold(&mut self, len: usize, now: Duration) -> Option<ShareSelection> {
        let usable = self.usable(len, now);
        let channels = PacerReadiness { pacers: &self.pacers, len, now };
        let threshold = self.scheduler.next_threshold(usable, &channels)?;
        let is_allowed =
            threshold.k() >= self.packet_floor && self.up.includes(threshold.channels());
        is_allowed.then_some(threshold)
    }

    /// The channels that the next symbol may use: those that are up, except spare channels, and
    /// channels under test that are not ready, if enough are left for any threshold.
    fn usable(&self, len: usize, now: Duration) -> ChannelSubset {
        let is_unready =
            |channel| self.tested.contains(channel) && self.pacers[channel].ready_at(len) > now;
        let is_usable =
            |channel: &usize| !self.spare.channels.contains(*channel) && !is_unready(*channel);
        let usable: ChannelSubset = self.up.iter().filter(is_usable).collect();
        if usable.len() >= self.scheduler.max_k() { usable } else { self.up }
    }

    /// The threshold with a share for each spare channel that is ready.
    fn with_spare_channels(
        &mut self,
        threshold: ShareSelection,
        len: usize,
        now: Duration,
        batches: &[DatagramBatch],
    ) -> ShareSelection {
        if self.spare.channels.is_empty() {
            return threshold;
        }
        self.spare_credit = (self.spare_credit + self.spare.shares).min(MAX_SPARE_CREDIT);
        let mut channels = threshold.channels();
        for channel in self.spare.channels.iter().filter(|channel| self.up.contains(*channel)) {
            let is_ready = self.pacers[channel].ready_at(len) <= now
                && !batches[channel].is_full()
                && !channels.contains(channel);
            if is_ready && self.spare_credit >= 1.0 {
                channels = channels.with(channel);
                self.spare_credit -= 1.0;
            }
        }
        ShareSelection::new(threshold.k(), channels).unwrap_or(threshold)
    }

    /// When the last of a threshold's channels is ready, and which one it is.
    fn ready_at(&self, threshold: ShareSelection, len: usize) -> (Duration, usize) {
        let channels = threshold.channels().iter();
        let ready = channels.map(|channel| (self.pacers[channel].ready_at(len), channel));
        ready.max().expect("a threshold has a channel")
    }

    /// The sender's clock.
    fn clamped_clock(&self, now: Duration) -> Duration {
        let earliest = now.saturating_sub(MAX_CATCH_UP);
        self.clock.map_or(now, |clock| clock.clamp(earliest, now))
    }

    /// Adds the shares of the current symbol to the batches.
    fn encode_symbol(
        &mut self,
        kind: SymbolKind,
        threshold: ShareSelection,
        batches: &mut [DatagramBatch],
    ) -> Result<(), ShareSplitError> {
        let bytes = self.symbol.len() - 1;
        let number = self.next_number;
        let shared = self.encoder.encode(kind, threshold, number, &mut self.symbol, batches);
        self.symbol.clear();
        self.selected = None;
        if shared.is_ok() {
            self.counts.symbols += 1;
            self.counts.bytes += bytes as u64;
            self.counts.k_sum += threshold.k() as u64;
            self.counts.m_sum += threshold.m() as u64;
        } else {
            self.counts.random_failures += 1;
        }
        shared
    }

    /// Charges a symbol, sent at a time in datagrams of `len` bytes, to the pacers and counts.
    fn charge(&mut self, threshold: ShareSelection, time: Duration, len: usize) {
        self.next_number += 1;
        for channel in threshold.channels().iter() {
            self.pacers[channel].take(time, len);
            self.counts.datagrams[channel] += 1;
            let packet_len = self.pacers[channel].packet_len(len);
            self.counts.ip_bytes[channel] += packet_len as u64;
            self.counts.long_datagrams[channel] += u64::from(packet_len > usize::from(MIN_MTU));
        }
    }
}

/// The readiness of channels at a time, for a datagram of a length.
struct PacerReadiness<'a> {
    pacers: &'a [TokenBucketPacer],
    len: usize,
    now: Duration,
}

impl ChannelReadiness for PacerReadiness<'_> {
    fn ready_at(&self, channel: usize) -> Duration {
        self.pacers.get(channel).map_or(Duration::ZERO, |pacer| pacer.ready_at(self.len))
    }

    fn busy_for(&self, channel: usize) -> Duration {
        self.pacers.get(channel).map_or(Duration::ZERO, |pacer| pacer.busy_for(self.now))
    }
}

fn check_floor(floor: usize, most: usize, what: &'static str) -> Result<(), SymbolSenderError> {
    if floor > most { Err(SymbolSenderError::Floor { floor, most, what }) } else { Ok(()) }
}
