//! The local API of a quorum server: any bytes on its socket are answered, or refused in one line.
#![no_main]

mod changes;

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use changes::Changes;
use libfuzzer_sys::fuzz_target;
use quorum::fuzzing::api::{examples, request};

static EXAMPLES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(examples);

#[derive(Arbitrary, Debug)]
struct Input {
    any: Vec<u8>,
    requests: Vec<Changes>,
}

fuzz_target!(|input: Input| {
    request(&input.any);
    let requests = input.requests.iter().take(4).map(|changes| changes.of_one(&EXAMPLES));
    request(&requests.collect::<Vec<_>>().concat());
});
