//! Making superpackets of the packets that come out of a tunnel.

use crate::checksum::Checksum;
use crate::ip::{Protocol, Transport, packet_len, transport};
use crate::superpacket::{Open, Segment, Superpacket};

/// The most superpackets that wait for their next packet.
const MOST_OPEN: usize = 8;

/// Packets of a flow that follow each other become superpackets.
///
/// Packets are borrowed until they are written: a coalescer is for one batch, and made anew for the
/// next, which costs nothing. It takes no memory but its own, about 9 KiB. What still waits in it
/// at the end of a batch is lost without [`flush`](Self::flush).
///
/// Packets of a flow never overtake each other. Packets of different flows may, within the batch.
/// What is not TCP or UDP, or a fragment, stays in its place among all between the same addresses.
#[derive(Debug)]
pub struct Coalescer<'a> {
    open: [Option<Open<'a>>; MOST_OPEN],
    /// How many were opened, which orders them.
    opened: usize,
    merges_udp: bool,
}

/// Why a packet was not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Dropped {
    /// It is not IP, or not all of one packet.
    #[error("it is not one IP packet")]
    NotIp,
    /// Its checksum was to be done by the kernel, but it is not TCP or UDP right behind an IP
    /// header.
    #[error("a checksum is to be done in a packet that is neither TCP nor UDP")]
    NoTransport,
}

impl<'a> Coalescer<'a> {
    /// One with nothing in it. UDP is merged only for a device that cuts it
    /// ([`Device::cuts_udp`](crate::Device::cuts_udp)) and has not refused to.
    pub fn new(merges_udp: bool) -> Self {
        Self { open: [const { None }; MOST_OPEN], opened: 0, merges_udp }
    }

    /// Takes a packet, and writes what is not to wait any more.
    ///
    /// Only packets with partial checksums are merged: to merge others, their payload would have
    /// to be added up first. Packets that TCP or UDP cannot understand are written as they are.
    ///
    /// # Errors
    /// If the packet must not be passed on. It changes nothing then.
    pub fn push(
        &mut self,
        packet: &'a [u8],
        checksum: Checksum,
        mut write: impl FnMut(&Superpacket<'_>),
    ) -> Result<(), Dropped> {
        if packet_len(packet) != Some(packet.len()) {
            return Err(Dropped::NotIp);
        }
        let transport = transport(packet);
        let partial = match (checksum, transport) {
            (Checksum::Complete, _) => None,
            (Checksum::Partial, Some(transport)) => Some(transport),
            (Checksum::Partial, None) => return Err(Dropped::NoTransport),
        };
        let segment = partial
            .filter(|transport| transport.protocol == Protocol::Tcp || self.merges_udp)
            .and_then(|transport| Segment::parse(packet, transport));
        if let Some(segment) = &segment
            && let Some(index) = self.find(packet, transport)
            && let Some(open) = &mut self.open[index]
            && open.takes(segment)
        {
            open.add(segment);
            if open.is_complete() {
                self.close(index, &mut write);
            }
            return Ok(());
        }
        // What came before of its flow goes first.
        while let Some(index) = self.find(packet, transport) {
            self.close(index, &mut write);
        }
        match segment.and_then(|segment| Open::new(self.opened, &segment)) {
            Some(open) => self.begin(open, &mut write),
            None => write(&Superpacket::single(&packet, partial)),
        }
        Ok(())
    }

    /// Writes all that still waits, the oldest first.
    pub fn flush(&mut self, mut write: impl FnMut(&Superpacket<'_>)) {
        while let Some(oldest) = self.oldest() {
            self.close(oldest, &mut write);
        }
    }

    /// Finds what a packet must not overtake.
    fn find(&self, packet: &[u8], transport: Option<Transport>) -> Option<usize> {
        self.open
            .iter()
            .position(|open| open.as_ref().is_some_and(|open| open.precedes(packet, transport)))
    }

    fn oldest(&self) -> Option<usize> {
        let opened = |index: usize| self.open[index].as_ref().map(|open| (open.number, index));
        (0..MOST_OPEN).filter_map(opened).min().map(|(_, index)| index)
    }

    /// Lets a superpacket wait, in the place of the oldest if there is no other.
    fn begin(&mut self, open: Open<'a>, write: &mut impl FnMut(&Superpacket<'_>)) {
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
    use crate::cut::Segments;
    use crate::ip::{
        ACK, FIN, PUSH, RST, SYN, URGENT, WINDOW_REDUCED, addresses, is_atomic, is_v4, put, word,
    };
    use crate::made::{Made, TCP4, made};
    use crate::superpacket::{LEAST_PAYLOAD, MOST_SEGMENTS};
    use crate::virtio::Virtio;
    use crate::{LONGEST, VIRTIO};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug, PartialEq)]
    struct Packet {
        bytes: Vec<u8>,
        checksum: Checksum,
    }

