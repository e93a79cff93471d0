//! The limits of the code's protection: another layout, and an attacker who reads all channels.
//!
//! The code is at the start of a record. This is an alternative layout with point and tag *after*
//! the payload, which an attacker who knows the payload can always forge. The code is the same, but
//! its position depends on a length.

use random::RandomGenerator;
use sharing::tamper;
use sunder_micss::record::MicssRecordKind;

use super::receiver::{Verdict, receive};
use super::wire::Recording;

/// Seals `kind (1) | length (3) | payload | point (16) | tag (16)`.
fn seal(payload: &[u8], generator: &mut RandomGenerator) -> Vec<u8> {
    let message = message(payload);
    let code = tamper::protect(&[&message], generator).unwrap();
    [&message[..], &code].concat()
}

fn message(payload: &[u8]) -> Vec<u8> {
    [&u32::try_from(payload.len()).unwrap().to_be_bytes()[..], payload].concat()
}

/// Opens the first such record.
fn open(record: &[u8]) -> Option<Vec<u8>> {
    let len = u32::from_be_bytes(*record.first_chunk()?) as usize;
    let (message, rest) = record.split_at_checked(4 + len)?;
    tamper::verify(rest.first_chunk()?, &[message]).ok()?;
    Some(message[4..].to_vec())
}

/// The difference that the attacker adds to its channel, computed from the known payload: a shorter
/// length, a message of its choice in that length, and after it a code of its own.
fn forgery(known: &[u8], wanted: &[u8], generator: &mut RandomGenerator) -> Vec<u8> {
    let before = message(known);
    let after = seal(wanted, generator);
    before.iter().zip(&after).map(|(before, after)| before ^ after).collect()
}

#[test]
fn a_code_after_the_payload_is_always_forged() {
    let mut generator = RandomGenerator::seeded().unwrap();
    let known = [b'k'; 100];
    for _ in 0..1000 {
        let record = seal(&known, &mut generator);
        // Two shares, of which the attacker has the second.
        let mut first = vec![0; record.len()];
        generator.fill(&mut first).unwrap();
        let mut second: Vec<u8> = first.iter().zip(&record).map(|(a, b)| a ^ b).collect();
        let difference = forgery(&known, b"pay the attacker", &mut generator);
        second.iter_mut().zip(&difference).for_each(|(byte, with)| *byte ^= with);
        let joined: Vec<u8> = first.iter().zip(&second).map(|(a, b)| a ^ b).collect();
        assert_eq!(open(&joined).unwrap(), b"pay the attacker");
    }
}

/// The same attack on the real layout: the attacker can replace the message and the length, but not
/// the code, because it does not know it.
#[test]
fn a_code_at_the_start_is_never_forged() {
    let mut generator = RandomGenerator::seeded().unwrap();
    for round in 0..1000 {
        let recording = Recording::short(2, round);
        let (kind, known) = &recording.sent[1];
        assert_eq!(*kind, MicssRecordKind::Data);
        let wanted = &known[..known.len() / 2];
        let forged = seal(wanted, &mut generator);
        let (message_bytes, code) = forged.split_at(4 + wanted.len());
        let before = message(known);
        let mut shares = recording.shares.clone();
        let record = &mut shares[1][recording.bounds[1]..];
        let (place_of_code, place_of_message) = record.split_at_mut(tamper::OVERHEAD);
        // The present bytes are unknown, so their replacement can only be guessed.
        place_of_code.iter_mut().zip(code).for_each(|(byte, with)| *byte ^= with);
        for (byte, (before, after)) in
            place_of_message.iter_mut().zip(before.iter().zip(message_bytes))
        {
            *byte ^= before ^ after;
        }
        let verdict = receive(&shares, &recording.sent);
        assert!(matches!(verdict, Verdict::Error(_)), "{verdict:?}");
    }
}

/// The honest channel must be neither changed nor read. An attacker who reads all channels knows
/// the point, and can forge by changing one channel.
#[test]
fn an_attacker_on_every_channel_forges_on_one() {
    let mut generator = RandomGenerator::seeded().unwrap();
    let recording = Recording::short(3, 0);
    let wanted = message(&[b'!'; 20]);
    let code = tamper::protect(&[&wanted], &mut generator).unwrap();
    let forged = [&code[..], &wanted].concat();
    let mut shares = recording.shares.clone();
    for (place, byte) in forged.iter().enumerate() {
        shares[0][place] = byte ^ recording.shares[1][place] ^ recording.shares[2][place];
    }
    let verdict = receive(&shares, &recording.sent);
    assert!(
        matches!(verdict, Verdict::Delivered((MicssRecordKind::Data, payload)) if payload == [b'!'; 20])
    );
}
