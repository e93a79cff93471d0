//! The send buffer of a connection: bytes that the peer has not acknowledged, divided into packets,
//! and which of these are lost.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use super::ranges::SabulNumberRanges;

/// The send buffer of a connection.
#[derive(Debug)]
pub(crate) struct SabulSendBuffer {
    /// All bytes, starting with the first unacknowledged packet.
    bytes: VecDeque<u8>,
    /// How many bytes at the end are not in a packet yet.
    unsent: usize,
    /// The position in the stream of the first of `bytes`. Positions wrap around.
    first_byte: usize,
    /// Packets that were sent and are not acknowledged; the first has the number `first`.
    sent: VecDeque<SabulSentPacket>,
    first: u64,
    /// Packets of `sent` that must be retransmitted.
    lost: SabulNumberRanges,
    /// Packets of `sent` that the peer has reported lost, whether or not they were retransmitted
    /// since.
    reported: SabulNumberRanges,
    /// The longest payload, in bytes.
    max_payload: usize,
    /// The largest number of bytes in the buffer.
    capacity: usize,
    /// The peer's window: the number of packets from `first` on that it has space for.
    window: u64,
}

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
struct SabulSentPacket {
    /// The position in the stream of its first byte.
    start: usize,
    len: usize,
    /// When it was last sent, and how often it was retransmitted.
    sent_at: Duration,
    repetitions: u8,
}

/// The packets that an acknowledgement concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SabulAckedPackets {
    /// How many of them are newly acknowledged.
    pub(crate) packets: u64,
    /// When the last of them was sent, if none was retransmitted. In that case they have arrived
    /// one after the other, and this one shortly before the acknowledgement was sent.
    pub(crate) sent_at: Option<Duration>,
}

/// A packet to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SabulOutgoingPacket {
    pub(crate) number: u64,
    /// The length of its payload.
    pub(crate) len: usize,
    /// Whether it was sent before.
    pub(crate) is_repeated: bool,
}

impl SabulSendBuffer {
    /// Creates a buffer of `capacity` bytes. The first packet has the number `first`, payloads have
    /// at most `max_payload` bytes, and the peer's window is `window` packets.
    pub(crate) fn new(first: u64, max_payload: u16, capacity: usize, window: u64) -> Self {
        Self {
            bytes: VecDeque::new(),
            unsent: 0,
            first_byte: 0,
            sent: VecDeque::new(),
            first,
            lost: SabulNumberRanges::default(),
            reported: SabulNumberRanges::default(),
            max_payload: usize::from(max_payload),
            capacity,
            window,
        }
    }

