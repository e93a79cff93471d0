//! The frames of a packet (docs/protocols/burst.md, *Packets*).

use encoding::FieldReader;

use super::packet::MAX_NUMBER;

const PADDING: u8 = 0;
const PING: u8 = 1;
const ACK: u8 = 2;
const CHALLENGE: u8 = 3;
const RESPONSE: u8 = 4;
const CLOSE: u8 = 5;
const TRAIN_REPORT: u8 = 6;
const REPAIR: u8 = 7;
const STREAM: u8 = 8;
const STREAM_END: u8 = 1;
const STREAM_URGENT: u8 = 2;
const STREAM_FIRST: u8 = 4;

/// The unit of rates in acknowledgements, in bytes/s.
const RATE_UNIT: f64 = 1000.0;

/// The length of a stream frame without its data.
pub(in crate::protocol) const STREAM_OVERHEAD: usize = 9;

/// The length of a repair frame without its symbol.
pub(in crate::protocol) const REPAIR_OVERHEAD: usize = 16;

/// The largest number of symbols of a generation.
pub(in crate::protocol) const MAX_SYMBOLS: usize = 128;
pub(in crate::protocol) const MAX_REPAIR_SYMBOLS: usize = 64;

/// A frame.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::protocol) enum BurstFrame<'a> {
    Ping,
    Ack(BurstAckFrame<'a>),
    Challenge([u8; 8]),
    Response([u8; 8]),
    Close(BurstCloseReason),
    TrainReport { rate: u64, longest: u16 },
    Repair(RepairFrame<'a>),
    Stream(BurstStreamFrame<'a>),
}

/// Data of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::protocol) struct BurstStreamFrame<'a> {
    pub(in crate::protocol) offset: u64,
    pub(in crate::protocol) data: &'a [u8],
    pub(in crate::protocol) flags: StreamFrameFlags,
}

/// The flags of a stream frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::protocol) struct StreamFrameFlags {
    /// Whether the stream ends here.
    pub(in crate::protocol) is_end: bool,
    /// Whether it is to be acknowledged at once.
    pub(in crate::protocol) is_urgent: bool,
    /// Whether a train of packets begins with this frame.
    pub(in crate::protocol) is_first: bool,
}

/// A repair symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::protocol) struct RepairFrame<'a> {
    pub(in crate::protocol) generation: RepairGeneration,
    /// The index of this symbol among the generation's repair symbols.
    pub(in crate::protocol) index: u8,
    pub(in crate::protocol) symbol: &'a [u8],
}

/// A part of the stream that repair symbols protect, divided into symbols of `symbol_len` bytes.
/// The last symbol is padded with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::protocol) struct RepairGeneration {
    /// Where it starts in the stream.
    pub(in crate::protocol) start: u64,
    pub(in crate::protocol) len: u32,
    pub(in crate::protocol) symbol_len: usize,
    /// Whether the stream ends at its end.
    pub(in crate::protocol) is_end: bool,
    /// The number of its repair symbols.
    pub(in crate::protocol) repair_symbols: u8,
}

impl RepairGeneration {
    /// Where it ends in the stream.
    pub(in crate::protocol) fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }

    /// The number of its symbols.
    pub(in crate::protocol) fn symbols(&self) -> usize {
        (self.len as usize).div_ceil(self.symbol_len)
    }
}

/// Why an end closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::protocol) enum BurstCloseReason {
    /// It has sent and received everything that it needed.
    Done = 0,
    /// It has closed early.
    GivenUp = 1,
    /// The peer violates the protocol.
    Violation = 2,
}

/// An acknowledgement.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::protocol) struct BurstAckFrame<'a> {
    pub(in crate::protocol) largest: u64,
    /// When the packet with the largest number arrived, by the receiver's clock, in µs.
    pub(in crate::protocol) arrived_at_us: u64,
    /// The time from then until the acknowledgement was sent, in µs.
    pub(in crate::protocol) delay_us: u32,
    /// The stream has arrived up to this offset; its end counts as one byte.
    pub(in crate::protocol) stream_end: u64,
    /// The window: the offset up to which the stream may be sent.
    pub(in crate::protocol) window: u64,
    /// The rate of a train that has arrived, in bytes/s.
    pub(in crate::protocol) train_rate: Option<f64>,
    ranges: AckRanges<'a>,
}

