//! Whole logs on a simulated network: seeded, in virtual time.

mod agreement;
mod compact;
mod flood;
mod hostile;
mod hostile_proposer;
mod world;
