//! Burst's datagrams: a listener makes no connection of a stranger's, and a connection keeps its
//! bounds, whatever a peer with the right keys sends.
#![no_main]

use arbitrary::Arbitrary;
use burst::fuzzing::{BurstFuzzStep, connection, listener, packet};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    datagrams: Vec<Vec<u8>>,
    steps: Vec<BurstFuzzStep>,
}

fuzz_target!(|input: Input| {
    input.datagrams.iter().for_each(|datagram| packet(datagram));
    listener(&input.datagrams);
    connection(&input.steps[..input.steps.len().min(256)]);
});
