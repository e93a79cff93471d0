//! Messages that an honest end never sends. They give an error, never a panic, and change nothing.

use blocks::Block;
use proptest::prelude::*;
use sunder_ot::base::{ModulusLen, naor_pinkas, naor_pinkas_modp, ristretto, two_lock};
use sunder_ot::extension::{
    OtExtension, OtExtensionReceiver, OtExtensionSender, OtReceiverSetUp, OtSenderSetUp, SENDER_LEN,
};
use sunder_ot::{Error, messages, one_of_n};

use crate::base::KEY;
use crate::extension::{OFFSET, extend, extensions, set_up};

const SEED: Block = Block::from_bytes([3; 16]);

/// Invalid encodings of points: not canonical, negative, not on the curve (RFC 9496, A.2).
const NO_POINTS: [[u8; 32]; 4] = [
    [0xff; 32],
    {
        let mut bytes = [0; 32];
        bytes[0] = 1;
        bytes
    },
    {
        let mut bytes = [0xff; 32];
        bytes[0] = 0xec;
        bytes[31] = 0x7f;
        bytes
    },
    {
        let mut bytes = [0xff; 32];
        bytes[0] = 0xed;
        bytes[31] = 0x7f;
        bytes
    },
];

fn length(expected: usize, found: usize) -> Error {
    Error::Length { expected, found }
}

/// Every length but the right one.
fn lengths(right: usize) -> impl Iterator<Item = usize> {
    [0, 1, right.saturating_sub(1), right + 1, 2 * right + 7]
        .into_iter()
        .filter(move |&it| it != right)
}

#[test]
fn points_are_checked() {
    let message = ristretto::RistrettoOtReceiver::new(SEED, &[1], 3).unwrap().1;
    for len in lengths(message.len()) {
        let mut wrong = message.clone();
        wrong.resize(len, 0);
        let sender = ristretto::RistrettoOtSender::new(SEED).0;
        assert_eq!(sender.receive(&wrong, 3).err(), Some(length(message.len(), len)));
        let sender = naor_pinkas::NaorPinkasSender::new(SEED).0;
        assert_eq!(sender.receive(&wrong[..len.min(17)], 3).err(), Some(length(96, len.min(17))));
    }
    for (i, point) in NO_POINTS.iter().enumerate() {
        let at = i % 3;
        let mut wrong = message.clone();
        wrong[16 + 32 * at..][..32].copy_from_slice(point);
        let sender = ristretto::RistrettoOtSender::new(SEED).0;
        assert_eq!(sender.receive(&wrong, 3).err(), Some(Error::Point(at)));
        let sender = naor_pinkas::NaorPinkasSender::new(SEED).0;
        assert_eq!(sender.receive(&wrong[16..], 3).err(), Some(Error::Point(at)));
        let receiver = ristretto::RistrettoOtReceiver::new(SEED, &[1], 3).unwrap().0;
        assert_eq!(receiver.receive(point).err(), Some(Error::Point(0)));
        let mut wrong = naor_pinkas::NaorPinkasSender::new(SEED).1;
        wrong[32 * (i % 2)..][..32].copy_from_slice(point);
        let result = naor_pinkas::receive(SEED, &[1], 3, &wrong);
        assert_eq!(result.err(), Some(Error::Point(i % 2)));
    }
    for len in lengths(32) {
        let receiver = ristretto::RistrettoOtReceiver::new(SEED, &[1], 3).unwrap().0;
        assert_eq!(receiver.receive(&vec![0; len]).err(), Some(length(32, len)));
    }
    for len in lengths(64) {
        let result = naor_pinkas::receive(SEED, &[1], 3, &vec![0; len]);
        assert_eq!(result.err(), Some(length(64, len)));
    }
}

