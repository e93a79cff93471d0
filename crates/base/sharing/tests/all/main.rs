//! All integration tests of the crate, in one program, because each program takes seconds to link.
//! `fork` is a program of its own, as it forks.

mod agreement;
mod arbitrary;
mod keyed;
mod locate;
mod secrecy;
mod statistics;
mod tamper;
mod textbook;
