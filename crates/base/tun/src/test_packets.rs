//! Superpackets for tests.

use bytes::Bytes;
use proptest::prelude::*;

use crate::VIRTIO_HEADER_LEN;
use crate::checksum::{fold, sum};
use crate::frame::TunFrame;
use crate::ip::{ACK, CWR, FIN, PSH, TransportProtocol, write_u16};

/// The properties of a superpacket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestSuperpacket {
    pub(crate) v6: bool,
    pub(crate) protocol: TransportProtocol,
    pub(crate) size: usize,
    pub(crate) payload: usize,
    pub(crate) flags: u8,
}

pub(crate) const TCP4: TestSuperpacket = TestSuperpacket {
    v6: false,
    protocol: TransportProtocol::Tcp,
    size: 1448,
    payload: 10_000,
    flags: ACK | PSH,
};

impl TestSuperpacket {
    /// The length of the IP header.
    pub(crate) fn ip(self) -> usize {
        if self.v6 { 40 } else { 20 }
    }

    /// The length of the headers: IP, and TCP with timestamps or UDP.
    pub(crate) fn headers(self) -> usize {
        self.ip() + if self.protocol == TransportProtocol::Tcp { 32 } else { 8 }
    }

    /// The frame as the kernel would pass it. The payload's bytes follow a pattern.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let is_tcp = self.protocol == TransportProtocol::Tcp;
        let mut bytes = vec![0; VIRTIO_HEADER_LEN + self.headers()];
        let kind = match (self.protocol, self.v6) {
            (TransportProtocol::Tcp, false) => 1,
            (TransportProtocol::Tcp, true) => 4,
            (TransportProtocol::Udp, _) => 5,
        };
        (bytes[0], bytes[1]) = (1, kind);
        let place = self.protocol.checksum_offset();
        let numbers = [(2, self.headers()), (4, self.size), (6, self.ip()), (8, place)];
        for (at, value) in numbers {
            bytes[at..at + 2].copy_from_slice(&u16::try_from(value).unwrap().to_ne_bytes());
        }
        let packet = &mut bytes[VIRTIO_HEADER_LEN..];
        let length = packet.len() + self.payload;
        let number: u8 = if is_tcp { 6 } else { 17 };
        if self.v6 {
            packet[0] = 0x60;
            write_u16(packet, 4, length - 40);
            (packet[6], packet[7]) = (number, 64);
            packet[8..40].fill(0xfd);
        } else {
            packet[0] = 0x45;
            write_u16(packet, 2, length);
            write_u16(packet, 4, 0xfffe);
            (packet[8], packet[9]) = (64, number);
            packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
            let checksum = !fold(sum(&packet[..20]));
            write_u16(packet, 10, usize::from(checksum));
        }
        let ip = self.ip();
        let transport = &mut packet[ip..];
        write_u16(transport, 0, 1000);
        write_u16(transport, 2, 2000);
        if is_tcp {
            transport[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
            transport[12] = 8 << 4;
            transport[13] = self.flags;
        } else {
            write_u16(transport, 4, 8 + self.payload);
        }
        let length = transport.len() + self.payload;
        let addresses = if self.v6 { &packet[8..40] } else { &packet[12..20] };
        let pseudo = fold(sum(addresses) + u64::from(number) + length as u64);
        write_u16(packet, ip + place, usize::from(pseudo));
        bytes.extend((0..self.payload).map(|i| i.to_le_bytes()[i % 2]));
        bytes
    }

    pub(crate) fn frame(self) -> TunFrame {
        TunFrame::parse(Bytes::from(self.bytes())).unwrap()
    }
}

/// Any superpacket of fewer than 200 segments.
pub(crate) fn test_packets() -> impl Strategy<Value = TestSuperpacket> {
    let protocol = prop_oneof![Just(TransportProtocol::Tcp), Just(TransportProtocol::Udp)];
    (any::<bool>(), protocol, 1_usize..9000, 1_usize..60_000)
        .prop_map(|(v6, protocol, size, payload)| {
            let flags = FIN | PSH | CWR | ACK;
            TestSuperpacket { v6, protocol, size, payload, flags }
        })
        .prop_filter("few segments", |test_packet| test_packet.payload / test_packet.size < 200)
}

/// Bytes that are similar to a superpacket in most cases.
pub(crate) fn frames() -> impl Strategy<Value = Vec<u8>> {
    let superpackets = (
        test_packets(),
        proptest::collection::vec((0_usize..120, any::<u8>()), 0..6),
    )
        .prop_map(|(test_packet, changes)| {
            let mut bytes =
                TestSuperpacket { payload: test_packet.payload % 1000 + 1, ..test_packet }.bytes();
            for (at, byte) in changes {
                if let Some(changed) = bytes.get_mut(at) {
                    *changed = byte;
                }
            }
            bytes
        });
    prop_oneof![4 => superpackets, 1 => proptest::collection::vec(any::<u8>(), 0..200)]
}

/// The checksum over the transport part of a packet. It is 0 if the checksum in the packet is
/// right.
pub(crate) fn transport_sum(packet: &[u8]) -> u16 {
    let (addresses, ip, protocol) = match packet[0] >> 4 {
        4 => (&packet[12..20], 20, packet[9]),
        _ => (&packet[8..40], 40, packet[6]),
    };
    let rest = &packet[ip..];
    !fold(sum(addresses) + u64::from(protocol) + rest.len() as u64 + sum(rest))
}