/// With the identity as the sender's point everybody would know the keys. As a receiver's point it
/// is allowed: it harms only the receiver's own transfer.
#[test]
fn the_identity_is_refused_from_senders() {
    let receiver = ristretto::RistrettoOtReceiver::new(SEED, &[1], 3).unwrap().0;
    assert_eq!(receiver.receive(&[0; 32]).err(), Some(Error::Identity));
    let message = naor_pinkas::NaorPinkasSender::new(SEED).1;
    for at in [0, 32] {
        let mut wrong = message;
        wrong[at..at + 32].fill(0);
        let result = naor_pinkas::receive(SEED, &[1], 3, &wrong);
        assert_eq!(result.err(), Some(Error::Identity));
    }
    let message = [&[0; 16][..], &[0; 64]].concat();
    let keys = ristretto::RistrettoOtSender::new(SEED).0.receive(&message, 2).unwrap();
    let mut keys: Vec<_> = keys.as_flattened().iter().map(|key| key.to_bytes()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 4, "keys of different transfers differ");
}

/// The elements of a group modulo p are the numbers from 1 to (p - 1) / 2.
#[test]
fn elements_modulo_a_prime_are_checked() {
    for group in naor_pinkas_modp::ModpGroup::ALL {
        let len = group.modulus_len().bytes();
        let start = || naor_pinkas_modp::NaorPinkasModpSender::new(group, SEED);
        let receive = |message: &[u8]| naor_pinkas_modp::receive(group, SEED, &[1], 3, message);
        let (sender, from_sender) = start();
        let from_receiver = receive(&from_sender).unwrap().1;
        sender.receive(&from_receiver, 3).unwrap();
        for wrong_len in lengths(2 * len) {
            let result = receive(&vec![1; wrong_len]);
            assert_eq!(result.err(), Some(length(2 * len, wrong_len)));
        }
        for wrong_len in lengths(3 * len) {
            let result = start().0.receive(&vec![1; wrong_len], 3);
            assert_eq!(result.err(), Some(length(3 * len, wrong_len)));
        }
        // More than half of the prime, whose highest bit is 1.
        let mut greater = vec![0; len];
        greater[0] = 0x80;
        for wrong in [vec![0; len], greater, vec![0xff; len]] {
            for at in 0..2 {
                let mut message = from_sender.clone();
                message[len * at..][..len].copy_from_slice(&wrong);
                assert_eq!(receive(&message).err(), Some(Error::Number(at)));
            }
            for at in 0..3 {
                let mut message = from_receiver.clone();
                message[len * at..][..len].copy_from_slice(&wrong);
                assert_eq!(start().0.receive(&message, 3).err(), Some(Error::Number(at)));
            }
        }
        let mut one = vec![0; len];
        one[len - 1] = 1;
        for at in 0..2 {
            let mut message = from_sender.clone();
            message[len * at..][..len].copy_from_slice(&one);
            assert_eq!(receive(&message).err(), Some(Error::Identity));
        }
    }
}

#[test]
fn numbers_are_checked() {
    const LEN: ModulusLen = ModulusLen::Bits2048;
    let (_, locked) = two_lock::TwoLockSender::new(&KEY, SEED, 2);
    let receiver =
        |message: &[u8]| two_lock::TwoLockReceiver::new(LEN, SEED, &[1], 2, message).map(|it| it.1);
    let (modulus, zero) = (&locked[..256], [0; 256]);
    for len in lengths(locked.len()) {
        let mut wrong = locked.clone();
        wrong.resize(len, 0);
        assert_eq!(receiver(&wrong).err(), Some(length(locked.len(), len)));
    }
    let mut even = locked.clone();
    even[255] &= 0xfe;
    assert_eq!(receiver(&even).err(), Some(Error::Modulus(LEN.bits())));
    let mut short = locked.clone();
    short[0] &= 0x7f;
    assert_eq!(receiver(&short).err(), Some(Error::Modulus(LEN.bits())));
    for at in 0..4 {
        for wrong in [modulus, &zero, &[0xff; 256]] {
            let mut message = locked.clone();
            message[256 * (at + 1)..][..256].copy_from_slice(wrong);
            assert_eq!(receiver(&message).err(), Some(Error::Number(at)));
        }
    }
    let message = receiver(&locked).unwrap();
    for at in 0..2 {
        for wrong in [modulus, &zero] {
            let mut message = message.clone();
            message[256 * at..][..256].copy_from_slice(wrong);
            let sender = two_lock::TwoLockSender::new(&KEY, SEED, 2).0;
            assert_eq!(sender.receive(&message).err(), Some(Error::Number(at)));
        }
    }
    let answer = two_lock::TwoLockSender::new(&KEY, SEED, 2).0.receive(&message).unwrap().1;
    for at in [0, 255, 256, 511] {
        let mut wrong = answer.clone();
        wrong[at] ^= 1;
        let receiver = two_lock::TwoLockReceiver::new(LEN, SEED, &[1], 2, &locked).unwrap().0;
        assert_eq!(receiver.receive(&wrong).err(), Some(Error::Number(at / 256)));
    }
    for len in lengths(512) {
        let sender = two_lock::TwoLockSender::new(&KEY, SEED, 2).0;
        assert_eq!(sender.receive(&vec![0; len]).err(), Some(length(512, len)));
        let receiver = two_lock::TwoLockReceiver::new(LEN, SEED, &[1], 2, &locked).unwrap().0;
        assert_eq!(receiver.receive(&vec![0; len]).err(), Some(length(512, len)));
    }
}

