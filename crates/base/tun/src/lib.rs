//! TUN devices with segmentation offload: the kernel passes superpackets of up to 64 KiB, which a
//! network card would split into packets.
//!
//! ```text
//! kernel ─▶ Device::read ─▶ FrameSegments   packets, one by one ─▶ a tunnel
//! kernel ◀─ Device::write ◀─ PacketCoalescer packets, one by one ◀─ a tunnel
//! kernel ◀─▶ Device ◀─▶ Frame          superpackets whole, or parts of them: an emulated link
//! ```
//!
//! On a wire a superpacket is many packets, here *segments*. They share its headers, except
//! lengths, numbers and checksums. A tunnel never computes a checksum over a payload: if the
//! sender's kernel left a transport checksum partial ([`ChecksumState::Partial`]), the receiver's
//! kernel completes it.
//!
//! ```
//! use sunder_tun::{ChecksumState, PacketCoalescer, FrameSegments, Superpacket, VIRTIO_HEADER_LEN};
//!
//! // What `TunDevice::read` gives for a superpacket of UDP with 5 payloads of 100 bytes.
//! let mut frame = vec![1, 5, 28, 0, 100, 0, 20, 0, 6, 0];
//! frame.extend([0x45, 0, 2, 16, 0, 0, 0, 0, 64, 17, 0x64, 0xc9, 10, 9, 0, 1, 10, 9, 0, 2]);
//! frame.extend([0x1b, 0x58, 0x1b, 0x59, 1, 252, 0x16, 0x22]);
//! frame.extend([7; 500]);
//!
//! let segments = FrameSegments::parse(&frame).expect("an IP packet");
//! let mut packets = vec![Vec::new(); segments.count()];
//! for (index, packet) in packets.iter_mut().enumerate() {
//!     segments.append(index, packet);
//! }
//! assert_eq!(packets.iter().map(Vec::len).collect::<Vec<_>>(), [128; 5]);
//! assert_eq!(segments.checksum(), ChecksumState::Partial);
//!
//! // The other way round, for `TunDevice::write`.
//! let mut superpackets: Vec<Vec<u8>> = Vec::new();
//! let mut write = |superpacket: &Superpacket<'_>| {
//!     superpackets.push(superpacket.slices().iter().flat_map(|slice| slice.to_vec()).collect());
//! };
//! let mut coalescer = PacketCoalescer::new(true);
//! for packet in &packets {
//!     coalescer.push(packet, segments.checksum(), &mut write)?;
//! }
//! coalescer.flush(&mut write);
//! assert_eq!(superpackets.len(), 1);
//! assert_eq!(superpackets[0][VIRTIO_HEADER_LEN..], frame[VIRTIO_HEADER_LEN..]);
//! # Ok::<(), sunder_tun::CoalesceError>(())
//! ```
//!
//! ```
//! use sunder_tun::{PacketCoalescer, FrameSegments};
//!
//! // A frame: the virtio header (the kernel's struct of the same name), then a superpacket. This
//! // one has three UDP datagrams of 100 bytes from 10.0.0.1 to 10.0.0.2, with partial checksums.
//! let [needs_checksum, udp_segmentation] = [1, 5];
//! let numbers = [28_u16, 100, 20, 6].map(u16::to_ne_bytes).concat();
//! let virtio = [&[needs_checksum, udp_segmentation], &numbers[..]].concat();
//! let ip = [0x45, 0, 1, 72, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
//! let udp = [3, 232, 7, 208, 1, 52, 0, 0];
//! let frame = [&virtio, &ip[..], &udp, &[42; 300]].concat();
//!
//! // Towards the tunnel: a superpacket becomes packets.
//! let segments = FrameSegments::parse(&frame).ok_or("too short")?;
//! let packets: Vec<Vec<u8>> = (0..segments.count())
//!     .map(|index| {
//!         let mut packet = Vec::new();
//!         segments.append(index, &mut packet);
//!         packet
//!     })
//!     .collect();
//! assert_eq!(packets.iter().map(Vec::len).collect::<Vec<_>>(), [128, 128, 128]);
//!
//! // From the tunnel: packets become a superpacket, for `TunDevice::write`.
//! let (mut coalescer, mut written) = (PacketCoalescer::new(true), Vec::new());
//! let mut write = |superpacket: &sunder_tun::Superpacket<'_>| {
//!     written.push(superpacket.slices().iter().map(|slice| slice.len()).sum::<usize>());
//! };
//! for packet in &packets {
//!     coalescer.push(packet, segments.checksum(), &mut write)?;
//! }
//! coalescer.flush(&mut write);
//! assert_eq!(written, [frame.len()]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Map
//!
//! - `device`: reads and writes packets and superpackets. [`interface`]: addresses, routes and the
//!   MTU of an interface. [`route`]: the route of packets. `netlink`: requests to the kernel.
//!
//! The other modules are pure:
//!
//! - `segments`: splits superpackets into packets. `coalesce`: merges packets into superpackets,
//!   which `superpacket` builds. `frame`: superpackets whole, or in parts.
//! - `virtio`, [`ip`]: the headers. `checksum`: the Internet checksum.

mod checksum;
mod coalesce;
mod device;
mod frame;
pub mod interface;
pub mod ip;
mod netlink;
pub mod route;
mod segments;
mod superpacket;
#[cfg(test)]
mod test_packets;
mod virtio;

pub use checksum::ChecksumState;
pub use coalesce::{CoalesceError, PacketCoalescer};
pub use device::{TunDevice, open_tap};
pub use frame::TunFrame;
pub use netlink::NetlinkError;
pub use segments::FrameSegments;
pub use superpacket::Superpacket;

/// The length of the virtio header at the start of a frame, in bytes.
pub const VIRTIO_HEADER_LEN: usize = 10;

/// The maximum length of an IP packet or superpacket, in bytes.
const MAX_PACKET_LEN: usize = 65_535;

/// The maximum length of a frame, in bytes: the virtio header and an IP packet.
pub const MAX_FRAME_LEN: usize = VIRTIO_HEADER_LEN + MAX_PACKET_LEN;
