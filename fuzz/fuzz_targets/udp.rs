//! The datagrams of the transport `udp`: parsers give back what they read, a listener asks for
//! cookies, and a connection keeps its bounds, whatever arrives.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use transport::fuzzing::udp::{UdpFuzzStep, connection, listener, packet};

#[derive(Arbitrary, Debug)]
struct Input {
    datagrams: Vec<Vec<u8>>,
    steps: Vec<UdpFuzzStep>,
}

fuzz_target!(|input: Input| {
    input.datagrams.iter().for_each(|datagram| packet(datagram));
    listener(&input.datagrams);
    connection(&input.steps[..input.steps.len().min(256)]);
});