#[test]
fn wrong_lengths_change_nothing() {
    for extension in extensions() {
        let (mut sender, mut receiver) = set_up(extension, 1);
        let count = 300;
        let (mut chosen, mut zeros) = (vec![Block::ZERO; count], vec![Block::ZERO; count]);
        let mut message = Vec::new();
        let result = receiver.extend(&[0; 37], &mut chosen, &mut message);
        let expected = Error::Argument { what: "bytes of choices", expected: 38, found: 37 };
        assert_eq!(result, Err(expected));
        assert!(receiver.random(&[0; 39], &mut chosen, &mut message).is_err());
        assert_eq!(message.len(), 0);
        receiver.extend(&[0xff; 38], &mut chosen, &mut message).unwrap();
        for len in lengths(message.len()) {
            let mut wrong = message.clone();
            wrong.resize(len, 0);
            assert_eq!(sender.extend(&wrong, &mut zeros).err(), Some(length(message.len(), len)));
            let mut pairs = vec![[Block::ZERO; 2]; count];
            assert_eq!(sender.random(&wrong, &mut pairs).err(), Some(length(message.len(), len)));
        }
        sender.extend(&message, &mut zeros).unwrap();
        assert_eq!(chosen[299].to_bytes(), (zeros[299] ^ Block::from(OFFSET)).to_bytes());
    }
}

#[test]
fn set_ups_are_checked() {
    for extension in extensions() {
        let start = || OtSenderSetUp::new(extension, Block::from(OFFSET), SEED);
        let (_, message) = start();
        for len in lengths(SENDER_LEN) {
            let mut wrong = message.clone();
            wrong.resize(len, 0);
            let result = OtReceiverSetUp::new(extension, SEED).receive(&wrong);
            assert_eq!(result.err(), Some(length(SENDER_LEN, len)));
        }
        let (_, reply) = OtReceiverSetUp::new(extension, SEED).receive(&message).unwrap();
        for len in lengths(reply.len()) {
            let mut wrong = reply.clone();
            wrong.resize(len, 0);
            assert_eq!(start().0.receive(&wrong).err(), Some(length(reply.len(), len)));
        }
        let mut wrong = reply.clone();
        wrong[..32].copy_from_slice(&NO_POINTS[0]);
        assert_eq!(start().0.receive(&wrong).err(), Some(Error::Point(0)));
        let mut wrong = reply;
        wrong[..32].fill(0);
        assert_eq!(start().0.receive(&wrong).err(), Some(Error::Identity));
        let keys = [Block::ZERO; 128];
        for len in lengths(extension.set_up_len()) {
            let result = OtExtensionSender::new(extension, Block::ZERO, &keys, &vec![0; len]);
            assert_eq!(result.err(), Some(length(extension.set_up_len(), len)));
        }
    }
}