    fn packets(made: Made) -> Vec<Packet> {
        cut(&made.bytes())
    }

    fn cut(frame: &[u8]) -> Vec<Packet> {
        let segments = Segments::parse(frame).unwrap();
        (0..segments.count())
            .map(|i| {
                let mut bytes = Vec::new();
                segments.append(i, &mut bytes);
                Packet { bytes, checksum: segments.checksum() }
            })
            .collect()
    }

    /// All frames that are written for some packets, and what became of each packet.
    fn coalesced(packets: &[Packet]) -> (Vec<Vec<u8>>, Vec<Result<(), Dropped>>) {
        let mut coalescer = Coalescer::new(true);
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

    /// How many packets are in each frame.
    fn counts(frames: &[Vec<u8>]) -> Vec<usize> {
        frames.iter().map(|frame| cut(frame).len()).collect()
    }

    fn change_port(packet: &mut Packet, port: u8) {
        packet.bytes[20] = port;
    }

    #[test]
    fn one_superpacket_has_65535_bytes_and_64_packets_at_most() {
        let most = packets(Made { payload: 45 * 1448, flags: ACK, ..TCP4 });
        assert_eq!(counts(&coalesced(&most).0), [45]);
        let jumbo = packets(Made { payload: 40_000, size: 8000, flags: ACK, ..TCP4 });
        // The next as many bytes of the same flow.
        let mut more = jumbo.clone();
        for Packet { bytes, .. } in &mut more {
            let transport = transport(bytes).unwrap();
            transport.advance(bytes, 5, 8000);
            transport.set_payload(&mut bytes[..52], 8000, 8000);
        }
        assert_eq!(counts(&coalesced(&[jumbo, more].concat()).0), [8, 2]);
        let small = Made { payload: 70 * 100, size: 100, ..TCP4 };
        assert_eq!(counts(&coalesced(&packets(small)).0), [64, 6]);
        let tiny = Made { payload: 3 * (LEAST_PAYLOAD - 1), size: LEAST_PAYLOAD - 1, ..TCP4 };
        assert_eq!(counts(&coalesced(&packets(tiny)).0), [1, 1, 1]);
    }

    #[test]
    fn flows_that_take_turns_become_superpackets_each() {
        let flow = packets(TCP4);
        let mut turns = Vec::new();
        for packet in &flow {
            for port in 0..8 {
                turns.push(packet.clone());
                change_port(turns.last_mut().unwrap(), port);
            }
        }
        assert_eq!(counts(&coalesced(&turns).0), [flow.len(); 8]);
        // A ninth has the first one written.
        turns.truncate(8);
        turns.push(flow[0].clone());
        change_port(&mut turns[8], 9);
        let (frames, _) = coalesced(&turns);
        let ports: Vec<u8> = frames.iter().map(|frame| frame[VIRTIO + 20]).collect();
        assert_eq!(ports, [0, 1, 2, 3, 4, 5, 6, 7, 9]);
    }

    #[test]
    fn what_is_not_merged_keeps_its_place_in_the_flow() {
        let flow = packets(Made { flags: ACK, ..TCP4 });
        // A pure acknowledgment, a complete packet, a fragment and ICMP, each among data.
        let mut acknowledgment = flow[1].clone();
        acknowledgment.bytes.truncate(52);
        let transport = transport(&acknowledgment.bytes).unwrap();
        transport.set_payload(&mut acknowledgment.bytes, 1448, 0);
        let complete = Packet { checksum: Checksum::Complete, ..flow[1].clone() };
        let (mut fragment, mut icmp) = (complete.clone(), complete.clone());
        fragment.bytes[6] = 0x20;
        icmp.bytes[9] = 1;
        for packet in [acknowledgment, complete, fragment, icmp] {
            let input = [flow[0].clone(), packet.clone(), flow[1].clone(), flow[2].clone()];
            let (frames, results) = coalesced(&input);
            assert_eq!(results, [Ok(()); 4]);
            assert_eq!(counts(&frames), [1, 1, 2]);
            assert_eq!(cut(&frames[1]), [packet]);
            // Of another flow, it changes nothing.
            let mut other = input.clone();
            other[1].bytes[12] = 11;
            assert_eq!(counts(&coalesced(&other).0), [1, 3]);
        }
    }

    #[test]
    fn what_differs_is_not_merged() {
        let flow = packets(Made { flags: ACK, ..TCP4 });
        // Service, hop limit, sequence, acknowledgment, flags, window, urgent, options.
        for at in [1, 4, 8, 27, 31, 33, 35, 39, 45] {
            let mut second = flow[1].clone();
            second.bytes[at] ^= 0x40;
            repair(&mut second.bytes);
            let (frames, _) = coalesced(&[flow[0].clone(), second.clone()]);
            assert_eq!(counts(&frames), [1, 1], "byte {at}");
            assert_eq!(frames[1][VIRTIO..], second.bytes);
        }
    }

    #[test]
    fn a_segment_that_is_the_last_is_the_last() {
        let mut flow = packets(Made { flags: ACK, ..TCP4 });
        for index in [1, 2, 3] {
            flow[index].bytes[33] |= PUSH;
        }
        assert_eq!(counts(&coalesced(&flow).0), [2, 1, 1, 3]);
    }

    #[test]
    fn what_is_said_once_is_not_merged() {
        for flag in [SYN, RST, URGENT, WINDOW_REDUCED] {
            let mut flow = packets(Made { payload: 3 * 1448, flags: ACK, ..TCP4 });
            for packet in &mut flow {
                packet.bytes[33] |= flag;
            }
            assert_eq!(counts(&coalesced(&flow).0), [1, 1, 1], "{flag}");
        }
        // Nor are packets with IP options, here the longest.
        let mut flow = packets(Made { payload: 3 * 1448, flags: ACK, ..TCP4 });
        for Packet { bytes, .. } in &mut flow {
            bytes[0] = 0x4f;
            bytes.splice(20..20, [1; 40]);
            let transport = transport(bytes).unwrap();
            transport.set_payload(&mut bytes[..92], 1448, 1448);
        }
        assert_eq!(counts(&coalesced(&flow).0), [1, 1, 1]);
    }

    #[test]
    fn the_number_of_a_packet_that_must_not_be_fragmented_means_nothing() {
        let mut flow = packets(Made { flags: ACK, ..TCP4 });
        for (number, Packet { bytes, .. }) in flow.iter_mut().enumerate() {
            bytes[6] = 0x40;
            put(bytes, 4, number * 7919);
            repair(bytes);
        }
        assert_eq!(counts(&coalesced(&flow).0), [flow.len()]);
    }

    #[test]
    fn udp_is_merged_only_where_it_may_be() {
        let flow = packets(Made { protocol: Protocol::Udp, ..TCP4 });
        assert_eq!(counts(&coalesced(&flow).0), [flow.len()]);
        let mut coalescer = Coalescer::new(false);
        let mut frames = Vec::new();
        for packet in &flow {
            let write = |superpacket: &Superpacket<'_>| frames.push(bytes(superpacket));
            coalescer.push(&packet.bytes, packet.checksum, write).unwrap();
        }
        assert_eq!(counts(&frames), vec![1; flow.len()]);
    }

    #[test]
    fn hostile_packets_ask_nothing_of_the_kernel() {
        let partial = |bytes| Packet { bytes, checksum: Checksum::Partial };
        let packet = packets(TCP4)[0].bytes.clone();
        let changed = |at: usize, byte: u8| {
            let mut bytes = packet.clone();
            bytes[at] = byte;
            partial(bytes)
        };
        let mut extended = packets(Made { v6: true, ..TCP4 })[0].clone();
        extended.bytes[6] = 0;
        let mut short = partial(packet[..39].to_vec());
        put(&mut short.bytes, 2, 39);
        // ICMP, fragments, TCP behind an extension header, TCP cut off.
        for packet in [changed(9, 1), changed(6, 0x20), changed(7, 1), extended, short] {
            let (frames, results) = coalesced(&[packet]);
            assert_eq!((frames.len(), results), (0, vec![Err(Dropped::NoTransport)]));
        }
        let empty = partial(Vec::new());
        for packet in [changed(0, 0x55), changed(0, 0x44), changed(3, 0), empty] {
            let (frames, results) = coalesced(&[packet]);
            assert_eq!((frames.len(), results), (0, vec![Err(Dropped::NotIp)]));
        }
        // TCP's header is longer than the packet, or shorter than it can be: nothing is merged.
        for length in [0x00, 0x40, 0xf0] {
            let mut pair = [packets(TCP4)[0].clone(), packets(TCP4)[1].clone()];
            for Packet { bytes, .. } in &mut pair {
                bytes.truncate(52);
                put(bytes, 2, 52);
                bytes[32] = length;
            }
            let (frames, _) = coalesced(&pair);
            assert_eq!(counts(&frames), [1, 1]);
            // The checksum's field is in the packet.
            assert_eq!(
                frames[0][..VIRTIO],
                *Virtio::partial(transport(&pair[0].bytes).unwrap()).bytes()
            );
        }
    }

    #[test]
    fn a_refused_superpacket_can_be_written_packet_by_packet() {
        let flow = packets(TCP4);
        let mut coalescer = Coalescer::new(true);
        let mut again = Vec::new();
        for packet in &flow {
            let write = |superpacket: &Superpacket<'_>| {
                again.extend(superpacket.segments().flat_map(|segment| cut(&bytes(&segment))));
            };
            coalescer.push(&packet.bytes, packet.checksum, write).unwrap();
        }
        assert_eq!(again, flow);
    }

