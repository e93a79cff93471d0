//! The header before each packet, `struct virtio_net_hdr` (`linux/virtio_net.h`): which checksum is
//! partial, and how to split a superpacket.
//!
//! | offset | length | field |
//! |---|---|---|
//! | 0 | 1 | flags |
//! | 1 | 1 | kind of superpacket |
//! | 2 | 2 | length of the headers, as a hint |
//! | 4 | 2 | payload of every segment but the last |
//! | 6 | 2 | start of the bytes that the checksum covers |
//! | 8 | 2 | offset of the checksum's field from there |
//!
//! Numbers are in the processor's byte order.

use crate::VIRTIO_HEADER_LEN;
use crate::ip::{TransportHeader, TransportProtocol};

const NEEDS_CHECKSUM: u8 = 1;

/// Not a superpacket.
const NONE: u8 = 0;
const TCP4: u8 = 1;
const TCP6: u8 = 4;
const UDP: u8 = 5;
/// Added to the kind if the sender negotiated explicit congestion notification.
const ECN: u8 = 0x80;

/// The bytes of the header. All zeros: a packet with complete checksums.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VirtioHeader([u8; VIRTIO_HEADER_LEN]);

impl VirtioHeader {
    /// Splits a frame into its header and its packet. `None` if it is too short.
    pub(crate) fn split(frame: &[u8]) -> Option<(Self, &[u8])> {
        let (bytes, packet) = frame.split_first_chunk()?;
        Some((Self(*bytes), packet))
    }

    /// The header of a packet with a partial transport checksum.
    pub(crate) fn partial(transport: TransportHeader) -> Self {
        let TransportHeader { offset: at, protocol } = transport;
        let mut virtio = Self::default();
        virtio.0[0] = NEEDS_CHECKSUM;
        virtio.write_u16(2, at + protocol.min_header_len());
        virtio.write_u16(6, at);
        virtio.write_u16(8, protocol.checksum_offset());
        virtio
    }

    /// The header of a superpacket with headers of `headers` bytes, and `size` bytes of payload in
    /// every segment except the last.
    pub(crate) fn superpacket(
        transport: TransportHeader,
        is_v4: bool,
        headers: usize,
        size: usize,
    ) -> Self {
        let mut virtio = Self::partial(transport);
        virtio.0[1] = match (transport.protocol, is_v4) {
            (TransportProtocol::Tcp, true) => TCP4,
            (TransportProtocol::Tcp, false) => TCP6,
            (TransportProtocol::Udp, _) => UDP,
        };
        virtio.write_u16(2, headers);
        virtio.write_u16(4, size);
        virtio
    }

    /// Turns the header of a superpacket into that of one or several of its segments.
    pub(crate) fn set_part(&mut self, headers: usize, is_single: bool) {
        // The kernel's hint may be longer than the remaining packet.
        self.write_u16(2, headers);
        if is_single {
            self.0[1] = NONE;
            self.write_u16(4, 0);
        }
    }

    pub(crate) fn bytes(&self) -> &[u8; VIRTIO_HEADER_LEN] {
        &self.0
    }

    pub(crate) fn needs_checksum(self) -> bool {
        self.0[0] & NEEDS_CHECKSUM != 0
    }

    /// The transport protocol of a superpacket. `None` if it is a packet or of an unknown kind.
    pub(crate) fn protocol(self) -> Option<TransportProtocol> {
        match self.0[1] & !ECN {
            TCP4 | TCP6 => Some(TransportProtocol::Tcp),
            UDP => Some(TransportProtocol::Udp),
            _ => None,
        }
    }

    /// The payload of every segment except the last, in bytes.
    pub(crate) fn size(self) -> usize {
        self.read_u16(4)
    }

    /// The start of the bytes that the checksum covers, counted from the end of this header.
    pub(crate) fn start(self) -> usize {
        self.read_u16(6)
    }

    /// The offset of the checksum's field from that start, in bytes.
    pub(crate) fn offset(self) -> usize {
        self.read_u16(8)
    }

    fn read_u16(self, at: usize) -> usize {
        usize::from(u16::from_ne_bytes([self.0[at], self.0[at + 1]]))
    }

    fn write_u16(&mut self, at: usize, value: usize) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "lengths and offsets in a packet fit into 16 bits"
        )]
        let value = value as u16;
        self.0[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    }
}
