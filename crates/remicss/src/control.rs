//! What the ends tell each other about the channels, and what follows from it.
//!
//! The bytes are in `docs/protocols/remicss.md`, section "Control messages". A
//! [`Message`](crate::wire::control::Message) says when control shares of the other end came on each
//! channel, and what had come there before. The [`Monitor`](monitor::Monitor) puts that together with
//! what was sent: loss, delay and rate of each channel.

pub mod estimate;
pub mod handshake;
pub mod incoming;
pub mod monitor;
pub mod outgoing;
pub(crate) mod paths;
pub mod peer_address;
pub mod probe;
pub mod strangers;
