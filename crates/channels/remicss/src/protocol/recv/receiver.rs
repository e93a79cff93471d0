//! The receiver: takes datagrams from all channels and delivers packets in the order of their
//! flows.
//!
//! ```text
//! header, token ─▶ number ─▶ duplicate? done? ─▶ reassembly ─▶ tag ─▶ release ─▶ packets
//! ```
//!
//! The window of numbers advances with verified symbols only. Its length is the number of numbers
//! that are remembered behind the highest verified one. There is no bound ahead, since each channel
//! has its own entries and bytes: a channel that invents numbers overwrites only its own shares,
//! and after an outage the first symbol that verifies advances the window.
//!
//! No memory is allocated for a datagram, except for the weights of a set of channels that is
//! joined for the first time.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use model::ChannelSubset;

use crate::protocol::recv::channel_bits::channels_in;
use crate::protocol::recv::delay_equalizer::{ChannelLateness, DelayEqualizer};
use crate::protocol::recv::fault_tracker::FaultTracker;
use crate::protocol::recv::part_joiner::{JoinedDelivery, PartJoiner};
use crate::protocol::recv::reassembly::arrival::ShareArrival;
use crate::protocol::recv::reassembly::{CompletedSymbol, ReassemblyCounts, SymbolReassembly};
use crate::protocol::recv::reorder_buffer::{ReorderBuffer, ReorderCounts, VerifiedSymbol};
use crate::protocol::recv::sequence_window::SequenceWindow;
use crate::protocol::recv::symbol_sink::{ControlShare, SymbolSink};
use crate::protocol::wire::datagram::{
    MAX_CHANNELS, SymbolKind, SymbolShareHeader, expand_sequence,
};
use crate::protocol::wire::keys::DirectionKeys;
use crate::protocol::wire::symbol::{MAX_SYMBOL_LEN, SymbolContents, SymbolTagger};
use crate::protocol::wire::tokens::ShareTokens;

/// The limits of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymbolReceiverLimits {
    /// The number of symbols by which a share may be behind the latest, or a channel ahead of
    /// others. Rounded up to a power of two from 2^10 to 2^24. Each symbol takes 16 bytes a
    /// channel, and 8 more.
    pub window: usize,
    /// The bytes of shares that wait for others, for each channel. Rounded up to a power of two
    /// from 128 KiB to 1 GiB; 256 KiB are added.
    pub share_bytes: usize,
    /// The maximum age of a share that is joined.
    pub share_age: Duration,
    /// The bytes of packets in the reorder buffer. Rounded as `share_bytes`. Takes half as much
    /// memory again.
    pub held_bytes: usize,
    /// The number of joins a second that may fail in the long run; ten times as many may fail at
    /// once. Each is an attempt at a forgery.
    pub failures_per_second: u32,
}

impl Default for SymbolReceiverLimits {
    /// 2^17 symbols: 131 ms at a million a second. 16 MiB a channel: 134 ms at 1 Gbit/s. 1 s, 8
    /// MiB, and 2,000 failures, with which a year of attack forges a tag with a probability below
    /// 2^-20.
    fn default() -> Self {
        Self {
            window: 1 << 17,
            share_bytes: 16 << 20,
            share_age: Duration::from_secs(1),
            held_bytes: 8 << 20,
            failures_per_second: 2_000,
        }
    }
}

/// Counts of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SymbolReceiverCounts {
    /// Verified symbols.
    pub symbols: u64,
    /// Those of them that were control messages.
    pub controls: u64,
    /// The bytes of packets and control messages in them.
    pub bytes: u64,
    /// Datagrams that are not shares, or too long.
    pub malformed: u64,
    /// Those with a wrong token.
    pub wrong_token: u64,
    /// Those whose threshold was below the floor or above the number of channels.
    pub invalid_threshold: u64,
    /// Shares of a number of which the same channel had delivered one.
    pub duplicate: u64,
    /// Shares of numbers behind the window.
    pub behind_window: u64,
    /// Shares of symbols that were verified already.
    pub already_verified: u64,
    /// Shares that were not used because their channel was in quarantine.
    pub quarantined: u64,
    /// The results of the others.
    pub reassembled: ReassemblyCounts,
    /// Symbols that waited in the reorder buffer.
    pub released: ReorderCounts,
}