    /// What tells flows apart: addresses and, where there are any, protocol and ports.
    fn key(packet: &[u8]) -> Vec<u8> {
        let mut key = addresses(packet).to_vec();
        if let Some(Transport { at, protocol }) = transport(packet) {
            key.push(u8::from(protocol == Protocol::Tcp));
            key.extend(&packet[at..at + 4]);
        }
        key
    }

    /// Packets by flow, without the numbers that mean nothing.
    fn flows(packets: impl IntoIterator<Item = Packet>) -> BTreeMap<Vec<u8>, Vec<Packet>> {
        let mut flows: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for mut packet in packets {
            let bytes = &mut packet.bytes;
            let key = key(bytes);
            if is_atomic(bytes) {
                // Its header's checksum has the number in it.
                let sum = u64::from(word(bytes, 10)) + u64::from(word(bytes, 4));
                put(bytes, 10, usize::from(fold(sum)));
                put(bytes, 4, 0);
            }
            flows.entry(key).or_default().push(packet);
        }
        flows
    }

    /// Some packets of a few flows, with changes that make a difference or make them malformed.
    fn streams() -> impl Strategy<Value = Vec<Packet>> {
        let pieces = (made(), 0_u8..3, any::<bool>(), 0_usize..8, 1_usize..20);
        let change = (any::<prop::sample::Index>(), 0_usize..60, any::<u8>(), any::<bool>());
        (
            prop::collection::vec(pieces, 1..5),
            prop::collection::vec(change, 0..4),
            prop::collection::vec(any::<prop::sample::Index>(), 0..4),
            prop::collection::vec(any::<prop::sample::Index>(), 0..2),
        )
            .prop_map(|(pieces, changes, swaps, complete)| {
                let mut all: Vec<Packet> = Vec::new();
                for (made, port, is_atomic, skip, take) in pieces {
                    let made = Made { flags: ACK | PUSH, size: made.size % 2000 + 50, ..made };
                    let made = Made { payload: made.payload % 20_000 + 1, ..made };
                    let mut packets = packets(made);
                    for Packet { bytes, .. } in &mut packets {
                        bytes[made.ip()] = port;
                        if is_atomic && !made.v6 {
                            bytes[6] = 0x40;
                            repair(bytes);
                        }
                    }
                    // Half of them in turns with what there is.
                    let mut place = all.len() / 2;
                    for packet in packets.into_iter().skip(skip).take(take) {
                        all.insert(place.min(all.len()), packet);
                        place += if port == 0 { 1 } else { 2 };
                    }
                }
                if all.is_empty() {
                    return all;
                }
                for (index, at, byte, is_repaired) in changes {
                    let index = index.index(all.len());
                    let packet = &mut all[index].bytes;
                    if let Some(changed) = packet.get_mut(at) {
                        *changed = byte;
                    }
                    if is_repaired && packet.len() > 60 {
                        repair(packet);
                    }
                }
                for index in swaps {
                    let index = index.index(all.len());
                    all.swap(index, 0);
                }
                for index in complete {
                    let index = index.index(all.len());
                    all[index].checksum = Checksum::Complete;
                }
                all
            })
    }

