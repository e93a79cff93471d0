//! The driver: sockets, the kernel's rules and metrics. It moves bytes between sockets and the
//! protocol.

pub mod client;
pub mod intercept;
mod metrics;
mod paths;
pub mod server;
pub(crate) mod socket;
mod stop;
mod stream;
mod tcp_info;
