//! SABUL/UDT: reliable streams over UDP for long and fast paths, compatible with UDT4.
//!
//! The protocol is that of draft-gg-udt-03 and of the C++ library UDT4. It is specified in
//! `docs/protocols/sabul.md`.

mod net;
mod protocol;

pub use net::{Endpoint, connect, listen};
#[cfg(any(test, fuzzing))]
pub use protocol::fuzzing;
pub use protocol::{
    Acked, Config, CongestionControl, ConnectError, Connected, Connecting, Connection,
    ConnectionError, Limits, Listener, Listening, Lost, Metrics, NativeControl, Read, Request,
    Statistics,
};
