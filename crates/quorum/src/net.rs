//! The driver: files, sockets and the daemon.

pub mod api;
pub mod in_process;
pub mod links;
pub mod store;
