//! Forwards a local TCP port over a transport, for programs that know nothing of transports.
//!
//! [`PortForwarder`] listens at the client's host, and [`PortExposer`] runs near the service. Each
//! connection that a program opens to the forwarder becomes one connection of a transport, and the
//! exposer opens one TCP connection to its target for it. The ends of both directions are forwarded
//! one by one (half-closes), and a connection that fails is reset, so that no program takes a part
//! of a stream for the whole.

mod carry;
mod exposer;
mod forwarder;
mod open;
mod socket;
mod spare;
mod status;
#[cfg(test)]
mod tests;
mod thread;

pub use exposer::PortExposer;
pub use forwarder::PortForwarder;
pub use open::PortForwardStatusSource;
pub use socket::into_socket;
pub use status::{PortForwardFailureCounts, PortForwardStatus};

/// The largest number of connections at a time, at either end.
pub const MAX_CONNECTIONS: usize = 256;

/// The largest number of bytes that a transport over UDP buffers in each direction of a connection:
/// 110 ms at 1.2 Gbit/s.
pub const MAX_BUFFER: usize = 16 << 20;