#[test]
fn wrong_arguments_are_refused() {
    let keys = [[Block::ZERO; 2]; 3];
    assert!(ristretto::RistrettoOtReceiver::new(SEED, &[0; 2], 3).is_err());
    assert!(naor_pinkas::receive(SEED, &[], 3, &[0; 64]).is_err());
    let group = naor_pinkas_modp::ModpGroup::Modp1024;
    assert!(naor_pinkas_modp::receive(group, SEED, &[], 3, &[0; 256]).is_err());
    assert!(two_lock::TwoLockReceiver::new(ModulusLen::Bits1024, SEED, &[0; 2], 3, &[]).is_err());
    assert!(messages::encrypt(&keys, &[0; 59], 10).is_err());
    assert!(messages::decrypt(&[Block::ZERO; 3], &[0; 2], &[0; 60], 10).is_err());
    assert!(messages::decrypt(&[Block::ZERO; 3], &[0], &[0; 61], 10).is_err());
    assert!(messages::decrypt(&[Block::ZERO; 3], &[0], &[0; 60], usize::MAX).is_err());
    assert!(one_of_n::choices(&[7], 7).is_err());
    assert!(one_of_n::encrypt(&keys, &[0; 80], 9, 10).is_err());
    assert!(one_of_n::encrypt(&keys, &[0; 79], 8, 10).is_err());
    assert!(one_of_n::encrypt(&keys, &[0; 79], 8, usize::MAX).is_err());
    assert!(one_of_n::decrypt(&[Block::ZERO; 3], 8, &[0; 80], 8, 10).is_err());
    assert!(one_of_n::decrypt(&[Block::ZERO; 3], 7, &[0; 79], 8, 10).is_err());
    assert!(one_of_n::decrypt(&[Block::ZERO; 2], 7, &[0; 80], 8, 10).is_err());
    assert!(one_of_n::decrypt(&[], 0, &[], 0, 10).is_err());
}

proptest! {
    /// Arbitrary bytes of the right length. A semi-honest sender accepts them, and its state
    /// remains consistent for the next message. A checking sender rejects them.
    #[test]
    fn arbitrary_rows_are_taken_or_refused(bytes in any::<u64>(), which in 0usize..8) {
        let extension: OtExtension = extensions().nth(which).unwrap();
        let (mut sender, mut receiver) = set_up(extension, 1);
        let mut message = vec![0; extension.message_len(77)];
        blocks::prg::Prg::new(Block::from(u128::from(bytes))).fill_bytes(&mut message);
        let mut out = [Block::ZERO; 77];
        let is_checked = which % 2 == 1;
        let expected = if is_checked { Err(Error::Inconsistent) } else { Ok(()) };
        prop_assert_eq!(sender.extend(&message, &mut out), expected);
        if !is_checked {
            // The other end used as much of its streams.
            receiver.extend(&[0; 10], &mut out, &mut Vec::new()).unwrap();
            let (zeros, chosen) = extend(&mut sender, &mut receiver, &[0], 1);
            prop_assert_eq!(zeros[0].to_bytes(), chosen[0].to_bytes());
        }
    }

    #[test]
    fn arbitrary_set_ups_are_taken_or_refused(bytes in any::<u64>(), which in 0usize..8) {
        let extension: OtExtension = extensions().nth(which).unwrap();
        let mut message = vec![0; extension.set_up_len()];
        blocks::prg::Prg::new(Block::from(u128::from(bytes))).fill_bytes(&mut message);
        let result = OtExtensionSender::new(extension, Block::from(OFFSET), &[SEED; 128], &message);
        if let Err(error) = result {
            prop_assert_eq!(error, Error::Inconsistent);
        }
        let mut message = vec![0; SENDER_LEN];
        blocks::prg::Prg::new(Block::from(u128::from(bytes))).fill_bytes(&mut message);
        let result = OtReceiverSetUp::new(extension, SEED).receive(&message);
        prop_assert!(matches!(result.err(), Some(Error::Point(_))));
    }
}

/// A receiver whose keys are not those of the sender gets unrelated blocks.
#[test]
fn other_keys_give_other_blocks() {
    for extension in extensions() {
        let (mut receiver, _) = OtExtensionReceiver::new(extension, &[[SEED; 2]; 128], SEED);
        let (mut sender, _) = set_up(extension, 1);
        let (mut out, mut message) = ([Block::ZERO; 9], Vec::new());
        receiver.random(&[0; 2], &mut out, &mut message).unwrap();
        let mut pairs = [[Block::ZERO; 2]; 9];
        if sender.random(&message, &mut pairs).is_ok() {
            let mut all: Vec<_> = pairs.as_flattened().iter().chain(&out).collect();
            all.sort_by_key(|block| block.to_bytes());
            all.dedup_by_key(|block| block.to_bytes());
            assert_eq!(all.len(), 27);
        }
    }
}
