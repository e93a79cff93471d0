//! Statistical tests of what each end, and an attacker on the path, could learn.
//!
//! The seeds are fixed, so runs are reproducible.

use blocks::Block;
use sha2::{Digest as _, Sha256};
use sim::statistics::{ChiSquared, byte_counts};
use sunder_ot::base::{naor_pinkas, naor_pinkas_modp, ristretto, two_lock};
use sunder_ot::extension::{
    OtExtension, OtExtensionKind, OtExtensionReceiver, OtExtensionSecurity, OtReceiverSetUp,
    OtSenderSetUp,
};
use sunder_ot::{messages, one_of_n};

use crate::base::{KEY, choice, choices};
use crate::extension::{OFFSET, extend, extensions, random, set_up};

/// How often a chi-squared test fails by chance.
const FALSE_ALARM: f64 = 1e-7;

/// Fails if bytes are not uniform.
fn check_uniform(what: &str, bytes: &[u8]) {
    assert!(bytes.len() >= 10 * 256, "{what}: too few bytes");
    let uniform = ChiSquared::of_uniform(&byte_counts(bytes.iter().copied()));
    assert!(uniform.passes(FALSE_ALARM), "{what}: {uniform:?}");
}

/// Of the hypothesis that two samples of as many bytes come from one distribution.
fn distance(first: &[u8], second: &[u8]) -> ChiSquared {
    assert_eq!(first.len(), second.len());
    ChiSquared::of_rows(&[first, second].map(|bytes| byte_counts(bytes.iter().copied())))
}

/// A name, and what a receiver with a seed sends for choices.
type Message<'a> = (&'a str, Box<dyn Fn(Block, &[u8]) -> Vec<u8> + 'a>);

/// What receivers of the base transfers send, with all choices 0 or all 1, in many sessions.
fn base_messages(choice: u8, message: impl Fn(Block, &[u8]) -> Vec<u8>) -> Vec<u8> {
    let seeds = (0..40).map(|seed| Block::from(1000 * u128::from(choice) + seed));
    seeds.flat_map(|seed| message(seed, &[0u8.wrapping_sub(choice); 2])).collect()
}

#[test]
fn a_sender_of_base_transfers_sees_no_choices() {
    let from_sender = naor_pinkas::NaorPinkasSender::new(Block::from(1)).1;
    // Exponents of full length would take seconds.
    let group = naor_pinkas_modp::ModpGroup::Modp1024Short;
    let modp_sender = naor_pinkas_modp::NaorPinkasModpSender::new(group, Block::from(1)).1;
    let (_, locked) = two_lock::TwoLockSender::new(&KEY, Block::from(1), 16);
    let messages: [Message; 4] = [
        (
            "Ristretto",
            Box::new(|seed, choices| {
                ristretto::RistrettoOtReceiver::new(seed, choices, 16).unwrap().1
            }),
        ),
        (
            "Naor-Pinkas",
            Box::new(|seed, choices| {
                naor_pinkas::receive(seed, choices, 16, &from_sender).unwrap().1
            }),
        ),
        (
            "Naor-Pinkas modulo a prime",
            Box::new(|seed, choices| {
                naor_pinkas_modp::receive(group, seed, choices, 16, &modp_sender).unwrap().1
            }),
        ),
        (
            "two-lock",
            Box::new(|seed, choices| {
                let len = KEY.modulus_len();
                two_lock::TwoLockReceiver::new(len, seed, choices, 16, &locked).unwrap().1
            }),
        ),
    ];
    for (name, message) in messages {
        let [zeros, ones] = [0, 1].map(|choice| base_messages(choice, &message));
        let distance = distance(&zeros, &ones);
        assert!(distance.passes(FALSE_ALARM), "{name}: {distance:?}");
    }
}

/// The test above would detect a lock without blinding, whose message reveals the choice.
#[test]
fn the_distance_of_different_messages_is_large() {
    let (_, locked) = two_lock::TwoLockSender::new(&KEY, Block::from(1), 1);
    let (zero, one) = locked[256..].split_at(256);
    assert!(!distance(&zero.repeat(40), &one.repeat(40)).passes(FALSE_ALARM / 10.0));
}

#[test]
fn a_sender_of_extended_transfers_sees_no_choices() {
    for extension in extensions() {
        let (_, mut receiver) = set_up(extension, 3);
        let mut sent = |choices: &[u8]| {
            let (mut out, mut message) = (vec![Block::ZERO; 20_000], Vec::new());
            receiver.extend(choices, &mut out, &mut message).unwrap();
            message
        };
        let (zeros, ones) = (sent(&[0; 2500]), sent(&[0xff; 2500]));
        check_uniform(&format!("{extension:?}, choices 0"), &zeros);
        check_uniform(&format!("{extension:?}, choices 1"), &ones);
        let distance = distance(&zeros, &ones);
        assert!(distance.passes(FALSE_ALARM), "{extension:?}: {distance:?}");
    }
}

