//! Cutting superpackets into the packets that they would be on a wire.

use std::ops::Range;

use crate::checksum::{Checksum, complete};
use crate::ip::{FIN, PUSH, Protocol, TCP_FLAGS, Transport, may_begin, transport};
use crate::virtio::Virtio;

/// A frame seen as its segments: the packets that a superpacket is, or the one that another is.
///
/// Nothing of it is copied before [`append`](Self::append), and no segment depends on that another
/// was taken before.
#[derive(Clone, Copy, Debug)]
pub struct Segments<'a> {
    virtio: Virtio,
    /// The headers of every segment. Empty if the frame cannot be cut.
    headers: &'a [u8],
    /// The payload of all segments, or the whole packet if it cannot be cut.
    payload: &'a [u8],
    cuts: Option<Cuts>,
}

impl<'a> Segments<'a> {
    /// Reads a frame as it was read from a [`Device`](crate::Device), virtio header first.
    ///
    /// A superpacket of a kind that is not known is one long segment. `None` if the frame is too
    /// short to hold an IP packet.
    pub fn parse(frame: &'a [u8]) -> Option<Self> {
        let (virtio, packet) = Virtio::split(frame)?;
        if packet.len() < 20 {
            return None;
        }
        let cuts = Cuts::find(virtio, packet);
        let (headers, payload) = packet.split_at(cuts.map_or(0, |cuts| cuts.headers));
        Some(Self { virtio, headers, payload, cuts })
    }

    /// The segments of a frame that was parsed before.
    pub(crate) fn new(
        virtio: Virtio,
        headers: &'a [u8],
        payload: &'a [u8],
        cuts: Option<Cuts>,
    ) -> Self {
        Self { virtio, headers, payload, cuts }
    }

    /// How many there are, at least one.
    pub fn count(&self) -> usize {
        self.cuts.map_or(1, |cuts| self.payload.len().div_ceil(cuts.size))
    }

    /// The packet that is the only segment; of more, their headers.
    pub fn packet(&self) -> &'a [u8] {
        if self.cuts.is_some() { self.headers } else { self.payload }
    }

    /// The length of a segment as an IP packet, in bytes. There are [`count`](Self::count) of them,
    /// from 0 on.
    pub fn segment_len(&self, index: usize) -> usize {
        self.headers.len() + self.part(index..index.saturating_add(1)).len()
    }

    /// What the transport checksums of its segments are, of all the same.
    ///
    /// What the kernel left to be done where a receiver could not find it, in other protocols than
    /// TCP and UDP or behind other headers than IP's, [`append`](Self::append) completes. That is
    /// rare.
    pub fn checksum(&self) -> Checksum {
        let is_found = transport(self.packet()).is_some_and(|transport| {
            transport.at == self.virtio.start()
                && transport.protocol.checksum_offset() == self.virtio.offset()
        });
        if self.virtio.needs_checksum() && is_found {
            Checksum::Partial
        } else {
            Checksum::Complete
        }
    }

    /// Appends a segment, as an IP packet. There are [`count`](Self::count) of them, from 0 on; of
    /// a segment that is not there, nothing but headers is appended.
    pub fn append(&self, index: usize, to: &mut Vec<u8>) {
        let part = self.part(index..index.saturating_add(1));
        let begin = to.len();
        to.reserve(self.headers.len() + part.len());
        to.extend_from_slice(self.headers);
        to.extend_from_slice(&self.payload[part.clone()]);
        let packet = &mut to[begin..];
        if let Some(cuts) = self.cuts {
            cuts.rewrite(&mut packet[..cuts.headers], self.payload.len(), part);
        }
        if self.virtio.needs_checksum() && self.checksum() == Checksum::Complete {
            complete(packet, self.virtio.start(), self.virtio.offset());
        }
    }

    /// The length of the headers that all segments share, in bytes.
    pub(crate) fn headers_len(&self) -> usize {
        self.headers.len()
    }

    /// How it can be cut.
    pub(crate) fn cuts(&self) -> Option<Cuts> {
        self.cuts
    }

    pub(crate) fn virtio(&self) -> Virtio {
        self.virtio
    }

    /// Where in the payload some segments in a row have theirs.
    pub(crate) fn part(&self, segments: Range<usize>) -> Range<usize> {
        let whole = self.payload.len();
        let size = self.cuts.map_or(whole, |cuts| cuts.size);
        let place = |index: usize| index.saturating_mul(size).min(whole);
        place(segments.start)..place(segments.end)
    }
}

/// Where a superpacket can be cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cuts {
    /// The payload of every segment but the last, which may have less.
    size: usize,
    transport: Transport,
    /// The length of the headers, without virtio's.
    headers: usize,
}

impl Cuts {
    /// `None` if the packet is no superpacket, or none that is known.
    fn find(virtio: Virtio, packet: &[u8]) -> Option<Self> {
        let protocol = virtio.protocol()?;
        let (size, at) = (virtio.size(), virtio.start());
        let is_sane = virtio.needs_checksum()
            && virtio.offset() == protocol.checksum_offset()
            && may_begin(packet, at)
            && size > 0;
        if !is_sane {
            return None;
        }
        let headers = at + protocol.header(packet.get(at..)?)?;
        let has_payload = headers < packet.len();
        has_payload.then_some(Self { size, transport: Transport { at, protocol }, headers })
    }

