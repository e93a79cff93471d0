//! The datagrams between two parties and their relay, before there is a connection over them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use transport::fuzzing::{DatagramStep, datagrams};

fuzz_target!(|steps: Vec<DatagramStep>| {
    datagrams(&steps);
});