impl<'a> BurstAckFrame<'a> {
    /// The first and the last number of each range, newest range first.
    pub(in crate::protocol) fn ranges(&self) -> AckRanges<'a> {
        self.ranges.clone()
    }
}

/// An iterator over valid ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::protocol) struct AckRanges<'a> {
    left: u16,
    /// The last number of the next range is at most this.
    below: u64,
    bytes: &'a [u8],
}

impl Iterator for AckRanges<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        self.left = self.left.checked_sub(1)?;
        let gap = read_varint(&mut self.bytes)?;
        let more = read_varint(&mut self.bytes)?;
        let last = self.below.checked_sub(gap)?;
        let first = last.checked_sub(more)?;
        match first.checked_sub(1) {
            Some(below) => self.below = below,
            None => self.left = 0,
        }
        Some((first, last))
    }
}

/// The frames of a packet, all of them validated.
#[derive(Clone, Debug)]
pub(in crate::protocol) struct ParsedBurstFrames<'a>(&'a [u8]);

impl<'a> ParsedBurstFrames<'a> {
    /// `None` if one of them is invalid, or there is none.
    pub(in crate::protocol) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = bytes;
        while !rest.is_empty() {
            next(&mut rest)?;
        }
        (!bytes.is_empty()).then_some(Self(bytes))
    }

    /// Whether the packet elicits an acknowledgement.
    pub(in crate::protocol) fn is_eliciting(&self) -> bool {
        self.clone().any(|frame| !matches!(frame, BurstFrame::Ack(_) | BurstFrame::Close(_)))
    }
}

impl<'a> Iterator for ParsedBurstFrames<'a> {
    type Item = BurstFrame<'a>;

    fn next(&mut self) -> Option<BurstFrame<'a>> {
        if self.0.is_empty() { None } else { next(&mut self.0)? }
    }
}

/// Reads the next frame. `None` if it is invalid, `Some(None)` if it is padding.
#[allow(clippy::option_option, reason = "an error and an end")]
fn next<'a>(bytes: &mut &'a [u8]) -> Option<Option<BurstFrame<'a>>> {
    let mut fields = FieldReader::new(bytes);
    let kind = fields.u8().ok()?;
    let frame = match kind {
        PADDING => {
            *bytes = &[];
            return Some(None);
        }
        PING => BurstFrame::Ping,
        ACK => BurstFrame::Ack(read_ack(&mut fields)?),
        CHALLENGE => BurstFrame::Challenge(fields.take().ok()?),
        RESPONSE => BurstFrame::Response(fields.take().ok()?),
        CLOSE => BurstFrame::Close(match fields.u8().ok()? {
            0 => BurstCloseReason::Done,
            1 => BurstCloseReason::GivenUp,
            2 => BurstCloseReason::Violation,
            _ => return None,
        }),
        TRAIN_REPORT => {
            BurstFrame::TrainReport { rate: fields.u64().ok()?, longest: fields.u16().ok()? }
        }
        REPAIR => BurstFrame::Repair(read_repair(&mut fields)?),
        STREAM..16 => {
            let offset = fields.u64().ok()?;
            let data = fields.rest();
            let flags = kind - STREAM;
            let flags = StreamFrameFlags {
                is_end: flags & STREAM_END != 0,
                is_urgent: flags & STREAM_URGENT != 0,
                is_first: flags & STREAM_FIRST != 0,
            };
            let is_right = (flags.is_end || !data.is_empty())
                && offset.checked_add(data.len() as u64).is_some_and(|end| end < MAX_NUMBER);
            if !is_right {
                return None;
            }
            BurstFrame::Stream(BurstStreamFrame { offset, data, flags })
        }
        _ => return None,
    };
    *bytes = fields.rest();
    Some(Some(frame))
}

