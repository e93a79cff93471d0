//! Superpackets that are passed on whole, or in parts that are superpackets again.

use std::io::IoSlice;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::checksum::{Checksum, complete};
use crate::cut::{Cuts, Segments};
use crate::virtio::Virtio;

/// A packet, or a superpacket. One segment of it can be lost or late without the others; what is
/// left are frames again, which share its payload.
#[derive(Clone, Debug)]
pub struct Frame {
    virtio: Virtio,
    /// The headers of every segment. Empty if the frame cannot be cut.
    headers: Bytes,
    /// The payload of all segments, or the whole packet if it cannot be cut.
    payload: Bytes,
    /// How it can be cut.
    cuts: Option<Cuts>,
}

impl Frame {
    /// Reads a frame, virtio header first. `None` if it is too short to hold an IP packet.
    pub fn parse(mut bytes: Bytes) -> Option<Self> {
        let segments = Segments::parse(&bytes)?;
        let (virtio, cuts, headers) = (segments.virtio(), segments.cuts(), segments.headers_len());
        let mut packet = bytes.split_off(virtio.bytes().len());
        let payload = packet.split_off(headers);
        Some(Self { virtio, headers: packet, payload, cuts })
    }

    /// How many packets this would be on a wire.
    pub fn segments(&self) -> usize {
        self.view().count()
    }

    /// The length of a segment as an IP packet, in bytes.
    pub fn segment_len(&self, index: usize) -> usize {
        self.view().segment_len(index)
    }

    /// The lengths of all segments as IP packets, in bytes.
    pub fn bytes(&self) -> usize {
        self.payload.len() + self.segments() * self.headers.len()
    }

    /// Some of its segments in a row, as a frame of their own.
    ///
    /// # Panics
    /// If there are no such segments.
    #[must_use]
    pub fn part(&self, segments: Range<usize>) -> Self {
        assert!(segments.start < segments.end && segments.end <= self.segments());
        let Some(cuts) = self.cuts else { return self.clone() };
        if segments == (0..self.segments()) {
            return self.clone();
        }
        let part = self.view().part(segments.clone());
        let mut virtio = self.virtio;
        virtio.cut(self.headers.len(), segments.len() == 1);
        let mut headers = BytesMut::from(&self.headers[..]);
        cuts.rewrite(&mut headers, self.payload.len(), part.clone());
        Self {
            virtio,
            headers: headers.freeze(),
            payload: self.payload.slice(part),
            cuts: Some(cuts),
        }
    }

    /// Its bytes, for a write that gathers them.
    pub fn slices(&self) -> [IoSlice<'_>; 3] {
        [self.virtio.bytes(), &self.headers[..], &self.payload[..]].map(IoSlice::new)
    }

    /// A segment as it is on the wire: an IP packet with its checksums.
    pub fn packet(&self, segment: usize) -> Vec<u8> {
        let view = self.view();
        let mut packet = Vec::new();
        view.append(segment, &mut packet);
        if view.checksum() == Checksum::Partial {
            complete(&mut packet, self.virtio.start(), self.virtio.offset());
        }
        packet
    }

    fn view(&self) -> Segments<'_> {
        Segments::new(self.virtio, &self.headers, &self.payload, self.cuts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VIRTIO;
    use crate::checksum::{fold, sum};
    use crate::ip::{FIN, PUSH, Protocol, WINDOW_REDUCED};
    use crate::made::{Made, TCP4, frames, made, transport_sum};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn segments_are_packets_of_their_own(made in made()) {
            let frame = made.frame();
            let count = frame.segments();
            prop_assert_eq!(count, made.payload.div_ceil(made.size));
            let (ip, headers) = (made.ip(), made.headers());
            let mut payload = Vec::new();
            let mut total = 0;
            for i in 0..count {
                let packet = frame.packet(i);
                prop_assert_eq!(packet.len(), frame.segment_len(i));
                total += packet.len();
                prop_assert_eq!(transport_sum(&packet), 0);
                if made.v6 {
                    prop_assert_eq!(usize::from(u16::from_be_bytes([packet[4], packet[5]])), packet.len() - 40);
                } else {
                    prop_assert_eq!(fold(sum(&packet[..20])), 0xffff);
                    prop_assert_eq!(usize::from(u16::from_be_bytes([packet[2], packet[3]])), packet.len());
                    let id = u16::from_be_bytes([packet[4], packet[5]]);
                    prop_assert_eq!(usize::from(id), (0xfffe + i) % 0x10000);
                }
                if made.protocol == Protocol::Tcp {
                    let number = u32::from_be_bytes(packet[ip + 4..ip + 8].try_into().unwrap());
                    prop_assert_eq!(number, u32::MAX.wrapping_add(u32::try_from(payload.len()).unwrap()));
                    let flags = packet[ip + 13];
                    prop_assert_eq!(flags & (FIN | PUSH) != 0, i + 1 == count);
                    prop_assert_eq!(flags & WINDOW_REDUCED != 0, i == 0);
                }
                payload.extend_from_slice(&packet[headers..]);
            }
            prop_assert_eq!(total, frame.bytes());
            prop_assert_eq!(&payload[..], &made.bytes()[VIRTIO + headers..]);
        }

        #[test]
        fn parts_of_parts_are_the_same_packets(made in made(), cut in any::<proptest::sample::Index>()) {
            let mut bytes = made.bytes();
            // The kernel says that the headers are longer.
            bytes[2..4].copy_from_slice(&200_u16.to_ne_bytes());
            let frame = Frame::parse(Bytes::from(bytes)).unwrap();
            let middle = cut.index(frame.segments());
            let rest = frame.part(middle..frame.segments());
            for i in middle..frame.segments() {
                prop_assert_eq!(rest.packet(i - middle), frame.packet(i));
            }
            if frame.segments() > 1 {
                let single = frame.part(middle..middle + 1);
                prop_assert!(single.virtio.protocol().is_none());
                let headers = u16::try_from(made.headers()).unwrap().to_ne_bytes();
                prop_assert_eq!(&single.virtio.bytes()[2..4], &headers);
            }
        }

        #[test]
        fn a_part_reads_as_what_it_is(made in made(), cut in any::<proptest::sample::Index>()) {
            let frame = made.frame();
            let part = frame.part(0..cut.index(frame.segments()) + 1);
            let bytes = part.slices().map(|slice| slice.to_vec()).concat();
            let again = Frame::parse(bytes.into()).unwrap();
            prop_assert_eq!(again.segments(), part.segments());
            for i in 0..part.segments() {
                prop_assert_eq!(again.packet(i), frame.packet(i));
            }
        }

        #[test]
        fn any_bytes_can_be_read(frame in frames()) {
            if let Some(frame) = Frame::parse(Bytes::from(frame)) {
                for i in 0..frame.segments() {
                    prop_assert_eq!(frame.packet(i).len(), frame.segment_len(i));
                    prop_assert_eq!(frame.part(i..i + 1).bytes(), frame.segment_len(i));
                }
            }
        }
    }

    #[test]
    fn what_is_no_superpacket_stays_whole() {
        let mut bytes = Made { payload: 100, ..TCP4 }.bytes();
        bytes[1] = 0;
        let frame = Frame::parse(bytes.clone().into()).unwrap();
        assert_eq!((frame.segments(), frame.bytes()), (1, bytes.len() - VIRTIO));
        assert_eq!(frame.slices().map(|slice| slice.to_vec()).concat(), bytes);
        assert_eq!(transport_sum(&frame.packet(0)), 0);
    }
}
