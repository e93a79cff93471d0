//! ReMICSS: IP packets over n channels, as shares of which any k give a packet back.
//!
//! The protocol is in `docs/protocols/remicss.md`; section numbers in the code are those of D. J.
//! Pohly and P. McDaniel, "Modeling Privacy and Tradeoffs in Multichannel Secret Sharing Protocols"
//! (DSN 2016).
//!
//! The layers, each of which uses only those before it:
//!
//! - [`wire`]: the datagrams, their tokens and the messages in them;
//! - [`send`]: from packets to shares in batches;
//! - [`recv`]: from shares to packets in order;
//! - [`control`]: the handshake, the estimates of the channels, their paths and addresses;
//! - [`endpoint`]: the two halves of one end;
//! - [`tunnel`]: threads, sockets and the device.
//!
//! All but the last are state machines: bytes and the time come in, bytes and timers go out. Time
//! is a [`Duration`](std::time::Duration) since any epoch the caller keeps to.

pub mod config;
pub mod control;
pub mod endpoint;
pub mod recv;
pub mod send;
pub mod status;
pub mod tunnel;
pub mod wire;

pub use wire::datagram::MAX_CHANNELS;