fn read_ack<'a>(fields: &mut FieldReader<'a>) -> Option<BurstAckFrame<'a>> {
    let largest = fields.u64().ok()?;
    let arrived_at_us = fields.u64().ok()?;
    let delay_us = fields.u32().ok()?;
    let stream_end = fields.u64().ok()?;
    let window = fields.u64().ok()?;
    let rate = fields.u32().ok()?;
    let train_rate = (rate > 0).then(|| f64::from(rate) * RATE_UNIT);
    let count = fields.u16().ok()?;
    if largest > MAX_NUMBER || stream_end > MAX_NUMBER || window > MAX_NUMBER {
        return None;
    }
    let ranges = AckRanges { left: count, below: largest, bytes: fields.rest() };
    let mut read = ranges.clone();
    let right = read.by_ref().count();
    *fields = FieldReader::new(read.bytes);
    let ack =
        BurstAckFrame { largest, arrived_at_us, delay_us, stream_end, window, train_rate, ranges };
    (right == usize::from(count)).then_some(ack)
}

fn read_repair<'a>(fields: &mut FieldReader<'a>) -> Option<RepairFrame<'a>> {
    let start = fields.u64().ok()?;
    let len = fields.u32().ok()?;
    let [is_end, repair_symbols, index] = fields.take().ok()?;
    let symbol = fields.rest();
    let is_end = match is_end {
        0 => false,
        1 => true,
        _ => return None,
    };
    let generation =
        RepairGeneration { start, len, symbol_len: symbol.len(), is_end, repair_symbols };
    let is_right = len > 0
        && !symbol.is_empty()
        && start.checked_add(len.into()).is_some_and(|end| end < MAX_NUMBER)
        && generation.symbols() <= MAX_SYMBOLS
        && usize::from(repair_symbols) <= MAX_REPAIR_SYMBOLS
        && index < repair_symbols;
    is_right.then_some(RepairFrame { generation, index, symbol })
}

pub(in crate::protocol) fn write_ping(frames: &mut Vec<u8>) {
    frames.push(PING);
}

pub(in crate::protocol) fn write_challenge(challenge: [u8; 8], frames: &mut Vec<u8>) {
    frames.push(CHALLENGE);
    frames.extend(challenge);
}

pub(in crate::protocol) fn write_response(challenge: [u8; 8], frames: &mut Vec<u8>) {
    frames.push(RESPONSE);
    frames.extend(challenge);
}

pub(in crate::protocol) fn write_close(reason: BurstCloseReason, frames: &mut Vec<u8>) {
    frames.extend([CLOSE, reason as u8]);
}

pub(in crate::protocol) fn write_train_report(rate: u64, longest: u16, frames: &mut Vec<u8>) {
    frames.push(TRAIN_REPORT);
    frames.extend(rate.to_be_bytes());
    frames.extend(longest.to_be_bytes());
}

/// Writes a stream frame without its data.
pub(in crate::protocol) fn write_stream(
    offset: u64,
    flags: StreamFrameFlags,
    frames: &mut Vec<u8>,
) {
    let StreamFrameFlags { is_end, is_urgent, is_first } = flags;
    let end = if is_end { STREAM_END } else { 0 };
    let urgent = if is_urgent { STREAM_URGENT } else { 0 };
    let first = if is_first { STREAM_FIRST } else { 0 };
    frames.push(STREAM + end + urgent + first);
    frames.extend(offset.to_be_bytes());
}

pub(in crate::protocol) fn write_repair(repair: &RepairFrame<'_>, frames: &mut Vec<u8>) {
    let RepairGeneration { start, len, is_end, repair_symbols, .. } = repair.generation;
    frames.push(REPAIR);
    frames.extend(start.to_be_bytes());
    frames.extend(len.to_be_bytes());
    frames.extend([u8::from(is_end), repair_symbols, repair.index]);
    frames.extend(repair.symbol);
}

