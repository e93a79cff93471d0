//! Superpackets under construction.
//!
//! Packets are merged only if segmentation would restore them byte by byte. The only exception is
//! the identification of IPv4 packets that must not be fragmented, which has no meaning (RFC 6864).
//! To ensure this, the headers of the next segment are computed from those of the first, and
//! compared.
//!
//! Packets may come from a hostile peer. They control the kernel only by the virtio header, so no
//! value in it is taken from the peer unchecked. The kernel completes a checksum only in TCP and
//! UDP directly after the IP header and with a whole header of their own. A superpacket has headers
//! that were parsed to their end, at most [`MAX_SEGMENTS`] segments, at least [`MIN_PAYLOAD`] bytes
//! in each except the last, and at most 65,535 bytes.

use std::io::IoSlice;
use std::ops::Deref;
use std::slice;

use crate::ip::{
    ACK, CWR, FIN, PSH, RST, SYN, TCP_FLAGS, TransportHeader, TransportProtocol, URG, addresses,
    is_atomic, is_v4, read_u16, write_u16,
};
use crate::virtio::VirtioHeader;
use crate::{MAX_PACKET_LEN, VIRTIO_HEADER_LEN};

/// The maximum number of packets that are merged. Kernels before 6.9 accept no more for UDP.
pub(crate) const MAX_SEGMENTS: usize = 64;

/// The minimum payload of merged packets except the last, in bytes. Segments of a few bytes have
/// crashed kernels (CVE-2019-11477) and network cards, and save little.
pub(crate) const MIN_PAYLOAD: usize = 64;

/// The IPv6 header, or IPv4's without options, and the longest TCP header.
const MAX_HEADERS_LEN: usize = 40 + 60;

/// Flags that prevent merging, except ACK, which every data segment has.
const PLAIN: u8 = ACK | SYN | RST | URG | CWR;

/// What one write passes to the kernel: a packet, or several packets as one.
#[derive(Debug)]
pub struct Superpacket<'a> {
    /// The virtio header and, for several packets, the headers that they share.
    headers: [u8; VIRTIO_HEADER_LEN + MAX_HEADERS_LEN],
    headers_len: usize,
    packets: &'a [&'a [u8]],
    /// The length of the prefix of each packet that is in the headers.
    shared: usize,
    /// The place of the packets' partial transport checksum, if they have one.
    partial: Option<TransportHeader>,
}

impl<'a> Superpacket<'a> {
    /// One packet, unchanged.
    pub(crate) fn single(packet: &'a &'a [u8], partial: Option<TransportHeader>) -> Self {
        let virtio = partial.map(VirtioHeader::partial).unwrap_or_default();
        let mut headers = [0; VIRTIO_HEADER_LEN + MAX_HEADERS_LEN];
        headers[..VIRTIO_HEADER_LEN].copy_from_slice(virtio.bytes());
        let packets = slice::from_ref(packet);
        Self { headers, headers_len: VIRTIO_HEADER_LEN, packets, shared: 0, partial }
    }

    /// The frame as slices, for a vectored [write](crate::TunDevice::write).
    pub fn slices(&self) -> impl Deref<Target = [IoSlice<'_>]> {
        let mut slices = [IoSlice::new(&[]); 1 + MAX_SEGMENTS];
        slices[0] = IoSlice::new(&self.headers[..self.headers_len]);
        for (slice, packet) in slices[1..].iter_mut().zip(self.packets) {
            *slice = IoSlice::new(&packet[self.shared..]);
        }
        SuperpacketSlices { slices, count: 1 + self.packets.len() }
    }

    /// The packets one by one, for a kernel that refuses the superpacket.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = Superpacket<'_>> {
        self.packets.iter().map(|packet| Superpacket::single(packet, self.partial))
    }
}

struct SuperpacketSlices<'a> {
    slices: [IoSlice<'a>; 1 + MAX_SEGMENTS],
    count: usize,
}

impl<'a> Deref for SuperpacketSlices<'a> {
    type Target = [IoSlice<'a>];

    fn deref(&self) -> &Self::Target {
        &self.slices[..self.count]
    }
}

/// A packet that can be merged into a superpacket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergeablePacket<'a> {
    packet: &'a [u8],
    transport: TransportHeader,
    /// The length of its headers.
    headers: usize,
}

impl<'a> MergeablePacket<'a> {
    pub(crate) fn parse(packet: &'a [u8], transport: TransportHeader) -> Option<Self> {
        let TransportHeader { offset: at, protocol } = transport;
        let headers = at + protocol.header_len(&packet[at..])?;
        // Kernels do not merge packets with IP options either.
        let is_plain = at == if is_v4(packet) { 20 } else { 40 }
            && (protocol == TransportProtocol::Udp || packet[at + TCP_FLAGS] & PLAIN == ACK);
        (is_plain && packet.len() > headers).then_some(Self { packet, transport, headers })
    }

