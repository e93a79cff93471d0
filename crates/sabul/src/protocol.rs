//! The protocol, without I/O: datagrams and the time come in, datagrams and deadlines go out.

mod agreed;
mod arrivals;
mod congestion;
mod connection;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod handshake;
mod loss_report;
mod number;
mod packet;
mod ranges;
mod receive_buffer;
mod round_trip;
mod send_buffer;
#[cfg(test)]
mod tests;

pub use agreed::Config;
pub use congestion::{Acked, CongestionControl, Limits, Lost, Metrics, NativeControl};
pub use connection::{Connection, ConnectionError, Read, Statistics};
pub use handshake::{ConnectError, Connected, Connecting, Listener, Listening, Request};
pub(crate) use packet::destination;
