//! Superpackets in the making.
//!
//! One rule: packets become one only if cutting that would give them back, byte by byte (but for
//! the identification of IPv4 packets that must not be fragmented, which means nothing). It is kept
//! by doing so: the headers of the next segment are computed from those of the first, and compared.
//!
//! Packets may come from a hostile peer. What they can have the kernel do is what the virtio header
//! says, so nothing in it comes from the peer as it is: a checksum is left to the kernel only in
//! TCP and UDP right behind the IP header and with their own header whole; a superpacket has
//! headers that were read to their end, [`MOST_SEGMENTS`] segments at most, none shorter than
//! [`LEAST_PAYLOAD`] but the last, and 65,535 bytes at most.

use std::io::IoSlice;
use std::ops::Deref;
use std::slice;

use crate::ip::{
    ACK, FIN, PUSH, Protocol, RST, SYN, TCP_FLAGS, Transport, URGENT, WINDOW_REDUCED, addresses,
    is_atomic, is_v4, put, word,
};
use crate::virtio::Virtio;
use crate::{LONGEST_PACKET, VIRTIO};

/// The most packets that become one. Kernels before 6.9 take no more of UDP.
pub(crate) const MOST_SEGMENTS: usize = 64;

/// The least payload of packets that become one, in bytes, the last excepted. Segments of a few
/// bytes have crashed kernels (CVE-2019-11477) and network cards, and are not worth it.
pub(crate) const LEAST_PAYLOAD: usize = 64;

/// IPv6's header, or IPv4's without options, and TCP's longest.
const LONGEST_HEADERS: usize = 40 + 60;

/// Of these flags, segments have but the first: they carry data. The others say what is said once.
const PLAIN: u8 = ACK | SYN | RST | URGENT | WINDOW_REDUCED;

/// What is written at once: a packet, or several as one.
#[derive(Debug)]
pub struct Superpacket<'a> {
    /// The virtio header, and the headers that the packets share if there are several.
    headers: [u8; VIRTIO + LONGEST_HEADERS],
    headers_len: usize,
    packets: &'a [&'a [u8]],
    /// How much of each packet is in the headers.
    shared: usize,
    /// Where the packets have a transport checksum that is still to be done.
    partial: Option<Transport>,
}

impl<'a> Superpacket<'a> {
    /// One packet, as it is.
    pub(crate) fn single(packet: &'a &'a [u8], partial: Option<Transport>) -> Self {
        let virtio = partial.map(Virtio::partial).unwrap_or_default();
        let mut headers = [0; VIRTIO + LONGEST_HEADERS];
        headers[..VIRTIO].copy_from_slice(virtio.bytes());
        let packets = slice::from_ref(packet);
        Self { headers, headers_len: VIRTIO, packets, shared: 0, partial }
    }

    /// Its bytes, for a [write](crate::Device::write) that gathers them.
    pub fn slices(&self) -> impl Deref<Target = [IoSlice<'_>]> {
        let mut slices = [IoSlice::new(&[]); 1 + MOST_SEGMENTS];
        slices[0] = IoSlice::new(&self.headers[..self.headers_len]);
        for (slice, packet) in slices[1..].iter_mut().zip(self.packets) {
            *slice = IoSlice::new(&packet[self.shared..]);
        }
        Slices { slices, count: 1 + self.packets.len() }
    }

    /// Its packets one by one, for a kernel that refuses it as a whole.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = Superpacket<'_>> {
        self.packets.iter().map(|packet| Superpacket::single(packet, self.partial))
    }
}

struct Slices<'a> {
    slices: [IoSlice<'a>; 1 + MOST_SEGMENTS],
    count: usize,
}

impl<'a> Deref for Slices<'a> {
    type Target = [IoSlice<'a>];

    fn deref(&self) -> &Self::Target {
        &self.slices[..self.count]
    }
}

/// A packet that may become a part of a superpacket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    packet: &'a [u8],
    transport: Transport,
    /// The length of its headers.
    headers: usize,
}

impl<'a> Segment<'a> {
    pub(crate) fn parse(packet: &'a [u8], transport: Transport) -> Option<Self> {
        let Transport { at, protocol } = transport;
        let headers = at + protocol.header(&packet[at..])?;
        // Kernels merge no packets with IP options either.
        let is_plain = at == if is_v4(packet) { 20 } else { 40 }
            && (protocol == Protocol::Udp || packet[at + TCP_FLAGS] & PLAIN == ACK);
        (is_plain && packet.len() > headers).then_some(Self { packet, transport, headers })
    }

