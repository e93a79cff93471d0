//! The shares of recent symbols, and the bytes of those that wait for others.
//!
//! Each channel has its own entries and bytes, so a channel takes no memory from others.
//!
//! Most shares wait only until the others of their symbol are read from their sockets. So bytes are
//! first written to a short log, which stays in the cache. Those that are still needed when they
//! would be overwritten move to a long log.

use std::collections::VecDeque;
use std::time::Duration;

use super::arrival::ShareArrival;
use super::search::ShareGroup;
use crate::protocol::recv::byte_ring::{ByteRing, RingPosition};
use crate::protocol::recv::channel_bits::channels_in;
use crate::protocol::recv::sequence_window::SequenceWindow;

/// The length of a channel's short log, in bytes.
const SHORT_LOG_LEN: usize = 1 << 18;

/// The shares of recent symbols.
pub(super) struct ShareStore {
    /// One entry for each channel and number: a ring by number.
    entries: Box<[StoredShare]>,
    /// The number of numbers, a power of two.
    span: u64,
    stores: Vec<ChannelShareLog>,
    /// The maximum age of a share that is joined, in ms.
    max_age_ms: u32,
}

/// The latest share on a channel of all numbers with this place in the ring.
#[derive(Clone, Copy, Default)]
struct StoredShare {
    /// Which of these numbers it has, counted from 1; 0 if there is none.
    generation: u32,
    place: RingPosition,
    arrived_ms: u32,
    /// Its length; 0 if its bytes were not kept.
    len: u16,
    /// The datagram's first byte: kind and threshold.
    first: u8,
    /// The number of failed joins when it arrived.
    tried: u8,
    /// Whether the position is in the long log.
    is_long: bool,
}

/// The bytes of one channel's shares.
struct ChannelShareLog {
    short: ByteRing,
    /// The numbers and positions in the short log.
    recent: VecDeque<(u64, RingPosition)>,
    long: ByteRing,
}

impl ChannelShareLog {
    fn log(&self, entry: &StoredShare) -> &ByteRing {
        if entry.is_long { &self.long } else { &self.short }
    }

    /// Moves a share from the short log to the long one.
    fn move_to_long_log(&mut self, entry: &mut StoredShare) {
        if !entry.is_long
            && let Some(share) = self.short.piece(entry.place, usize::from(entry.len))
        {
            entry.place = self.long.push(share);
            entry.is_long = true;
        }
    }
}

/// The shares with which a share could be joined. Sets of channels have bit i for channel i.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JoinableShares {
    /// The channels whose shares of this symbol have the same header and length.
    pub(super) matching: u16,
    /// Those whose shares have a different header or length.
    pub(super) mismatching: u16,
    /// The number of failed joins of these.
    pub(super) failed_joins: u32,
    /// The number of shares that were too old, and were removed.
    pub(super) expired: u32,
    /// The number of shares that were overwritten.
    pub(super) evicted: u32,
}

impl ShareStore {
    /// Memory for the shares of `span` symbols (a power of two), and `log_bytes` bytes on each
    /// channel.
    pub(super) fn new(channels: usize, span: usize, log_bytes: usize, patience: Duration) -> Self {
        let store = |_| ChannelShareLog {
            short: ByteRing::new(SHORT_LOG_LEN),
            recent: VecDeque::with_capacity(ByteRing::max_pieces(SHORT_LOG_LEN)),
            long: ByteRing::new(log_bytes),
        };
        Self {
            entries: vec![StoredShare::default(); span * channels].into(),
            span: span as u64,
            stores: (0..channels).map(store).collect(),
            max_age_ms: milliseconds(patience),
        }
    }

    /// Records a share of a number on a channel. Returns false for a duplicate, however old: tokens
    /// prevent invented numbers, but anyone can replay one.
    pub(super) fn note(&mut self, channel: usize, number: u64, now: Duration) -> bool {
        let (generation, arrived_ms) = (self.generation(number), milliseconds(now));
        let entry = &mut self.row(number)[channel];
        let is_new = entry.generation != generation;
        if is_new {
            *entry = StoredShare { generation, arrived_ms, ..StoredShare::default() };
        }
        is_new
    }

