//! Coalesces the packets that leave a tunnel into superpackets.

use crate::checksum::ChecksumState;
use crate::ip::{TransportHeader, TransportProtocol, packet_len, transport};
use crate::superpacket::{MergeablePacket, Superpacket, SuperpacketBuilder};

/// The maximum number of superpackets that wait for their next packet.
const MAX_OPEN: usize = 8;

/// Coalesces consecutive packets of a flow into superpackets.
///
/// Packets are borrowed until they are written, so each batch needs its own coalescer. Creating one
/// is cheap: it allocates no memory and has about 9 KiB. Call [`flush`](Self::flush) at the end of
/// a batch; otherwise packets that still wait are lost.
///
/// Packets of a flow stay in order. Packets of different flows may overtake each other within the
/// batch. Packets that are not TCP or UDP, and fragments, stay in order with all packets between
/// the same two addresses.
#[derive(Debug)]
pub struct PacketCoalescer<'a> {
    open: [Option<SuperpacketBuilder<'a>>; MAX_OPEN],
    /// The number of superpackets opened so far, from which their numbers are taken.
    opened: usize,
    merges_udp: bool,
}

/// Why a packet was not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoalesceError {
    /// The bytes are not exactly one IP packet.
    #[error("it is not one IP packet")]
    NotIp,
    /// The checksum is partial, but the packet is not TCP or UDP directly after an IP header.
    #[error("a checksum is to be done in a packet that is neither TCP nor UDP")]
    NoTransport,
}

impl<'a> PacketCoalescer<'a> {
    /// An empty coalescer. Set `merges_udp` only for a device that supports superpackets of UDP
    /// ([`Device::supports_uso`](crate::TunDevice::supports_uso)) and has not refused one.
    pub fn new(merges_udp: bool) -> Self {
        Self { open: [const { None }; MAX_OPEN], opened: 0, merges_udp }
    }

