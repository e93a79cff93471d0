//! TUN devices with segmentation offload: the kernel passes superpackets of up to 64 KiB, which a
//! network card would split into packets.
//!
//! ```text
//! kernel ─▶ Device::read ─▶ Segments   packets, one by one ─▶ a tunnel
//! kernel ◀─ Device::write ◀─ Coalescer packets, one by one ◀─ a tunnel
//! kernel ◀─▶ Device ◀─▶ Frame          superpackets whole, or parts of them: an emulated link
//! ```
//!
//! On a wire a superpacket is many packets, here *segments*. They share its headers, except
//! lengths, numbers and checksums. A tunnel never computes a checksum over a payload: if the
//! sender's kernel left a transport checksum partial ([`Checksum::Partial`]), the receiver's kernel
//! completes it.
//!
//! Only [`Device`] calls the kernel. Everything else turns bytes into bytes.

mod checksum;
mod coalesce;
mod device;
mod frame;
pub mod interface;
pub mod ip;
pub mod route;
mod segments;
mod superpacket;
#[cfg(test)]
mod test_packets;
mod virtio;

pub use checksum::Checksum;
pub use coalesce::{Coalescer, PushError};
pub use device::Device;
pub use frame::Frame;
pub use segments::Segments;
pub use superpacket::Superpacket;

/// The length of the virtio header at the start of a frame, in bytes.
pub const VIRTIO_HEADER_LEN: usize = 10;

/// The maximum length of an IP packet or superpacket, in bytes.
const MAX_PACKET_LEN: usize = 65_535;

/// The maximum length of a frame, in bytes: the virtio header and an IP packet.
pub const MAX_FRAME_LEN: usize = VIRTIO_HEADER_LEN + MAX_PACKET_LEN;
