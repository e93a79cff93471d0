//! Which shares came of which symbol, and the bytes of those that wait for others.
//!
//! Each channel has entries and bytes of its own, so what one brings takes no room from the others'.
//!
//! Most shares wait for no longer than the others of their symbol take to be read from their sockets.
//! So bytes are written to a short log first, which stays in the processor's cache, and those that are
//! still waited for when it gives way move on to a long one.

use std::collections::VecDeque;
use std::time::Duration;

use super::arrival::Arrival;
use super::search::Group;
use crate::recv::bits::bits;
use crate::recv::log::{Log, Place};
use crate::recv::numbers::Numbers;

/// How long the short log of a channel is, in bytes.
const SHORT: usize = 1 << 18;

/// The shares of the symbols of late.
pub(super) struct Shares {
    /// One entry a channel for each number: a ring by number.
    entries: Box<[Entry]>,
    /// How many numbers that is. A power of two.
    span: u64,
    stores: Vec<Store>,
    /// How old a share may be that is joined, in ms.
    patience_ms: u32,
}

/// The share that a channel brought last of all those whose numbers belong here.
#[derive(Clone, Copy, Default)]
struct Entry {
    /// Which of those numbers it has, counted from 1; 0 if none came yet.
    turn: u32,
    place: Place,
    arrived_ms: u32,
    /// Its length, 0 if its bytes were not kept.
    len: u16,
    /// The datagram's first byte: kind and threshold.
    first: u8,
    /// How many joins were tried when it came, in vain.
    tried: u8,
    /// Which log the place is in.
    is_long: bool,
}

/// The bytes of one channel's shares.
struct Store {
    short: Log,
    /// What is in the short log: numbers and places.
    recent: VecDeque<(u64, Place)>,
    long: Log,
}

impl Store {
    fn log(&self, entry: &Entry) -> &Log {
        if entry.is_long { &self.long } else { &self.short }
    }

    /// Moves a share from the short log to the long one.
    fn move_on(&mut self, entry: &mut Entry) {
        if !entry.is_long
            && let Some(share) = self.short.piece(entry.place, usize::from(entry.len))
        {
            entry.place = self.long.push(share);
            entry.is_long = true;
        }
    }
}

/// What is there for a share to be joined with. Sets of channels have bit i for channel i.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Survey {
    /// The channels whose shares of this symbol have the same header and length.
    pub(super) alike: u16,
    /// Those whose shares have another.
    pub(super) unlike: u16,
    /// How many joins of those were tried, in vain.
    pub(super) tried: u32,
    /// How many shares were too old, and are from now on not there.
    pub(super) expired: u32,
    /// How many had their bytes overwritten.
    pub(super) evicted: u32,
}

impl Shares {
    /// Room for the shares of `span` symbols, a power of two, and `log_bytes` on each channel.
    pub(super) fn new(channels: usize, span: usize, log_bytes: usize, patience: Duration) -> Self {
        let store = |_| Store {
            short: Log::new(SHORT),
            recent: VecDeque::with_capacity(Log::most_pieces(SHORT)),
            long: Log::new(log_bytes),
        };
        Self {
            entries: vec![Entry::default(); span * channels].into(),
            span: span as u64,
            stores: (0..channels).map(store).collect(),
            patience_ms: milliseconds(patience),
        }
    }

    /// Notes that a channel brought a share of a number. Returns false if it did so before, however long
    /// ago: nobody makes up numbers, as each has its token, but anyone can send one again.
    pub(super) fn note(&mut self, channel: usize, number: u64, now: Duration) -> bool {
        let (turn, arrived_ms) = (self.turn(number), milliseconds(now));
        let entry = &mut self.row(number)[channel];
        let is_new = entry.turn != turn;
        if is_new {
            *entry = Entry { turn, arrived_ms, ..Entry::default() };
        }
        is_new
    }

