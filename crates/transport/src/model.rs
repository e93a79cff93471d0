//! What an exchange takes over each transport, predicted from what was measured of the path.
//!
//! [`predict`] is pure. `docs/protocols/choice.md` states each formula with its assumptions.

mod exchange;
mod flow;
mod path;
mod transports;

pub use exchange::Exchange;
pub use path::{CongestionControl, Direction, Path};
pub use transports::{TRANSPORTS, Unusable, predict};
#[cfg(test)]
mod tests;
