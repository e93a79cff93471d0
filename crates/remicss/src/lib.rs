//! ReMICSS: IP packets over n channels, as shares of which any k give a packet back.
//!
//! The protocol is in `docs/protocols/remicss.md`; section numbers in the code are those of D. J.
//! Pohly and P. McDaniel, "Modeling Privacy and Tradeoffs in Multichannel Secret Sharing Protocols"
//! (DSN 2016). The protocol's rooms are state machines: bytes and the time come in, bytes and timers
//! go out. Time is a [`Duration`](std::time::Duration) since any epoch the caller keeps to.

pub mod batch;
mod blame;
pub mod common;
pub mod config;
pub mod control;
pub mod datagram;
pub mod estimate;
pub mod handshake;
pub mod inbound;
pub mod keys;
pub mod outbound;
pub mod pace;
mod paths;
pub mod peer_address;
pub mod plan;
pub mod probe;
mod queue;
mod reassembly;
pub mod receiver;
mod release;
pub mod schedule;
pub mod sender;
pub mod sources;
pub mod status;
pub mod strangers;
pub mod symbol;
pub mod tokens;
pub mod tunnel;
mod udp;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The most channels: a threshold fits into half a byte.
pub const MAX_CHANNELS: usize = 16;

/// The address of nobody: of channels that are not in an association.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
