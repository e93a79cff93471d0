//! Splits superpackets into the packets that they would be on a wire.

use std::ops::Range;

use crate::checksum::{ChecksumState, complete};
use crate::ip::{
    FIN, PSH, TCP_FLAGS, TransportHeader, TransportProtocol, can_begin_transport, transport,
};
use crate::virtio::VirtioHeader;

/// A view of a frame as its segments: the packets of a superpacket, or the one packet of another
/// frame.
///
/// Nothing is copied before [`append`](Self::append). Segments can be read in any order.
#[derive(Clone, Copy, Debug)]
pub struct FrameSegments<'a> {
    virtio: VirtioHeader,
    /// The headers of every segment. Empty if the frame cannot be split.
    headers: &'a [u8],
    /// The payload of all segments, or the whole packet if it cannot be split.
    payload: &'a [u8],
    segmentation: Option<FrameSegmentation>,
}

impl<'a> FrameSegments<'a> {
    /// Parses a frame as [`Device`](crate::TunDevice) returns it, virtio header first.
    ///
    /// A superpacket of an unknown kind is one long segment. `None` if the frame is too short for
    /// an IP packet.
    pub fn parse(frame: &'a [u8]) -> Option<Self> {
        let (virtio, packet) = VirtioHeader::split(frame)?;
        if packet.len() < 20 {
            return None;
        }
        let segmentation = FrameSegmentation::parse(virtio, packet);
        let (headers, payload) =
            packet.split_at(segmentation.map_or(0, |segmentation| segmentation.headers));
        Some(Self { virtio, headers, payload, segmentation })
    }

    /// The segments of a frame that was parsed before.
    pub(crate) fn new(
        virtio: VirtioHeader,
        headers: &'a [u8],
        payload: &'a [u8],
        segmentation: Option<FrameSegmentation>,
    ) -> Self {
        Self { virtio, headers, payload, segmentation }
    }

    /// The number of segments, at least one.
    pub fn count(&self) -> usize {
        self.segmentation.map_or(1, |segmentation| self.payload.len().div_ceil(segmentation.size))
    }

    /// The whole packet if there is one segment; otherwise the headers of the segments.
    pub fn packet(&self) -> &'a [u8] {
        if self.segmentation.is_some() { self.headers } else { self.payload }
    }

    /// The length of a segment as an IP packet, in bytes. Indices begin at 0 and end below
    /// [`count`](Self::count).
    pub fn segment_len(&self, index: usize) -> usize {
        self.headers.len() + self.payload_range(index..index.saturating_add(1)).len()
    }

    /// The state of the transport checksums, which is the same for all segments.
    ///
    /// The kernel rarely leaves a checksum partial where a receiver could not find it, as in
    /// another protocol than TCP and UDP or after an extension header. [`append`](Self::append)
    /// completes those.
    pub fn checksum(&self) -> ChecksumState {
        let is_found = transport(self.packet()).is_some_and(|transport| {
            transport.offset == self.virtio.start()
                && transport.protocol.checksum_offset() == self.virtio.offset()
        });
        if self.virtio.needs_checksum() && is_found {
            ChecksumState::Partial
        } else {
            ChecksumState::Complete
        }
    }

    /// Appends a segment as an IP packet. Indices begin at 0 and end below [`count`](Self::count);
    /// for a larger index only headers are appended.
    pub fn append(&self, index: usize, to: &mut Vec<u8>) {
        let part = self.payload_range(index..index.saturating_add(1));
        let begin = to.len();
        to.reserve(self.headers.len() + part.len());
        to.extend_from_slice(self.headers);
        to.extend_from_slice(&self.payload[part.clone()]);
        let packet = &mut to[begin..];
        if let Some(segmentation) = self.segmentation {
            segmentation.rewrite(&mut packet[..segmentation.headers], self.payload.len(), part);
        }
        if self.virtio.needs_checksum() && self.checksum() == ChecksumState::Complete {
            complete(packet, self.virtio.start(), self.virtio.offset());
        }
    }

    /// The length of the headers that all segments share, in bytes.
    pub(crate) fn headers_len(&self) -> usize {
        self.headers.len()
    }

    /// How the packet is split. `None` if it is one segment.
    pub(crate) fn segmentation(&self) -> Option<FrameSegmentation> {
        self.segmentation
    }

    pub(crate) fn virtio(&self) -> VirtioHeader {
        self.virtio
    }

    /// The range of the payload that consecutive segments have.
    pub(crate) fn payload_range(&self, segments: Range<usize>) -> Range<usize> {
        let whole = self.payload.len();
        let size = self.segmentation.map_or(whole, |segmentation| segmentation.size);
        let place = |index: usize| index.saturating_mul(size).min(whole);
        place(segments.start)..place(segments.end)
    }
}

/// How a superpacket is split.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameSegmentation {
    /// The payload of every segment except the last, which may have less, in bytes.
    size: usize,
    transport: TransportHeader,
    /// The length of the headers without the virtio header, in bytes.
    headers: usize,
}

impl FrameSegmentation {
    /// `None` if the packet is not a superpacket of a known kind.
    fn parse(virtio: VirtioHeader, packet: &[u8]) -> Option<Self> {
        let protocol = virtio.protocol()?;
        let (size, at) = (virtio.size(), virtio.start());
        let is_sane = virtio.needs_checksum()
            && virtio.offset() == protocol.checksum_offset()
            && can_begin_transport(packet, at)
            && size > 0;
        if !is_sane {
            return None;
        }
        let headers = at + protocol.header_len(packet.get(at..)?)?;
        let has_payload = headers < packet.len();
        has_payload.then_some(Self {
            size,
            transport: TransportHeader { offset: at, protocol },
            headers,
        })
    }

