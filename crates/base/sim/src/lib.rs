//! A seeded network in virtual time, for tests only.
//!
//! Protocol crates are pure state machines: bytes and the time come in, bytes and timers go out.
//! This crate runs them on a simulated network that is fast and deterministic. It promises:
//!
//! - determinism: delays, losses, the segmentation of streams and the order of events follow from
//!   the seed alone, so a failing seed reproduces a bug;
//! - a link carries a stream, whole and in order, or datagrams, which are lost, duplicated,
//!   reordered and queued at a bottleneck as its [`SimulatedLinkConditions`] say;
//! - a link may be seized by an attacker, who then gets everything sent on it and decides what, if
//!   anything, arrives. Reading, changing, dropping, delaying, injecting, swapping, replaying and
//!   closing all come down to this one power;
//! - [`run_seeds`] runs a simulation with many seeds on all processors, and names one that fails.
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

mod link;
mod network;
mod rng;
mod seeds;

pub use link::{LinkBottleneck, SimulatedLinkConditions};
pub use network::{SimulatedLinkId, SimulatedNetwork, SimulationEvent};
pub use rng::SeededRng;
pub use seeds::run_seeds;
