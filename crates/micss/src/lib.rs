//! MICSS: a TCP stream over n channels, of which any n - 1 together learn nothing.
//!
//! A stream is cut into records, each record is shared by XOR byte for byte, and share `i` goes to
//! channel `i`. The bytes are in `docs/protocols/micss.md`; the paper is 001, III-D and III-E.
//!
//! The crate has two folders, and calls go from the second to the first:
//! - `protocol`: state machines that do no input or output: [`record`], [`outgoing`], [`incoming`],
//!   [`target`], [`socks`], [`allow`], and when a channel is lost. Bytes and the time come in as
//!   arguments, results go out.
//! - `net`: [`client`] and [`server`] move bytes between sockets and the protocol; [`intercept`]
//!   has the kernel hand connections over. [`status`] is what both ends report.
//!
//! Promised, against an attacker who reads and changes all channels but one and has any amount of
//! computing: what the stream carries stays secret, as far as [`sharing::random`] goes; with the
//! tamper code, no changed byte is ever delivered, and a stream that was cut short is an error.
//! Not promised: that an attacker on one channel cannot stop the stream, nor that lengths and
//! times stay hidden.

pub mod config;
mod error;
mod net;
mod protocol;
pub mod status;

pub use error::StreamError;
pub use net::socket::connect;
pub use net::{client, intercept, server};
pub use protocol::on_lost_channel::OnLostChannel;
pub use protocol::{allow, incoming, outgoing, record, socks, target};

/// The most channels of one stream. Bounds the memory and work of an association.
pub const MAX_CHANNELS: u8 = 16;
