//! All integration tests of the crate, in one program, because each program takes seconds to link.

mod common;
mod faults;
mod library;
mod loopback;
mod operation;
mod pattern;
mod stalled;
mod stream;
mod tamper;
mod testbed;
mod threshold;
