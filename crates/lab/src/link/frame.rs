//! A packet as the kernel hands it to a TUN device: with a virtio header, and up to 64 KiB of it at
//! once where the network card would cut it into packets (segmentation offload).
//!
//! On a wire such a superpacket is many packets, here *segments*, which share its headers but for
//! length, sequence number and checksum. [`Frame::part`] cuts segments out, so that one can be lost
//! or late without the others; what is left are superpackets again.

use std::io::IoSlice;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// The length of `struct virtio_net_hdr`.
pub(crate) const VIRTIO: usize = 10;

/// The longest that a frame may be: its virtio header and an IP packet.
pub(crate) const LONGEST: usize = VIRTIO + 65_535;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
/// Added to the type where the sender negotiated explicit congestion notification.
const GSO_ECN: u8 = 0x80;

const TCP: u8 = 6;
const UDP: u8 = 17;

const FIN: u8 = 1;
const PUSH: u8 = 8;
const WINDOW_REDUCED: u8 = 0x80;

/// A packet, or a superpacket.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// The virtio header and the headers of every segment. Empty if the frame cannot be cut.
    headers: Bytes,
    /// The payload of all segments, or the whole frame if it cannot be cut.
    payload: Bytes,
    /// How it can be cut.
    cuts: Option<Cuts>,
}

/// Where a superpacket can be cut.
#[derive(Clone, Copy, Debug)]
struct Cuts {
    /// The payload of every segment but the last, which may have less.
    size: usize,
    /// Where TCP or UDP begins, after the virtio header.
    transport: usize,
    protocol: u8,
}

impl Frame {
    /// Reads a frame, virtio header first. `None` if it is too short to hold an IP packet.
    pub(crate) fn parse(bytes: Bytes) -> Option<Self> {
        if bytes.len() < VIRTIO + 20 {
            return None;
        }
        let Some((cuts, headers)) = cuts(&bytes) else {
            return Some(Self { headers: Bytes::new(), payload: bytes, cuts: None });
        };
        Some(Self {
            headers: bytes.slice(..headers),
            payload: bytes.slice(headers..),
            cuts: Some(cuts),
        })
    }

    /// How many packets this would be on a wire.
    pub(crate) fn segments(&self) -> usize {
        self.cuts.map_or(1, |cuts| self.payload.len().div_ceil(cuts.size))
    }

    /// The length of a segment as an IP packet, in bytes.
    pub(crate) fn segment_len(&self, index: usize) -> usize {
        match self.cuts {
            None => self.payload.len() - VIRTIO,
            Some(Cuts { size, .. }) => {
                let rest = self.payload.len().saturating_sub(index * size);
                self.headers.len() - VIRTIO + rest.min(size)
            }
        }
    }

    /// The lengths of all segments as IP packets, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self.cuts {
            None => self.payload.len() - VIRTIO,
            Some(_) => self.payload.len() + self.segments() * (self.headers.len() - VIRTIO),
        }
    }

    /// Some of its segments in a row, as a frame of their own.
    ///
    /// # Panics
    /// If there are no such segments.
    pub(crate) fn part(&self, segments: Range<usize>) -> Self {
        assert!(segments.start < segments.end && segments.end <= self.segments());
        let Some(cuts) = self.cuts else { return self.clone() };
        if segments == (0..self.segments()) {
            return self.clone();
        }
        let start = segments.start * cuts.size;
        let end = (segments.end * cuts.size).min(self.payload.len());
        let mut headers = BytesMut::from(&self.headers[..]);
        cuts.rewrite(&mut headers, &segments, end - start, end == self.payload.len());
        Self {
            headers: headers.freeze(),
            payload: self.payload.slice(start..end),
            cuts: Some(cuts),
        }
    }

    /// Its bytes, for a write that gathers them.
    pub(crate) fn slices(&self) -> [IoSlice<'_>; 2] {
        [IoSlice::new(&self.headers), IoSlice::new(&self.payload)]
    }

    /// A segment as it is on the wire: an IP packet with its checksums.
    pub(crate) fn packet(&self, segment: usize) -> Vec<u8> {
        let part = self.part(segment..segment + 1);
        let mut packet: Vec<u8> = [&part.headers[..], &part.payload[..]].concat();
        let virtio: Vec<u8> = packet.drain(..VIRTIO).collect();
        if virtio[0] & NEEDS_CHECKSUM != 0 {
            let start = usize::from(word(&virtio, 6));
            let place = start + usize::from(word(&virtio, 8));
            // The field holds the pseudo-header's sum, which is a part of what is added up.
            if let Some(rest) = packet.get(start..)
                && place + 2 <= packet.len()
            {
                let sum = !fold(sum(rest));
                // In UDP a zero says that there is no checksum.
                let sum = if sum == 0 && place - start == 6 { 0xffff } else { sum };
                packet[place..place + 2].copy_from_slice(&sum.to_be_bytes());
            }
        }
        packet
    }
}