    /// Turns the headers of a superpacket with `whole` bytes of payload into those of consecutive
    /// segments, which have the range `part` of it.
    pub(crate) fn rewrite(self, headers: &mut [u8], whole: usize, part: Range<usize>) {
        let TransportHeader { offset: at, protocol } = self.transport;
        if protocol == TransportProtocol::Tcp && part.end < whole {
            headers[at + TCP_FLAGS] &= !(FIN | PSH);
        }
        self.transport.advance_headers(headers, part.start / self.size, self.size);
        self.transport.set_payload(headers, whole, part.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VIRTIO_HEADER_LEN;
    use crate::frame::TunFrame;
    use crate::ip::packet_len;
    use crate::test_packets::{TCP4, TestSuperpacket, frames, test_packets};
    use proptest::prelude::*;

    fn segments(frame: &[u8]) -> Vec<Vec<u8>> {
        let segments = FrameSegments::parse(frame).unwrap();
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
    fn segments_match_a_known_answer() {
        // UDP from 10.0.0.1:1 to 10.0.0.2:2, 5 bytes in segments of 3.
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
        assert_eq!(FrameSegments::parse(&frame).unwrap().checksum(), ChecksumState::Partial);
        assert_eq!(segments(&frame), [first.to_vec(), second.to_vec()]);
    }

    #[test]
    fn a_packet_is_one_segment() {
        let mut frame = TestSuperpacket { payload: 100, ..TCP4 }.bytes();
        frame[1] = 0;
        assert_eq!(FrameSegments::parse(&frame).unwrap().checksum(), ChecksumState::Partial);
        assert_eq!(segments(&frame), [&frame[VIRTIO_HEADER_LEN..]]);
        frame[0] = 0;
        assert_eq!(FrameSegments::parse(&frame).unwrap().checksum(), ChecksumState::Complete);
        assert_eq!(segments(&frame), [&frame[VIRTIO_HEADER_LEN..]]);
        assert!(FrameSegments::parse(&frame[..VIRTIO_HEADER_LEN + 19]).is_none());
    }

    #[test]
    fn malformed_superpackets_are_one_segment() {
        // No partial checksum, an unknown kind, segments of 0 bytes, and another field than TCP's.
        for (at, byte) in [(0, 0), (1, 3), (4, 0), (8, 6)] {
            let mut frame = TestSuperpacket { size: 100, payload: 250, ..TCP4 }.bytes();
            assert_eq!(segments(&frame).len(), 3);
            frame[at] = byte;
            assert_eq!(segments(&frame).len(), 1, "byte {at}");
        }
        // No payload.
        let frame = TestSuperpacket { size: 100, payload: 250, ..TCP4 }.bytes();
        assert_eq!(segments(&frame[..VIRTIO_HEADER_LEN + 52]), [&frame[VIRTIO_HEADER_LEN..][..52]]);
    }

    #[test]
    fn checksums_outside_tcp_and_udp_are_completed() {
        // In an inner packet, in a fragment, after an extension header, in another protocol.
        let tcp = TestSuperpacket { payload: 100, ..TCP4 };
        let six = TestSuperpacket { v6: true, ..tcp };
        for (test_packet, at, byte) in [(tcp, 9, 4), (tcp, 6, 0x20), (six, 6, 0), (tcp, 9, 33)] {
            for kind in [0, 1] {
                let mut frame = test_packet.bytes();
                frame[1] = kind;
                frame[VIRTIO_HEADER_LEN + at] = byte;
                let segments = segments(&frame);
                assert_eq!(
                    FrameSegments::parse(&frame).unwrap().checksum(),
                    ChecksumState::Complete
                );
                let [segment] = &segments[..] else { panic!("one segment") };
                let mut expected = frame[VIRTIO_HEADER_LEN..].to_vec();
                complete(&mut expected, if test_packet.v6 { 40 } else { 20 }, 16);
                let transport = if test_packet.v6 { 40 } else { 20 };
                assert_eq!(segment[transport..], expected[transport..]);
                assert_ne!(segment[transport..], frame[VIRTIO_HEADER_LEN + transport..]);
            }
        }
    }

    proptest! {
        #[test]
        fn segments_match_frame_packets_except_for_checksums(test_packet in test_packets()) {
            let bytes = test_packet.bytes();
            let parsed = FrameSegments::parse(&bytes).unwrap();
            prop_assert_eq!(parsed.checksum(), ChecksumState::Partial);
            let frame = TunFrame::parse(bytes.clone().into()).unwrap();
            for (i, mut segment) in segments(&bytes).into_iter().enumerate() {
                prop_assert_eq!(packet_len(&segment), Some(segment.len()));
                let transport = transport(&segment).unwrap();
                complete(&mut segment, transport.offset, transport.protocol.checksum_offset());
                prop_assert_eq!(segment, frame.packet(i));
            }
        }

        #[test]
        fn any_bytes_can_be_split(frame in frames()) {
            if let Some(segments) = FrameSegments::parse(&frame) {
                let mut appended = Vec::new();
                let mut length = 0;
                for i in 0..segments.count() {
                    length += segments.segment_len(i);
                    segments.append(i, &mut appended);
                    prop_assert_eq!(appended.len(), length);
                }
                segments.append(usize::MAX, &mut appended);
            }
        }
    }
}
