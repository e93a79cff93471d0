//! SABUL's datagrams: parsers give back what they read, a listener keeps nothing, and a connection
//! keeps its bounds, whatever arrives.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use sabul::fuzzing::{SabulFuzzStep, connection, listener, packet};

#[derive(Arbitrary, Debug)]
enum Happens {
    Arrive(Vec<u8>),
    Data(u32, Vec<u32>),
    Control(u8, u32, Vec<u32>),
    Write(u16),
    Read(u16),
    Wait(u16),
    Close,
}

#[derive(Arbitrary, Debug)]
struct Input {
    any: Vec<u8>,
    steps: Vec<Happens>,
}

fuzz_target!(|input: Input| {
    packet(&input.any);
    listener(&input.any);
    let steps: Vec<SabulFuzzStep> = input
        .steps
        .into_iter()
        .take(256)
        .map(|happens| match happens {
            Happens::Arrive(bytes) => {
                packet(&bytes);
                listener(&bytes);
                SabulFuzzStep::Arrive(bytes)
            }
            Happens::Data(number, body) => SabulFuzzStep::Near([number >> 1, 0], body),
            Happens::Control(kind, information, body) => {
                SabulFuzzStep::Near([1 << 31 | u32::from(kind % 10) << 16, information], body)
            }
            Happens::Write(len) => SabulFuzzStep::Write(len),
            Happens::Read(len) => SabulFuzzStep::Read(len),
            Happens::Wait(milliseconds) => SabulFuzzStep::Wait(milliseconds),
            Happens::Close => SabulFuzzStep::Close,
        })
        .collect();
    connection(&steps);
});
