//! Puts symbols back into the order of their flows, where their channels' delays differ.
//!
//! A symbol names the one before it in its flow. It leaves when that one has left, or is known to be
//! lost, or when it has waited for as long as the window. So a flow stays in order, and none waits
//! for another. A flow whose last symbol is too far back to be named waits for all that is as far
//! back.
//!
//! A symbol is known to be lost when every channel that is heard has brought three later ones.
//!
//! Nothing is ever dropped here: what there is no room for leaves early.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use crate::recv::bits::bits;
use crate::recv::deliver::Deliver;
use crate::recv::log::{Log, Place};
use crate::recv::numbers::Numbers;
use crate::wire::datagram::Kind;

/// What `previous` is where the flow's last symbol is too far back to be named: this far or more.
const FAR: u8 = u8::MAX;

/// After how many later numbers on a channel one is known not to come on it.
const LATER: usize = 3;

/// How many numbers are looked at in one go, at most. Whoever makes numbers jump has the rest looked at
/// when more comes.
const STEPS: u64 = 256;

/// How many bytes there are for each symbol that may wait.
const BYTES_EACH: usize = 256;

/// A symbol of packets that was verified.
#[derive(Clone, Copy)]
pub(crate) struct Symbol<'a> {
    pub(crate) number: u64,
    /// As in the symbol: see [`crate::wire::symbol::Inside`].
    pub(crate) previous: u8,
    pub(crate) kind: Kind,
    /// At most 65,535 bytes.
    pub(crate) packets: &'a [u8],
}

/// How symbols left that had to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Symbols that had to wait.
    pub held: u64,
    /// Those that left behind the one that they waited for.
    pub in_order: u64,
    /// Those that left because the one that they waited for was known to be lost.
    pub after_loss: u64,
    /// Those that had waited for as long as the window.
    pub after_time: u64,
    /// Those that made room for others.
    pub for_room: u64,
}

/// Symbols that wait, and what is known about those that they wait for.
pub(crate) struct Release {
    window: Duration,
    /// By arrival. The first is never one that has left.
    queue: VecDeque<Held>,
    /// The first one's identity; those behind it count up from it.
    first: u32,
    /// How many of the queue still wait.
    waiting: usize,
    /// Their packets.
    log: Log,
    /// By number: a ring.
    places: Box<[Meeting]>,
    /// Those that wait for all up to a number, by that.
    far: BinaryHeap<Reverse<(u64, u32)>>,
    /// Those that have just left, whose waiters are still to follow.
    gone: Vec<u64>,
    /// All below it have left or are lost. Behind the truth if numbers have just jumped.
    frontier: u64,
    /// Below it, what was not verified is lost.
    lost_below: u64,
    /// The highest numbers on each channel, the highest first.
    highest: Vec<[u64; LATER]>,
    counts: Released,
}

/// Who meets at a number. Identities may be of others, long gone: what they lead to says.
#[derive(Clone, Copy, Default)]
struct Meeting {
    /// Who has the number.
    held: u32,
    /// Who waits for it, and first of all those.
    waiter: u32,
}

/// A symbol that waits, or has left before those that came before it.
struct Held {
    number: u64,
    waits_for: Wait,
    since: Duration,
    kind: Kind,
    place: Place,
    len: usize,
    /// Who else waits for the same one.
    next: Option<u32>,
    has_left: bool,
}

/// What a symbol waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// This number.
    One(u64),
    /// All numbers up to this.
    All(u64),
}

/// Why a symbol leaves.
#[derive(Clone, Copy)]
enum Why {
    Order,
    Loss,
    Time,
    Room,
}

impl Release {
    /// For so many channels and numbers, the latter a power of two, holding `bytes` of packets. The
    /// window is zero: nothing waits.
    pub(crate) fn new(channels: usize, span: usize, bytes: usize) -> Self {
        let symbols = bytes / BYTES_EACH + 1;
        Self {
            window: Duration::ZERO,
            queue: VecDeque::with_capacity(symbols),
            first: 0,
            waiting: 0,
            log: Log::new(bytes),
            places: vec![Meeting::default(); span].into(),
            far: BinaryHeap::with_capacity(symbols),
            gone: Vec::with_capacity(symbols),
            frontier: 0,
            lost_below: 0,
            highest: vec![[0; LATER]; channels],
            counts: Released::default(),
        }
    }

    pub(crate) fn counts(&self) -> Released {
        self.counts
    }

    /// Says how long a symbol waits at most.
    pub(crate) fn set_window(&mut self, window: Duration) {
        self.window = window;
    }

