//! A seeded network in virtual time, for tests only.
//!
//! Protocol crates are pure state machines: bytes and the time come in, bytes and timers go out.
//! This crate gives them a world to run in that is fast and repeats exactly. It promises:
//!
//! - one seed, one run: delays, the cutting of streams into pieces and the order of events follow
//!   from the seed alone, so a failing seed is a bug report;
//! - a link may be seized by an attacker, who then gets everything sent on it and decides what, if
//!   anything, arrives. Reading, changing, dropping, delaying, injecting, swapping, replaying and
//!   closing all come down to this one power.

mod network;
mod rng;

pub use network::{Event, LinkId, Network};
pub use rng::Rng;
