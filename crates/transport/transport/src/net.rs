//! Connections as programs use them: moves bytes between a transport's stream and the protocol.

mod accepted;
mod addresses;
mod balancer;
mod connect;
mod connection;
mod direct;
mod handshaking;
mod listener;
mod pairing;
mod pending;
mod refusals;
mod send_limit;
mod socks;
#[cfg(test)]
mod tests;
mod timed;

pub use connect::connect;
#[cfg(any(fuzzing, test))]
pub(crate) use connection::PlaintextAnswer;
pub use connection::{
    Connection, ConnectionCloser, ConnectionReader, ConnectionStatistics, ConnectionWriter,
};
pub use listener::Listener;
pub use pairing::{CodeListener, PairedEnd, PairingError, pair};
pub(crate) use pending::source;
pub use send_limit::{SendLimit, SendLimitError};
