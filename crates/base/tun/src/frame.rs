//! Superpackets that are passed on whole, or in parts that are superpackets again.

use std::io::IoSlice;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::checksum::{ChecksumState, complete};
use crate::segments::{FrameSegmentation, FrameSegments};
use crate::virtio::VirtioHeader;

/// A packet or superpacket, of which segments can be lost or delayed independently. What remains is
/// frames again, which share the payload.
#[derive(Clone, Debug)]
pub struct TunFrame {
    virtio: VirtioHeader,
    /// The headers of every segment. Empty if the frame cannot be split.
    headers: Bytes,
    /// The payload of all segments, or the whole packet if it cannot be split.
    payload: Bytes,
    /// How the packet is split. `None` if it is one segment.
    segmentation: Option<FrameSegmentation>,
}

impl TunFrame {
    /// Parses a frame, virtio header first. `None` if it is too short for an IP packet.
    pub fn parse(mut bytes: Bytes) -> Option<Self> {
        let segments = FrameSegments::parse(&bytes)?;
        let (virtio, segmentation, headers) =
            (segments.virtio(), segments.segmentation(), segments.headers_len());
        let mut packet = bytes.split_off(virtio.bytes().len());
        let payload = packet.split_off(headers);
        Some(Self { virtio, headers: packet, payload, segmentation })
    }

    /// The number of packets that this would be on a wire.
    pub fn segments(&self) -> usize {
        self.view().count()
    }

    /// The length of a segment as an IP packet, in bytes.
    pub fn segment_len(&self, index: usize) -> usize {
        self.view().segment_len(index)
    }

    /// The sum of the lengths of all segments as IP packets, in bytes.
    pub fn wire_len(&self) -> usize {
        self.payload.len() + self.segments() * self.headers.len()
    }

    /// Consecutive segments as a frame of their own.
    ///
    /// # Panics
    /// If the range is empty or exceeds the number of segments.
    #[must_use]
    pub fn part(&self, segments: Range<usize>) -> Self {
        assert!(segments.start < segments.end && segments.end <= self.segments());
        let Some(segmentation) = self.segmentation else { return self.clone() };
        if segments == (0..self.segments()) {
            return self.clone();
        }
        let part = self.view().payload_range(segments.clone());
        let mut virtio = self.virtio;
        virtio.set_part(self.headers.len(), segments.len() == 1);
        let mut headers = BytesMut::from(&self.headers[..]);
        segmentation.rewrite(&mut headers, self.payload.len(), part.clone());
        Self {
            virtio,
            headers: headers.freeze(),
            payload: self.payload.slice(part),
            segmentation: Some(segmentation),
        }
    }

    /// The frame as slices, for a vectored write.
    pub fn slices(&self) -> [IoSlice<'_>; 3] {
        [self.virtio.bytes(), &self.headers[..], &self.payload[..]].map(IoSlice::new)
    }

    /// The frame as bytes, which [`Self::parse`] reads.
    pub fn to_bytes(&self) -> Vec<u8> {
        [self.virtio.bytes(), &self.headers[..], &self.payload[..]].concat()
    }

    /// A segment as it is on the wire: an IP packet with complete checksums.
    pub fn packet(&self, segment: usize) -> Vec<u8> {
        let view = self.view();
        let mut packet = Vec::new();
        view.append(segment, &mut packet);
        if view.checksum() == ChecksumState::Partial {
            complete(&mut packet, self.virtio.start(), self.virtio.offset());
        }
        packet
    }

