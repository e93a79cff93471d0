//! Burst's datagrams: a listener makes no connection of a stranger's, and a connection keeps its
//! bounds, whatever a peer with the right keys sends.
#![no_main]

use arbitrary::Arbitrary;
use burst::fuzzing::{Step, connection, listener, packet};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Happens {
    Datagram(Vec<u8>),
    Frames(Vec<u8>),
    Stream(u32, u16, bool),
    Repair(u32, u32, [u8; 2], u16),
    Ack(u8, [u32; 2], Vec<[u8; 2]>),
    Write(u16),
    Read(u16),
    Wait(u16),
    Finish,
    Close,
}

#[derive(Arbitrary, Debug)]
struct Input {
    datagrams: Vec<Vec<u8>>,
    steps: Vec<Happens>,
}

fuzz_target!(|input: Input| {
    input.datagrams.iter().for_each(|datagram| packet(datagram));
    listener(&input.datagrams);
    let steps: Vec<Step> = input
        .steps
        .into_iter()
        .take(256)
        .map(|happens| match happens {
            Happens::Datagram(bytes) => Step::Datagram(bytes),
            Happens::Frames(bytes) => Step::Frames(bytes),
            Happens::Stream(offset, len, is_end) => Step::Stream(offset % 300_000, len, is_end),
            Happens::Repair(start, len, numbers, symbol_len) => {
                Step::Repair(start, len, numbers, symbol_len)
            }
            Happens::Ack(back, to, ranges) => Step::Ack(back, to, ranges),
            Happens::Write(len) => Step::Write(len),
            Happens::Read(len) => Step::Read(len),
            Happens::Wait(milliseconds) => Step::Wait(milliseconds),
            Happens::Finish => Step::Finish,
            Happens::Close => Step::Close,
        })
        .collect();
    connection(&steps);
});