    fn payload(&self) -> usize {
        self.packet.len() - self.headers
    }

    /// The flags that only a last segment can have: the sender wants delivery, or has finished.
    fn last_flags(&self) -> u8 {
        match self.transport.protocol {
            TransportProtocol::Tcp => self.packet[self.transport.offset + TCP_FLAGS] & (FIN | PSH),
            TransportProtocol::Udp => 0,
        }
    }
}

/// A superpacket to which packets can still be added.
#[derive(Debug)]
pub(crate) struct SuperpacketBuilder<'a> {
    /// Its number among all that were opened.
    pub(crate) number: usize,
    /// The first `count` are the packets; the rest are placeholders.
    packets: [&'a [u8]; MAX_SEGMENTS],
    count: usize,
    transport: TransportHeader,
    /// The length of each packet's headers.
    headers: usize,
    /// The payload of each packet except the last, in bytes.
    size: usize,
    /// The payload of all packets, in bytes.
    payload: usize,
    last_flags: u8,
}

impl<'a> SuperpacketBuilder<'a> {
    /// Starts with the first segment. `None` if nothing can be added to it, or if its own headers
    /// are wrong.
    pub(crate) fn new(number: usize, first: &MergeablePacket<'a>) -> Option<Self> {
        if first.payload() < MIN_PAYLOAD || first.last_flags() != 0 {
            return None;
        }
        let mut open = Self {
            number,
            packets: [first.packet; MAX_SEGMENTS],
            count: 0,
            transport: first.transport,
            headers: first.headers,
            size: first.payload(),
            payload: 0,
            last_flags: 0,
        };
        if !open.accepts(first) {
            return None;
        }
        open.add(first);
        Some(open)
    }

    /// Whether a packet must not overtake this superpacket.
    pub(crate) fn must_precede(&self, packet: &[u8], transport: Option<TransportHeader>) -> bool {
        let first = self.packets[0];
        let ports = |packet: &[u8], at: usize| [read_u16(packet, at), read_u16(packet, at + 2)];
        addresses(first) == addresses(packet)
            && transport.is_none_or(|TransportHeader { offset: at, protocol }| {
                protocol == self.transport.protocol
                    && ports(packet, at) == ports(first, self.transport.offset)
            })
    }

    /// Whether a packet is the next segment: whether segmentation would give it the same headers.
    pub(crate) fn accepts(&self, next: &MergeablePacket<'_>) -> bool {
        let TransportHeader { offset: at, protocol } = self.transport;
        let payload = next.payload();
        let fits = next.transport == self.transport
            && next.headers == self.headers
            && payload <= self.size
            && self.headers + self.payload + payload <= MAX_PACKET_LEN;
        if !fits {
            return false;
        }
        let mut headers = [0; MAX_HEADERS_LEN];
        let headers = &mut headers[..self.headers];
        headers.copy_from_slice(&self.packets[0][..self.headers]);
        self.transport.advance_headers(headers, self.count, self.size);
        if is_atomic(headers) {
            write_u16(headers, 4, usize::from(read_u16(next.packet, 4)));
        }
        if protocol == TransportProtocol::Tcp {
            headers[at + TCP_FLAGS] |= next.last_flags();
        }
        self.transport.set_payload(headers, self.size, payload);
        *headers == next.packet[..self.headers]
    }

    pub(crate) fn add(&mut self, segment: &MergeablePacket<'a>) {
        self.packets[self.count] = segment.packet;
        self.count += 1;
        self.payload += segment.payload();
        self.last_flags = segment.last_flags();
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.count == MAX_SEGMENTS || self.payload < self.count * self.size || self.last_flags != 0
    }

    pub(crate) fn superpacket(&self) -> Superpacket<'_> {
        let partial = Some(self.transport);
        if self.count == 1 {
            return Superpacket::single(&self.packets[0], partial);
        }
        let mut headers = [0; VIRTIO_HEADER_LEN + MAX_HEADERS_LEN];
        let (virtio, packet) = headers.split_at_mut(VIRTIO_HEADER_LEN);
        let packet = &mut packet[..self.headers];
        packet.copy_from_slice(&self.packets[0][..self.headers]);
        if self.transport.protocol == TransportProtocol::Tcp {
            packet[self.transport.offset + TCP_FLAGS] |= self.last_flags;
        }
        self.transport.set_payload(packet, self.size, self.payload);
        let header =
            VirtioHeader::superpacket(self.transport, is_v4(packet), self.headers, self.size);
        virtio.copy_from_slice(header.bytes());
        Superpacket {
            headers,
            headers_len: VIRTIO_HEADER_LEN + self.headers,
            packets: &self.packets[..self.count],
            shared: self.headers,
            partial,
        }
    }
}
