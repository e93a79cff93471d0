//! MICSS: a TCP stream over n channels, of which any n - 1 together learn nothing.
//!
//! A stream is cut into records, each record is shared by XOR byte for byte, and share `i` goes to
//! channel `i`. The bytes are in `docs/protocols/micss.md`; the paper is 001, III-D and III-E.
//!
//! Two rooms, and the door opens one way:
//! - the protocol, pure: [`record`], [`outgoing`], [`incoming`], [`target`], [`socks`], [`allow`], and when
//!   a channel is lost (`failure_detector`, `on_lost_channel`). Bytes
//!   come in as arguments and go out as results. No socket, no clock, no global source of randomness.
//! - the shell: [`client`] and [`server`] move bytes between sockets and the protocol; [`intercept`] has
//!   the kernel hand connections over, and [`directory`] knows on which channels a peer is reached.
//!   [`status`] is what they tell about themselves.
//!
//! Promised, against an attacker who reads and changes all channels but one and has any amount of
//! computing: what the stream carries stays secret, as far as [`sharing::random`] goes; with the
//! tamper code, no changed byte is ever delivered, and a stream that was cut short is an error.
//! Not promised: that an attacker on one channel cannot stop the stream, nor that lengths and
//! times stay hidden.

pub mod allow;
pub mod directory;
pub mod incoming;
pub mod intercept;
pub mod limiter;
pub mod outgoing;
pub mod program;
pub mod record;
pub mod socks;
pub mod target;

mod admission;
mod buffer;
mod channel;
pub mod client;
pub mod config;
mod error;
mod failure_detector;
mod links;
mod listening;
mod liveness;
mod lobby;
mod meter;
mod monitor;
mod on_lost_channel;
mod open_streams;
mod opening;
mod path;
mod peers;
mod pool;
mod rarely;
mod relay;
mod reload;
pub mod server;
pub mod status;

pub use channel::connect;
pub use error::StreamError;
pub use on_lost_channel::OnLostChannel;

/// The most channels of one stream. Bounds the memory and work of an association.
pub const MAX_CHANNELS: u8 = 16;