    /// Adds a packet, and writes the superpackets that no longer wait.
    ///
    /// Only packets with partial checksums are merged: to merge others, their payload would have to
    /// be summed first. Packets with a malformed TCP or UDP header are written unchanged.
    ///
    /// # Errors
    /// If the packet must not be passed on. The coalescer is then unchanged.
    pub fn push(
        &mut self,
        packet: &'a [u8],
        checksum: ChecksumState,
        mut write: impl FnMut(&Superpacket<'_>),
    ) -> Result<(), CoalesceError> {
        if packet_len(packet) != Some(packet.len()) {
            return Err(CoalesceError::NotIp);
        }
        let transport = transport(packet);
        let partial = match (checksum, transport) {
            (ChecksumState::Complete, _) => None,
            (ChecksumState::Partial, Some(transport)) => Some(transport),
            (ChecksumState::Partial, None) => return Err(CoalesceError::NoTransport),
        };
        let segment = partial
            .filter(|transport| transport.protocol == TransportProtocol::Tcp || self.merges_udp)
            .and_then(|transport| MergeablePacket::parse(packet, transport));
        if let Some(segment) = &segment
            && let Some(index) = self.find(packet, transport)
            && let Some(open) = &mut self.open[index]
            && open.accepts(segment)
        {
            open.add(segment);
            if open.is_complete() {
                self.close(index, &mut write);
            }
            return Ok(());
        }
        // Earlier packets of the flow are written first.
        while let Some(index) = self.find(packet, transport) {
            self.close(index, &mut write);
        }
        match segment.and_then(|segment| SuperpacketBuilder::new(self.opened, &segment)) {
            Some(open) => self.begin(open, &mut write),
            None => write(&Superpacket::single(&packet, partial)),
        }
        Ok(())
    }

    /// Writes all superpackets that still wait, the oldest first.
    pub fn flush(&mut self, mut write: impl FnMut(&Superpacket<'_>)) {
        while let Some(oldest) = self.oldest() {
            self.close(oldest, &mut write);
        }
    }

    /// Finds a superpacket that the packet must not overtake.
    fn find(&self, packet: &[u8], transport: Option<TransportHeader>) -> Option<usize> {
        self.open
            .iter()
            .position(|open| open.as_ref().is_some_and(|open| open.must_precede(packet, transport)))
    }

    fn oldest(&self) -> Option<usize> {
        let opened = |index: usize| self.open[index].as_ref().map(|open| (open.number, index));
        (0..MAX_OPEN).filter_map(opened).min().map(|(_, index)| index)
    }

    /// Keeps a superpacket waiting. If all places are taken, the oldest is written.
    fn begin(&mut self, open: SuperpacketBuilder<'a>, write: &mut impl FnMut(&Superpacket<'_>)) {
        if self.open.iter().all(Option::is_some)
            && let Some(oldest) = self.oldest()
        {
            self.close(oldest, write);
        }
        if let Some(free) = self.open.iter_mut().find(|place| place.is_none()) {
            *free = Some(open);
        }
        self.opened += 1;
    }

    fn close(&mut self, index: usize, write: &mut impl FnMut(&Superpacket<'_>)) {
        if let Some(open) = self.open[index].take() {
            write(&open.superpacket());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::{fold, sum};
    use crate::ip::{
        ACK, CWR, FIN, PSH, RST, SYN, URG, addresses, is_atomic, is_v4, read_u16, write_u16,
    };
    use crate::segments::FrameSegments;
    use crate::superpacket::{MAX_SEGMENTS, MIN_PAYLOAD};
    use crate::test_packets::{TCP4, TestSuperpacket, test_packets};
    use crate::virtio::VirtioHeader;
    use crate::{MAX_FRAME_LEN, VIRTIO_HEADER_LEN};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug, PartialEq)]
    struct Packet {
        bytes: Vec<u8>,
        checksum: ChecksumState,
    }

    fn packets(test_packet: TestSuperpacket) -> Vec<Packet> {
        packets_of(&test_packet.bytes())
    }

    fn packets_of(frame: &[u8]) -> Vec<Packet> {
        let segments = FrameSegments::parse(frame).unwrap();
        (0..segments.count())
            .map(|i| {
                let mut bytes = Vec::new();
                segments.append(i, &mut bytes);
                Packet { bytes, checksum: segments.checksum() }
            })
            .collect()
    }

    /// All frames that are written for the packets, and the result for each packet.
    fn coalesced(packets: &[Packet]) -> (Vec<Vec<u8>>, Vec<Result<(), CoalesceError>>) {
        let mut coalescer = PacketCoalescer::new(true);
        let mut frames = Vec::new();
        let mut write = |superpacket: &Superpacket<'_>| frames.push(bytes(superpacket));
        let results = packets
            .iter()
            .map(|packet| coalescer.push(&packet.bytes, packet.checksum, &mut write))
            .collect();
        coalescer.flush(write);
        (frames, results)
    }

    fn bytes(superpacket: &Superpacket<'_>) -> Vec<u8> {
        superpacket.slices().iter().flat_map(|slice| slice.to_vec()).collect()
    }

    /// The number of packets in each frame.
    fn counts(frames: &[Vec<u8>]) -> Vec<usize> {
        frames.iter().map(|frame| packets_of(frame).len()).collect()
    }

    fn change_port(packet: &mut Packet, port: u8) {
        packet.bytes[20] = port;
    }

    #[test]
    fn one_superpacket_has_65535_bytes_and_64_packets_at_most() {
        let most = packets(TestSuperpacket { payload: 45 * 1448, flags: ACK, ..TCP4 });
        assert_eq!(counts(&coalesced(&most).0), [45]);
        let jumbo = packets(TestSuperpacket { payload: 40_000, size: 8000, flags: ACK, ..TCP4 });
        // The following bytes of the same flow.
        let mut more = jumbo.clone();
        for Packet { bytes, .. } in &mut more {
            let transport = transport(bytes).unwrap();
            transport.advance_headers(bytes, 5, 8000);
            transport.set_payload(&mut bytes[..52], 8000, 8000);
        }
        assert_eq!(counts(&coalesced(&[jumbo, more].concat()).0), [8, 2]);
        let small = TestSuperpacket { payload: 70 * 100, size: 100, ..TCP4 };
        assert_eq!(counts(&coalesced(&packets(small)).0), [64, 6]);
        let tiny =
            TestSuperpacket { payload: 3 * (MIN_PAYLOAD - 1), size: MIN_PAYLOAD - 1, ..TCP4 };
        assert_eq!(counts(&coalesced(&packets(tiny)).0), [1, 1, 1]);
    }

    #[test]
    fn interleaved_flows_are_coalesced_separately() {
        let flow = packets(TCP4);
        let mut interleaved = Vec::new();
        for packet in &flow {
            for port in 0..8 {
                interleaved.push(packet.clone());
                change_port(interleaved.last_mut().unwrap(), port);
            }
        }
        assert_eq!(counts(&coalesced(&interleaved).0), [flow.len(); 8]);
        // With a ninth flow, the first is written.
        interleaved.truncate(8);
        interleaved.push(flow[0].clone());
        change_port(&mut interleaved[8], 9);
        let (frames, _) = coalesced(&interleaved);
        let ports: Vec<u8> = frames.iter().map(|frame| frame[VIRTIO_HEADER_LEN + 20]).collect();
        assert_eq!(ports, [0, 1, 2, 3, 4, 5, 6, 7, 9]);
    }

    #[test]
    fn packets_that_are_not_merged_stay_in_order() {
        let flow = packets(TestSuperpacket { flags: ACK, ..TCP4 });
        // A pure acknowledgment, a complete packet, a fragment and ICMP, each between data packets.
        let mut acknowledgment = flow[1].clone();
        acknowledgment.bytes.truncate(52);
        let transport = transport(&acknowledgment.bytes).unwrap();
        transport.set_payload(&mut acknowledgment.bytes, 1448, 0);
        let complete = Packet { checksum: ChecksumState::Complete, ..flow[1].clone() };
        let (mut fragment, mut icmp) = (complete.clone(), complete.clone());
        fragment.bytes[6] = 0x20;
        icmp.bytes[9] = 1;
        for packet in [acknowledgment, complete, fragment, icmp] {
            let input = [flow[0].clone(), packet.clone(), flow[1].clone(), flow[2].clone()];
            let (frames, results) = coalesced(&input);
            assert_eq!(results, [Ok(()); 4]);
            assert_eq!(counts(&frames), [1, 1, 2]);
            assert_eq!(packets_of(&frames[1]), [packet]);
            // In another flow, it has no effect.
            let mut other = input.clone();
            other[1].bytes[12] = 11;
            assert_eq!(counts(&coalesced(&other).0), [1, 3]);
        }
    }

    #[test]
    fn packets_with_different_headers_are_not_merged() {
        let flow = packets(TestSuperpacket { flags: ACK, ..TCP4 });
        // Service, hop limit, sequence, acknowledgment, flags, window, urgent, options.
        for at in [1, 4, 8, 27, 31, 33, 35, 39, 45] {
            let mut second = flow[1].clone();
            second.bytes[at] ^= 0x40;
            correct_checksum(&mut second.bytes);
            let (frames, _) = coalesced(&[flow[0].clone(), second.clone()]);
            assert_eq!(counts(&frames), [1, 1], "byte {at}");
            assert_eq!(frames[1][VIRTIO_HEADER_LEN..], second.bytes);
        }
    }

    #[test]
    fn a_psh_segment_ends_the_superpacket() {
        let mut flow = packets(TestSuperpacket { flags: ACK, ..TCP4 });
        for index in [1, 2, 3] {
            flow[index].bytes[33] |= PSH;
        }
        assert_eq!(counts(&coalesced(&flow).0), [2, 1, 1, 3]);
    }

    #[test]
    fn flags_that_apply_to_one_packet_prevent_merging() {
        for flag in [SYN, RST, URG, CWR] {
            let mut flow = packets(TestSuperpacket { payload: 3 * 1448, flags: ACK, ..TCP4 });
            for packet in &mut flow {
                packet.bytes[33] |= flag;
            }
            assert_eq!(counts(&coalesced(&flow).0), [1, 1, 1], "{flag}");
        }
        // Packets with IP options are not merged either. These are the longest options.
        let mut flow = packets(TestSuperpacket { payload: 3 * 1448, flags: ACK, ..TCP4 });
        for Packet { bytes, .. } in &mut flow {
            bytes[0] = 0x4f;
            bytes.splice(20..20, [1; 40]);
            let transport = transport(bytes).unwrap();
            transport.set_payload(&mut bytes[..92], 1448, 1448);
        }
        assert_eq!(counts(&coalesced(&flow).0), [1, 1, 1]);
    }

    #[test]
    fn the_identification_of_atomic_packets_is_ignored() {
        let mut flow = packets(TestSuperpacket { flags: ACK, ..TCP4 });
        for (number, Packet { bytes, .. }) in flow.iter_mut().enumerate() {
            bytes[6] = 0x40;
            write_u16(bytes, 4, number * 7919);
            correct_checksum(bytes);
        }
        assert_eq!(counts(&coalesced(&flow).0), [flow.len()]);
    }

    #[test]
    fn udp_is_merged_only_if_enabled() {
        let flow = packets(TestSuperpacket { protocol: TransportProtocol::Udp, ..TCP4 });
        assert_eq!(counts(&coalesced(&flow).0), [flow.len()]);
        let mut coalescer = PacketCoalescer::new(false);
        let mut frames = Vec::new();
        for packet in &flow {
            let write = |superpacket: &Superpacket<'_>| frames.push(bytes(superpacket));
            coalescer.push(&packet.bytes, packet.checksum, write).unwrap();
        }
        assert_eq!(counts(&frames), vec![1; flow.len()]);
    }

    #[test]
    fn hostile_packets_are_dropped_or_written_without_offloads() {
        let partial = |bytes| Packet { bytes, checksum: ChecksumState::Partial };
        let packet = packets(TCP4)[0].bytes.clone();
        let changed = |at: usize, byte: u8| {
            let mut bytes = packet.clone();
            bytes[at] = byte;
            partial(bytes)
        };
        let mut extended = packets(TestSuperpacket { v6: true, ..TCP4 })[0].clone();
        extended.bytes[6] = 0;
        let mut short = partial(packet[..39].to_vec());
        write_u16(&mut short.bytes, 2, 39);
        // ICMP, fragments, TCP after an extension header, truncated TCP.
        for packet in [changed(9, 1), changed(6, 0x20), changed(7, 1), extended, short] {
            let (frames, results) = coalesced(&[packet]);
            assert_eq!((frames.len(), results), (0, vec![Err(CoalesceError::NoTransport)]));
        }
        let empty = partial(Vec::new());
        for packet in [changed(0, 0x55), changed(0, 0x44), changed(3, 0), empty] {
            let (frames, results) = coalesced(&[packet]);
            assert_eq!((frames.len(), results), (0, vec![Err(CoalesceError::NotIp)]));
        }
        // TCP's header is longer than the packet, or shorter than the minimum: nothing is merged.
        for length in [0x00, 0x40, 0xf0] {
            let mut pair = [packets(TCP4)[0].clone(), packets(TCP4)[1].clone()];
            for Packet { bytes, .. } in &mut pair {
                bytes.truncate(52);
                write_u16(bytes, 2, 52);
                bytes[32] = length;
            }
            let (frames, _) = coalesced(&pair);
            assert_eq!(counts(&frames), [1, 1]);
            // The packet contains the checksum's field.
            assert_eq!(
                frames[0][..VIRTIO_HEADER_LEN],
                *VirtioHeader::partial(transport(&pair[0].bytes).unwrap()).bytes()
            );
        }
    }

    #[test]
    fn a_refused_superpacket_can_be_written_packet_by_packet() {
        let flow = packets(TCP4);
        let mut coalescer = PacketCoalescer::new(true);
        let mut again = Vec::new();
        for packet in &flow {
            let write = |superpacket: &Superpacket<'_>| {
                again.extend(
                    superpacket.segments().flat_map(|segment| packets_of(&bytes(&segment))),
                );
            };
            coalescer.push(&packet.bytes, packet.checksum, write).unwrap();
        }
        assert_eq!(again, flow);
    }

    /// What identifies a flow: the addresses and, if there are any, protocol and ports.
    fn key(packet: &[u8]) -> Vec<u8> {
        let mut key = addresses(packet).to_vec();
        if let Some(TransportHeader { offset: at, protocol }) = transport(packet) {
            key.push(u8::from(protocol == TransportProtocol::Tcp));
            key.extend(&packet[at..at + 4]);
        }
        key
    }

    /// Packets by flow, with identifications that have no meaning set to zero.
    fn flows(packets: impl IntoIterator<Item = Packet>) -> BTreeMap<Vec<u8>, Vec<Packet>> {
        let mut flows: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for mut packet in packets {
            let bytes = &mut packet.bytes;
            let key = key(bytes);
            if is_atomic(bytes) {
                // The header's checksum includes the identification.
                let sum = u64::from(read_u16(bytes, 10)) + u64::from(read_u16(bytes, 4));
                write_u16(bytes, 10, usize::from(fold(sum)));
                write_u16(bytes, 4, 0);
            }
            flows.entry(key).or_default().push(packet);
        }
        flows
    }

    /// Packets of a few flows, some of them changed so that they differ or are malformed.
    fn streams() -> impl Strategy<Value = Vec<Packet>> {
        let pieces = (test_packets(), 0_u8..3, any::<bool>(), 0_usize..8, 1_usize..20);
        let change = (any::<prop::sample::Index>(), 0_usize..60, any::<u8>(), any::<bool>());
        (
            prop::collection::vec(pieces, 1..5),
            prop::collection::vec(change, 0..4),
            prop::collection::vec(any::<prop::sample::Index>(), 0..4),
            prop::collection::vec(any::<prop::sample::Index>(), 0..2),
        )
            .prop_map(|(pieces, changes, swaps, complete)| {
                let mut all: Vec<Packet> = Vec::new();
                for (test_packet, port, is_atomic, skip, take) in pieces {
                    let test_packet = TestSuperpacket {
                        flags: ACK | PSH,
                        size: test_packet.size % 2000 + 50,
                        ..test_packet
                    };
                    let test_packet = TestSuperpacket {
                        payload: test_packet.payload % 20_000 + 1,
                        ..test_packet
                    };
                    let mut packets = packets(test_packet);
                    for Packet { bytes, .. } in &mut packets {
                        bytes[test_packet.ip()] = port;
                        if is_atomic && !test_packet.v6 {
                            bytes[6] = 0x40;
                            correct_checksum(bytes);
                        }
                    }
                    // Interleave half of them with the packets before.
                    let mut place = all.len() / 2;
                    for packet in packets.into_iter().skip(skip).take(take) {
                        all.insert(place.min(all.len()), packet);
                        place += if port == 0 { 1 } else { 2 };
                    }
                }
                if all.is_empty() {
                    return all;
                }
                for (index, at, byte, is_corrected) in changes {
                    let index = index.index(all.len());
                    let packet = &mut all[index].bytes;
                    if let Some(changed) = packet.get_mut(at) {
                        *changed = byte;
                    }
                    if is_corrected && packet.len() > 60 {
                        correct_checksum(packet);
                    }
                }
                for index in swaps {
                    let index = index.index(all.len());
                    all.swap(index, 0);
                }
                for index in complete {
                    let index = index.index(all.len());
                    all[index].checksum = ChecksumState::Complete;
                }
                all
            })
    }

    /// Corrects the checksum of an IPv4 header.
    fn correct_checksum(packet: &mut [u8]) {
        if is_v4(packet) {
            write_u16(packet, 10, 0);
            let sum = !fold(sum(&packet[..20]));
            write_u16(packet, 10, usize::from(sum));
        }
    }

    proptest! {
        #[test]
        fn segments_are_coalesced_into_the_same_superpacket(test_packet in test_packets()) {
            let size = test_packet.size.max(MIN_PAYLOAD);
            let payload = test_packet.payload.min(size * MAX_SEGMENTS);
            let test_packet = TestSuperpacket { size, payload, flags: ACK | PSH | FIN, ..test_packet };
            let (frames, _) = coalesced(&packets(test_packet));
            prop_assert_eq!(frames.len(), 1);
            if payload > size {
                prop_assert_eq!(&frames[0], &test_packet.bytes());
            } else {
                prop_assert_eq!(&frames[0][VIRTIO_HEADER_LEN..], &test_packet.bytes()[VIRTIO_HEADER_LEN..]);
            }
        }

        #[test]
        fn segmentation_restores_the_packets_of_each_flow(stream in streams()) {
            let (frames, results) = coalesced(&stream);
            prop_assert!(frames.iter().all(|frame| frame.len() <= MAX_FRAME_LEN));
            let taken = stream.into_iter().zip(results).filter_map(|(packet, result)| {
                result.is_ok().then_some(packet)
            });
            let given = frames.iter().flat_map(|frame| packets_of(frame));
            prop_assert_eq!(flows(given), flows(taken));
        }

        #[test]
        fn any_bytes_can_be_coalesced(
            packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..10),
        ) {
            let packets: Vec<_> = packets
                .into_iter()
                .map(|mut packet| {
                    // Make most of them similar to IP.
                    if packet.len() > 40 && packet[0] % 8 > 0 {
                        let is_v4 = packet[0] % 2 == 0;
                        packet[0] = if is_v4 { 0x45 } else { 0x60 };
                        let length = packet.len() - if is_v4 { 0 } else { 40 };
                        write_u16(&mut packet, if is_v4 { 2 } else { 4 }, length);
                        packet[if is_v4 { 9 } else { 6 }] = [6, 17, 1][usize::from(packet[1] % 3)];
                    }
                    let is_complete = packet.len() % 5 == 0;
                    let checksum = if is_complete { ChecksumState::Complete } else { ChecksumState::Partial };
                    Packet { bytes: packet, checksum }
                })
                .collect();
            for frame in coalesced(&packets).0 {
                let (virtio, packet) = VirtioHeader::split(&frame).unwrap();
                prop_assert!(!virtio.needs_checksum() || virtio.start() + virtio.offset() + 2 <= packet.len());
            }
        }
    }
}
