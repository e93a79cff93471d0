//! A seeded network in virtual time, for tests only.
//!
//! Protocol crates are pure state machines: their input is bytes and the time, their output bytes
//! and timers. This crate runs them on a simulated network that is fast and deterministic. It
//! promises:
//!
//! - Determinism: delays, losses, the segmentation of streams and the order of events depend on the
//!   seed only, so a failing seed reproduces a bug.
//! - Links: a link carries either a stream, complete and in order, or datagrams, which are lost,
//!   duplicated, reordered and queued at a bottleneck according to its [`SimulatedLinkConditions`].
//! - Attacks: an attacker may seize a link. It then gets everything sent on it and decides what, if
//!   anything, arrives. This one ability includes reading, changing, dropping, delaying, injecting,
//!   swapping, replaying and closing.
//! - NATs: a [`SimulatedNat`] translates addresses as routers do.
//! - Seeds: [`run_seeds`] runs a simulation with many seeds on all processors, and reports one that
//!   fails.
//! - Statistics: [`statistics`] tests whether bytes, or other counts, are as random ones.
//!
//! ```
//! use std::time::Duration;
//!
//! use sunder_sim::{SimulatedNetwork, SimulationEvent};
//!
//! let mut network = SimulatedNetwork::<()>::new(7);
//! let link = network.add_link(Duration::from_millis(5), Duration::from_millis(20));
//! network.send_stream(link, b"hello");
//! let mut received = Vec::new();
//! while let Some(SimulationEvent::Arrived { bytes, .. }) = network.next_event() {
//!     received.extend(bytes);
//! }
//! assert_eq!(received, b"hello");
//! assert!(network.now() <= Duration::from_millis(20));
//!
//! network.conditions_mut(link).loss_permille = 1000;
//! network.send_datagram(link, b"lost".to_vec());
//! assert_eq!(network.next_event(), None);
//! ```
//!
//! # Map
//!
//! All modules but `seeds` are pure.
//!
//! - `network`: links, timers, and the event queue that acts as the virtual clock.
//! - `link`: one direction of a link: its delay, loss and rate. `rng`: the seeded generator.
//! - `nat`: address translation of several kinds.
//! - `seeds`: runs a simulation with many seeds, in threads. [`statistics`]: chi-squared tests.

mod link;
mod nat;
mod network;
mod rng;
mod seeds;
pub mod statistics;

pub use link::{LinkBottleneck, SimulatedLinkConditions};
pub use nat::{SimulatedNat, SimulatedNatKind};
pub use network::{SimulatedLinkId, SimulatedNetwork, SimulationEvent};
pub use rng::SeededRng;
pub use seeds::run_seeds;
