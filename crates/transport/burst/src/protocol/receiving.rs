//! Receives the stream, and acknowledges packets.

mod buffer;
mod numbers;
mod recovery;
mod trains;

use std::time::Duration;

use buffer::{BurstDataArrival, BurstReceiveBuffer};
use numbers::ReceivedPacketNumbers;
use recovery::RepairSymbolBuffer;
use trains::TrainRateMeter;

use super::frame::{self, AckFields, BurstFrame, ParsedBurstFrames, RepairFrame};

/// Acknowledgements are delayed by a fraction of the round trip, within these bounds.
const MIN_ACK_DELAY: Duration = Duration::from_micros(200);
const MAX_ACK_DELAY: Duration = Duration::from_millis(25);
const ACK_DELAY_SHARE: u32 = 16;

/// This number of packets is acknowledged sooner, but no sooner than this fraction of a round trip
/// after the last acknowledgement.
const ACK_PACKETS: u32 = 64;
const ACK_INTERVAL_SHARE: u32 = 64;

#[derive(Debug)]
pub(super) struct BurstReceiver {
    buffer: BurstReceiveBuffer,
    numbers: ReceivedPacketNumbers,
    recovery: RepairSymbolBuffer,
    trains: TrainRateMeter,
    /// When the packet with the largest number arrived.
    largest_at: Duration,
    /// Since when packets wait for an acknowledgement, and how many do.
    waiting: Option<(Duration, u32)>,
    /// Whether they are to be acknowledged at once.
    is_urgent: bool,
    acked_at: Duration,
    counts: BurstReceiveCounts,
}

/// What has arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BurstReceiveCounts {
    /// Packets that contained new bytes of the stream.
    pub(super) packets: u64,
    pub(super) bytes_read: u64,
}

/// The outcome of handling a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BurstPacketOutcome {
    Taken,
    /// The packet is dropped, as if it had not arrived.
    Refused,
    /// The peer violates the protocol.
    Violation(&'static str),
}