/// Counts of one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedChannelCounts {
    /// Datagrams with right tokens, each number once. The peer sent their headers; the shares may
    /// be wrong.
    pub datagrams: u64,
    /// Their bytes, without the headers of UDP and IP.
    pub bytes: u64,
    /// Shares that are known to be right: a symbol was verified by them, or they agreed when they
    /// were compared.
    pub right: u64,
    /// Shares that were found to be wrong.
    pub faults: u64,
}

/// The maximum number of control shares of a channel that wait for their symbol to verify. Each
/// channel has its own queue, so shares of no symbol on one channel evict none of another.
const MAX_EARLY_SHARES: usize = 8;

/// The result of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareOutcome {
    /// Its token is right, or it is malformed.
    Processed,
    /// Its token is wrong: it is not from the peer, or from another association.
    WrongToken,
}

/// The control shares of one channel.
#[derive(Clone, Debug, Default)]
struct ControlShares {
    early: VecDeque<EarlyControlShare>,
    /// The number of the last one that was reported.
    last: u64,
}

/// A control share whose symbol is not verified yet.
#[derive(Clone, Copy, Debug)]
struct EarlyControlShare {
    share: ControlShare,
    is_right: bool,
}

/// The receiver of one direction of an association.
pub struct SymbolReceiver {
    channels: usize,
    /// The members of the association.
    members: ChannelSubset,
    tokens: ShareTokens,
    floor: u8,
    tagger: SymbolTagger,
    verified: SequenceWindow,
    reassembly: SymbolReassembly,
    fault_tracker: FaultTracker,
    delay_equalizer: DelayEqualizer,
    reorder_buffer: ReorderBuffer,
    part_joiner: PartJoiner,
    received: Vec<ReceivedChannelCounts>,
    controls: Vec<ControlShares>,
    counts: SymbolReceiverCounts,
}

impl SymbolReceiver {
    /// A receiver with these keys and a privacy floor: nothing with a lower threshold is delivered.
    /// All channels are up, and the reorder window is zero.
    ///
    /// # Panics
    /// Unless there are 1 to [`MAX_CHANNELS`] channels, and 1 <= `floor` <= n.
    pub fn new(keys: &DirectionKeys, floor: u8, limits: SymbolReceiverLimits) -> Self {
        let n = keys.channels;
        assert!((1..=MAX_CHANNELS).contains(&n), "1 to 16 channels");
        assert!((1..=n).contains(&usize::from(floor)), "1 <= f <= n");
        let SymbolReceiverLimits {
            share_bytes, share_age, held_bytes, failures_per_second, ..
        } = limits;
        let window = limits.window.clamp(1 << 10, 1 << 24).next_power_of_two();
        Self {
            channels: n,
            tokens: ShareTokens::new(&keys.tokens, keys.channels),
            members: ChannelSubset::first(n),
            floor,
            tagger: SymbolTagger::new(keys.points.as_ref()),
            verified: SequenceWindow::new(window),
            reassembly: SymbolReassembly::new(
                n,
                window,
                share_bytes,
                share_age,
                failures_per_second,
                keys.tokens.seed(),
            ),
            fault_tracker: FaultTracker::new(n, floor),
            delay_equalizer: DelayEqualizer::default(),
            reorder_buffer: ReorderBuffer::new(n, window, held_bytes),
            part_joiner: PartJoiner::default(),
            received: vec![ReceivedChannelCounts::default(); n],
            controls: vec![ControlShares::default(); n],
            counts: SymbolReceiverCounts::default(),
        }
    }

    /// The same, but only these channels are members. Datagrams on others count as having a wrong
    /// token.
    #[must_use]
    pub fn with_members(mut self, members: ChannelSubset) -> Self {
        self.members = members;
        self.set_up(members);
        self
    }

    /// Whether a datagram is a share with a right token, that is, of this association.
    pub fn has_valid_token(&mut self, channel: usize, datagram: &[u8]) -> bool {
        let header = SymbolShareHeader::parse(datagram);
        header.is_ok_and(|(header, _)| self.verified_number(channel, header).is_some())
    }

