//! The header before each packet, `struct virtio_net_hdr` (`linux/virtio_net.h`): which checksum is
//! still to be done, and how a superpacket is to be cut.
//!
//! | offset | length | field |
//! |---|---|---|
//! | 0 | 1 | flags |
//! | 1 | 1 | kind of superpacket |
//! | 2 | 2 | length of the headers, as a hint |
//! | 4 | 2 | payload of every segment but the last |
//! | 6 | 2 | where the checksum's sum begins |
//! | 8 | 2 | and how far behind that its field is |
//!
//! Numbers have the machine's own byte order.

use crate::VIRTIO;
use crate::ip::{Protocol, Transport};

const NEEDS_CHECKSUM: u8 = 1;

/// No superpacket.
const NONE: u8 = 0;
const TCP4: u8 = 1;
const TCP6: u8 = 4;
const UDP: u8 = 5;
/// Added to the kind where the sender negotiated explicit congestion notification.
const ECN: u8 = 0x80;

/// The header's bytes. All zeros say: a packet, nothing to be done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Virtio([u8; VIRTIO]);

impl Virtio {
    /// Takes the header off a frame. `None` if it is too short.
    pub(crate) fn split(frame: &[u8]) -> Option<(Self, &[u8])> {
        let (bytes, packet) = frame.split_first_chunk()?;
        Some((Self(*bytes), packet))
    }

    /// That of a packet whose transport checksum is still to be done.
    pub(crate) fn partial(transport: Transport) -> Self {
        let Transport { at, protocol } = transport;
        let mut virtio = Self::default();
        virtio.0[0] = NEEDS_CHECKSUM;
        virtio.put(2, at + protocol.least_header());
        virtio.put(6, at);
        virtio.put(8, protocol.checksum_offset());
        virtio
    }

    /// That of a superpacket with headers of this length, and payload of this size in every segment
    /// but the last.
    pub(crate) fn superpacket(
        transport: Transport,
        is_v4: bool,
        headers: usize,
        size: usize,
    ) -> Self {
        let mut virtio = Self::partial(transport);
        virtio.0[1] = match (transport.protocol, is_v4) {
            (Protocol::Tcp, true) => TCP4,
            (Protocol::Tcp, false) => TCP6,
            (Protocol::Udp, _) => UDP,
        };
        virtio.put(2, headers);
        virtio.put(4, size);
        virtio
    }

    /// Makes it that of a part of its superpacket: of several segments or of one.
    pub(crate) fn cut(&mut self, headers: usize, is_single: bool) {
        // What the kernel says of the headers' length may be longer than what is left.
        self.put(2, headers);
        if is_single {
            self.0[1] = NONE;
            self.put(4, 0);
        }
    }

    pub(crate) fn bytes(&self) -> &[u8; VIRTIO] {
        &self.0
    }

    pub(crate) fn needs_checksum(self) -> bool {
        self.0[0] & NEEDS_CHECKSUM != 0
    }

    /// What a superpacket is to be cut into. `None` if it is none, or of no known kind.
    pub(crate) fn protocol(self) -> Option<Protocol> {
        match self.0[1] & !ECN {
            TCP4 | TCP6 => Some(Protocol::Tcp),
            UDP => Some(Protocol::Udp),
            _ => None,
        }
    }

    /// The payload of every segment but the last, in bytes.
    pub(crate) fn size(self) -> usize {
        self.word(4)
    }

    /// Where the checksum's sum begins, in bytes behind this header.
    pub(crate) fn start(self) -> usize {
        self.word(6)
    }

    /// How far behind that its field is, in bytes.
    pub(crate) fn offset(self) -> usize {
        self.word(8)
    }

    fn word(self, at: usize) -> usize {
        usize::from(u16::from_ne_bytes([self.0[at], self.0[at + 1]]))
    }

    fn put(&mut self, at: usize, value: usize) {
        #[expect(clippy::cast_possible_truncation, reason = "no packet is longer")]
        let value = value as u16;
        self.0[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    }
}
