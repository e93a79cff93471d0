//! A stream of real records, changed on all channels but one and cut into arbitrary pieces: only
//! what was sent is delivered, in order. And arbitrary bytes on every channel, with and without
//! records: nothing panics.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use micss::incoming::{IncomingRecords, SEED_LEN};
use micss::outgoing::OutgoingRecords;
use micss::record::MicssRecordKind;
use random::RandomGenerator;
use sharing::SharingParameters;

#[derive(Arbitrary, Debug)]
struct Input {
    n: u8,
    /// The payloads' lengths.
    payloads: Vec<u16>,
    faults: Vec<Fault>,
    /// The channel, and the number of bytes that arrive on it next.
    pieces: Vec<(u8, u16)>,
    /// The bytes of channels without changes to records.
    noise: Vec<Vec<u8>>,
    records: bool,
}

#[derive(Arbitrary, Debug)]
enum Fault {
    Change { channel: u8, place: u32, difference: u8 },
    Remove { channel: u8, place: u32, len: u8 },
    Insert { channel: u8, place: u32, bytes: Vec<u8> },
    Cut { channel: u8, place: u32 },
    Swap { a: u8, b: u8 },
}

fuzz_target!(|input: Input| {
    let n = input.n % 4 + 2;
    let (sent, mut wires) = send(n, &input.payloads);
    for fault in &input.faults {
        // The last channel is unchanged.
        apply_fault(fault, &mut wires[..usize::from(n) - 1]);
    }
    receive(n, &input.pieces, &wires, &sent);
    receive_noise(&input.noise, input.records);
});

/// No attacker has all channels, but a peer can send anything.
fn receive_noise(noise: &[Vec<u8>], records: bool) {
    let noise = &noise[..noise.len().min(5)];
    let Ok(sharing) = SharingParameters::xor(noise.len() as u8) else {
        return;
    };
    let mut incoming = IncomingRecords::new(sharing, [7; SEED_LEN]);
    if !records {
        incoming.drop_records();
    }
    let mut left: Vec<&[u8]> = noise.iter().map(Vec::as_slice).collect();
    let mut delivered = 0;
    loop {
        match incoming.take_next() {
            Ok(Some(received)) if received.kind != MicssRecordKind::Finish => {
                delivered += received.payload.len();
                continue;
            }
            Ok(None) => {}
            Ok(Some(_)) | Err(_) => break,
        }
        incoming.shrink();
        // As long as the stream is not over, it wants more.
        let channel = incoming.wanted().next().unwrap();
        let space = incoming.space(channel);
        let len = space.len().min(left[channel].len());
        space[..len].copy_from_slice(left[channel].split_off(..len).unwrap());
        if len == 0 { incoming.close(channel) } else { incoming.filled(channel, len) }
    }
    assert!(noise.iter().all(|bytes| delivered <= bytes.len()));
}

/// Returns what was sent, and the bytes of each channel.
fn send(n: u8, payloads: &[u16]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let mut outgoing = OutgoingRecords::new(
        SharingParameters::xor(n).unwrap(),
        RandomGenerator::seeded().unwrap(),
    );
    let mut wires = vec![Vec::new(); usize::from(n)];
    let mut sent = Vec::new();
    let mut take = |outgoing: &mut OutgoingRecords| {
        for (channel, wire) in wires.iter_mut().enumerate() {
            let len = outgoing.unsent(channel).len();
            wire.extend_from_slice(outgoing.unsent(channel));
            outgoing.advance(channel, len);
        }
    };
    for (i, &len) in payloads.iter().take(8).enumerate() {
        let room = outgoing.payload_mut();
        // Long payloads are rare: they take time, and cover no code that shorter ones do not cover.
        let len = if len % 64 == 0 { len } else { len % 1024 };
        let payload = vec![i as u8; usize::from(len).min(room.len())];
        outgoing.seal_payload(MicssRecordKind::Data, &payload).unwrap();
        take(&mut outgoing);
        sent.push(payload);
    }
    outgoing.finish().unwrap();
    take(&mut outgoing);
    (sent, wires)
}

fn apply_fault(fault: &Fault, wires: &mut [Vec<u8>]) {
    let channels = wires.len();
    let at = |channel: &u8| usize::from(*channel) % channels;
    match fault {
        Fault::Change { channel, place, difference } => {
            let wire = &mut wires[at(channel)];
            if !wire.is_empty() {
                let place = *place as usize % wire.len();
                wire[place] ^= difference;
            }
        }
        Fault::Remove { channel, place, len } => {
            let wire = &mut wires[at(channel)];
            let start = *place as usize % (wire.len() + 1);
            let end = wire.len().min(start + usize::from(*len));
            wire.drain(start..end);
        }
        Fault::Insert { channel, place, bytes } => {
            let wire = &mut wires[at(channel)];
            let place = *place as usize % (wire.len() + 1);
            wire.splice(place..place, bytes.iter().copied());
        }
        Fault::Cut { channel, place } => {
            let wire = &mut wires[at(channel)];
            wire.truncate(*place as usize % (wire.len() + 1));
        }
        Fault::Swap { a, b } => wires.swap(at(a), at(b)),
    }
}

fn receive(n: u8, pieces: &[(u8, u16)], wires: &[Vec<u8>], sent: &[Vec<u8>]) {
    let mut incoming = IncomingRecords::new(SharingParameters::xor(n).unwrap(), [7; SEED_LEN]);
    let mut given = vec![0; wires.len()];
    let mut expected = sent.iter();
    // First the pieces of the input, then the rest in turn.
    let rest = (0..n).cycle().map(|channel| (channel, u16::MAX)).take(1024);
    for (channel, len) in pieces.iter().copied().chain(rest) {
        let channel = usize::from(channel) % wires.len();
        if !incoming.wanted().any(|wanted| wanted == channel) {
            continue;
        }
        let left = &wires[channel][given[channel]..];
        if left.is_empty() {
            incoming.close(channel);
        } else {
            let space = incoming.space(channel);
            let len = usize::from(len).max(1).min(space.len()).min(left.len());
            space[..len].copy_from_slice(&left[..len]);
            incoming.filled(channel, len);
            given[channel] += len;
        }
        loop {
            match incoming.take_next() {
                Ok(Some(received)) if received.kind == MicssRecordKind::Data => {
                    assert_eq!(Some(received.payload), expected.next().map(Vec::as_slice));
                }
                Ok(Some(received)) => {
                    assert_eq!(received.kind, MicssRecordKind::Finish);
                    assert!(expected.next().is_none(), "finished too early");
                    return;
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}