    /// Copies as many bytes of the stream as there is room for. Returns their number.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.capacity.saturating_sub(self.bytes.len()));
        self.bytes.extend(&bytes[..taken]);
        self.unsent += taken;
        taken
    }

    /// The free space, in bytes.
    pub(crate) fn room(&self) -> usize {
        self.capacity.saturating_sub(self.bytes.len())
    }

    /// The number of bytes in the buffer.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the peer has acknowledged everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The number of packets that were sent and are neither acknowledged nor known to be lost.
    pub(crate) fn in_flight(&self) -> u64 {
        self.sent.len() as u64 - self.lost.len()
    }

    /// The number of packets that were sent and are not acknowledged.
    pub(crate) fn unacknowledged(&self) -> u64 {
        self.sent.len() as u64
    }

    /// The number of the next new packet.
    pub(crate) fn next_number(&self) -> u64 {
        self.first + self.sent.len() as u64
    }

    /// Whether a packet can be sent now: a lost one, or a new one if at most `window` packets may
    /// be unacknowledged.
    pub(crate) fn has_packet(&self, window: u64) -> bool {
        !self.lost.is_empty() || (self.unsent > 0 && self.unacknowledged() < self.limit(window))
    }

    /// Whether only the window prevents new bytes from being sent.
    pub(crate) fn is_limited(&self, window: u64) -> bool {
        self.unsent > 0 && self.unacknowledged() >= self.limit(window)
    }

    /// The next packet, which counts as sent from now on. Lost ones come first.
    pub(crate) fn next_packet(
        &mut self,
        now: Duration,
        window: u64,
    ) -> Option<SabulOutgoingPacket> {
        if let Some(number) = self.lost.pop_first() {
            let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
            let packet = self.sent.get_mut(index)?;
            packet.sent_at = now;
            packet.repetitions = packet.repetitions.saturating_add(1);
            return Some(SabulOutgoingPacket { number, len: packet.len, is_repeated: true });
        }
        if !self.has_packet(window) {
            return None;
        }
        let start = self.first_byte.wrapping_add(self.bytes.len() - self.unsent);
        let len = self.unsent.min(self.max_payload);
        self.unsent -= len;
        let number = self.next_number();
        self.sent.push_back(SabulSentPacket { start, len, sent_at: now, repetitions: 0 });
        Some(SabulOutgoingPacket { number, len, is_repeated: false })
    }

    /// Appends the payload of a packet.
    pub(crate) fn copy_payload(&self, number: u64, to: &mut Vec<u8>) {
        let Some(packet) = self.packet(number) else { return };
        let start = packet.start.wrapping_sub(self.first_byte);
        let end = start + packet.len;
        let (front, back) = self.bytes.as_slices();
        if start < front.len() {
            to.extend_from_slice(&front[start..end.min(front.len())]);
        }
        if end > front.len() {
            to.extend_from_slice(&back[start.saturating_sub(front.len())..end - front.len()]);
        }
    }

    /// Handles an acknowledgement of all packets before `next`. `None` if such packets were never
    /// sent.
    pub(crate) fn acknowledge(&mut self, next: u64) -> Option<SabulAckedPackets> {
        if next > self.next_number() {
            return None;
        }
        let count = next.saturating_sub(self.first);
        let (mut sent_at, mut is_sent_once) = (None, true);
        for _ in 0..count {
            let Some(packet) = self.sent.pop_front() else { break };
            is_sent_once &= packet.repetitions == 0;
            sent_at = Some(packet.sent_at);
            self.bytes.drain(..packet.len);
            self.first_byte = self.first_byte.wrapping_add(packet.len);
        }
        self.lost.remove(self.first..next);
        self.reported.remove(self.first..next);
        self.first += count;
        Some(SabulAckedPackets { packets: count, sent_at: sent_at.filter(|_| is_sent_once) })
    }

    /// Sets the peer's window.
    pub(crate) fn set_window(&mut self, packets: u64) {
        self.window = packets;
    }

    /// Reduces the peer's window by packets that the peer has acknowledged without a new window.
    pub(crate) fn use_window(&mut self, packets: u64) {
        self.window = self.window.saturating_sub(packets);
    }

    /// Marks packets as lost, except those sent after `sent_before`, which may still arrive.
    /// Returns how many of the others were unacknowledged and not known to be lost, or `None` if
    /// such packets were never sent.
    pub(crate) fn mark_lost(&mut self, numbers: Range<u64>, sent_before: Duration) -> Option<u64> {
        if numbers.end > self.next_number() {
            return None;
        }
        let mut lost = 0;
        for number in numbers.start.max(self.first)..numbers.end {
            if self.packet(number).is_some_and(|packet| packet.sent_at <= sent_before) {
                lost += self.lost.insert(number..number + 1);
            }
        }
        Some(lost)
    }

    /// Like [`mark_lost`](Self::mark_lost) for a report of the peer, which is stored until the
    /// packets are acknowledged.
    pub(crate) fn report(&mut self, numbers: Range<u64>, sent_before: Duration) -> Option<u64> {
        let lost = self.mark_lost(numbers.clone(), sent_before)?;
        let first = numbers.start.max(self.first);
        if first < numbers.end {
            self.reported.insert(first..numbers.end);
        }
        Some(lost)
    }

    /// When the oldest unacknowledged packet was last sent, and how often it was retransmitted, if
    /// it is in flight.
    pub(crate) fn oldest(&self) -> Option<(Duration, u8)> {
        let packet = self.sent.front()?;
        let is_lost = self.lost.iter().next().is_some_and(|lost| lost.start == self.first);
        (!is_lost).then_some((packet.sent_at, packet.repetitions))
    }

    /// Marks as lost again the oldest unacknowledged packet, and those that were reported lost, if
    /// they were sent at `sent_before` or earlier.
    pub(crate) fn mark_lost_again(&mut self, sent_before: Duration) {
        let reported: Vec<_> = self.reported.iter().collect();
        for numbers in std::iter::once(self.first..self.first + 1).chain(reported) {
            self.mark_lost(numbers, sent_before);
        }
    }

    /// Marks all unacknowledged packets as lost.
    pub(crate) fn mark_all_lost(&mut self) {
        self.lost.insert(self.first..self.next_number());
    }

    fn limit(&self, window: u64) -> u64 {
        window.min(self.window)
    }

    fn packet(&self, number: u64) -> Option<&SabulSentPacket> {
        self.sent.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }
}
