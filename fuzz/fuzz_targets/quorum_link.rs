//! The links of a quorum: outsiders complete no handshake and insert no message, and a peer keeps
//! within its bounds or loses its link.
#![no_main]

mod changes;

use arbitrary::Arbitrary;
use changes::Changes;
use libfuzzer_sys::fuzz_target;
use quorum::fuzzing::link::{LinkFuzzStep, handshake, outsider, peer};

#[derive(Arbitrary, Debug)]
enum Happens {
    Chunk(Vec<u8>),
    /// The begin of a message: lane, topic, announced length, and so many bytes of it.
    Begin(bool, u8, u32, u16),
    /// The next bytes of it.
    Continue(bool, u16),
    Credit(u8, u32),
    Rekey,
    Ping(bool, u64),
    Consume,
    Send(u16),
    Wait(u16),
}

#[derive(Arbitrary, Debug)]
struct Input {
    any: Vec<u8>,
    handshake: Changes,
    messages: Vec<Vec<u8>>,
    records: Changes,
    steps: Vec<Happens>,
}

fuzz_target!(|input: Input| {
    handshake(&input.any, |bytes| input.handshake.of(bytes));
    outsider(&input.messages, |bytes| input.records.of(bytes));
    let steps: Vec<LinkFuzzStep> = input
        .steps
        .iter()
        .take(64)
        .map(|happens| match happens {
            Happens::Chunk(chunk) => LinkFuzzStep::Chunk(chunk.clone()),
            Happens::Begin(lane, topic, len, sent) => {
                let mut chunk = vec![4 + u8::from(*lane), *topic];
                chunk.extend(len.to_be_bytes());
                chunk.extend(vec![7; usize::from(*sent).min(*len as usize)]);
                LinkFuzzStep::Chunk(chunk)
            }
            Happens::Continue(lane, sent) => LinkFuzzStep::Chunk(
                [vec![6 + u8::from(*lane)], vec![7; usize::from(*sent)]].concat(),
            ),
            Happens::Credit(lane, amount) => {
                LinkFuzzStep::Chunk([&[2, *lane][..], &amount.to_be_bytes()].concat())
            }
            Happens::Rekey => LinkFuzzStep::Chunk(vec![3]),
            Happens::Ping(is_answer, number) => {
                LinkFuzzStep::Chunk([&[u8::from(*is_answer)][..], &number.to_be_bytes()].concat())
            }
            Happens::Consume => LinkFuzzStep::Consume,
            Happens::Send(len) => LinkFuzzStep::Send(*len),
            Happens::Wait(milliseconds) => LinkFuzzStep::Wait(*milliseconds),
        })
        .collect();
    peer(&steps);
});
