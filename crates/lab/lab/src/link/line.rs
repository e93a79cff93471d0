//! One direction of a link, without clock, device or thread. Frames and the time come in; frames
//! that have arrived go out.
//!
//! ```text
//! offer ─▶ queue ─▶ transmitter ─▶ wire ─▶ arrived
//!          limit    rate           impairment, delay, jitter
//! ```
//!
//! A superpacket is transmitted in pieces of at most [`MAX_PIECE_NS`]. A piece arrives when its
//! last bit does. So a slow line delivers every packet at its own time, and a fast one few large
//! pieces.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use tun::TunFrame;

use super::conditions::EmulatedLinkConditions;
use super::impairment::{DelayJitter, Impairment, ImpairmentGenerator};
use crate::clock::nanos;

/// The maximum transmission time of a piece of a superpacket, in nanoseconds. The median packet in
/// a piece is early or late by at most half of it.
const MAX_PIECE_NS: u64 = 100_000;

/// The maximum number of bytes in the queue and in flight, with [`OVERHEAD`] for each piece.
/// Packets that exceed it are dropped; this takes 8 Gbit/s with a delay of a second.
const MAX_HELD_BYTES: usize = 1 << 30;

/// An upper bound of the memory for a piece besides its bytes.
const OVERHEAD: usize = 256;

/// The counters of a line, in packets as they are on a wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets to transmit.
    pub offered: u64,
    /// Packets that were dropped because the queue was full.
    pub dropped: u64,
    /// Packets that were transmitted and lost.
    pub lost: u64,
    /// Packets that others overtook.
    pub reordered: u64,
    /// Packets that arrived twice.
    pub duplicated: u64,
    /// Packets that arrived; duplicated ones count twice.
    pub delivered: u64,
    /// The bytes of delivered packets, as IP packets.
    pub delivered_bytes: u64,
}

/// One direction of a link.
#[derive(Debug)]
pub(super) struct OneWayLink {
    /// The time of its creation.
    start: u64,
    conditions: EmulatedLinkConditions,
    impairments: ImpairmentGenerator,
    jitter: DelayJitter,
    queue: VecDeque<SuperpacketPiece>,
    queued_bytes: usize,
    /// The bytes in the queue and in flight, with [`OVERHEAD`] for each piece.
    held_bytes: usize,
    /// The end of the current transmission.
    transmitter_free_at: u64,
    /// The remainder of the last transmission time, in bits times 10^9.
    remainder: u64,
    wire: BinaryHeap<FrameInFlight>,
    /// The number of pieces sent, which orders those with equal times.
    sent_count: u64,
    /// Recorded frames with their times, if the line has a tap.
    tapped: Option<Vec<(u64, TunFrame)>>,
    counts: LinkCounters,
}

/// Segments that are transmitted together.
#[derive(Debug)]
struct SuperpacketPiece {
    offered_at: u64,
    /// The transmitted bytes, of lost packets too.
    bytes: usize,
    segments: usize,
    impairment: Impairment,
    frame: TunFrame,
}

/// A frame in flight.
#[derive(Debug)]
struct FrameInFlight {
    due: u64,
    number: u64,
    frame: TunFrame,
}

impl OneWayLink {
    /// A line that exists from `start` on. The seed determines its random numbers.
    pub(super) fn new(conditions: EmulatedLinkConditions, seed: u64, start: u64) -> Self {
        let mut seeds = fastrand::Rng::with_seed(seed);
        Self {
            start,
            conditions,
            impairments: ImpairmentGenerator::new(seeds.u64(..)),
            jitter: DelayJitter::new(seeds.u64(..)),
            queue: VecDeque::new(),
            queued_bytes: 0,
            held_bytes: 0,
            transmitter_free_at: 0,
            remainder: 0,
            wire: BinaryHeap::new(),
            sent_count: 0,
            tapped: None,
            counts: LinkCounters::default(),
        }
    }

    /// Records transmitted frames from now on for [`OneWayLink::take_tapped`].
    pub(super) fn tap(&mut self) {
        self.tapped = Some(Vec::new());
    }

    /// The frames that were transmitted since the last call, with their times, in that order.
    pub(super) fn take_tapped(&mut self) -> impl Iterator<Item = (u64, TunFrame)> {
        self.tapped.iter_mut().flat_map(std::mem::take)
    }

    /// Changes the conditions. What is in transmission or in flight is not affected.
    pub(super) fn set(&mut self, now: u64, conditions: EmulatedLinkConditions) {
        self.transmit(now);
        if let Some(piece) = self.queue.front()
            && self.transmitter_free_at.max(piece.offered_at) < now
        {
            // Its transmission has begun.
            let (done, _) = self.sent_at(piece);
            self.send_first(done);
        }
        self.remainder = 0;
        self.conditions = conditions;
    }

    pub(super) fn counts(&self) -> LinkCounters {
        self.counts
    }

    /// Offers a frame for transmission. Times must not decrease from one call of any method to the
    /// next.
    pub(super) fn offer(&mut self, now: u64, frame: &TunFrame) {
        self.transmit(now);
        let segments = frame.segments();
        let limit = self.queue_limit();
        let max_piece = self.piece_limit();
        let mut piece = 0..0;
        let mut bytes = 0;
        let mut impairment = Impairment::None;
        for i in 0..segments {
            let length = frame.segment_len(i);
            self.counts.offered += 1;
            let waiting = self.queued_bytes + bytes;
            let is_full = waiting > 0 && waiting + length > limit;
            if is_full || self.held_bytes + OVERHEAD + bytes + length > MAX_HELD_BYTES {
                self.counts.dropped += (segments - i) as u64;
                self.counts.offered += (segments - i - 1) as u64;
                break;
            }
            let next = self.impairments.next(&self.conditions, length);
            if piece.end > piece.start
                && (next != impairment
                    || next == Impairment::Reordered
                    || bytes + length > max_piece)
            {
                self.enqueue(now, frame, piece, bytes, impairment);
                (piece, bytes) = (i..i, 0);
            }
            impairment = next;
            piece.end = i + 1;
            bytes += length;
        }
        if piece.end > piece.start {
            self.enqueue(now, frame, piece, bytes, impairment);
        }
        self.transmit(now);
    }