    /// Keeps the bytes of a recorded share. Overwritten shares move to the long log, unless their
    /// symbol is `verified`.
    pub(super) fn keep(
        &mut self,
        arrival: &ShareArrival<'_>,
        tried: u8,
        verified: &SequenceWindow,
    ) {
        self.make_room(arrival, verified);
        let generation = self.generation(arrival.number);
        let store = &mut self.stores[arrival.channel];
        let entry = StoredShare {
            generation,
            place: store.short.push(arrival.share),
            arrived_ms: milliseconds(arrival.now),
            len: arrival.len(),
            first: arrival.first(),
            tried,
            is_long: false,
        };
        store.recent.push_back((arrival.number, entry.place));
        self.row(arrival.number)[arrival.channel] = entry;
    }

    /// Moves a symbol's shares on the channels in `members` to the long log.
    pub(super) fn preserve(&mut self, number: u64, members: u16) {
        let start = self.start(number);
        for channel in channels_in(members) {
            self.stores[channel].move_to_long_log(&mut self.entries[start + channel]);
        }
    }

    /// Makes room for a share in its channel's short log.
    fn make_room(&mut self, arrival: &ShareArrival<'_>, verified: &SequenceWindow) {
        let channel = arrival.channel;
        while let Some(&(number, place)) = self.stores[channel].recent.front()
            && !self.stores[channel].short.would_hold(place, arrival.share.len())
        {
            let (generation, start) = (self.generation(number), self.start(number));
            let store = &mut self.stores[channel];
            store.recent.pop_front();
            let entry = &mut self.entries[start + channel];
            if entry.generation == generation && entry.len > 0 && !verified.contains(number) {
                store.move_to_long_log(entry);
            }
        }
    }

    /// The other shares of a share's symbol.
    pub(super) fn survey(&mut self, arrival: &ShareArrival<'_>) -> JoinableShares {
        let (generation, now) = (self.generation(arrival.number), milliseconds(arrival.now));
        let (first, len) = (arrival.first(), arrival.len());
        let start = self.start(arrival.number);
        let row = &mut self.entries[start..start + self.stores.len()];
        let mut found = JoinableShares::default();
        for (channel, (entry, store)) in row.iter_mut().zip(&self.stores).enumerate() {
            let bit = 1 << channel;
            if entry.generation != generation || entry.len == 0 {
                continue;
            }
            if now.wrapping_sub(entry.arrived_ms) > self.max_age_ms {
                entry.len = 0;
                found.expired += 1;
            } else if !store.log(entry).holds(entry.place) {
                entry.len = 0;
                found.evicted += 1;
            } else if (entry.first, entry.len) == (first, len) {
                found.matching |= bit;
                found.failed_joins += u32::from(entry.tried);
            } else {
                found.mismatching |= bit;
            }
        }
        found
    }

    /// A share and those on the channels in `alike`.
    pub(super) fn group<'a>(&'a self, arrival: &ShareArrival<'a>, alike: u16) -> ShareGroup<'a> {
        let start = self.start(arrival.number);
        let mut group = ShareGroup::new(arrival.header.threshold);
        group.add(arrival.channel, arrival.share);
        for channel in channels_in(alike) {
            let entry = &self.entries[start + channel];
            let log = self.stores[channel].log(entry);
            if let Some(share) = log.piece(entry.place, usize::from(entry.len)) {
                group.add(channel, share);
            }
        }
        group
    }

    /// Removes the bytes of a symbol's shares, except those on the channels in `members`.
    pub(super) fn forget_except(&mut self, number: u64, members: u16) {
        let generation = self.generation(number);
        for (channel, entry) in self.row(number).iter_mut().enumerate() {
            if entry.generation == generation && members >> channel & 1 == 0 {
                entry.len = 0;
            }
        }
    }

    fn row(&mut self, number: u64) -> &mut [StoredShare] {
        let start = self.start(number);
        &mut self.entries[start..start + self.stores.len()]
    }

    fn start(&self, number: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "it is below the span")]
        let place = (number & (self.span - 1)) as usize;
        place * self.stores.len()
    }

    #[expect(clippy::cast_possible_truncation, reason = "turns meet again after 2^32 of them")]
    fn generation(&self, number: u64) -> u32 {
        ((number >> self.span.trailing_zeros()) as u32).wrapping_add(1)
    }
}

/// A time in ms, modulo 49 days.
#[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
fn milliseconds(time: Duration) -> u32 {
    time.as_millis() as u32
}
