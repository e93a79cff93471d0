//! The protocol: state machines without sockets, files, clocks and threads.

#[doc(hidden)]
pub mod control;
#[doc(hidden)]
pub mod endpoint;
#[doc(hidden)]
pub mod recv;
#[doc(hidden)]
pub mod send;
#[doc(hidden)]
pub mod wire;
