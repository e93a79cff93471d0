//! The reorder buffer: restores the order of each flow's symbols.
//!
//! A symbol names its predecessor in its flow. It is released when the predecessor has been
//! released or is known to be lost, or when it has waited for the reorder window. So each flow
//! stays in order and does not wait for others. If the predecessor is too far back to be named, the
//! symbol waits for all numbers that are as far back.
//!
//! A symbol that came over fast channels can also be *delayed* ([`super::delay_equalizer`]): it is
//! not released before its time, and neither are those of its flow that follow it.
//!
//! A symbol is known to be lost when every active channel (up and not in quarantine) has delivered
//! three later ones.
//!
//! Nothing is dropped here: if there is no room, symbols are released early.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use crate::protocol::recv::byte_ring::{ByteRing, RingPosition};
use crate::protocol::recv::channel_bits::channels_in;
use crate::protocol::recv::sequence_window::SequenceWindow;
use crate::protocol::recv::symbol_sink::SymbolSink;
use crate::protocol::wire::datagram::SymbolKind;

/// The value of `previous` if the predecessor is this far back or further.
const FAR_BACK: u8 = u8::MAX;

/// The number of later numbers on a channel after which a missing one is not expected on it any
/// more.
const PACKET_THRESHOLD: usize = 3;

/// The maximum number of numbers that are processed at once. After a jump, the rest is processed
/// with later datagrams.
const MAX_STEPS: u64 = 256;

/// The bytes of the buffer for each symbol that may wait.
const MIN_BYTES_PER_SYMBOL: usize = 256;

/// A verified symbol of packets.
#[derive(Clone, Copy)]
pub(crate) struct VerifiedSymbol<'a> {
    pub(crate) number: u64,
    /// As in the symbol: see [`crate::protocol::wire::symbol::SymbolContents`].
    pub(crate) previous: u8,
    pub(crate) kind: SymbolKind,
    /// At most 65,535 bytes.
    pub(crate) packets: &'a [u8],
    /// How long it is delayed: not longer than the reorder window, and not at all if it is less
    /// than a millisecond.
    pub(crate) delay: Duration,
}

/// Delays end at a whole millisecond, so that symbols leave together.
const DELAY_UNIT: Duration = Duration::from_millis(1);

/// Counts of the symbols that had to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReorderCounts {
    /// Symbols that had to wait.
    pub held: u64,
    /// Those released at the end of their delay.
    pub delayed: u64,
    /// Those released after their predecessor.
    pub in_order: u64,
    /// Those released because their predecessor was known to be lost.
    pub after_loss: u64,
    /// Those released at the end of the window.
    pub after_time: u64,
    /// Those released early to make room for others.
    pub released_early: u64,
}

/// The symbols that wait, and what is known about their predecessors.
pub(crate) struct ReorderBuffer {
    window: Duration,
    /// In order of arrival. The first one is never released.
    queue: VecDeque<HeldSymbol>,
    /// The identifier of the first one; the others have the following ones.
    first: u32,
    /// The number of symbols in the queue that are not released.
    waiting: usize,
    /// Their packets.
    log: ByteRing,
    /// By number: a ring.
    slots: Box<[ReorderSlot]>,
    /// The symbols that wait for all numbers up to one, ordered by it.
    far_waiters: BinaryHeap<Reverse<(u64, u32)>>,
    /// The delayed symbols, ordered by the end of their delays, in ms.
    delayed: BinaryHeap<Reverse<(u64, u32)>>,
    /// Symbols that were just released, whose waiters are to follow.
    to_follow: Vec<u64>,
    /// All numbers below are released or lost. It may lag after a jump.
    frontier: u64,
    /// Below it, numbers that are not verified are lost.
    lost_below: u64,
    /// The highest numbers on each channel, in descending order.
    highest: Vec<[u64; PACKET_THRESHOLD]>,
    counts: ReorderCounts,
}

/// The symbols of a number. The identifiers may be stale: the symbols that they lead to show it.
#[derive(Clone, Copy, Default)]
struct ReorderSlot {
    /// The symbol with the number.
    held: u32,
    /// The latest symbol that waits for it, the first of a list.
    waiter: u32,
}

/// A symbol that waits, or that was released before those in front of it.
struct HeldSymbol {
    number: u64,
    depends_on: Option<SymbolDependency>,
    /// Whether its delay has not ended.
    is_delayed: bool,
    since: Duration,
    kind: SymbolKind,
    place: RingPosition,
    len: usize,
    /// The next symbol that waits for the same number.
    next: Option<u32>,
    is_released: bool,
}

/// What a symbol waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SymbolDependency {
    /// This number.
    One(u64),
    /// All numbers up to this.
    All(u64),
}