    /// Makes the checksum of an IPv4 header right.
    fn repair(packet: &mut [u8]) {
        if is_v4(packet) {
            put(packet, 10, 0);
            let sum = !fold(sum(&packet[..20]));
            put(packet, 10, usize::from(sum));
        }
    }

    proptest! {
        #[test]
        fn what_was_cut_becomes_one_again(made in made()) {
            let size = made.size.max(LEAST_PAYLOAD);
            let payload = made.payload.min(size * MOST_SEGMENTS);
            let made = Made { size, payload, flags: ACK | PUSH | FIN, ..made };
            let (frames, _) = coalesced(&packets(made));
            prop_assert_eq!(frames.len(), 1);
            if payload > size {
                prop_assert_eq!(&frames[0], &made.bytes());
            } else {
                prop_assert_eq!(&frames[0][VIRTIO..], &made.bytes()[VIRTIO..]);
            }
        }

        #[test]
        fn cutting_gives_back_what_came_in_flow_by_flow(stream in streams()) {
            let (frames, results) = coalesced(&stream);
            prop_assert!(frames.iter().all(|frame| frame.len() <= LONGEST));
            let taken = stream.into_iter().zip(results).filter_map(|(packet, result)| {
                result.is_ok().then_some(packet)
            });
            let given = frames.iter().flat_map(|frame| cut(frame));
            prop_assert_eq!(flows(given), flows(taken));
        }

        #[test]
        fn any_bytes_can_be_coalesced(
            packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..10),
        ) {
            let packets: Vec<_> = packets
                .into_iter()
                .map(|mut packet| {
                    // Mostly what could be IP.
                    if packet.len() > 40 && packet[0] % 8 > 0 {
                        let is_v4 = packet[0] % 2 == 0;
                        packet[0] = if is_v4 { 0x45 } else { 0x60 };
                        let length = packet.len() - if is_v4 { 0 } else { 40 };
                        put(&mut packet, if is_v4 { 2 } else { 4 }, length);
                        packet[if is_v4 { 9 } else { 6 }] = [6, 17, 1][usize::from(packet[1] % 3)];
                    }
                    let is_complete = packet.len() % 5 == 0;
                    let checksum = if is_complete { Checksum::Complete } else { Checksum::Partial };
                    Packet { bytes: packet, checksum }
                })
                .collect();
            for frame in coalesced(&packets).0 {
                let (virtio, packet) = Virtio::split(&frame).unwrap();
                prop_assert!(!virtio.needs_checksum() || virtio.start() + virtio.offset() + 2 <= packet.len());
            }
        }
    }
}
