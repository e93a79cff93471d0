//! The protocol, without I/O.

mod blocks;
mod config;
mod connection;
mod frame;
#[cfg(any(fuzzing, test))]
pub mod fuzzing;
mod handshake;
mod listener;
mod packet;
pub mod rate;
mod receiving;
pub mod repair;
mod sending;
pub mod train;

pub use config::{BurstConfig, BurstWaitReason, ClientKeyFilter, Error};
pub use connection::{BurstConnection, BurstSecurity};
pub use listener::{BurstListener, BurstListenerSecurity};

/// Converts a number of bytes, or a rate, to an integer.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
fn to_u64(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests;
