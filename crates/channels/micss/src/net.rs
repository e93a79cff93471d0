//! The driver: sockets, the kernel's rules and metrics. It moves bytes between sockets and the
//! protocol.

pub mod client;
pub mod intercept;
pub(crate) mod library;
mod metrics;
mod paths;
pub mod server;
pub(crate) mod socket;
mod stop;
pub(crate) mod stream;
mod tcp_info;