    fn view(&self) -> FrameSegments<'_> {
        FrameSegments::new(self.virtio, &self.headers, &self.payload, self.segmentation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VIRTIO_HEADER_LEN;
    use crate::checksum::{fold, sum};
    use crate::ip::{CWR, FIN, PSH, TransportProtocol};
    use crate::test_packets::{TCP4, TestSuperpacket, frames, test_packets, transport_sum};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn segments_are_valid_packets(test_packet in test_packets()) {
            let frame = test_packet.frame();
            let count = frame.segments();
            prop_assert_eq!(count, test_packet.payload.div_ceil(test_packet.size));
            let (ip, headers) = (test_packet.ip(), test_packet.headers());
            let mut payload = Vec::new();
            let mut total = 0;
            for i in 0..count {
                let packet = frame.packet(i);
                prop_assert_eq!(packet.len(), frame.segment_len(i));
                total += packet.len();
                prop_assert_eq!(transport_sum(&packet), 0);
                if test_packet.v6 {
                    prop_assert_eq!(usize::from(u16::from_be_bytes([packet[4], packet[5]])), packet.len() - 40);
                } else {
                    prop_assert_eq!(fold(sum(&packet[..20])), 0xffff);
                    prop_assert_eq!(usize::from(u16::from_be_bytes([packet[2], packet[3]])), packet.len());
                    let id = u16::from_be_bytes([packet[4], packet[5]]);
                    prop_assert_eq!(usize::from(id), (0xfffe + i) % 0x10000);
                }
                if test_packet.protocol == TransportProtocol::Tcp {
                    let number = u32::from_be_bytes(packet[ip + 4..ip + 8].try_into().unwrap());
                    prop_assert_eq!(number, u32::MAX.wrapping_add(u32::try_from(payload.len()).unwrap()));
                    let flags = packet[ip + 13];
                    prop_assert_eq!(flags & (FIN | PSH) != 0, i + 1 == count);
                    prop_assert_eq!(flags & CWR != 0, i == 0);
                }
                payload.extend_from_slice(&packet[headers..]);
            }
            prop_assert_eq!(total, frame.wire_len());
            prop_assert_eq!(&payload[..], &test_packet.bytes()[VIRTIO_HEADER_LEN + headers..]);
        }

        #[test]
        fn parts_of_parts_are_the_same_packets(test_packet in test_packets(), split in any::<proptest::sample::Index>()) {
            let mut bytes = test_packet.bytes();
            // The kernel may state longer headers.
            bytes[2..4].copy_from_slice(&200_u16.to_ne_bytes());
            let frame = TunFrame::parse(Bytes::from(bytes)).unwrap();
            let middle = split.index(frame.segments());
            let rest = frame.part(middle..frame.segments());
            for i in middle..frame.segments() {
                prop_assert_eq!(rest.packet(i - middle), frame.packet(i));
            }
            if frame.segments() > 1 {
                let single = frame.part(middle..middle + 1);
                prop_assert!(single.virtio.protocol().is_none());
                let headers = u16::try_from(test_packet.headers()).unwrap().to_ne_bytes();
                prop_assert_eq!(&single.virtio.bytes()[2..4], &headers);
            }
        }

        #[test]
        fn a_part_can_be_parsed_again(test_packet in test_packets(), split in any::<proptest::sample::Index>()) {
            let frame = test_packet.frame();
            let part = frame.part(0..split.index(frame.segments()) + 1);
            let bytes = part.slices().map(|slice| slice.to_vec()).concat();
            let again = TunFrame::parse(bytes.into()).unwrap();
            prop_assert_eq!(again.segments(), part.segments());
            for i in 0..part.segments() {
                prop_assert_eq!(again.packet(i), frame.packet(i));
            }
        }

        #[test]
        fn any_bytes_can_be_parsed(frame in frames()) {
            if let Some(frame) = TunFrame::parse(Bytes::from(frame)) {
                for i in 0..frame.segments() {
                    prop_assert_eq!(frame.packet(i).len(), frame.segment_len(i));
                    prop_assert_eq!(frame.part(i..i + 1).wire_len(), frame.segment_len(i));
                }
            }
        }
    }

    #[test]
    fn a_packet_is_not_split() {
        let mut bytes = TestSuperpacket { payload: 100, ..TCP4 }.bytes();
        bytes[1] = 0;
        let frame = TunFrame::parse(bytes.clone().into()).unwrap();
        assert_eq!((frame.segments(), frame.wire_len()), (1, bytes.len() - VIRTIO_HEADER_LEN));
        assert_eq!(frame.slices().map(|slice| slice.to_vec()).concat(), bytes);
        assert_eq!(transport_sum(&frame.packet(0)), 0);
    }
}