/// The fields of an acknowledgement apart from its ranges.
pub(in crate::protocol) struct AckFields {
    pub(in crate::protocol) train_rate: Option<f64>,
    pub(in crate::protocol) largest: u64,
    pub(in crate::protocol) arrived_at_us: u64,
    pub(in crate::protocol) delay_us: u32,
    pub(in crate::protocol) stream_end: u64,
    pub(in crate::protocol) window: u64,
}

/// Writes an acknowledgement with as many of `ranges` (first and last number, newest first) as fit
/// into `max_len` bytes of frames.
pub(in crate::protocol) fn write_ack(
    fields: &AckFields,
    ranges: impl Iterator<Item = (u64, u64)>,
    max_len: usize,
    frames: &mut Vec<u8>,
) {
    frames.push(ACK);
    frames.extend(fields.largest.to_be_bytes());
    frames.extend(fields.arrived_at_us.to_be_bytes());
    frames.extend(fields.delay_us.to_be_bytes());
    frames.extend(fields.stream_end.to_be_bytes());
    frames.extend(fields.window.to_be_bytes());
    frames.extend(in_units(fields.train_rate).to_be_bytes());
    let count_at = frames.len();
    frames.extend([0, 0]);
    let (mut below, mut count) = (fields.largest, 0_u16);
    for (first, last) in ranges {
        write_varint(below - last, frames);
        write_varint(last - first, frames);
        below = first.saturating_sub(1);
        count += 1;
        // Two varints have at most 16 bytes.
        if frames.len() + 16 > max_len {
            break;
        }
    }
    frames[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
}

/// Encodes a rate for an acknowledgement: 0 if there is none.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
fn in_units(rate: Option<f64>) -> u32 {
    rate.map_or(0, |rate| (rate / RATE_UNIT) as u32)
}

fn write_varint(value: u64, bytes: &mut Vec<u8>) {
    let all = value.to_be_bytes();
    let (kind, len) = match value {
        0..0x40 => (0, 1),
        0x40..0x4000 => (0x40, 2),
        0x4000..0x4000_0000 => (0x80, 4),
        _ => (0xc0, 8),
    };
    let start = bytes.len();
    bytes.extend(&all[8 - len..]);
    bytes[start] |= kind;
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let len = 1 << (bytes.first()? >> 6);
    let (varint, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    let first = u64::from(varint[0] & 0x3f);
    Some(varint[1..].iter().fold(first, |value, &byte| value << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields(largest: u64) -> AckFields {
        AckFields {
            train_rate: Some(5e6),
            largest,
            arrived_at_us: 1,
            delay_us: 2,
            stream_end: 3,
            window: 4,
        }
    }

    #[test]
    fn what_is_written_is_parsed() {
        let mut bytes = Vec::new();
        write_ping(&mut bytes);
        write_ack(&fields(9000), [(8999, 9000), (70, 8000), (0, 5)].into_iter(), 1000, &mut bytes);
        write_challenge([1; 8], &mut bytes);
        write_response([2; 8], &mut bytes);
        write_close(BurstCloseReason::Violation, &mut bytes);
        write_train_report(7, 1472, &mut bytes);
        let flags = StreamFrameFlags { is_end: true, is_urgent: false, is_first: true };
        write_stream(77, flags, &mut bytes);
        bytes.extend(b"data");
        let frames = ParsedBurstFrames::parse(&bytes).unwrap();
        assert!(frames.is_eliciting());
        let frames: Vec<_> = frames.collect();
        assert_eq!(frames.len(), 7);
        let BurstFrame::Ack(ack) = &frames[1] else { panic!("{frames:?}") };
        assert_eq!((ack.largest, ack.arrived_at_us, ack.delay_us), (9000, 1, 2));
        assert_eq!((ack.stream_end, ack.window, ack.train_rate), (3, 4, Some(5e6)));
        assert!(ack.ranges().eq([(8999, 9000), (70, 8000), (0, 5)]));
        assert_eq!(frames[2..4], [BurstFrame::Challenge([1; 8]), BurstFrame::Response([2; 8])]);
        assert_eq!(frames[4], BurstFrame::Close(BurstCloseReason::Violation));
        assert_eq!(frames[5], BurstFrame::TrainReport { rate: 7, longest: 1472 });
        let stream = BurstStreamFrame { offset: 77, data: b"data", flags };
        assert_eq!(frames[6], BurstFrame::Stream(stream));

        let generation =
            RepairGeneration { start: 5, len: 13, symbol_len: 4, is_end: true, repair_symbols: 2 };
        assert_eq!((generation.symbols(), generation.end()), (4, 18));
        let repair = RepairFrame { generation, index: 1, symbol: b"abcd" };
        let mut bytes = Vec::new();
        write_repair(&repair, &mut bytes);
        assert_eq!(bytes.len(), REPAIR_OVERHEAD + 4);
        assert_eq!(
            ParsedBurstFrames::parse(&bytes).unwrap().next(),
            Some(BurstFrame::Repair(repair))
        );
    }

    #[test]
    fn padding_ends_a_packet() {
        let frames = ParsedBurstFrames::parse(&[PING, 0, 0, 0]).unwrap();
        assert!(frames.is_eliciting());
        assert_eq!(frames.collect::<Vec<_>>(), [BurstFrame::Ping]);
        assert_eq!(ParsedBurstFrames::parse(&[0, 0]).map(Iterator::count), Some(0));
    }

    #[test]
    fn wrong_frames_are_refused() {
        for bytes in [
            &[][..],
            &[99],
            &[CLOSE, 3],
            &[CHALLENGE, 1],
            &[STREAM, 0, 0, 0, 0, 0, 0, 0, 0],
            &[STREAM, 255, 0, 0, 0, 0, 0, 0, 0, 1],
            &[REPAIR, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 129, 0, 1, 0, 7],
            &[REPAIR, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 7],
            &[PING, 99],
        ] {
            assert!(ParsedBurstFrames::parse(bytes).is_none(), "{bytes:?}");
        }
        let mut bytes = Vec::new();
        write_ack(&fields(3), [(0, 3)].into_iter(), 1000, &mut bytes);
        let at = bytes.len() - 1;
        bytes[at] = 4;
        assert!(ParsedBurstFrames::parse(&bytes).is_none(), "a range below 0");
    }

    #[test]
    fn an_acknowledgement_has_the_ranges_that_fit() {
        let ranges = (0..1000).rev().map(|range| (100 * range, 100 * range + 80));
        let mut bytes = Vec::new();
        write_ack(&fields(100_000), ranges, 500, &mut bytes);
        assert!((480..=500).contains(&bytes.len()));
        let Some(BurstFrame::Ack(ack)) = ParsedBurstFrames::parse(&bytes).unwrap().next() else {
            panic!()
        };
        assert!(ack.ranges().count() > 100);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed(
            kind in 0_u8..17,
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let bytes = [&[kind][..], &bytes].concat();
            if let Some(frames) = ParsedBurstFrames::parse(&bytes) {
                for frame in frames {
                    if let BurstFrame::Ack(ack) = frame {
                        let mut below = ack.largest + 1;
                        for (first, last) in ack.ranges() {
                            prop_assert!(first <= last && last < below);
                            below = first;
                        }
                    }
                }
            }
        }

        #[test]
        fn varints_are_those_of_quic(value in 0..=MAX_NUMBER) {
            let mut bytes = Vec::new();
            write_varint(value, &mut bytes);
            prop_assert_eq!(read_varint(&mut &bytes[..]), Some(value));
        }
    }

    #[test]
    fn the_vectors_of_rfc_9000() {
        for (bytes, value) in [
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            assert_eq!(read_varint(&mut &bytes[..]), Some(value));
        }
    }
}