/// Why a symbol is released.
#[derive(Clone, Copy)]
enum ReleaseReason {
    Delay,
    Order,
    Loss,
    Time,
    Room,
}

impl ReorderBuffer {
    /// A buffer for `channels` channels, `span` numbers (a power of two) and `bytes` bytes of
    /// packets. The window is zero: no symbol waits.
    pub(crate) fn new(channels: usize, span: usize, bytes: usize) -> Self {
        let symbols = bytes / MIN_BYTES_PER_SYMBOL + 1;
        Self {
            window: Duration::ZERO,
            queue: VecDeque::with_capacity(symbols),
            first: 0,
            waiting: 0,
            log: ByteRing::new(bytes),
            slots: vec![ReorderSlot::default(); span].into(),
            far_waiters: BinaryHeap::with_capacity(symbols),
            delayed: BinaryHeap::with_capacity(symbols),
            to_follow: Vec::with_capacity(symbols),
            frontier: 0,
            lost_below: 0,
            highest: vec![[0; PACKET_THRESHOLD]; channels],
            counts: ReorderCounts::default(),
        }
    }

    pub(crate) fn counts(&self) -> ReorderCounts {
        self.counts
    }

    /// Sets how long a symbol waits at most.
    pub(crate) fn set_window(&mut self, window: Duration) {
        self.window = window;
    }

