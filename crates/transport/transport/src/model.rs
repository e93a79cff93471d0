//! What an exchange takes over each transport, predicted from what was measured of the path.
//!
//! [`predict`] is pure. `docs/protocols/choice.md` states each formula with its assumptions.

mod exchange;
mod flow;
mod path;
mod transports;

pub use exchange::ExchangeProfile;
pub use path::{NetworkPath, PathDirection, TcpCongestionControl};
pub use transports::{TRANSPORTS, UnusableTransportError, predict};
#[cfg(test)]
mod tests;