impl Cuts {
    /// Turns the headers of a superpacket into those of some of its segments, which have so much
    /// payload.
    fn rewrite(self, headers: &mut [u8], segments: &Range<usize>, payload: usize, is_last: bool) {
        let (virtio, packet) = headers.split_at_mut(VIRTIO);
        // What the kernel says of the headers' length is a hint, which may be longer than what is left.
        #[expect(clippy::cast_possible_truncation, reason = "headers are short")]
        virtio[2..4].copy_from_slice(&(packet.len() as u16).to_ne_bytes());
        if segments.len() == 1 {
            virtio[1] = GSO_NONE;
            virtio[4..6].fill(0);
        }
        let length = packet.len() + payload;
        let (ip, transport) = packet.split_at_mut(self.transport);
        let transport_len = transport.len() + payload;
        if ip[0] >> 4 == 4 {
            put(ip, 2, length);
            let id = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
            put(ip, 4, id + segments.start);
            put(ip, 10, 0);
            let sum = !fold(sum(ip));
            put(ip, 10, usize::from(sum));
        } else {
            put(ip, 4, length - 40);
        }
        if self.protocol == TCP {
            let number =
                u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]);
            #[expect(clippy::cast_possible_truncation, reason = "a superpacket has 64 KiB at most")]
            let number = number.wrapping_add((segments.start * self.size) as u32);
            transport[4..8].copy_from_slice(&number.to_be_bytes());
            if !is_last {
                transport[13] &= !(FIN | PUSH);
            }
            if segments.start > 0 {
                transport[13] &= !WINDOW_REDUCED;
            }
        } else {
            put(transport, 4, transport_len);
        }
        let addresses = if ip[0] >> 4 == 4 { &ip[12..20] } else { &ip[8..40] };
        let pseudo = sum(addresses) + u64::from(self.protocol) + transport_len as u64;
        let place = if self.protocol == TCP { 16 } else { 6 };
        put(transport, place, usize::from(fold(pseudo)));
    }
}

/// Where a superpacket can be cut and how long its headers are, virtio's included. `None` if it is
/// no superpacket, or none that is known.
fn cuts(bytes: &[u8]) -> Option<(Cuts, usize)> {
    let (virtio, packet) = bytes.split_at(VIRTIO);
    let protocol = match virtio[1] & !GSO_ECN {
        GSO_TCP4 | GSO_TCP6 => TCP,
        GSO_UDP => UDP,
        _ => return None,
    };
    let size = usize::from(word(virtio, 4));
    let transport = usize::from(word(virtio, 6));
    let least = if packet[0] >> 4 == 4 { 20 } else { 40 };
    if virtio[0] & NEEDS_CHECKSUM == 0 || size == 0 || transport < least {
        return None;
    }
    let header = packet.get(transport..)?;
    let length = if protocol == TCP { usize::from(header.get(12)? >> 4) * 4 } else { 8 };
    if length < if protocol == TCP { 20 } else { 8 } || header.len() <= length {
        return None;
    }
    Some((Cuts { size, transport, protocol }, VIRTIO + transport + length))
}

/// A number of the virtio header, which has the machine's own byte order.
fn word(virtio: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([virtio[at], virtio[at + 1]])
}

/// Puts a 16-bit number into a header; what does not fit is cut off, as counters there wrap.
fn put(header: &mut [u8], at: usize, value: usize) {
    #[expect(clippy::cast_possible_truncation, reason = "counters wrap, lengths fit")]
    let value = value as u16;
    header[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The sum of 16-bit numbers that makes the Internet checksum (RFC 1071), not folded.
fn sum(bytes: &[u8]) -> u64 {
    let pairs = bytes.chunks_exact(2);
    let last = pairs.remainder().first().map_or(0, |last| u64::from(*last) << 8);
    pairs.map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]]))).sum::<u64>() + last
}