    fn payload(&self) -> usize {
        self.packet.len() - self.headers
    }

    /// The flags that only a last segment has: its sender wants it delivered, or has finished.
    fn last_flags(&self) -> u8 {
        match self.transport.protocol {
            Protocol::Tcp => self.packet[self.transport.at + TCP_FLAGS] & (FIN | PUSH),
            Protocol::Udp => 0,
        }
    }
}

/// A superpacket that more may come to.
#[derive(Debug)]
pub(crate) struct Open<'a> {
    /// Which of all opened it was.
    pub(crate) number: usize,
    /// So many packets, and the first in the places of those to come.
    packets: [&'a [u8]; MOST_SEGMENTS],
    count: usize,
    transport: Transport,
    /// The length of each packet's headers.
    headers: usize,
    /// The payload of each packet, but the last.
    size: usize,
    /// The payload of all.
    payload: usize,
    last_flags: u8,
}

impl<'a> Open<'a> {
    /// One with its first segment. `None` if there cannot be more, or if its own headers are not
    /// right.
    pub(crate) fn new(number: usize, first: &Segment<'a>) -> Option<Self> {
        if first.payload() < LEAST_PAYLOAD || first.last_flags() != 0 {
            return None;
        }
        let mut open = Self {
            number,
            packets: [first.packet; MOST_SEGMENTS],
            count: 0,
            transport: first.transport,
            headers: first.headers,
            size: first.payload(),
            payload: 0,
            last_flags: 0,
        };
        if !open.takes(first) {
            return None;
        }
        open.add(first);
        Some(open)
    }

    /// Whether a packet must stay behind it.
    pub(crate) fn precedes(&self, packet: &[u8], transport: Option<Transport>) -> bool {
        let first = self.packets[0];
        let ports = |packet: &[u8], at: usize| [word(packet, at), word(packet, at + 2)];
        addresses(first) == addresses(packet)
            && transport.is_none_or(|Transport { at, protocol }| {
                protocol == self.transport.protocol
                    && ports(packet, at) == ports(first, self.transport.at)
            })
    }

    /// Whether a packet is the next segment: has the headers that cutting would give it.
    pub(crate) fn takes(&self, next: &Segment<'_>) -> bool {
        let Transport { at, protocol } = self.transport;
        let payload = next.payload();
        let fits = next.transport == self.transport
            && next.headers == self.headers
            && payload <= self.size
            && self.headers + self.payload + payload <= LONGEST_PACKET;
        if !fits {
            return false;
        }
        let mut headers = [0; LONGEST_HEADERS];
        let headers = &mut headers[..self.headers];
        headers.copy_from_slice(&self.packets[0][..self.headers]);
        self.transport.advance(headers, self.count, self.size);
        if is_atomic(headers) {
            put(headers, 4, usize::from(word(next.packet, 4)));
        }
        if protocol == Protocol::Tcp {
            headers[at + TCP_FLAGS] |= next.last_flags();
        }
        self.transport.set_payload(headers, self.size, payload);
        *headers == next.packet[..self.headers]
    }

    pub(crate) fn add(&mut self, segment: &Segment<'a>) {
        self.packets[self.count] = segment.packet;
        self.count += 1;
        self.payload += segment.payload();
        self.last_flags = segment.last_flags();
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.count == MOST_SEGMENTS || self.payload < self.count * self.size || self.last_flags != 0
    }

    pub(crate) fn superpacket(&self) -> Superpacket<'_> {
        let partial = Some(self.transport);
        if self.count == 1 {
            return Superpacket::single(&self.packets[0], partial);
        }
        let mut headers = [0; VIRTIO + LONGEST_HEADERS];
        let (virtio, packet) = headers.split_at_mut(VIRTIO);
        let packet = &mut packet[..self.headers];
        packet.copy_from_slice(&self.packets[0][..self.headers]);
        if self.transport.protocol == Protocol::Tcp {
            packet[self.transport.at + TCP_FLAGS] |= self.last_flags;
        }
        self.transport.set_payload(packet, self.size, self.payload);
        let header = Virtio::superpacket(self.transport, is_v4(packet), self.headers, self.size);
        virtio.copy_from_slice(header.bytes());
        Superpacket {
            headers,
            headers_len: VIRTIO + self.headers,
            packets: &self.packets[..self.count],
            shared: self.headers,
            partial,
        }
    }
}
