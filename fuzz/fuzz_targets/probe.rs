//! The datagrams of a probe: parsers give back what they read, nobody gets more than it sent, and a
//! client that is told anything measures a path within its ranges.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use transport::fuzzing::probe::{ProbeFuzzStep, packet, prober};

#[derive(Arbitrary, Debug)]
struct Input {
    datagrams: Vec<Vec<u8>>,
    steps: Vec<ProbeFuzzStep>,
}

fuzz_target!(|input: Input| {
    for datagram in &input.datagrams {
        packet(datagram);
        // Behind what all packets begin with.
        packet(&[&b"\x0fSunPrb1"[..], datagram].concat());
    }
    prober(&input.steps[..input.steps.len().min(1024)]);
});
