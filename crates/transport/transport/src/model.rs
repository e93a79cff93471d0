//! Predicts how long an exchange takes over each transport, from measurements of the path.
//!
//! [`predict`] is a pure function. `docs/protocols/choice.md` describes each formula and its
//! assumptions.

mod exchange;
mod flow;
mod path;
mod transports;

pub use exchange::ExchangeProfile;
pub use path::{NetworkPath, PathDirection, TcpCongestionControl};
pub use transports::{TRANSPORTS, UnusableTransportError, predict};
#[cfg(test)]
mod tests;
