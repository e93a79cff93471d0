//! The messages of two parties that compute.
#![no_main]

use arbitrary::Arbitrary;
use compute::fuzzing::{bytes, parsers, peer};
use compute::{ComputeProtocol, ComputeRole, ComputeSecurity, GarblingScheme};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    any: Vec<u8>,
    is_garbler: bool,
    is_gmw: bool,
    scheme: u8,
    security: u8,
    frames: Vec<(u8, Vec<u8>)>,
}

fuzz_target!(|input: Input| {
    let role = if input.is_garbler { ComputeRole::Garbler } else { ComputeRole::Evaluator };
    let scheme = GarblingScheme::ALL[usize::from(input.scheme) % GarblingScheme::ALL.len()];
    parsers(&input.any);
    bytes(role, &input.any);
    let protocol = if input.is_gmw { ComputeProtocol::Gmw } else { ComputeProtocol::Yao };
    let levels = ComputeSecurity::ALL;
    let security = levels[usize::from(input.security) % levels.len()];
    peer(role, protocol, security, scheme, &input.frames);
});