    /// When the first symbol has waited for the window, or a delay ends.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        self.end_of_window().into_iter().chain(self.end_of_delay()).min()
    }

    /// Releases the symbols whose delay has ended, and all that have waited for the window.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Duration,
        verified: &SequenceWindow,
        deliver: &mut impl SymbolSink,
    ) {
        while self.end_of_delay().is_some_and(|end| end <= now) {
            self.end_delay(deliver);
        }
        while self.end_of_window().is_some_and(|end| end <= now) {
            self.release_first(ReleaseReason::Time, deliver);
        }
        self.move_frontier(verified, deliver);
    }

    /// When the first symbol has waited for the window.
    fn end_of_window(&self) -> Option<Duration> {
        self.queue.front().map(|held| held.since.saturating_add(self.window))
    }

    /// When the first delay ends.
    fn end_of_delay(&self) -> Option<Duration> {
        self.delayed.peek().map(|Reverse((end_ms, _))| Duration::from_millis(*end_ms))
    }

    /// Ends the first delay. The symbol is released unless it waits for others.
    fn end_delay(&mut self, deliver: &mut impl SymbolSink) {
        let Some(Reverse((_, id))) = self.delayed.pop() else { return };
        let Some(held) = self.at_mut(id) else { return };
        held.is_delayed = false;
        if held.depends_on.is_none() {
            self.release(id, ReleaseReason::Delay, deliver);
        }
    }

    /// Records that a share of a number has arrived on a channel.
    pub(crate) fn record_arrival(&mut self, channel: usize, number: u64) {
        let highest = &mut self.highest[channel];
        if let Some(place) = highest.iter().position(|&other| number > other) {
            highest[place..].rotate_right(1);
            highest[place] = number;
        }
    }

    /// Releases what waits for lost symbols, as far as the `heard` channels show.
    pub(crate) fn handle_losses(
        &mut self,
        heard: u16,
        verified: &SequenceWindow,
        deliver: &mut impl SymbolSink,
    ) {
        // A channel may claim any number, but no symbol waits for one above the highest verified.
        let shown = self.shown_lost_below(heard).min(verified.highest() + 1);
        if self.waiting == 0 {
            self.lost_below = shown;
            self.frontier = self.frontier.max(shown);
            return;
        }
        let from = self.lost_below.max(verified.oldest());
        self.lost_below = shown.min(from + MAX_STEPS);
        for number in from..self.lost_below {
            if !verified.contains(number) {
                self.release_waiters(number, ReleaseReason::Loss, deliver);
            }
        }
        self.move_frontier(verified, deliver);
    }

    /// Takes a symbol whose number was just added to `verified`. Delivers it, or keeps it until its
    /// predecessor is released.
    pub(crate) fn insert(
        &mut self,
        symbol: VerifiedSymbol<'_>,
        now: Duration,
        verified: &SequenceWindow,
        deliver: &mut impl SymbolSink,
    ) {
        if self.window.is_zero() {
            // The window may have just become zero.
            self.handle_timeout(now, verified, deliver);
        } else {
            let depends_on = self.dependency_of(&symbol, verified);
            let delay_end_ms = self.delay_end_ms(symbol.delay, now);
            let must_wait = depends_on.is_some() || delay_end_ms.is_some();
            if must_wait && self.make_room(symbol.packets.len(), deliver) {
                self.hold(symbol, depends_on, delay_end_ms, now);
                self.move_frontier(verified, deliver);
                return;
            }
        }
        deliver.packets(symbol.kind, symbol.packets);
        if self.waiting > 0 {
            self.release_waiters(symbol.number, ReleaseReason::Order, deliver);
            self.move_frontier(verified, deliver);
        }
    }

    /// What a symbol must wait for, if anything.
    fn dependency_of(
        &mut self,
        symbol: &VerifiedSymbol<'_>,
        verified: &SequenceWindow,
    ) -> Option<SymbolDependency> {
        let previous = symbol.number.checked_sub(u64::from(symbol.previous))?;
        match symbol.previous {
            0 => None,
            FAR_BACK => {
                self.advance(verified);
                (previous >= self.frontier).then_some(SymbolDependency::All(previous))
            }
            _ => (!self.is_settled(previous, verified)).then_some(SymbolDependency::One(previous)),
        }
    }

    /// The end of a delay that begins now, in whole ms. `None` if there is none.
    fn delay_end_ms(&self, delay: Duration, now: Duration) -> Option<u64> {
        // Stale entries may fill the heap.
        if delay < DELAY_UNIT || self.delayed.len() == self.delayed.capacity() {
            return None;
        }
        let end = now.saturating_add(delay.min(self.window));
        u64::try_from(end.as_nanos().div_ceil(DELAY_UNIT.as_nanos())).ok()
    }

    /// Whether a number is released or lost.
    fn is_settled(&self, number: u64, verified: &SequenceWindow) -> bool {
        if verified.contains(number) {
            self.waiting == 0 || self.held(number).is_none()
        } else {
            number < self.lost_below
        }
    }

    /// Makes room for `len` more bytes. Returns false if there is none.
    fn make_room(&mut self, len: usize, deliver: &mut impl SymbolSink) -> bool {
        // Released symbols may still be in the heap, so it can be full when the queue is not.
        if self.far_waiters.len() == self.far_waiters.capacity() {
            return false;
        }
        while let Some(first) = self.queue.front()
            && (self.queue.len() == self.queue.capacity() || !self.log.would_hold(first.place, len))
        {
            self.release_first(ReleaseReason::Room, deliver);
        }
        true
    }

    fn hold(
        &mut self,
        symbol: VerifiedSymbol<'_>,
        depends_on: Option<SymbolDependency>,
        delay_end_ms: Option<u64>,
        now: Duration,
    ) {
        let VerifiedSymbol { number, kind, packets, .. } = symbol;
        #[expect(clippy::cast_possible_truncation, reason = "identities wrap around")]
        let id = self.first.wrapping_add(self.queue.len() as u32);
        let next = match depends_on {
            Some(SymbolDependency::One(previous)) => {
                let others = self.first_waiter(previous);
                let slot = self.slot(previous);
                self.slots[slot].waiter = id;
                others
            }
            Some(SymbolDependency::All(last)) => {
                self.far_waiters.push(Reverse((last, id)));
                None
            }
            None => None,
        };
        self.delayed.extend(delay_end_ms.map(|end_ms| Reverse((end_ms, id))));
        let slot = self.slot(number);
        self.slots[slot].held = id;
        let (place, len) = (self.log.push(packets), packets.len());
        let held = HeldSymbol {
            number,
            depends_on,
            is_delayed: delay_end_ms.is_some(),
            since: now,
            kind,
            place,
            len,
            next,
            is_released: false,
        };
        self.queue.push_back(held);
        self.waiting += 1;
        self.counts.held += 1;
    }

    /// Releases the first symbol, and before it those of its flow that it waits for.
    fn release_first(&mut self, reason: ReleaseReason, deliver: &mut impl SymbolSink) {
        let mut id = self.first;
        while let Some(held) = self.at(id) {
            match held.depends_on {
                None => break,
                Some(SymbolDependency::One(previous)) => match self.held(previous) {
                    Some(earlier) => id = earlier,
                    None => break,
                },
                Some(SymbolDependency::All(last)) => {
                    // Other symbols do not wait for these numbers either.
                    self.frontier = self.frontier.max(last + 1);
                    break;
                }
            }
        }
        self.release(id, reason, deliver);
    }

    /// Releases the symbols that wait for a number, which is released or lost.
    fn release_waiters(
        &mut self,
        number: u64,
        reason: ReleaseReason,
        deliver: &mut impl SymbolSink,
    ) {
        while let Some(id) = self.next_waiter(number) {
            self.release(id, reason, deliver);
        }
    }

    /// Releases a symbol, then those that wait for it, and so on.
    fn release(&mut self, id: u32, reason: ReleaseReason, deliver: &mut impl SymbolSink) {
        self.deliver_held(id, reason, deliver);
        while let Some(&number) = self.to_follow.last() {
            match self.next_waiter(number) {
                Some(id) => self.deliver_held(id, ReleaseReason::Order, deliver),
                None => _ = self.to_follow.pop(),
            }
        }
        while self.queue.front().is_some_and(|held| held.is_released) {
            self.queue.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        if self.queue.is_empty() {
            // Starts at the beginning again, so that the used memory stays in the cache.
            self.queue.clear();
            self.delayed.clear();
            self.log.rewind();
        }
    }

    /// Delivers a symbol that waits.
    fn deliver_held(&mut self, id: u32, reason: ReleaseReason, deliver: &mut impl SymbolSink) {
        let Some(held) = self.at_mut(id) else { return };
        held.is_released = true;
        let (number, kind, place, len) = (held.number, held.kind, held.place, held.len);
        self.waiting -= 1;
        self.to_follow.push(number);
        *match reason {
            ReleaseReason::Delay => &mut self.counts.delayed,
            ReleaseReason::Order => &mut self.counts.in_order,
            ReleaseReason::Loss => &mut self.counts.after_loss,
            ReleaseReason::Time => &mut self.counts.after_time,
            ReleaseReason::Room => &mut self.counts.released_early,
        } += 1;
        if let Some(packets) = self.log.piece(place, len) {
            deliver.packets(kind, packets);
        }
    }

    /// Advances the frontier, and releases symbols that wait for all numbers below it.
    fn move_frontier(&mut self, verified: &SequenceWindow, deliver: &mut impl SymbolSink) {
        loop {
            self.advance(verified);
            let Some(&Reverse((last, id))) = self.far_waiters.peek() else { break };
            if last >= self.frontier {
                break;
            }
            self.far_waiters.pop();
            let Some(held) = self.at_mut(id) else { continue };
            if held.depends_on == Some(SymbolDependency::All(last)) {
                held.depends_on = None;
                if !held.is_delayed {
                    self.release(id, ReleaseReason::Order, deliver);
                }
            }
        }
    }

    /// Advances the frontier over numbers that are released or lost, by a limited number of steps.
    fn advance(&mut self, verified: &SequenceWindow) {
        self.frontier = self.frontier.max(verified.oldest());
        if self.waiting == 0 {
            self.frontier = self.frontier.max(self.lost_below);
        }
        let most = self.frontier.saturating_add(MAX_STEPS).min(verified.highest() + 1);
        while self.frontier < most && self.is_settled(self.frontier, verified) {
            self.frontier += 1;
        }
    }

    /// The number below which all have arrived or are lost, as far as these channels show.
    fn shown_lost_below(&self, heard: u16) -> u64 {
        let channels = channels_in(heard).filter_map(|channel| self.highest.get(channel));
        channels.map(|highest| highest[PACKET_THRESHOLD - 1]).min().unwrap_or(0)
    }

    /// The waiting symbol with a number.
    fn held(&self, number: u64) -> Option<u32> {
        let id = self.slots[self.slot(number)].held;
        self.at(id).is_some_and(|held| held.number == number).then_some(id)
    }

    /// The latest symbol that waits for a number.
    fn first_waiter(&self, number: u64) -> Option<u32> {
        let id = self.slots[self.slot(number)].waiter;
        self.at(id)
            .is_some_and(|held| held.depends_on == Some(SymbolDependency::One(number)))
            .then_some(id)
    }

    /// Removes symbols from the list of those that wait for a number, up to the first one that is
    /// not delayed, and returns it. Those before it wait for nothing but their time any more.
    fn next_waiter(&mut self, number: u64) -> Option<u32> {
        loop {
            let id = self.first_waiter(number)?;
            let held = self.at_mut(id)?;
            held.depends_on = None;
            let (next, is_delayed) = (held.next, held.is_delayed);
            if let Some(next) = next {
                let slot = self.slot(number);
                self.slots[slot].waiter = next;
            }
            if !is_delayed {
                return Some(id);
            }
        }
    }

    /// The symbol with this identifier, if it still waits.
    fn at(&self, id: u32) -> Option<&HeldSymbol> {
        self.queue.get(id.wrapping_sub(self.first) as usize).filter(|held| !held.is_released)
    }

    /// The same, to change it.
    fn at_mut(&mut self, id: u32) -> Option<&mut HeldSymbol> {
        let place = id.wrapping_sub(self.first) as usize;
        self.queue.get_mut(place).filter(|held| !held.is_released)
    }

    fn slot(&self, number: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "it is below their number")]
        let slot = (number & (self.slots.len() as u64 - 1)) as usize;
        slot
    }
}

#[cfg(test)]
mod tests;
