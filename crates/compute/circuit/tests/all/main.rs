//! Tests of the crate.

mod applications;
mod blif;
mod bristol;
mod building;
mod ciphers;
mod common;
mod minima;
mod netlists;
mod published;
mod schedules;
