//! The handshake and the records of connections over any transport, and the messages of files.
#![no_main]

mod changes;

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use changes::Changes;
use libfuzzer_sys::fuzz_target;
use transport::fuzzing::{handshake, parsers, records, sender};

#[derive(Arbitrary, Debug)]
struct Input {
    any: Vec<u8>,
    handshake: Changes,
    chunks: Vec<Vec<u8>>,
    pieces: Vec<u16>,
    records: Changes,
    /// The name of a file, its length, and what is sent of it.
    name: Vec<u8>,
    length: u16,
    sent: Vec<u8>,
}

static DIRECTORY: LazyLock<std::path::PathBuf> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("sunder-fuzz-{}", std::process::id()));
    std::fs::create_dir(&path).unwrap();
    path
});

fuzz_target!(|input: Input| {
    parsers(&input.any);
    handshake(|bytes| input.handshake.of(bytes));
    records(&input.chunks, &input.pieces, |bytes| input.records.of(bytes));
    sender(&DIRECTORY, &input.any);
    let mut offer = vec![1, 1, 1];
    offer.extend(u64::from(input.length).to_be_bytes());
    offer.extend(u16::try_from(input.name.len()).unwrap_or(u16::MAX).to_be_bytes());
    offer.extend(&input.name);
    offer.extend(&input.sent);
    sender(&DIRECTORY, &offer);
});
