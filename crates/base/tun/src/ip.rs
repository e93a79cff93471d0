//! Reads and changes the headers of IP packets.

use std::net::IpAddr;

use crate::checksum::{ChecksumState, fold, sum};

const TCP: u8 = 6;
const UDP: u8 = 17;
/// The IPv6 extension header of a fragment.
const FRAGMENT: u8 = 44;

const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;

/// The fragment offset and the flag "more fragments" in an IPv4 header. Both are zero in a packet
/// that is not a fragment.
const FRAGMENTED: u16 = 0x3fff;
/// The flag "don't fragment" in the same word.
const DONT_FRAGMENT: u16 = 0x4000;

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const PSH: u8 = 8;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const URG: u8 = 0x20;
pub(crate) const CWR: u8 = 0x80;

/// The offsets of the flags and of the options in a TCP header.
pub(crate) const TCP_FLAGS: usize = 13;
const TCP_OPTIONS: usize = 20;

/// The length in bytes of the first of several consecutive IP packets.
///
/// `None` if there is no whole packet: too few bytes, not IP, or impossible lengths.
pub fn packet_len(bytes: &[u8]) -> Option<usize> {
    let length = match version(bytes)? {
        IpVersion::V4 => {
            let length = usize::from(read_u16(bytes, 2));
            let header = v4_header(bytes);
            (header >= V4_HEADER && header <= length).then_some(length)?
        }
        IpVersion::V6 => V6_HEADER + usize::from(read_u16(bytes, 4)),
    };
    (length <= bytes.len()).then_some(length)
}

/// A hash of the packet's flow: of its addresses, its protocol and, in TCP and UDP, its ports. All
/// fragments between two addresses are one flow, because most fragments have no ports.
///
/// The hash is not keyed: anyone can find flows with equal hashes. It is 0 for what is not IP.
pub fn flow(packet: &[u8]) -> u16 {
    let Some(version) = version(packet) else { return 0 };
    let protocol = match version {
        IpVersion::V4 if read_u16(packet, 6) & FRAGMENTED != 0 => FRAGMENT,
        IpVersion::V4 => packet[9],
        IpVersion::V6 => packet[6],
    };
    let ports = transport(packet).map_or(0, |transport| {
        let at = transport.offset;
        u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]])
    });
    let (addresses, _) = addresses(packet).as_chunks();
    let hash = addresses.iter().fold(0, |hash, part| mix(hash ^ u64::from_be_bytes(*part)));
    let hash = mix(hash ^ (u64::from(protocol) << 32) ^ u64::from(ports));
    (hash >> 48) as u16
}

/// Lowers the maximum segment size that a TCP SYN announces to what fits into IP packets of `mtu`
/// bytes. Other packets, and SYNs without this option, stay unchanged.
pub fn clamp_mss(packet: &mut [u8], mtu: usize, checksum: ChecksumState) {
    let Some(TransportHeader { offset: at, protocol: TransportProtocol::Tcp }) = transport(packet)
    else {
        return;
    };
    if packet[at + TCP_FLAGS] & SYN == 0 {
        return;
    }
    let ip_header = if is_v4(packet) { V4_HEADER } else { V6_HEADER };
    let most = u16::try_from(mtu.saturating_sub(ip_header + TCP_OPTIONS)).unwrap_or(u16::MAX);
    let Some(place) = mss_option(&packet[at..]) else { return };
    let old = read_u16(packet, at + place);
    if old <= most {
        return;
    }
    write_u16(packet, at + place, usize::from(most));
    // A partial checksum does not include the option yet.
    if checksum == ChecksumState::Complete {
        let field = at + TransportProtocol::Tcp.checksum_offset();
        // The option may be unaligned. Then its bytes are swapped in the words of the sum.
        let swap = |value: u16| if place % 2 == 1 { value.swap_bytes() } else { value };
        // RFC 1624: subtract the old value, add the new one.
        let sum = [!read_u16(packet, field), !swap(old), swap(most)].map(u64::from).iter().sum();
        write_u16(packet, field, usize::from(!fold(sum)));
    }
}

/// A transport protocol with superpackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransportProtocol {
    Tcp,
    Udp,
}

impl TransportProtocol {
    /// The minimum length of the header, in bytes.
    pub(crate) fn min_header_len(self) -> usize {
        match self {
            Self::Tcp => TCP_OPTIONS,
            Self::Udp => 8,
        }
    }

    /// The offset of the checksum in the header.
    pub(crate) fn checksum_offset(self) -> usize {
        match self {
            Self::Tcp => 16,
            Self::Udp => 6,
        }
    }

