//! The protocol: state machines without sockets, files, clocks and threads.

pub mod control;
pub mod endpoint;
pub mod recv;
pub mod send;
pub mod wire;