    fn enqueue(
        &mut self,
        now: u64,
        frame: &TunFrame,
        part: std::ops::Range<usize>,
        bytes: usize,
        impairment: Impairment,
    ) {
        self.queued_bytes += bytes;
        self.held_bytes += OVERHEAD + bytes;
        let segments = part.len();
        self.queue.push_back(SuperpacketPiece {
            offered_at: now,
            bytes,
            segments,
            impairment,
            frame: frame.part(part),
        });
    }

    /// The earliest time at which a frame may arrive; `None` if none is queued or in flight.
    pub(super) fn next_arrival(&self) -> Option<u64> {
        let sent = self.queue.front().map(|piece| {
            let (done, _) = self.sent_at(piece);
            self.arrival(done)
        });
        let in_flight = self.wire.peek().map(|in_flight| in_flight.due);
        sent.into_iter().chain(in_flight).min()
    }

    /// The next frame that has arrived, with the time at which it was due.
    pub(super) fn take_arrived(&mut self, now: u64) -> Option<(u64, TunFrame)> {
        self.transmit(now);
        if self.wire.peek()?.due > now {
            return None;
        }
        let FrameInFlight { due, frame, .. } = self.wire.pop()?;
        self.counts.delivered += frame.segments() as u64;
        self.counts.delivered_bytes += frame.wire_len() as u64;
        self.held_bytes -= OVERHEAD + frame.wire_len();
        Some((due, frame))
    }

    /// Transmits what can have been transmitted by now.
    fn transmit(&mut self, now: u64) {
        while let Some(piece) = self.queue.front() {
            let (done, remainder) = self.sent_at(piece);
            if done > now {
                return;
            }
            self.remainder = remainder;
            self.send_first(done);
        }
    }

    /// Removes the first piece from the queue, transmitted at the time `sent`.
    fn send_first(&mut self, sent: u64) {
        self.transmitter_free_at = sent;
        if let Some(piece) = self.queue.pop_front() {
            self.queued_bytes -= piece.bytes;
            self.put_in_flight(sent, &piece);
        }
    }

    /// Puts a piece in flight that was transmitted at the time `sent`.
    fn put_in_flight(&mut self, sent: u64, piece: &SuperpacketPiece) {
        if let Some(tapped) = &mut self.tapped {
            tapped.push((sent, piece.frame.clone()));
        }
        let segments = piece.segments as u64;
        let mut due = self.arrival(sent);
        let mut copies = 1;
        match piece.impairment {
            Impairment::None => {}
            Impairment::Lost => {
                self.counts.lost += segments;
                self.held_bytes -= OVERHEAD + piece.bytes;
                return;
            }
            Impairment::Reordered => {
                self.counts.reordered += segments;
                due += nanos(self.conditions.reorder_ms);
            }
            Impairment::Duplicated => {
                self.counts.duplicated += segments;
                self.held_bytes += OVERHEAD + piece.bytes;
                copies = 2;
            }
        }
        for _ in 0..copies {
            self.wire.push(FrameInFlight {
                due,
                number: self.sent_count,
                frame: piece.frame.clone(),
            });
            self.sent_count += 1;
        }
    }

    /// The end of the transmission of the first piece in the queue, and the remainder.
    fn sent_at(&self, piece: &SuperpacketPiece) -> (u64, u64) {
        let start = self.transmitter_free_at.max(piece.offered_at);
        let Some(rate) = self.bits_per_second() else { return (start, 0) };
        // After a pause there is no remainder.
        let left = if start > self.transmitter_free_at { 0 } else { self.remainder };
        let bits = piece.bytes as u64 * 8_000_000_000 + left;
        (start + bits / rate, bits % rate)
    }

    /// The arrival of what was transmitted at the time `sent`.
    fn arrival(&self, sent: u64) -> u64 {
        let due = sent + nanos(self.conditions.delay_ms);
        let since_start = sent.saturating_sub(self.start);
        due.saturating_add_signed(self.jitter.at(since_start, self.conditions.jitter_ms))
    }

    fn bits_per_second(&self) -> Option<u64> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is checked"
        )]
        self.conditions.rate_mbit.map(|rate| (rate * 1e6).round() as u64)
    }

    /// The maximum number of bytes in the queue. One packet always fits.
    fn queue_limit(&self) -> usize {
        self.conditions
            .rate_mbit
            .map_or(usize::MAX, |rate| bytes_in(rate, self.conditions.queue_ms))
    }

    /// The maximum number of bytes in a piece. It has at least one packet.
    fn piece_limit(&self) -> usize {
        self.conditions
            .rate_mbit
            .map_or(usize::MAX, |rate| bytes_in(rate, MAX_PIECE_NS as f64 / 1e6))
    }
}

/// The number of bytes that a rate in Mbit/s transmits in a time.
fn bytes_in(rate_mbit: f64, ms: f64) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is checked")]
    let bytes = (rate_mbit * 125.0 * ms) as usize;
    bytes
}

/// The earliest is the greatest, because the heap returns the greatest first.
impl Ord for FrameInFlight {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl PartialOrd for FrameInFlight {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for FrameInFlight {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for FrameInFlight {}

#[cfg(test)]
mod tests;
