//! What an IP packet's headers say, and changes to them.

use std::net::IpAddr;

use crate::checksum::{Checksum, fold, sum};

const TCP: u8 = 6;
const UDP: u8 = 17;
/// The IPv6 extension header of a fragment.
const FRAGMENT: u8 = 44;

const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;

/// In the word of an IPv4 header that has the place of a fragment: there are more of them, and
/// where this one begins. Of a whole packet all of that is zero.
const FRAGMENTED: u16 = 0x3fff;
/// In the same word: this packet must not be fragmented.
const DONT_FRAGMENT: u16 = 0x4000;

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const PUSH: u8 = 8;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const URGENT: u8 = 0x20;
pub(crate) const WINDOW_REDUCED: u8 = 0x80;

/// Where a TCP header has its flags, and where its options begin.
pub(crate) const TCP_FLAGS: usize = 13;
const TCP_OPTIONS: usize = 20;

/// The length in bytes of the first IP packet among several that follow each other without gaps.
///
/// `None` if there is no whole packet: too few bytes, not IP, or lengths that cannot be.
pub fn packet_len(bytes: &[u8]) -> Option<usize> {
    let length = match version(bytes)? {
        Version::V4 => {
            let length = usize::from(word(bytes, 2));
            let header = v4_header(bytes);
            (header >= V4_HEADER && header <= length).then_some(length)?
        }
        Version::V6 => V6_HEADER + usize::from(word(bytes, 4)),
    };
    (length <= bytes.len()).then_some(length)
}

/// A number that is the same for all packets of a flow: those with equal addresses, protocol and,
/// in TCP and UDP, ports. All fragments between two addresses are one flow, as most have no ports.
///
/// It is no secret which flows have the same number. What is not IP has 0.
pub fn flow(packet: &[u8]) -> u16 {
    let Some(version) = version(packet) else { return 0 };
    let protocol = match version {
        Version::V4 if word(packet, 6) & FRAGMENTED != 0 => FRAGMENT,
        Version::V4 => packet[9],
        Version::V6 => packet[6],
    };
    let ports = transport(packet).map_or(0, |transport| {
        let at = transport.at;
        u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]])
    });
    let (addresses, _) = addresses(packet).as_chunks();
    let hash = addresses.iter().fold(0, |hash, part| mix(hash ^ u64::from_be_bytes(*part)));
    let hash = mix(hash ^ (u64::from(protocol) << 32) ^ u64::from(ports));
    (hash >> 48) as u16
}

/// Lowers the greatest segment that a TCP connection's opening packet announces to what fits into
/// IP packets of `mtu` bytes. Other packets stay as they are, and openings that say nothing of it.
pub fn clamp_mss(packet: &mut [u8], mtu: usize, checksum: Checksum) {
    let Some(Transport { at, protocol: Protocol::Tcp }) = transport(packet) else { return };
    if packet[at + TCP_FLAGS] & SYN == 0 {
        return;
    }
    let ip_header = if is_v4(packet) { V4_HEADER } else { V6_HEADER };
    let most = u16::try_from(mtu.saturating_sub(ip_header + TCP_OPTIONS)).unwrap_or(u16::MAX);
    let Some(place) = segment_size_option(&packet[at..]) else { return };
    let old = word(packet, at + place);
    if old <= most {
        return;
    }
    put(packet, at + place, usize::from(most));
    // A partial checksum does not have the option in it yet.
    if checksum == Checksum::Complete {
        let field = at + Protocol::Tcp.checksum_offset();
        // An option may begin at any byte; one that is in two words adds its bytes the other way.
        let swap = |value: u16| if place % 2 == 1 { value.swap_bytes() } else { value };
        // RFC 1624: take the old number out, put the new one in.
        let sum = [!word(packet, field), !swap(old), swap(most)].map(u64::from).iter().sum();
        put(packet, field, usize::from(!fold(sum)));
    }
}

/// A transport protocol that superpackets are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    /// The shortest header, in bytes.
    pub(crate) fn least_header(self) -> usize {
        match self {
            Self::Tcp => TCP_OPTIONS,
            Self::Udp => 8,
        }
    }

    /// Where the header has its checksum.
    pub(crate) fn checksum_offset(self) -> usize {
        match self {
            Self::Tcp => 16,
            Self::Udp => 6,
        }
    }

    /// The length of the header at the beginning of `bytes`. `None` if it cannot be, or is not
    /// whole.
    pub(crate) fn header(self, bytes: &[u8]) -> Option<usize> {
        let length = match self {
            Self::Tcp => usize::from(bytes.get(12)? >> 4) * 4,
            Self::Udp => 8,
        };
        (length >= self.least_header() && length <= bytes.len()).then_some(length)
    }
}

