//! Superpackets for tests, made from scratch.

use bytes::Bytes;
use proptest::prelude::*;

use crate::VIRTIO;
use crate::checksum::{fold, sum};
use crate::frame::Frame;
use crate::ip::{ACK, FIN, PUSH, Protocol, WINDOW_REDUCED, put};

/// What a superpacket is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) v6: bool,
    pub(crate) protocol: Protocol,
    pub(crate) size: usize,
    pub(crate) payload: usize,
    pub(crate) flags: u8,
}

pub(crate) const TCP4: Made =
    Made { v6: false, protocol: Protocol::Tcp, size: 1448, payload: 10_000, flags: ACK | PUSH };

impl Made {
    /// The length of IP's header.
    pub(crate) fn ip(self) -> usize {
        if self.v6 { 40 } else { 20 }
    }

    /// The headers' length: IP's, and TCP's with timestamps or UDP's.
    pub(crate) fn headers(self) -> usize {
        self.ip() + if self.protocol == Protocol::Tcp { 32 } else { 8 }
    }

    /// The frame as the kernel would give it, with a payload that counts.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let is_tcp = self.protocol == Protocol::Tcp;
        let mut bytes = vec![0; VIRTIO + self.headers()];
        let kind = match (self.protocol, self.v6) {
            (Protocol::Tcp, false) => 1,
            (Protocol::Tcp, true) => 4,
            (Protocol::Udp, _) => 5,
        };
        (bytes[0], bytes[1]) = (1, kind);
        let place = self.protocol.checksum_offset();
        let numbers = [(2, self.headers()), (4, self.size), (6, self.ip()), (8, place)];
        for (at, value) in numbers {
            bytes[at..at + 2].copy_from_slice(&u16::try_from(value).unwrap().to_ne_bytes());
        }
        let packet = &mut bytes[VIRTIO..];
        let length = packet.len() + self.payload;
        let number: u8 = if is_tcp { 6 } else { 17 };
        if self.v6 {
            packet[0] = 0x60;
            put(packet, 4, length - 40);
            (packet[6], packet[7]) = (number, 64);
            packet[8..40].fill(0xfd);
        } else {
            packet[0] = 0x45;
            put(packet, 2, length);
            put(packet, 4, 0xfffe);
            (packet[8], packet[9]) = (64, number);
            packet[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
            let checksum = !fold(sum(&packet[..20]));
            put(packet, 10, usize::from(checksum));
        }
        let ip = self.ip();
        let transport = &mut packet[ip..];
        put(transport, 0, 1000);
        put(transport, 2, 2000);
        if is_tcp {
            transport[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
            transport[12] = 8 << 4;
            transport[13] = self.flags;
        } else {
            put(transport, 4, 8 + self.payload);
        }
        let length = transport.len() + self.payload;
        let addresses = if self.v6 { &packet[8..40] } else { &packet[12..20] };
        let pseudo = fold(sum(addresses) + u64::from(number) + length as u64);
        put(packet, ip + place, usize::from(pseudo));
        bytes.extend((0..self.payload).map(|i| i.to_le_bytes()[i % 2]));
        bytes
    }

    pub(crate) fn frame(self) -> Frame {
        Frame::parse(Bytes::from(self.bytes())).unwrap()
    }
}

/// Any superpacket of a moderate number of segments.
pub(crate) fn made() -> impl Strategy<Value = Made> {
    let protocol = prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp)];
    (any::<bool>(), protocol, 1_usize..9000, 1_usize..60_000)
        .prop_map(|(v6, protocol, size, payload)| {
            let flags = FIN | PUSH | WINDOW_REDUCED | ACK;
            Made { v6, protocol, size, payload, flags }
        })
        .prop_filter("few segments", |made| made.payload / made.size < 200)
}

/// Bytes that mostly could be a superpacket.
pub(crate) fn frames() -> impl Strategy<Value = Vec<u8>> {
    let superpackets = (made(), proptest::collection::vec((0_usize..120, any::<u8>()), 0..6))
        .prop_map(|(made, changes)| {
            let mut bytes = Made { payload: made.payload % 1000 + 1, ..made }.bytes();
            for (at, byte) in changes {
                if let Some(changed) = bytes.get_mut(at) {
                    *changed = byte;
                }
            }
            bytes
        });
    prop_oneof![4 => superpackets, 1 => proptest::collection::vec(any::<u8>(), 0..200)]
}

/// The checksum over a whole packet's transport, which is 0 if the one inside is right.
pub(crate) fn transport_sum(packet: &[u8]) -> u16 {
    let (addresses, ip, protocol) = match packet[0] >> 4 {
        4 => (&packet[12..20], 20, packet[9]),
        _ => (&packet[8..40], 40, packet[6]),
    };
    let rest = &packet[ip..];
    !fold(sum(addresses) + u64::from(protocol) + rest.len() as u64 + sum(rest))
}