    /// Keeps the bytes of a share that was noted. What gives way is forgotten if it is `verified`.
    pub(super) fn keep(&mut self, arrival: &Arrival<'_>, tried: u8, verified: &Numbers) {
        self.make_room(arrival, verified);
        let turn = self.turn(arrival.number);
        let store = &mut self.stores[arrival.channel];
        let entry = Entry {
            turn,
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

    /// Moves a symbol's shares on the channels in `members` on to the long log.
    pub(super) fn preserve(&mut self, number: u64, members: u16) {
        let start = self.start(number);
        for channel in bits(members) {
            self.stores[channel].move_on(&mut self.entries[start + channel]);
        }
    }

    /// Makes room for a share in its channel's short log.
    fn make_room(&mut self, arrival: &Arrival<'_>, verified: &Numbers) {
        let channel = arrival.channel;
        while let Some(&(number, place)) = self.stores[channel].recent.front()
            && !self.stores[channel].short.would_hold(place, arrival.share.len())
        {
            let (turn, start) = (self.turn(number), self.start(number));
            let store = &mut self.stores[channel];
            store.recent.pop_front();
            let entry = &mut self.entries[start + channel];
            if entry.turn == turn && entry.len > 0 && !verified.contains(number) {
                store.move_on(entry);
            }
        }
    }

    /// Which shares of its symbol there are beside one.
    pub(super) fn survey(&mut self, arrival: &Arrival<'_>) -> Survey {
        let (turn, now) = (self.turn(arrival.number), milliseconds(arrival.now));
        let (first, len) = (arrival.first(), arrival.len());
        let start = self.start(arrival.number);
        let row = &mut self.entries[start..start + self.stores.len()];
        let mut found = Survey::default();
        for (channel, (entry, store)) in row.iter_mut().zip(&self.stores).enumerate() {
            let bit = 1 << channel;
            if entry.turn != turn || entry.len == 0 {
                continue;
            }
            if now.wrapping_sub(entry.arrived_ms) > self.patience_ms {
                entry.len = 0;
                found.expired += 1;
            } else if !store.log(entry).holds(entry.place) {
                entry.len = 0;
                found.evicted += 1;
            } else if (entry.first, entry.len) == (first, len) {
                found.alike |= bit;
                found.tried += u32::from(entry.tried);
            } else {
                found.unlike |= bit;
            }
        }
        found
    }

    /// A share and those on the channels in `alike`.
    pub(super) fn group<'a>(&'a self, arrival: &Arrival<'a>, alike: u16) -> Group<'a> {
        let start = self.start(arrival.number);
        let mut group = Group::new(arrival.header.threshold);
        group.add(arrival.channel, arrival.share);
        for channel in bits(alike) {
            let entry = &self.entries[start + channel];
            let log = self.stores[channel].log(entry);
            if let Some(share) = log.piece(entry.place, usize::from(entry.len)) {
                group.add(channel, share);
            }
        }
        group
    }

    /// Forgets the bytes of a symbol's shares but for those on the channels in `members`.
    pub(super) fn forget_but(&mut self, number: u64, members: u16) {
        let turn = self.turn(number);
        for (channel, entry) in self.row(number).iter_mut().enumerate() {
            if entry.turn == turn && members >> channel & 1 == 0 {
                entry.len = 0;
            }
        }
    }

    fn row(&mut self, number: u64) -> &mut [Entry] {
        let start = self.start(number);
        &mut self.entries[start..start + self.stores.len()]
    }

    fn start(&self, number: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "it is below the span")]
        let place = (number & (self.span - 1)) as usize;
        place * self.stores.len()
    }

    #[expect(clippy::cast_possible_truncation, reason = "turns meet again after 2^32 of them")]
    fn turn(&self, number: u64) -> u32 {
        ((number >> self.span.trailing_zeros()) as u32).wrapping_add(1)
    }
}

/// A time in ms, from which differences of up to 49 days can be told.
#[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
fn milliseconds(time: Duration) -> u32 {
    time.as_millis() as u32
}