/// Such a sum in 16 bits.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is folded")]
    let folded = sum as u16;
    folded
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a superpacket is made of.
    #[derive(Clone, Copy, Debug)]
    pub(in crate::link) struct Made {
        pub(in crate::link) v6: bool,
        pub(in crate::link) protocol: u8,
        pub(in crate::link) size: usize,
        pub(in crate::link) payload: usize,
    }

    impl Made {
        /// The headers' length: IP's, and TCP's with timestamps or UDP's.
        fn headers(self) -> usize {
            (if self.v6 { 40 } else { 20 }) + if self.protocol == TCP { 32 } else { 8 }
        }

        /// The frame as the kernel would give it, with a payload that counts.
        pub(in crate::link) fn bytes(self) -> Bytes {
            let ip = if self.v6 { 40 } else { 20 };
            let mut bytes = vec![0; VIRTIO + self.headers()];
            let kind = match (self.protocol, self.v6) {
                (TCP, false) => GSO_TCP4,
                (TCP, true) => GSO_TCP6,
                _ => GSO_UDP,
            };
            (bytes[0], bytes[1]) = (NEEDS_CHECKSUM, kind);
            let place = if self.protocol == TCP { 16 } else { 6 };
            for (at, value) in [(4, self.size), (6, ip), (8, place)] {
                bytes[at..at + 2].copy_from_slice(&u16::try_from(value).unwrap().to_ne_bytes());
            }
            let packet = &mut bytes[VIRTIO..];
            let length = packet.len() + self.payload;
            if self.v6 {
                packet[0] = 0x60;
                put(packet, 4, length - 40);
                packet[6] = self.protocol;
                packet[8..40].fill(0xfd);
            } else {
                packet[0] = 0x45;
                put(packet, 2, length);
                put(packet, 4, 0xfffe);
                packet[9] = self.protocol;
                packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
                let checksum = !fold(sum(&packet[..20]));
                put(packet, 10, usize::from(checksum));
            }
            let transport = &mut packet[ip..];
            if self.protocol == TCP {
                transport[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
                transport[12] = 8 << 4;
                transport[13] = FIN | PUSH | WINDOW_REDUCED | 0x10;
            } else {
                put(transport, 4, 8 + self.payload);
            }
            let length = transport.len() + self.payload;
            let addresses = if self.v6 { &packet[8..40] } else { &packet[12..20] };
            let pseudo = fold(sum(addresses) + u64::from(self.protocol) + length as u64);
            put(packet, ip + place, usize::from(pseudo));
            bytes.extend((0..self.payload).map(|i| i.to_le_bytes()[i % 2]));
            bytes.into()
        }

        pub(in crate::link) fn frame(self) -> Frame {
            Frame::parse(self.bytes()).unwrap()
        }
    }

    pub(in crate::link) const TCP4: Made =
        Made { v6: false, protocol: TCP, size: 1448, payload: 10_000 };

    fn made() -> impl Strategy<Value = Made> {
        (any::<bool>(), prop_oneof![Just(TCP), Just(UDP)], 1_usize..9000, 1_usize..60_000)
            .prop_map(|(v6, protocol, size, payload)| Made { v6, protocol, size, payload })
            .prop_filter("few segments", |made| made.payload / made.size < 200)
    }

    /// The checksum over a whole packet's transport, which is 0 if the one inside is right.
    fn transport_sum(packet: &[u8]) -> u16 {
        let (addresses, ip, protocol) = match packet[0] >> 4 {
            4 => (&packet[12..20], 20, packet[9]),
            _ => (&packet[8..40], 40, packet[6]),
        };
        let rest = &packet[ip..];
        !fold(sum(addresses) + u64::from(protocol) + rest.len() as u64 + sum(rest))
    }

    proptest! {
        #[test]
        fn segments_are_packets_of_their_own(made in made()) {
            let frame = made.frame();
            let count = frame.segments();
            prop_assert_eq!(count, made.payload.div_ceil(made.size));
            let (ip, headers) = (made.headers() - if made.protocol == TCP { 32 } else { 8 }, made.headers());
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
                if made.protocol == TCP {
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
            let frame = made.frame();
            let middle = cut.index(frame.segments());
            let rest = frame.part(middle..frame.segments());
            for i in middle..frame.segments() {
                prop_assert_eq!(rest.packet(i - middle), frame.packet(i));
            }
            let single = frame.part(middle..middle + 1);
            prop_assert!(single.headers[1] == GSO_NONE || frame.segments() == 1);
        }

        #[test]
        fn any_bytes_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = bytes;
            // Mostly what could be a superpacket.
            if bytes.len() > 1 {
                (bytes[0], bytes[1]) = (1, [GSO_TCP4, GSO_TCP6, GSO_UDP, GSO_NONE][usize::from(bytes[1] % 4)]);
            }
            if bytes.len() > 9 {
                (bytes[7], bytes[9]) = (0, 0);
            }
            if let Some(frame) = Frame::parse(Bytes::from(bytes)) {
                for i in 0..frame.segments() {
                    frame.segment_len(i);
                    frame.packet(i);
                }
            }
        }
    }

    #[test]
    fn what_is_no_superpacket_stays_whole() {
        let mut bytes = Made { payload: 100, ..TCP4 }.bytes().to_vec();
        bytes[1] = GSO_NONE;
        let frame = Frame::parse(bytes.clone().into()).unwrap();
        assert_eq!((frame.segments(), frame.bytes()), (1, bytes.len() - VIRTIO));
        assert_eq!(frame.slices().map(|slice| slice.to_vec()).concat(), bytes);
        assert_eq!(transport_sum(&frame.packet(0)), 0);
    }
}