    /// Handles a datagram that arrived on a channel from an address. Only verified symbols are
    /// delivered, and if the token is wrong, only a count changes.
    pub fn handle_share(
        &mut self,
        channel: usize,
        from: SocketAddr,
        datagram: &[u8],
        now: Duration,
        deliver: &mut impl SymbolSink,
    ) -> ShareOutcome {
        let arrival = match self.admit(channel, datagram, now) {
            Ok(arrival) => arrival,
            Err(taken) => return taken,
        };
        let ShareArrival { number, header, .. } = arrival;
        self.fault_tracker.end_quarantines(now);
        let is_quarantined = self.fault_tracker.quarantined() >> channel & 1 == 1;
        self.counts.quarantined += u64::from(is_quarantined);
        let before = self.received[channel].datagrams - 1;
        let share = ControlShare { number, channel, before, at: now, from, is_quarantined };
        let is_control = header.kind == SymbolKind::Control;
        if self.verified.contains(number) {
            self.counts.already_verified += u64::from(!is_quarantined);
            if is_control || !is_quarantined {
                let agrees =
                    self.reassembly.compare(&arrival, &self.tagger, &mut self.fault_tracker);
                if agrees == Some(true) {
                    self.report_right(share, is_control, deliver);
                }
            }
        } else if is_quarantined {
            if is_control {
                let is_right =
                    self.reassembly.keep_for_comparison(&arrival, &self.verified, &self.tagger);
                self.controls[channel].keep(EarlyControlShare { share, is_right });
            }
        } else {
            if is_control {
                self.controls[channel].keep(EarlyControlShare { share, is_right: false });
            }
            let completed = self.reassembly.complete(
                &arrival,
                &self.verified,
                &self.tagger,
                &mut self.fault_tracker,
            );
            if let Some(CompletedSymbol {
                contents: SymbolContents { previous, content },
                right_channels: right,
            }) = completed
            {
                self.counts.symbols += 1;
                self.counts.bytes += content.len() as u64;
                self.verified.insert(number);
                if is_control {
                    self.counts.controls += 1;
                    deliver.control(number, content);
                    self.report_early(number, right, deliver);
                } else {
                    let delay = self.delay_equalizer.delay(channel);
                    let (kind, packets) = (header.kind, content);
                    let symbol = VerifiedSymbol { number, previous, kind, packets, delay };
                    let mut joined = JoinedDelivery { joiner: &mut self.part_joiner, deliver };
                    self.reorder_buffer.insert(symbol, now, &self.verified, &mut joined);
                    channels_in(right).for_each(|channel| self.received[channel].right += 1);
                }
            }
        }
        // The token shows that the peer has sent this number here, whatever happened to the share.
        self.reorder_buffer.record_arrival(channel, number);
        let mut joined = JoinedDelivery { joiner: &mut self.part_joiner, deliver };
        let active = self.fault_tracker.active();
        self.reorder_buffer.handle_losses(active, &self.verified, &mut joined);
        ShareOutcome::Processed
    }

    /// Reports the shares of a control symbol that arrived before it verified, on the channels in
    /// `right`.
    fn report_early(&mut self, number: u64, right: u16, deliver: &mut impl SymbolSink) {
        for channel in 0..self.channels {
            let early = self.controls[channel].take(number);
            if let Some(early) = early.filter(|early| early.is_right || right >> channel & 1 == 1) {
                self.report_right(early.share, true, deliver);
            }
        }
    }

    /// Reports a share that is right.
    fn report_right(
        &mut self,
        share: ControlShare,
        is_control: bool,
        deliver: &mut impl SymbolSink,
    ) {
        self.received[share.channel].right += 1;
        let last = &mut self.controls[share.channel].last;
        if is_control && share.number > *last {
            *last = share.number;
            deliver.control_share(share);
        }
    }

