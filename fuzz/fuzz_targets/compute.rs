//! The messages of two parties that compute.
#![no_main]

use arbitrary::Arbitrary;
use compute::fuzzing::{bytes, parsers, peer};
use compute::{Protocol, Role, Scheme};
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
    let role = if input.is_garbler { Role::Garbler } else { Role::Evaluator };
    let scheme = Scheme::ALL[usize::from(input.scheme) % Scheme::ALL.len()];
    parsers(&input.any);
    bytes(role, &input.any);
    let protocol = if input.is_gmw { Protocol::Gmw } else { Protocol::Yao };
    peer(role, protocol, scheme, &input.frames);
});