/// A transport header in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transport {
    /// Where it begins.
    pub(crate) at: usize,
    pub(crate) protocol: Protocol,
}

/// Finds TCP or UDP right behind a packet's IP header, with its shortest header whole. `None` if
/// there is something else, also in a fragment.
pub(crate) fn transport(packet: &[u8]) -> Option<Transport> {
    let (at, number) = match version(packet)? {
        Version::V4 if word(packet, 6) & FRAGMENTED != 0 => return None,
        Version::V4 if v4_header(packet) < V4_HEADER => return None,
        Version::V4 => (v4_header(packet), packet[9]),
        Version::V6 => (V6_HEADER, packet[6]),
    };
    let protocol = match number {
        TCP => Protocol::Tcp,
        UDP => Protocol::Udp,
        _ => return None,
    };
    (at + protocol.least_header() <= packet.len()).then_some(Transport { at, protocol })
}

/// Whether a transport header may begin there: in IPv4 right behind the IP header, in IPv6 also
/// behind extension headers.
pub(crate) fn may_begin(packet: &[u8], at: usize) -> bool {
    match version(packet) {
        Some(Version::V4) => at >= V4_HEADER && at == v4_header(packet),
        Some(Version::V6) => at >= V6_HEADER,
        None => false,
    }
}

/// Whether a packet, of which it is known that it is IP, is IPv4 and not IPv6.
pub(crate) fn is_v4(packet: &[u8]) -> bool {
    packet[0] >> 4 == 4
}

/// Whether it is an IPv4 packet that must not be fragmented. Its identification means nothing
/// (RFC 6864).
pub(crate) fn is_atomic(packet: &[u8]) -> bool {
    is_v4(packet) && word(packet, 6) & DONT_FRAGMENT != 0
}

/// Who an IP packet says it is from. `None` if it is none.
pub fn source(packet: &[u8]) -> Option<IpAddr> {
    let from = match version(packet)? {
        Version::V4 => IpAddr::from(*addresses(packet).first_chunk::<4>()?),
        Version::V6 => IpAddr::from(*addresses(packet).first_chunk::<16>()?),
    };
    Some(from)
}

/// The addresses of a packet of which it is known that it is IP: sender's, then receiver's.
pub(crate) fn addresses(packet: &[u8]) -> &[u8] {
    if is_v4(packet) { &packet[12..20] } else { &packet[8..40] }
}

impl Transport {
    /// Turns the headers of a superpacket's first segment into those of a later one, `size` bytes
    /// of payload being in each before it. Their sums are not right any more then.
    pub(crate) fn advance(self, headers: &mut [u8], segments: usize, size: usize) {
        let (ip, transport) = headers.split_at_mut(self.at);
        if is_v4(ip) {
            put(ip, 4, usize::from(word(ip, 4)) + segments);
        }
        if self.protocol == Protocol::Tcp {
            let number =
                u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]);
            #[expect(clippy::cast_possible_truncation, reason = "a superpacket has 64 KiB at most")]
            let number = number.wrapping_add((segments * size) as u32);
            transport[4..8].copy_from_slice(&number.to_be_bytes());
            if segments > 0 {
                transport[TCP_FLAGS] &= !WINDOW_REDUCED;
            }
        }
    }

    /// Gives headers the lengths and sums that belong to another payload. The transport checksum is
    /// partial, before and after.
    pub(crate) fn set_payload(self, headers: &mut [u8], old: usize, new: usize) {
        let length = headers.len() + new;
        let behind = headers.len() - self.at;
        let (ip, transport) = headers.split_at_mut(self.at);
        if is_v4(ip) {
            put(ip, 2, length);
            put(ip, 10, 0);
            let sum = !fold(sum(ip));
            put(ip, 10, usize::from(sum));
        } else {
            put(ip, 4, length - V6_HEADER);
        }
        if self.protocol == Protocol::Udp {
            put(transport, 4, behind + new);
        }
        // Of the pseudo-header only the length has changed; an IPv6 routing header would make it
        // hard to find the rest.
        let field = self.protocol.checksum_offset();
        let less = !fold((behind + old) as u64);
        let sum = u64::from(word(transport, field)) + u64::from(less) + (behind + new) as u64;
        put(transport, field, usize::from(fold(sum)));
    }
}

