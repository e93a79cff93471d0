//! Whole logs on a simulated network: seeded, in virtual time.

mod agreement;
mod flood;
mod hostile;
mod world;
