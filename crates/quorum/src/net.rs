//! The driver: files, sockets and the daemon.

pub mod api;
pub mod links;
pub mod store;