    /// Turns the headers of a superpacket, which has so much payload, into those of some of its
    /// segments in a row, which have this part of it.
    pub(crate) fn rewrite(self, headers: &mut [u8], whole: usize, part: Range<usize>) {
        let Transport { at, protocol } = self.transport;
        if protocol == Protocol::Tcp && part.end < whole {
            headers[at + TCP_FLAGS] &= !(FIN | PUSH);
        }
        self.transport.advance(headers, part.start / self.size, self.size);
        self.transport.set_payload(headers, whole, part.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VIRTIO;
    use crate::frame::Frame;
    use crate::ip::packet_len;
    use crate::made::{Made, TCP4, frames, made};
    use proptest::prelude::*;

    fn segments(frame: &[u8]) -> Vec<Vec<u8>> {
        let segments = Segments::parse(frame).unwrap();
        (0..segments.count())
            .map(|i| {
                let mut segment = Vec::new();
                segments.append(i, &mut segment);
                assert_eq!(segment.len(), segments.segment_len(i));
                segment
            })
            .collect()
    }

    #[test]
    fn a_superpacket_is_cut_as_by_hand() {
        // UDP from 10.0.0.1:1 to 10.0.0.2:2, 5 bytes by threes.
        let mut frame = vec![1, 5];
        for number in [0_u16, 3, 20, 6] {
            frame.extend(number.to_ne_bytes());
        }
        #[rustfmt::skip]
        frame.extend([
            0x45, 0, 0, 33, 0x12, 0x34, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
            0, 1, 0, 2, 0, 13, 0x14, 0x21,
            1, 2, 3, 4, 5,
        ]);
        #[rustfmt::skip]
        let first = [
            0x45, 0, 0, 31, 0x12, 0x34, 0x40, 0, 64, 17, 0x14, 0x98, 10, 0, 0, 1, 10, 0, 0, 2,
            0, 1, 0, 2, 0, 11, 0x14, 0x1f,
            1, 2, 3,
        ];
        #[rustfmt::skip]
        let second = [
            0x45, 0, 0, 30, 0x12, 0x35, 0x40, 0, 64, 17, 0x14, 0x98, 10, 0, 0, 1, 10, 0, 0, 2,
            0, 1, 0, 2, 0, 10, 0x14, 0x1e,
            4, 5,
        ];
        assert_eq!(Segments::parse(&frame).unwrap().checksum(), Checksum::Partial);
        assert_eq!(segments(&frame), [first.to_vec(), second.to_vec()]);
    }

    #[test]
    fn a_packet_is_one_segment_as_it_is() {
        let mut frame = Made { payload: 100, ..TCP4 }.bytes();
        frame[1] = 0;
        assert_eq!(Segments::parse(&frame).unwrap().checksum(), Checksum::Partial);
        assert_eq!(segments(&frame), [&frame[VIRTIO..]]);
        frame[0] = 0;
        assert_eq!(Segments::parse(&frame).unwrap().checksum(), Checksum::Complete);
        assert_eq!(segments(&frame), [&frame[VIRTIO..]]);
        assert!(Segments::parse(&frame[..VIRTIO + 19]).is_none());
    }

    #[test]
    fn what_cannot_be_cut_is_one_segment() {
        // No checksum to be done, no such kind, segments of nothing, and not TCP's field.
        for (at, byte) in [(0, 0), (1, 3), (4, 0), (8, 6)] {
            let mut frame = Made { size: 100, payload: 250, ..TCP4 }.bytes();
            assert_eq!(segments(&frame).len(), 3);
            frame[at] = byte;
            assert_eq!(segments(&frame).len(), 1, "byte {at}");
        }
        // No payload.
        let frame = Made { size: 100, payload: 250, ..TCP4 }.bytes();
        assert_eq!(segments(&frame[..VIRTIO + 52]), [&frame[VIRTIO..][..52]]);
    }

    #[test]
    fn checksums_that_nobody_would_find_are_completed() {
        // In an inner packet, in a fragment, behind an extension header, of another protocol.
        let tcp = Made { payload: 100, ..TCP4 };
        let six = Made { v6: true, ..tcp };
        for (made, at, byte) in [(tcp, 9, 4), (tcp, 6, 0x20), (six, 6, 0), (tcp, 9, 33)] {
            for kind in [0, 1] {
                let mut frame = made.bytes();
                frame[1] = kind;
                frame[VIRTIO + at] = byte;
                let segments = segments(&frame);
                assert_eq!(Segments::parse(&frame).unwrap().checksum(), Checksum::Complete);
                let [segment] = &segments[..] else { panic!("one segment") };
                let mut expected = frame[VIRTIO..].to_vec();
                complete(&mut expected, if made.v6 { 40 } else { 20 }, 16);
                let transport = if made.v6 { 40 } else { 20 };
                assert_eq!(segment[transport..], expected[transport..]);
                assert_ne!(segment[transport..], frame[VIRTIO + transport..]);
            }
        }
    }

    proptest! {
        #[test]
        fn segments_are_those_of_the_frame_with_checksums_to_be_done(made in made()) {
            let bytes = made.bytes();
            let cut = Segments::parse(&bytes).unwrap();
            prop_assert_eq!(cut.checksum(), Checksum::Partial);
            let frame = Frame::parse(bytes.clone().into()).unwrap();
            for (i, mut segment) in segments(&bytes).into_iter().enumerate() {
                prop_assert_eq!(packet_len(&segment), Some(segment.len()));
                let transport = transport(&segment).unwrap();
                complete(&mut segment, transport.at, transport.protocol.checksum_offset());
                prop_assert_eq!(segment, frame.packet(i));
            }
        }

        #[test]
        fn any_bytes_can_be_cut(frame in frames()) {
            if let Some(segments) = Segments::parse(&frame) {
                let mut cut = Vec::new();
                let mut length = 0;
                for i in 0..segments.count() {
                    length += segments.segment_len(i);
                    segments.append(i, &mut cut);
                    prop_assert_eq!(cut.len(), length);
                }
                segments.append(usize::MAX, &mut cut);
            }
        }
    }
}