    /// When to call [`Self::handle_timeout`] next, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Duration> {
        self.reorder_buffer.poll_timeout()
    }

    /// Delivers symbols whose delay has ended or that have waited for the reorder window, and ends
    /// quarantines.
    pub fn handle_timeout(&mut self, now: Duration, deliver: &mut impl SymbolSink) {
        self.fault_tracker.end_quarantines(now);
        let mut joined = JoinedDelivery { joiner: &mut self.part_joiner, deliver };
        self.reorder_buffer.handle_timeout(now, &self.verified, &mut joined);
    }

    /// Sets the reorder window: how long a symbol may wait for earlier ones of its flow. With zero,
    /// none waits.
    pub fn set_window(&mut self, window: Duration) {
        self.reorder_buffer.set_window(window);
    }

    /// Sets by how much the channels are later than the fastest. Symbols that come over faster
    /// channels are delayed by the difference, at most by the reorder window. Initially no channel
    /// is late.
    pub fn set_lateness(&mut self, lateness: &ChannelLateness) {
        self.delay_equalizer.set_lateness(lateness);
    }

    /// Sets the channels that are up, in quarantine or not. A symbol that arrives on none of them
    /// is lost.
    pub fn set_up(&mut self, up: ChannelSubset) {
        let known = up.iter().filter(|&channel| channel < self.channels);
        self.fault_tracker.set_up(known.fold(0, |set, channel| set | 1 << channel));
    }

    /// The channels in quarantine, as of the last call that had a time.
    pub fn quarantined(&self) -> ChannelSubset {
        channels_in(self.fault_tracker.quarantined()).collect()
    }

    /// The highest number of a verified symbol; 0 if there is none. Symbols up to it that are not
    /// among [`SymbolReceiverCounts::symbols`] are lost or in flight.
    pub fn highest(&self) -> u64 {
        self.verified.highest()
    }

    /// Its counts.
    pub fn counts(&self) -> SymbolReceiverCounts {
        SymbolReceiverCounts {
            reassembled: self.reassembly.counts(),
            released: self.reorder_buffer.counts(),
            ..self.counts
        }
    }

    /// The counts of a channel so far.
    ///
    /// # Panics
    /// If there is no such channel.
    pub fn received(&self, channel: usize) -> ReceivedChannelCounts {
        ReceivedChannelCounts {
            faults: self.fault_tracker.faults(channel),
            ..self.received[channel]
        }
    }

    /// Checks a datagram before any other work. Inlined, since its result would be copied twice.
    #[inline(always)]
    fn admit<'a>(
        &mut self,
        channel: usize,
        datagram: &'a [u8],
        now: Duration,
    ) -> Result<ShareArrival<'a>, ShareOutcome> {
        if channel >= self.channels {
            return Err(ShareOutcome::Processed);
        }
        let Some((header, share)) = SymbolShareHeader::parse(datagram)
            .ok()
            .filter(|(_, share)| share.len() <= MAX_SYMBOL_LEN)
        else {
            self.counts.malformed += 1;
            return Err(ShareOutcome::Processed);
        };
        let Some(number) = self.verified_number(channel, header) else {
            self.counts.wrong_token += 1;
            return Err(ShareOutcome::WrongToken);
        };
        if header.threshold < self.floor || usize::from(header.threshold) > self.members.len() {
            self.counts.invalid_threshold += 1;
            return Err(ShareOutcome::Processed);
        }
        let is_outside = number < self.verified.oldest();
        if !is_outside && !self.reassembly.note(channel, number, now) {
            self.counts.duplicate += 1;
            return Err(ShareOutcome::Processed);
        }
        if is_outside {
            self.counts.behind_window += 1;
            return Err(ShareOutcome::Processed);
        }
        self.received[channel].datagrams += 1;
        self.received[channel].bytes += datagram.len() as u64;
        Ok(ShareArrival { channel, number, header, share, now })
    }

    /// The number of the symbol, if the header's token is right: then the peer has sent a share of
    /// this number on this channel.
    fn verified_number(&mut self, channel: usize, header: SymbolShareHeader) -> Option<u64> {
        let number = expand_sequence(self.verified.highest(), header.sequence);
        let is_right = self.members.contains(channel)
            && self.tokens.token(channel, header.first(), number) == header.token;
        is_right.then_some(number)
    }
}

impl ControlShares {
    fn keep(&mut self, early: EarlyControlShare) {
        if self.early.len() >= MAX_EARLY_SHARES {
            self.early.pop_front();
        }
        self.early.push_back(early);
    }

    fn take(&mut self, number: u64) -> Option<EarlyControlShare> {
        let place = self.early.iter().position(|early| early.share.number == number)?;
        self.early.remove(place)
    }
}