    /// When the first symbol has waited long enough.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.queue.front().map(|held| held.since.saturating_add(self.window))
    }

    /// Lets go of all that have waited long enough.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Duration,
        verified: &Numbers,
        deliver: &mut impl Deliver,
    ) {
        while self.timeout().is_some_and(|due| due <= now) {
            self.let_first_go(Why::Time, deliver);
        }
        self.move_frontier(verified, deliver);
    }

    /// A channel has brought a share of a number, whatever came of it.
    pub(crate) fn note(&mut self, channel: usize, number: u64) {
        let highest = &mut self.highest[channel];
        if let Some(place) = highest.iter().position(|&other| number > other) {
            highest[place..].rotate_right(1);
            highest[place] = number;
        }
    }

    /// Lets go of what waits for symbols that are lost, as far as the channels that are `heard` show.
    pub(crate) fn handle_losses(
        &mut self,
        heard: u16,
        verified: &Numbers,
        deliver: &mut impl Deliver,
    ) {
        // A channel may claim any number, but nothing waits for one above the highest verified.
        let shown = self.shown_lost_below(heard).min(verified.highest() + 1);
        if self.waiting == 0 {
            self.lost_below = shown;
            self.frontier = self.frontier.max(shown);
            return;
        }
        let from = self.lost_below.max(verified.oldest());
        self.lost_below = shown.min(from + STEPS);
        for number in from..self.lost_below {
            if !verified.contains(number) {
                self.let_waiters_go(number, Why::Loss, deliver);
            }
        }
        self.move_frontier(verified, deliver);
    }

    /// Takes a symbol whose number has just been added to those that are verified. Hands it out, or
    /// keeps it until what it waits for has left.
    pub(crate) fn take(
        &mut self,
        symbol: Symbol<'_>,
        now: Duration,
        verified: &Numbers,
        deliver: &mut impl Deliver,
    ) {
        if self.window.is_zero() {
            // It may have just become zero.
            self.handle_timeout(now, verified, deliver);
        } else if let Some(wait) = self.wait_of(&symbol, verified)
            && self.make_room(symbol.packets.len(), deliver)
        {
            self.hold(symbol, wait, now);
            self.move_frontier(verified, deliver);
            return;
        }
        deliver.packets(symbol.kind, symbol.packets);
        if self.waiting > 0 {
            self.let_waiters_go(symbol.number, Why::Order, deliver);
            self.move_frontier(verified, deliver);
        }
    }

    /// What a symbol has to wait for, if anything.
    fn wait_of(&mut self, symbol: &Symbol<'_>, verified: &Numbers) -> Option<Wait> {
        let previous = symbol.number.checked_sub(u64::from(symbol.previous))?;
        match symbol.previous {
            0 => None,
            FAR => {
                self.advance(verified);
                (previous >= self.frontier).then_some(Wait::All(previous))
            }
            _ => (!self.is_gone(previous, verified)).then_some(Wait::One(previous)),
        }
    }

    /// Whether a number has left or is lost.
    fn is_gone(&self, number: u64, verified: &Numbers) -> bool {
        if verified.contains(number) {
            self.waiting == 0 || self.held(number).is_none()
        } else {
            number < self.lost_below
        }
    }

    /// Makes room for so many bytes more. Returns false if there is none.
    fn make_room(&mut self, len: usize, deliver: &mut impl Deliver) -> bool {
        // What has left by time may still be in the heap, so it can be full when the queue is not.
        if self.far.len() == self.far.capacity() {
            return false;
        }
        while let Some(first) = self.queue.front()
            && (self.queue.len() == self.queue.capacity() || !self.log.would_hold(first.place, len))
        {
            self.let_first_go(Why::Room, deliver);
        }
        true
    }

    fn hold(&mut self, symbol: Symbol<'_>, waits_for: Wait, now: Duration) {
        let Symbol { number, kind, packets, .. } = symbol;
        #[expect(clippy::cast_possible_truncation, reason = "identities wrap around")]
        let id = self.first.wrapping_add(self.queue.len() as u32);
        let next = match waits_for {
            Wait::One(previous) => {
                let others = self.first_waiter(previous);
                let slot = self.slot(previous);
                self.places[slot].waiter = id;
                others
            }
            Wait::All(last) => {
                self.far.push(Reverse((last, id)));
                None
            }
        };
        let slot = self.slot(number);
        self.places[slot].held = id;
        let (place, len) = (self.log.push(packets), packets.len());
        let held = Held { number, waits_for, since: now, kind, place, len, next, has_left: false };
        self.queue.push_back(held);
        self.waiting += 1;
        self.counts.held += 1;
    }

    /// Lets the first one go, and before it those of its flow that it waits for.
    fn let_first_go(&mut self, why: Why, deliver: &mut impl Deliver) {
        let mut id = self.first;
        while let Some(held) = self.at(id) {
            match held.waits_for {
                Wait::One(previous) => match self.held(previous) {
                    Some(earlier) => id = earlier,
                    None => break,
                },
                Wait::All(last) => {
                    // What has not come by now will not be waited for by others either.
                    self.frontier = self.frontier.max(last + 1);
                    break;
                }
            }
        }
        self.let_go(id, why, deliver);
    }

    /// Lets those go that wait for a number, which has left or is lost.
    fn let_waiters_go(&mut self, number: u64, why: Why, deliver: &mut impl Deliver) {
        while let Some(id) = self.next_waiter(number) {
            self.let_go(id, why, deliver);
        }
    }

    /// Lets one go, then those that wait for it, and those that wait for them.
    fn let_go(&mut self, id: u32, why: Why, deliver: &mut impl Deliver) {
        self.leave(id, why, deliver);
        while let Some(&number) = self.gone.last() {
            match self.next_waiter(number) {
                Some(id) => self.leave(id, Why::Order, deliver),
                None => _ = self.gone.pop(),
            }
        }
        while self.queue.front().is_some_and(|held| held.has_left) {
            self.queue.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        if self.queue.is_empty() {
            // From the beginning again, so that what is used stays in the processor's cache.
            self.queue.clear();
            self.log.rewind();
        }
    }

    /// Hands out one that waits.
    fn leave(&mut self, id: u32, why: Why, deliver: &mut impl Deliver) {
        let place = id.wrapping_sub(self.first) as usize;
        let Some(held) = self.queue.get_mut(place).filter(|held| !held.has_left) else { return };
        held.has_left = true;
        self.waiting -= 1;
        self.gone.push(held.number);
        *match why {
            Why::Order => &mut self.counts.in_order,
            Why::Loss => &mut self.counts.after_loss,
            Why::Time => &mut self.counts.after_time,
            Why::Room => &mut self.counts.for_room,
        } += 1;
        if let Some(packets) = self.log.piece(held.place, held.len) {
            deliver.packets(held.kind, packets);
        }
    }

    /// Lets those go that wait for all up to a number.
    fn move_frontier(&mut self, verified: &Numbers, deliver: &mut impl Deliver) {
        loop {
            self.advance(verified);
            let Some(&Reverse((last, id))) = self.far.peek() else { break };
            if last >= self.frontier {
                break;
            }
            self.far.pop();
            if self.at(id).is_some_and(|held| held.waits_for == Wait::All(last)) {
                self.let_go(id, Why::Order, deliver);
            }
        }
    }

    /// Moves the frontier as far as everything has left or is lost, or some way there.
    fn advance(&mut self, verified: &Numbers) {
        self.frontier = self.frontier.max(verified.oldest());
        if self.waiting == 0 {
            self.frontier = self.frontier.max(self.lost_below);
        }
        let most = self.frontier.saturating_add(STEPS).min(verified.highest() + 1);
        while self.frontier < most && self.is_gone(self.frontier, verified) {
            self.frontier += 1;
        }
    }

    /// Below which number all have come or are lost, as far as some channels show.
    fn shown_lost_below(&self, heard: u16) -> u64 {
        let channels = bits(heard).filter_map(|channel| self.highest.get(channel));
        channels.map(|highest| highest[LATER - 1]).min().unwrap_or(0)
    }

    /// Who has a number and waits.
    fn held(&self, number: u64) -> Option<u32> {
        let id = self.places[self.slot(number)].held;
        self.at(id).is_some_and(|held| held.number == number).then_some(id)
    }

    /// Who waits for a number, and came last of all those.
    fn first_waiter(&self, number: u64) -> Option<u32> {
        let id = self.places[self.slot(number)].waiter;
        self.at(id).is_some_and(|held| held.waits_for == Wait::One(number)).then_some(id)
    }

    /// Takes one of those that wait for a number from their list.
    fn next_waiter(&mut self, number: u64) -> Option<u32> {
        let id = self.first_waiter(number)?;
        if let Some(next) = self.at(id)?.next {
            let slot = self.slot(number);
            self.places[slot].waiter = next;
        }
        Some(id)
    }

    /// The one of this identity, if it still waits.
    fn at(&self, id: u32) -> Option<&Held> {
        self.queue.get(id.wrapping_sub(self.first) as usize).filter(|held| !held.has_left)
    }

    fn slot(&self, number: u64) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "it is below their number")]
        let slot = (number & (self.places.len() as u64 - 1)) as usize;
        slot
    }
}

#[cfg(test)]
mod tests;
