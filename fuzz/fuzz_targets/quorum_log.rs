//! The agreement log of a quorum: its messages and records have one encoding each, and one faulty
//! server stops nothing and commits nothing.
#![no_main]

mod changes;

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use changes::Changes;
use libfuzzer_sys::fuzz_target;
use quorum::fuzzing::log::{ConsensusFuzzStep, agree, examples, replay, round_trip};

static EXAMPLES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(examples);

#[derive(Arbitrary, Debug)]
enum Happens {
    Message(u8, Changes),
    Signed(Changes),
    Submit(Vec<u8>),
    Greet(u8),
    Wait(u16),
}

#[derive(Arbitrary, Debug)]
struct Input {
    any: Vec<u8>,
    records: Vec<Changes>,
    steps: Vec<Happens>,
}

fuzz_target!(|input: Input| {
    round_trip(&input.any);
    let change = |changes: &Changes| changes.of_one(&EXAMPLES);
    let records: Vec<Vec<u8>> = input.records.iter().take(8).map(change).collect();
    records.iter().for_each(|record| round_trip(record));
    replay(records);
    let steps: Vec<ConsensusFuzzStep> = input
        .steps
        .iter()
        .take(32)
        .map(|happens| match happens {
            Happens::Message(from, changes) => ConsensusFuzzStep::Message(*from, change(changes)),
            Happens::Signed(changes) => ConsensusFuzzStep::Signed(change(changes)),
            Happens::Submit(entry) => ConsensusFuzzStep::Submit(entry.clone()),
            Happens::Greet(server) => ConsensusFuzzStep::Greet(*server),
            Happens::Wait(milliseconds) => ConsensusFuzzStep::Wait(*milliseconds),
        })
        .collect();
    agree(&steps);
});
