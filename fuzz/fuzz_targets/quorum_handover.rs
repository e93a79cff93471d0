//! What servers send, save and keep when a key is shared by a polynomial: entries of a handover,
//! common values, requests for parts of signatures, answers, evidence and sharings have one
//! encoding each, and no entry stops a handover.
#![no_main]

mod changes;

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use changes::Changes;
use libfuzzer_sys::fuzz_target;
use quorum::fuzzing::PolynomialExamples;

static EXAMPLES: LazyLock<PolynomialExamples> = LazyLock::new(PolynomialExamples::new);

#[derive(Arbitrary, Debug)]
struct Input {
    any: Vec<u8>,
    /// Entries with their authors.
    entries: Vec<(u8, Changes)>,
}

fuzz_target!(|input: Input| {
    EXAMPLES.round_trip(&input.any);
    let entries: Vec<(u8, Vec<u8>)> = input
        .entries
        .iter()
        .take(32)
        .map(|(author, changes)| (*author, changes.of_one(&EXAMPLES.bytes)))
        .collect();
    entries.iter().for_each(|(_, bytes)| EXAMPLES.round_trip(bytes));
    EXAMPLES.apply(&entries);
});
