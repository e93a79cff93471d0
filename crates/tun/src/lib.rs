//! TUN devices, whose packets come and go as superpackets: up to 64 KiB at once, where a network
//! card would cut them into packets (segmentation offload).
//!
//! ```text
//! kernel ─▶ Device::read ─▶ Segments   packets, one by one ─▶ a tunnel
//! kernel ◀─ Device::write ◀─ Coalescer packets, one by one ◀─ a tunnel
//! kernel ◀─▶ Device ◀─▶ Frame          superpackets whole, or parts of them: an emulated link
//! ```
//!
//! On a wire a superpacket is many packets, here *segments*, which share its headers but for
//! length, number and checksum. Nothing on the way of a tunnel adds up a payload: a transport
//! checksum that the sender's kernel left to be done ([`Checksum::Partial`]) is left to the
//! receiver's.
//!
//! Only [`Device`] knows the kernel; all else is bytes to bytes.

mod checksum;
mod coalesce;
mod cut;
mod device;
mod frame;
pub mod interface;
pub mod ip;
#[cfg(test)]
mod made;
mod superpacket;
mod virtio;
pub mod way;

pub use checksum::Checksum;
pub use coalesce::{Coalescer, Dropped};
pub use cut::Segments;
pub use device::Device;
pub use frame::Frame;
pub use superpacket::Superpacket;

/// The length of the virtio header that a frame begins with, in bytes.
pub const VIRTIO: usize = 10;

/// The longest that an IP packet or superpacket may be, in bytes.
const LONGEST_PACKET: usize = 65_535;

/// The longest that a frame may be, in bytes: its virtio header and an IP packet.
pub const LONGEST: usize = VIRTIO + LONGEST_PACKET;
