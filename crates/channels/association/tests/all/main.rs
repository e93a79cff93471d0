//! All integration tests of the crate, in one program, because each program takes seconds to link.

mod attacker;
mod driver;
mod handshake;
