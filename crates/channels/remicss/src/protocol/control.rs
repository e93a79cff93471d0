//! What an end knows about its peer and the channels: the handshake, the estimates, the paths and
//! the peer's addresses.
//!
//! The bytes are in `docs/protocols/remicss.md`, section "Control messages". A
//! [`Message`](crate::protocol::wire::control::ControlMessage) says when control shares of the
//! other end arrived on each channel, and how many datagrams had arrived there before. The
//! [`Monitor`](monitor::ChannelMonitor) combines this with what was sent, and estimates loss, delay
//! and rate of each channel.

pub mod estimate;
pub mod handshake;
pub mod hello_probe;
pub mod incoming;
pub mod monitor;
pub mod outgoing;
pub mod path_prober;
pub mod peer_address;
pub mod quota;
pub(crate) mod rate_limiter;
pub mod unverified;