impl BurstReceiver {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            buffer: BurstReceiveBuffer::new(capacity),
            numbers: ReceivedPacketNumbers::default(),
            recovery: RepairSymbolBuffer::default(),
            trains: TrainRateMeter::default(),
            largest_at: Duration::ZERO,
            waiting: None,
            is_urgent: false,
            acked_at: Duration::ZERO,
            counts: BurstReceiveCounts::default(),
        }
    }

    /// Whether memory is within its bounds.
    #[cfg(any(fuzzing, test))]
    pub(super) fn is_bounded(&self) -> bool {
        self.buffer.is_bounded() && self.numbers.is_bounded() && self.recovery.is_bounded()
    }

    /// Whether a packet has arrived already.
    pub(super) fn has(&self, number: u64) -> bool {
        self.numbers.has(number)
    }

    /// Whether no packet has a higher number.
    pub(super) fn is_newest(&self, number: u64) -> bool {
        self.numbers.largest().is_none_or(|largest| number > largest)
    }

    /// Whether something can be read: data, or the end of the stream.
    pub(super) fn is_readable(&self) -> bool {
        self.buffer.readable() > 0 || self.buffer.is_at_end()
    }

    /// Whether everything was read up to the stream's end.
    pub(super) fn is_at_end(&self) -> bool {
        self.buffer.is_at_end()
    }

    /// Whether everything has arrived up to the stream's end.
    pub(super) fn is_complete(&self) -> bool {
        self.buffer.is_complete()
    }

    pub(super) fn counts(&self) -> BurstReceiveCounts {
        self.counts
    }

    pub(super) fn read(&mut self, to: &mut [u8], now: Duration) -> usize {
        let len = self.buffer.read(to);
        self.counts.bytes_read += len as u64;
        self.announce(now);
        len
    }

    /// Reads and discards what has arrived.
    pub(super) fn discard(&mut self, now: Duration) {
        self.buffer.discard();
        self.announce(now);
    }

    /// Advertises the window if it has grown enough.
    fn announce(&mut self, now: Duration) {
        if self.buffer.wants_announcement() && self.numbers.largest().is_some() {
            self.is_urgent = true;
            self.waiting.get_or_insert((now, 0));
        }
    }

    /// Handles a packet that has not arrived before, of `len` bytes with all headers: its data and
    /// its repair symbols.
    pub(super) fn handle_packet(
        &mut self,
        number: u64,
        arrived_at: Duration,
        len: usize,
        frames: &ParsedBurstFrames<'_>,
    ) -> BurstPacketOutcome {
        let (mut is_urgent, mut is_first) = (false, false);
        for frame in frames.clone() {
            let arrival = match frame {
                BurstFrame::Stream(stream) => {
                    is_urgent |= stream.flags.is_urgent || stream.flags.is_end;
                    is_first |= stream.flags.is_first;
                    let was_complete = self.buffer.is_complete();
                    let arrival =
                        self.buffer.insert(stream.offset, stream.data, stream.flags.is_end);
                    self.counts.packets += u64::from(arrival == BurstDataArrival::New);
                    is_urgent |=
                        self.recover(stream.offset) || self.buffer.is_complete() && !was_complete;
                    arrival
                }
                BurstFrame::Repair(repair) => self.handle_repair(&repair, &mut is_urgent),
                _ => continue,
            };
            match arrival {
                BurstDataArrival::New | BurstDataArrival::Known => {}
                BurstDataArrival::Refused => return BurstPacketOutcome::Refused,
                BurstDataArrival::Violation => {
                    return BurstPacketOutcome::Violation("data beyond its window or end");
                }
            }
        }
        if self.is_newest(number) {
            self.largest_at = arrived_at;
        }
        self.numbers.insert(number);
        self.trains.add(number, arrived_at, len, is_first);
        if frames.is_eliciting() {
            let (_, count) = self.waiting.get_or_insert((arrived_at, 0));
            *count += 1;
            self.is_urgent |= is_urgent;
        }
        BurstPacketOutcome::Taken
    }

    fn handle_repair(
        &mut self,
        repair: &RepairFrame<'_>,
        is_urgent: &mut bool,
    ) -> BurstDataArrival {
        let generation = &repair.generation;
        // The generation must be within the window, as its end is within the sent data.
        if generation.end() > self.buffer.announced() {
            return BurstDataArrival::Violation;
        }
        if self.recovery.add(repair, &self.buffer) {
            *is_urgent |= self.recover(generation.start);
        }
        BurstDataArrival::Known
    }

    /// Recovers what the repair symbols allow around an offset. Returns whether anything was
    /// recovered.
    fn recover(&mut self, at: u64) -> bool {
        let mut is_recovered = false;
        for (offset, data, is_end) in self.recovery.recover(at, &self.buffer) {
            is_recovered |= self.buffer.insert(offset, &data, is_end) == BurstDataArrival::New;
        }
        is_recovered
    }

    /// When an acknowledgement is due.
    pub(super) fn poll_timeout(&self, round_trip: Duration) -> Option<Duration> {
        let (since, count) = self.waiting?;
        if self.is_urgent {
            return Some(Duration::ZERO);
        }
        let delay = (round_trip / ACK_DELAY_SHARE).clamp(MIN_ACK_DELAY, MAX_ACK_DELAY);
        let early = (count >= ACK_PACKETS)
            .then_some(self.acked_at + (round_trip / ACK_INTERVAL_SHARE).min(delay));
        Some(early.map_or(since + delay, |early| early.min(since + delay)))
    }

    /// Writes an acknowledgement into at most `max_len` bytes, if a packet has arrived.
    pub(super) fn write_ack(&mut self, now: Duration, max_len: usize, frames: &mut Vec<u8>) {
        self.waiting = None;
        self.is_urgent = false;
        self.acked_at = now;
        let Some(largest) = self.numbers.largest() else { return };
        let delay = now.saturating_sub(self.largest_at).as_micros();
        let fields = AckFields {
            train_rate: self.trains.take_rate(),
            largest,
            arrived_at_us: u64::try_from(self.largest_at.as_micros()).unwrap_or(u64::MAX),
            delay_us: u32::try_from(delay).unwrap_or(u32::MAX),
            stream_end: self.buffer.stream_end(),
            window: self.buffer.announce(),
        };
        frame::write_ack(&fields, self.numbers.next_ack_ranges(), max_len, frames);
    }
}
