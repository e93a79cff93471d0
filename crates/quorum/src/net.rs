//! The driver: files, sockets and the daemon.

pub mod api;
pub mod store;
