//! All integration tests of the crate, in one program, because each program takes seconds to link.

mod bad_input;
mod brute_force;
mod costs;
mod exact;
mod extreme;
mod fates;
mod paper;
mod properties;
mod rational;
mod textbook;
