//! The protocol, without I/O.

pub(crate) mod admission;
pub(crate) mod ceremony;
pub(crate) mod combination;
pub(crate) mod cometbft;
pub(crate) mod consensus;
pub mod group;
pub(crate) mod group_key;
pub(crate) mod key_sharing;
pub(crate) mod link;
pub(crate) mod log_types;
pub mod policy;
pub mod refresh;
pub mod replication;
pub mod review;
pub mod server;
pub(crate) mod share;
pub mod signing;
pub mod ssh;
pub(crate) mod unix_seconds;
pub(crate) mod voting;
pub(crate) mod wire;

#[cfg(test)]
pub(crate) mod testing;
