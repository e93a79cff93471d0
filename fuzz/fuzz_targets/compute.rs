//! The messages of two parties that compute.
#![no_main]

use arbitrary::Arbitrary;
use compute::fuzzing::{bytes, parsers, peer};
use compute::{ComputeProtocol, ComputeRole, GarblingScheme};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    any: Vec<u8>,
    is_garbler: bool,
    is_gmw: bool,
    scheme: u8,
    frames: Vec<(u8, Vec<u8>)>,
}

fuzz_target!(|input: Input| {
    let role = if input.is_garbler { ComputeRole::Garbler } else { ComputeRole::Evaluator };
    let scheme = GarblingScheme::ALL[usize::from(input.scheme) % GarblingScheme::ALL.len()];
    parsers(&input.any);
    bytes(role, &input.any);
    let protocol = if input.is_gmw { ComputeProtocol::Gmw } else { ComputeProtocol::Yao };
    peer(role, protocol, scheme, &input.frames);
});
