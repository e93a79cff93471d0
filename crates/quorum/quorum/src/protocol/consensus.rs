//! The agreement log without I/O. It runs Malachite's consensus (Tendermint; Buchman, Kwon,
//! Milosevic 2018), with a write-ahead log, timers and catch-up. Specified in
//! `docs/protocols/quorum.md`, *The agreement log*.

pub(crate) mod codec;
pub(crate) mod compact;
pub(crate) mod context;
pub(crate) mod engine;
pub(crate) mod fair_queue;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub(crate) mod pool;
mod signing;
mod timers;

#[cfg(test)]
mod tests;
