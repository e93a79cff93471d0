//! The messages between the controller of an experiment and the agent of a site.

#![no_main]

use lab::fuzzing::exchange_with_agent;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| exchange_with_agent(bytes));