/// Byte by byte, the keys that were not chosen are uniform, and so is what they differ by from
/// those that were.
#[test]
fn a_receiver_cannot_distinguish_the_other_keys_from_random() {
    for extension in extensions() {
        let (mut sender, mut receiver) = set_up(extension, 4);
        let count = 20_000;
        let choices = choices(9, count);
        let (pairs, chosen) = random(&mut sender, &mut receiver, &choices, count);
        let pairs = pairs.iter().zip(&chosen).enumerate();
        let (mut others, mut differences) = (Vec::new(), Vec::new());
        for (i, (pair, chosen)) in pairs {
            let other = pair[1 - choice(&choices, i)];
            others.extend(other.to_bytes());
            differences.extend((other ^ *chosen).to_bytes());
        }
        check_uniform("others", &others);
        check_uniform("differences", &differences);
    }
    let mut others = Vec::new();
    for seed in 0..10 {
        let (sender, _) = ristretto::RistrettoOtSender::new(Block::from(seed));
        let choices = choices(seed, 128);
        let (_, message) =
            ristretto::RistrettoOtReceiver::new(Block::from(seed + 100), &choices, 128).unwrap();
        let keys = sender.receive(&message, 128).unwrap();
        for (i, pair) in keys.iter().enumerate() {
            others.extend(pair[1 - choice(&choices, i)].to_bytes());
        }
    }
    check_uniform("keys of base transfers", &others);
}

/// Ciphertexts of messages that were not chosen are uniform, though the messages are not.
#[test]
fn a_receiver_cannot_distinguish_the_other_messages_from_random() {
    let extension = OtExtension {
        kind: OtExtensionKind::SoftSpoken4,
        security: OtExtensionSecurity::SemiHonest,
    };
    let (mut sender, mut receiver) = set_up(extension, 5);
    let choices = choices(9, 1400);
    let (pairs, _) = random(&mut sender, &mut receiver, &choices, 1400);
    for len in [7, 16, 48] {
        let sent = messages::encrypt(&pairs, &vec![0x61; 2 * 1400 * len], len).unwrap();
        check_uniform("two messages", &sent);
        let of_many: Vec<u8> = pairs
            .chunks_exact(7)
            .flat_map(|pairs| one_of_n::encrypt(pairs, &vec![0x61; 100 * len], 100, len).unwrap())
            .collect();
        check_uniform("messages of 100", &of_many);
    }
}

/// In a 1-of-N transfer, the keys of one choice decrypt no other message.
#[test]
fn keys_of_one_choice_decrypt_one_message() {
    let extension = OtExtension {
        kind: OtExtensionKind::SoftSpoken4,
        security: OtExtensionSecurity::SemiHonest,
    };
    let (mut sender, mut receiver) = set_up(extension, 6);
    let (count, len) = (37, 20);
    let sent = vec![0x61; count * len];
    for chosen in [0, 1, 31, 36] {
        let choices = one_of_n::choices(&[chosen], count).unwrap();
        let (pairs, keys) = random(&mut sender, &mut receiver, &choices, 6);
        let ciphertexts = one_of_n::encrypt(&pairs, &sent, count, len).unwrap();
        for other in 0..count {
            let message = one_of_n::decrypt(&keys, other, &ciphertexts, count, len).unwrap();
            assert_eq!(message == sent[..len], other == chosen);
        }
    }
}

/// The offset never appears on the wire, and no two sessions have the same transcript.
#[test]
fn transcripts_differ_and_have_no_offset() {
    let offset = Block::from(OFFSET).to_bytes();
    let mut seen = Vec::new();
    for extension in extensions() {
        for seed in 0..5 {
            let (sender, first) =
                OtSenderSetUp::new(extension, Block::from(OFFSET), Block::from(seed));
            let (mut receiver, reply) =
                OtReceiverSetUp::new(extension, Block::from(seed + 50)).receive(&first).unwrap();
            drop(sender.receive(&reply).unwrap());
            let (mut out, mut message) = (vec![Block::ZERO; 128], Vec::new());
            receiver.extend(&[0; 16], &mut out, &mut message).unwrap();
            let transcript = [first, reply, message].concat();
            assert!(!transcript.windows(16).any(|bytes| bytes == offset));
            seen.push(Sha256::digest(&transcript).to_vec());
        }
    }
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count);
}

/// Two calls with the same choices are as unrelated as two sessions: no part of a stream is used
/// twice, whatever the lengths of the calls.
#[test]
fn no_part_of_a_stream_is_used_twice() {
    for extension in extensions() {
        let (mut sender, mut receiver) = set_up(extension, 7);
        let mut all = Vec::new();
        for count in [1_usize, 127, 128, 129, 8191, 8193, 1, 640] {
            let (zeros, _) = extend(&mut sender, &mut receiver, &vec![0; count.div_ceil(8)], count);
            all.extend(zeros.iter().map(|block| block.to_bytes()));
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "{extension:?}");
    }
}

/// The keys of random transfers depend on the number of the transfer.
#[test]
fn equal_columns_have_different_keys() {
    let extension =
        OtExtension { kind: OtExtensionKind::Iknp, security: OtExtensionSecurity::SemiHonest };
    let (mut receiver, _) =
        OtExtensionReceiver::new(extension, &[[Block::ZERO; 2]; 128], Block::ZERO);
    let mut out = [Block::ZERO; 64];
    // Both leaves of each tree are equal, so all columns with choice 0 have bits of one stream:
    // with 128 equal rows a column is all zeros or all ones.
    receiver.random(&[0; 8], &mut out, &mut Vec::new()).unwrap();
    let mut keys: Vec<_> = out.iter().map(|block| block.to_bytes()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 64);
}