/// The 16-bit number in a header.
pub(crate) fn word(header: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

/// Puts a 16-bit number into a header; what does not fit is cut off, as counters there wrap.
pub(crate) fn put(header: &mut [u8], at: usize, value: usize) {
    #[expect(clippy::cast_possible_truncation, reason = "counters wrap, lengths fit")]
    let value = value as u16;
    header[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

enum Version {
    V4,
    V6,
}

/// The version of a packet whose fixed header is whole.
fn version(packet: &[u8]) -> Option<Version> {
    match packet.first()? >> 4 {
        4 if packet.len() >= V4_HEADER => Some(Version::V4),
        6 if packet.len() >= V6_HEADER => Some(Version::V6),
        _ => None,
    }
}

/// What an IPv4 packet says is the length of its header, options included.
fn v4_header(packet: &[u8]) -> usize {
    usize::from(packet[0] & 0xf) * 4
}

/// Where a TCP header has the number of the option that announces the greatest segment.
fn segment_size_option(tcp: &[u8]) -> Option<usize> {
    const END: u8 = 0;
    const PADDING: u8 = 1;
    const SEGMENT_SIZE: u8 = 2;
    let header = &tcp[..Protocol::Tcp.header(tcp)?];
    let mut at = TCP_OPTIONS;
    loop {
        let kind = *header.get(at)?;
        if kind == END {
            return None;
        }
        if kind == PADDING {
            at += 1;
            continue;
        }
        let length = usize::from(*header.get(at + 1)?);
        if kind == SEGMENT_SIZE {
            return (length == 4 && at + length <= header.len()).then_some(at + 2);
        }
        if length < 2 {
            return None;
        }
        at += length;
    }
}

/// Spreads what tells flows apart over all bits.
fn mix(word: u64) -> u64 {
    let product = u128::from(word ^ 0x243f_6a88_85a3_08d3) * 0x9e37_79b9_7f4a_7c15;
    #[expect(clippy::cast_possible_truncation, reason = "the halves are taken one by one")]
    let (low, high) = (product as u64, (product >> 64) as u64);
    low ^ high
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::complete;
    use crate::made::{Made, TCP4, transport_sum};
    use crate::{Segments, VIRTIO};
    use proptest::prelude::*;

    fn packet(made: Made) -> Vec<u8> {
        let mut packet = Vec::new();
        Segments::parse(&made.bytes()).unwrap().append(0, &mut packet);
        packet
    }

    /// A packet that opens a connection, with some padding before the announcement.
    fn opening(v6: bool, padding: usize, announced: u16) -> Vec<u8> {
        let mut packet = packet(Made { v6, flags: SYN, payload: 1, ..TCP4 });
        let options = &mut packet[if v6 { 60 } else { 40 }..][..12];
        // An option that is not known, padding, the announcement, and the end.
        options[..3].copy_from_slice(&[200, 3, 9]);
        options[3..3 + padding].fill(1);
        options[3 + padding..][..2].copy_from_slice(&[2, 4]);
        options[5 + padding..][..2].copy_from_slice(&announced.to_be_bytes());
        packet
    }

    #[test]
    fn packets_that_follow_each_other_are_told_apart() {
        let six = packet(Made { v6: true, protocol: Protocol::Udp, payload: 9, ..TCP4 });
        let four = packet(Made { payload: 7, ..TCP4 });
        let all = [&six[..], &four, &six].concat();
        assert_eq!(packet_len(&all), Some(57));
        assert_eq!(packet_len(&all[57..]), Some(59));
        assert_eq!(packet_len(&all[116..]), Some(57));
        assert_eq!(packet_len(&all[116..172]), None);
        assert_eq!(packet_len(&[]), None);
    }

    #[test]
    fn lengths_that_cannot_be_are_none() {
        let four = packet(Made { payload: 7, ..TCP4 });
        let changes: [(usize, &[u8]); 5] =
            [(0, &[0x44]), (0, &[0x55]), (2, &[0, 19]), (2, &[0, 60]), (0, &[0x4f, 0, 0, 59])];
        for (at, bytes) in changes {
            let mut packet = four.clone();
            packet[at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(packet_len(&packet), None, "{bytes:x?}");
        }
        assert_eq!(packet_len(&four[..19]), None);
        let mut none = packet(Made { v6: true, ..TCP4 });
        none[4..6].fill(0);
        assert_eq!(packet_len(&none), Some(40));
        assert_eq!(packet_len(&none[..39]), None);
    }

    #[test]
    fn a_transport_header_is_found_where_it_can_be() {
        let six = packet(Made { v6: true, protocol: Protocol::Udp, payload: 9, ..TCP4 });
        assert_eq!(transport(&six), Some(Transport { at: 40, protocol: Protocol::Udp }));
        assert_eq!(transport(&six[..47]), None);
        let mut four = packet(TCP4);
        assert_eq!(transport(&four), Some(Transport { at: 20, protocol: Protocol::Tcp }));
        four[0] = 0x46;
        assert_eq!(transport(&four), Some(Transport { at: 24, protocol: Protocol::Tcp }));
        four[0] = 0x44;
        assert_eq!(transport(&four), None);
    }

    #[test]
    fn a_flow_is_addresses_protocol_and_ports() {
        for v6 in [false, true] {
            let one = packet(Made { v6, ..TCP4 });
            let ip = if v6 { 40 } else { 20 };
            let changed = |at: usize, byte: u8| {
                let mut packet = one.clone();
                packet[at] = byte;
                packet
            };
            let same = [changed(1, 9), changed(ip + 5, 9), changed(ip + 50, 9)];
            assert!(same.iter().all(|packet| flow(packet) == flow(&one)));
            let protocol = if v6 { 6 } else { 9 };
            let others =
                [changed(ip - 1, 77), changed(protocol, 17), changed(ip, 77), changed(ip + 3, 77)];
            assert!(others.iter().all(|packet| flow(packet) != flow(&one)));
        }
        // A fragment's ports may be anywhere.
        let mut fragment = packet(TCP4);
        fragment[6] = 0x20;
        let first = flow(&fragment);
        (fragment[6], fragment[7]) = (0, 100);
        fragment[20..].fill(7);
        fragment[9] = UDP;
        assert_eq!(flow(&fragment), first);
        assert_ne!(flow(&packet(TCP4)), first);
        assert_eq!(flow(&[0x45; 19]), 0);
    }

    #[test]
    fn flows_are_spread() {
        let mut buckets = [0; 64];
        for port in 0..=u16::MAX {
            let mut packet = packet(Made { payload: 1, ..TCP4 });
            put(&mut packet, 20, usize::from(port));
            buckets[usize::from(flow(&packet) % 64)] += 1;
        }
        assert!(buckets.iter().all(|count| (900..1150).contains(count)), "{buckets:?}");
    }

    #[test]
    fn only_openings_that_announce_too_much_change() {
        for (made, announced) in [(false, 1460), (true, 1440)] {
            let mut exact = opening(made, 2, announced);
            let before = exact.clone();
            clamp_mss(&mut exact, 1500, Checksum::Complete);
            assert_eq!(exact, before);
            clamp_mss(&mut exact, 1499, Checksum::Partial);
            let at = if made { 67 } else { 47 };
            assert_eq!(word(&exact, at), announced - 1);
            exact[at..at + 2].copy_from_slice(&before[at..at + 2]);
            // Nor is the checksum's field different.
            assert_eq!(exact, before);
        }
        // An announcement that is cut off by the header's end.
        let mut short = opening(false, 4, 1460);
        short[43..50].fill(1);
        short[50..52].copy_from_slice(&[2, 4]);
        let before = short.clone();
        clamp_mss(&mut short, 1000, Checksum::Complete);
        assert_eq!(short, before);
        let mut later = opening(false, 2, 1460);
        later[33] = ACK;
        let before = later.clone();
        clamp_mss(&mut later, 1000, Checksum::Complete);
        assert_eq!(later, before);
    }

    proptest! {
        #[test]
        fn a_clamped_packet_has_a_right_checksum(
            v6: bool, padding in 0_usize..4, announced: u16, mtu in 0_usize..2000,
        ) {
            let mut packet = opening(v6, padding, announced);
            let ip = if v6 { 40 } else { 20 };
            complete(&mut packet, ip, 16);
            clamp_mss(&mut packet, mtu, Checksum::Complete);
            prop_assert_eq!(transport_sum(&packet), 0);
            let announced = usize::from(announced).min(mtu.saturating_sub(ip + 20));
            prop_assert_eq!(usize::from(word(&packet, ip + 25 + padding)), announced);
        }

        #[test]
        fn any_bytes_can_be_looked_at(bytes in prop::collection::vec(any::<u8>(), 0..100), first: u8) {
            let mut bytes = bytes;
            // Mostly what could open a connection.
            if bytes.len() > 60 {
                (bytes[0], bytes[6], bytes[7], bytes[9]) = (0x40 + first % 16, 0, 0, TCP);
                bytes[33] |= SYN;
            }
            if let Some(length) = packet_len(&bytes) {
                prop_assert!((20..=bytes.len()).contains(&length));
            }
            flow(&bytes);
            let before = bytes.len();
            clamp_mss(&mut bytes, 1280, Checksum::Complete);
            prop_assert_eq!(bytes.len(), before);
        }
    }

    #[test]
    fn a_segment_is_turned_into_a_later_one() {
        let frame = Made { payload: 3000, ..TCP4 }.bytes();
        let mut headers = frame[VIRTIO..][..52].to_vec();
        let transport = transport(&headers).unwrap();
        transport.advance(&mut headers, 2, 1448);
        transport.set_payload(&mut headers, 3000, 104);
        let mut last = Vec::new();
        Segments::parse(&frame).unwrap().append(2, &mut last);
        assert_eq!(headers, last[..52]);
    }
}
