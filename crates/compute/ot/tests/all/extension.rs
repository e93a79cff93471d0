//! Extended transfers against plain selection.

use blocks::Block;
use blocks::prg::Prg;
use proptest::prelude::*;
use sunder_ot::Error;
use sunder_ot::extension::{
    OtExtension, OtExtensionKind, OtExtensionReceiver, OtExtensionSecurity, OtExtensionSender,
    OtReceiverSetUp, OtSenderSetUp, SENDER_LEN,
};

use crate::base::{choice, choices};

pub(crate) const OFFSET: u128 = 0x8899_aabb_ccdd_eeff_0011_2233_4455_6677;

pub(crate) fn extensions() -> impl Iterator<Item = OtExtension> {
    let securities = [OtExtensionSecurity::SemiHonest, OtExtensionSecurity::MaliciousReceiver];
    OtExtensionKind::ALL
        .into_iter()
        .flat_map(move |kind| securities.map(|security| OtExtension { kind, security }))
}

pub(crate) fn set_up(
    extension: OtExtension,
    seed: u128,
) -> (OtExtensionSender, OtExtensionReceiver) {
    let seeds = [1, 2].map(|i| Block::from(seed ^ i));
    let (sender, message) = OtSenderSetUp::new(extension, Block::from(OFFSET), seeds[0]);
    assert_eq!(message.len(), SENDER_LEN);
    let (receiver, reply) = OtReceiverSetUp::new(extension, seeds[1]).receive(&message).unwrap();
    assert_eq!(reply.len(), extension.reply_len());
    (sender.receive(&reply).unwrap(), receiver)
}

/// Correlated transfers: the sender's blocks, and the receiver's.
pub(crate) fn extend(
    sender: &mut OtExtensionSender,
    receiver: &mut OtExtensionReceiver,
    choices: &[u8],
    count: usize,
) -> (Vec<Block>, Vec<Block>) {
    let (mut zeros, mut chosen) = (vec![Block::ZERO; count], vec![Block::ZERO; count]);
    let mut message = Vec::new();
    receiver.extend(choices, &mut chosen, &mut message).unwrap();
    sender.extend(&message, &mut zeros).unwrap();
    (zeros, chosen)
}

/// Random transfers: the sender's blocks, and the receiver's.
pub(crate) fn random(
    sender: &mut OtExtensionSender,
    receiver: &mut OtExtensionReceiver,
    choices: &[u8],
    count: usize,
) -> (Vec<[Block; 2]>, Vec<Block>) {
    let (mut keys, mut chosen) = (vec![[Block::ZERO; 2]; count], vec![Block::ZERO; count]);
    let mut message = Vec::new();
    receiver.random(choices, &mut chosen, &mut message).unwrap();
    sender.random(&message, &mut keys).unwrap();
    (keys, chosen)
}

#[test]
fn every_extension_makes_correlated_and_random_transfers() {
    for extension in extensions() {
        let (mut sender, mut receiver) = set_up(extension, 10);
        for (round, count) in [1, 128, 0, 129, 8192, 1000, 20_000].into_iter().enumerate() {
            let choices = choices(round as u128, count);
            let (zeros, chosen) = extend(&mut sender, &mut receiver, &choices, count);
            for (i, (zero, chosen)) in zeros.iter().zip(&chosen).enumerate() {
                let expected = [*zero, *zero ^ Block::from(OFFSET)][choice(&choices, i)];
                assert_eq!(chosen.to_bytes(), expected.to_bytes(), "{extension:?} {count} {i}");
            }
            let (keys, chosen) = random(&mut sender, &mut receiver, &choices, count);
            for (i, (pair, chosen)) in keys.iter().zip(&chosen).enumerate() {
                let expected = pair[choice(&choices, i)];
                assert_eq!(chosen.to_bytes(), expected.to_bytes(), "{extension:?} {count} {i}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]
    #[test]
    fn lengths_of_messages_are_as_stated(count in 0usize..40_000, kind in 0usize..4) {
        for security in [OtExtensionSecurity::SemiHonest, OtExtensionSecurity::MaliciousReceiver] {
            let extension = OtExtension { kind: OtExtensionKind::ALL[kind], security };
            let keys = [[Block::ZERO; 2]; 128];
            let (mut receiver, set_up) = OtExtensionReceiver::new(extension, &keys, Block::ZERO);
            prop_assert_eq!(set_up.len(), extension.set_up_len());
            let mut message = vec![7; 3];
            let mut out = vec![Block::ZERO; count];
            receiver.extend(&choices(1, count), &mut out, &mut message).unwrap();
            prop_assert_eq!(message.len() - 3, extension.message_len(count));
            prop_assert_eq!(&message[..3], &[7; 3]);
        }
    }
}

/// The point can be sent ahead of the rest, which has to begin with the same.
#[test]
fn a_point_is_sent_ahead() {
    let extension =
        OtExtension { kind: OtExtensionKind::Iknp, security: OtExtensionSecurity::SemiHonest };
    for same in [true, false] {
        let (sender, message) = OtSenderSetUp::new(extension, Block::from(OFFSET), Block::from(1));
        let receiver = OtReceiverSetUp::new(extension, Block::from(2));
        let other = OtReceiverSetUp::new(extension, Block::from(3));
        let point = if same { receiver.point() } else { other.point() };
        let keys = sender.receive_point(&point).unwrap();
        let (mut receiver, reply) = receiver.receive(&message).unwrap();
        match keys.receive(&reply) {
            Ok(mut sender) => {
                assert!(same);
                let (zeros, chosen) = extend(&mut sender, &mut receiver, &[1], 1);
                assert_eq!(chosen[0].to_bytes(), (zeros[0] ^ Block::from(OFFSET)).to_bytes());
            }
            Err(error) => assert_eq!((error, same), (Error::Point(0), false)),
        }
    }
}

/// With the keys of any base transfers, as of Naor and Pinkas.
#[test]
fn keys_of_other_base_transfers_serve() {
    for extension in extensions() {
        let mut pairs = [[Block::ZERO; 2]; 128];
        Prg::new(Block::from(5)).fill(pairs.as_flattened_mut());
        let offset = Block::from(OFFSET);
        let chosen = std::array::from_fn(|i| pairs[i][usize::from(offset.bit(i))]);
        let (mut receiver, message) = OtExtensionReceiver::new(extension, &pairs, Block::from(6));
        let mut sender = OtExtensionSender::new(extension, offset, &chosen, &message).unwrap();
        let (zeros, chosen) = extend(&mut sender, &mut receiver, &[0xF0], 8);
        for i in 0..8 {
            let expected = if i < 4 { zeros[i] } else { zeros[i] ^ offset };
            assert_eq!(chosen[i].to_bytes(), expected.to_bytes());
        }
    }
}
