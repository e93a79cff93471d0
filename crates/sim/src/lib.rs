//! A seeded network in virtual time, for tests only.
//!
//! Protocol crates are pure state machines: bytes and the time come in, bytes and timers go out.
//! This crate runs them on a simulated network that is fast and deterministic. It promises:
//!
//! - determinism: delays, the segmentation of streams and the order of events follow from the seed
//!   alone, so a failing seed reproduces a bug;
//! - a link may be seized by an attacker, who then gets everything sent on it and decides what, if
//!   anything, arrives. Reading, changing, dropping, delaying, injecting, swapping, replaying and
//!   closing all come down to this one power.

mod network;
mod rng;

pub use network::{Event, LinkId, Network};
pub use rng::Rng;