    /// The length of the header at the start of `bytes`. `None` if it is impossible, or if the
    /// header is not whole.
    pub(crate) fn header_len(self, bytes: &[u8]) -> Option<usize> {
        let length = match self {
            Self::Tcp => usize::from(bytes.get(12)? >> 4) * 4,
            Self::Udp => 8,
        };
        (length >= self.min_header_len() && length <= bytes.len()).then_some(length)
    }
}

/// The transport header in a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransportHeader {
    /// Its offset in the packet.
    pub(crate) offset: usize,
    pub(crate) protocol: TransportProtocol,
}

/// Finds a TCP or UDP header directly after a packet's IP header, at least of the minimum length.
/// `None` for other protocols and in fragments.
pub(crate) fn transport(packet: &[u8]) -> Option<TransportHeader> {
    let (at, number) = match version(packet)? {
        IpVersion::V4 if read_u16(packet, 6) & FRAGMENTED != 0 => return None,
        IpVersion::V4 if v4_header(packet) < V4_HEADER => return None,
        IpVersion::V4 => (v4_header(packet), packet[9]),
        IpVersion::V6 => (V6_HEADER, packet[6]),
    };
    let protocol = match number {
        TCP => TransportProtocol::Tcp,
        UDP => TransportProtocol::Udp,
        _ => return None,
    };
    (at + protocol.min_header_len() <= packet.len())
        .then_some(TransportHeader { offset: at, protocol })
}

/// Whether a transport header may begin there: in IPv4 directly after the IP header, in IPv6 also
/// after extension headers.
pub(crate) fn can_begin_transport(packet: &[u8], at: usize) -> bool {
    match version(packet) {
        Some(IpVersion::V4) => at >= V4_HEADER && at == v4_header(packet),
        Some(IpVersion::V6) => at >= V6_HEADER,
        None => false,
    }
}

/// Whether an IP packet is IPv4, and not IPv6.
pub(crate) fn is_v4(packet: &[u8]) -> bool {
    packet[0] >> 4 == 4
}

/// Whether it is an IPv4 packet that must not be fragmented. Its identification has no meaning (RFC
/// 6864).
pub(crate) fn is_atomic(packet: &[u8]) -> bool {
    is_v4(packet) && read_u16(packet, 6) & DONT_FRAGMENT != 0
}

/// The source address of an IP packet. `None` if it is not IP.
pub fn source(packet: &[u8]) -> Option<IpAddr> {
    let from = match version(packet)? {
        IpVersion::V4 => IpAddr::from(*addresses(packet).first_chunk::<4>()?),
        IpVersion::V6 => IpAddr::from(*addresses(packet).first_chunk::<16>()?),
    };
    Some(from)
}

/// The destination address of an IP packet. `None` if it is not IP.
pub fn destination(packet: &[u8]) -> Option<IpAddr> {
    let to = match version(packet)? {
        IpVersion::V4 => IpAddr::from(*addresses(packet).last_chunk::<4>()?),
        IpVersion::V6 => IpAddr::from(*addresses(packet).last_chunk::<16>()?),
    };
    Some(to)
}

/// The addresses of an IP packet: the source, then the destination.
pub(crate) fn addresses(packet: &[u8]) -> &[u8] {
    if is_v4(packet) { &packet[12..20] } else { &packet[8..40] }
}

impl TransportHeader {
    /// Turns the headers of a superpacket's first segment into those of a later one, after
    /// `segments` segments of `size` bytes of payload each. The checksums are wrong afterwards.
    pub(crate) fn advance_headers(self, headers: &mut [u8], segments: usize, size: usize) {
        let (ip, transport) = headers.split_at_mut(self.offset);
        if is_v4(ip) {
            write_u16(ip, 4, usize::from(read_u16(ip, 4)) + segments);
        }
        if self.protocol == TransportProtocol::Tcp {
            let number =
                u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]);
            #[expect(clippy::cast_possible_truncation, reason = "a superpacket has at most 64 KiB")]
            let number = number.wrapping_add((segments * size) as u32);
            transport[4..8].copy_from_slice(&number.to_be_bytes());
            if segments > 0 {
                transport[TCP_FLAGS] &= !CWR;
            }
        }
    }

    /// Sets lengths and checksums for a payload of another length. The transport checksum is
    /// partial, before and after.
    pub(crate) fn set_payload(self, headers: &mut [u8], old: usize, new: usize) {
        let length = headers.len() + new;
        let behind = headers.len() - self.offset;
        let (ip, transport) = headers.split_at_mut(self.offset);
        if is_v4(ip) {
            write_u16(ip, 2, length);
            write_u16(ip, 10, 0);
            let sum = !fold(sum(ip));
            write_u16(ip, 10, usize::from(sum));
        } else {
            write_u16(ip, 4, length - V6_HEADER);
        }
        if self.protocol == TransportProtocol::Udp {
            write_u16(transport, 4, behind + new);
        }
        // In the pseudo-header only the length changes. To compute it anew would need the
        // destination from an IPv6 routing header.
        let field = self.protocol.checksum_offset();
        let less = !fold((behind + old) as u64);
        let sum = u64::from(read_u16(transport, field)) + u64::from(less) + (behind + new) as u64;
        write_u16(transport, field, usize::from(fold(sum)));
    }
}

