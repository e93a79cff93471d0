//! The protocol: state machines without sockets, files, clocks and threads.

pub(crate) mod audit;
pub mod client;
pub(crate) mod content;
pub(crate) mod conversation;
pub(crate) mod conversations;
pub(crate) mod cost;
pub mod engine;
pub(crate) mod epoch;
pub(crate) mod event;
pub mod exchange;
pub mod group;
pub(crate) mod group_key;
pub(crate) mod mailbox;
pub(crate) mod member;
pub mod membership;
pub(crate) mod pair;
pub(crate) mod presence;
pub(crate) mod random;
pub mod round;
pub(crate) mod shape;
pub(crate) mod slot_permutation;
pub(crate) mod state;
pub mod wire;
