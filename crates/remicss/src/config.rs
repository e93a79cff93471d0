//! What an end of a tunnel is told, read from TOML and checked in full.

mod error;
mod parse;
#[cfg(test)]
mod tests;
mod types;

pub use error::ConfigError;
pub use types::{Channel, Choice, Config, End, Goal, Order};