/// Reads a 16-bit number of a header.
pub(crate) fn read_u16(header: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

/// Writes a 16-bit number of a header. Larger values wrap, as the counters there do.
pub(crate) fn write_u16(header: &mut [u8], at: usize, value: usize) {
    #[expect(clippy::cast_possible_truncation, reason = "counters wrap, lengths fit")]
    let value = value as u16;
    header[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

enum IpVersion {
    V4,
    V6,
}

/// The version of a packet with at least the fixed header.
fn version(packet: &[u8]) -> Option<IpVersion> {
    match packet.first()? >> 4 {
        4 if packet.len() >= V4_HEADER => Some(IpVersion::V4),
        6 if packet.len() >= V6_HEADER => Some(IpVersion::V6),
        _ => None,
    }
}

/// The length of an IPv4 header as the packet states it, options included.
fn v4_header(packet: &[u8]) -> usize {
    usize::from(packet[0] & 0xf) * 4
}

/// The offset of the maximum segment size in the options of a TCP header.
fn mss_option(tcp: &[u8]) -> Option<usize> {
    const END: u8 = 0;
    const NOP: u8 = 1;
    const MSS: u8 = 2;
    let header = &tcp[..TransportProtocol::Tcp.header_len(tcp)?];
    let mut at = TCP_OPTIONS;
    loop {
        let kind = *header.get(at)?;
        if kind == END {
            return None;
        }
        if kind == NOP {
            at += 1;
            continue;
        }
        let length = usize::from(*header.get(at + 1)?);
        if kind == MSS {
            return (length == 4 && at + length <= header.len()).then_some(at + 2);
        }
        if length < 2 {
            return None;
        }
        at += length;
    }
}

/// Spreads the bits of a word over all bits.
fn mix(value: u64) -> u64 {
    let product = u128::from(value ^ 0x243f_6a88_85a3_08d3) * 0x9e37_79b9_7f4a_7c15;
    #[expect(clippy::cast_possible_truncation, reason = "low and high half")]
    let (low, high) = (product as u64, (product >> 64) as u64);
    low ^ high
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::complete;
    use crate::test_packets::{TCP4, TestSuperpacket, transport_sum};
    use crate::{FrameSegments, VIRTIO_HEADER_LEN};
    use proptest::prelude::*;

    fn packet(test_packet: TestSuperpacket) -> Vec<u8> {
        let mut packet = Vec::new();
        FrameSegments::parse(&test_packet.bytes()).unwrap().append(0, &mut packet);
        packet
    }

    /// A SYN with `padding` bytes before the announcement.
    fn syn(v6: bool, padding: usize, announced: u16) -> Vec<u8> {
        let mut packet = packet(TestSuperpacket { v6, flags: SYN, payload: 1, ..TCP4 });
        let options = &mut packet[if v6 { 60 } else { 40 }..][..12];
        // An unknown option, padding, the announcement, and the end.
        options[..3].copy_from_slice(&[200, 3, 9]);
        options[3..3 + padding].fill(1);
        options[3 + padding..][..2].copy_from_slice(&[2, 4]);
        options[5 + padding..][..2].copy_from_slice(&announced.to_be_bytes());
        packet
    }

    #[test]
    fn consecutive_packets_are_separated() {
        let six = packet(TestSuperpacket {
            v6: true,
            protocol: TransportProtocol::Udp,
            payload: 9,
            ..TCP4
        });
        let four = packet(TestSuperpacket { payload: 7, ..TCP4 });
        let all = [&six[..], &four, &six].concat();
        assert_eq!(packet_len(&all), Some(57));
        assert_eq!(packet_len(&all[57..]), Some(59));
        assert_eq!(packet_len(&all[116..]), Some(57));
        assert_eq!(packet_len(&all[116..172]), None);
        assert_eq!(packet_len(&[]), None);
    }

    #[test]
    fn impossible_lengths_are_rejected() {
        let four = packet(TestSuperpacket { payload: 7, ..TCP4 });
        let changes: [(usize, &[u8]); 5] =
            [(0, &[0x44]), (0, &[0x55]), (2, &[0, 19]), (2, &[0, 60]), (0, &[0x4f, 0, 0, 59])];
        for (at, bytes) in changes {
            let mut packet = four.clone();
            packet[at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(packet_len(&packet), None, "{bytes:x?}");
        }
        assert_eq!(packet_len(&four[..19]), None);
        let mut none = packet(TestSuperpacket { v6: true, ..TCP4 });
        none[4..6].fill(0);
        assert_eq!(packet_len(&none), Some(40));
        assert_eq!(packet_len(&none[..39]), None);
    }

    #[test]
    fn a_transport_header_is_found() {
        let six = packet(TestSuperpacket {
            v6: true,
            protocol: TransportProtocol::Udp,
            payload: 9,
            ..TCP4
        });
        assert_eq!(
            transport(&six),
            Some(TransportHeader { offset: 40, protocol: TransportProtocol::Udp })
        );
        assert_eq!(transport(&six[..47]), None);
        let mut four = packet(TCP4);
        assert_eq!(
            transport(&four),
            Some(TransportHeader { offset: 20, protocol: TransportProtocol::Tcp })
        );
        four[0] = 0x46;
        assert_eq!(
            transport(&four),
            Some(TransportHeader { offset: 24, protocol: TransportProtocol::Tcp })
        );
        four[0] = 0x44;
        assert_eq!(transport(&four), None);
    }

    #[test]
    fn a_flow_is_addresses_protocol_and_ports() {
        for v6 in [false, true] {
            let one = packet(TestSuperpacket { v6, ..TCP4 });
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
        // A fragment may have data where its ports would be.
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
            let mut packet = packet(TestSuperpacket { payload: 1, ..TCP4 });
            write_u16(&mut packet, 20, usize::from(port));
            buckets[usize::from(flow(&packet) % 64)] += 1;
        }
        assert!(buckets.iter().all(|count| (900..1150).contains(count)), "{buckets:?}");
    }

    #[test]
    fn only_syns_with_a_larger_mss_change() {
        for (v6, announced) in [(false, 1460), (true, 1440)] {
            let mut exact = syn(v6, 2, announced);
            let before = exact.clone();
            clamp_mss(&mut exact, 1500, ChecksumState::Complete);
            assert_eq!(exact, before);
            clamp_mss(&mut exact, 1499, ChecksumState::Partial);
            let at = if v6 { 67 } else { 47 };
            assert_eq!(read_u16(&exact, at), announced - 1);
            exact[at..at + 2].copy_from_slice(&before[at..at + 2]);
            // The checksum's field is unchanged.
            assert_eq!(exact, before);
        }
        // An announcement that the end of the header truncates.
        let mut short = syn(false, 4, 1460);
        short[43..50].fill(1);
        short[50..52].copy_from_slice(&[2, 4]);
        let before = short.clone();
        clamp_mss(&mut short, 1000, ChecksumState::Complete);
        assert_eq!(short, before);
        let mut later = syn(false, 2, 1460);
        later[33] = ACK;
        let before = later.clone();
        clamp_mss(&mut later, 1000, ChecksumState::Complete);
        assert_eq!(later, before);
    }

    proptest! {
        #[test]
        fn a_clamped_packet_has_a_valid_checksum(
            v6: bool, padding in 0_usize..4, announced: u16, mtu in 0_usize..2000,
        ) {
            let mut packet = syn(v6, padding, announced);
            let ip = if v6 { 40 } else { 20 };
            complete(&mut packet, ip, 16);
            clamp_mss(&mut packet, mtu, ChecksumState::Complete);
            prop_assert_eq!(transport_sum(&packet), 0);
            let announced = usize::from(announced).min(mtu.saturating_sub(ip + 20));
            prop_assert_eq!(usize::from(read_u16(&packet, ip + 25 + padding)), announced);
        }

        #[test]
        fn any_bytes_can_be_parsed(bytes in prop::collection::vec(any::<u8>(), 0..100), first: u8) {
            let mut bytes = bytes;
            // Make most of them similar to a SYN.
            if bytes.len() > 60 {
                (bytes[0], bytes[6], bytes[7], bytes[9]) = (0x40 + first % 16, 0, 0, TCP);
                bytes[33] |= SYN;
            }
            if let Some(length) = packet_len(&bytes) {
                prop_assert!((20..=bytes.len()).contains(&length));
            }
            flow(&bytes);
            let before = bytes.len();
            clamp_mss(&mut bytes, 1280, ChecksumState::Complete);
            prop_assert_eq!(bytes.len(), before);
        }
    }

    #[test]
    fn headers_of_a_later_segment_match_segmentation() {
        let frame = TestSuperpacket { payload: 3000, ..TCP4 }.bytes();
        let mut headers = frame[VIRTIO_HEADER_LEN..][..52].to_vec();
        let transport = transport(&headers).unwrap();
        transport.advance_headers(&mut headers, 2, 1448);
        transport.set_payload(&mut headers, 3000, 104);
        let mut last = Vec::new();
        FrameSegments::parse(&frame).unwrap().append(2, &mut last);
        assert_eq!(headers, last[..52]);
    }
}
