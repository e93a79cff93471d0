//! The driver: files, sockets and the server process.

pub mod api;
pub mod ceremony_files;
pub mod cometbft;
pub mod consensus;
mod full_disk;
pub mod in_process;
pub mod links;
pub mod node;
pub mod nodes;
pub mod store;
