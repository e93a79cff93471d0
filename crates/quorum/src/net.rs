//! The driver: files, sockets and the daemon.

pub mod store;
