//! Chosen messages, of two and of N, against plain selection.

use blocks::Block;
use blocks::prg::Prg;
use proptest::prelude::*;
use sunder_ot::extension::{OtExtension, OtExtensionKind, OtExtensionSecurity};
use sunder_ot::{messages, one_of_n};

use crate::base::{choice, choices};
use crate::extension::{random, set_up};

const EXTENSION: OtExtension =
    OtExtension { kind: OtExtensionKind::SoftSpoken4, security: OtExtensionSecurity::SemiHonest };

fn bytes(seed: u128, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Prg::new(Block::from(seed)).fill_bytes(&mut bytes);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    #[test]
    fn the_chosen_message_arrives(count in 0usize..300, len in 0usize..100, seed in any::<u128>()) {
        let (mut sender, mut receiver) = set_up(EXTENSION, seed);
        let (choices, sent) = (choices(seed, count), bytes(seed, 2 * count * len));
        let (keys, chosen) = random(&mut sender, &mut receiver, &choices, count);
        let ciphertexts = messages::encrypt(&keys, &sent, len).unwrap();
        let received = messages::decrypt(&chosen, &choices, &ciphertexts, len).unwrap();
        prop_assert_eq!(received.len(), count * len);
        for i in 0..count {
            let at = (2 * i + choice(&choices, i)) * len;
            prop_assert_eq!(&received[i * len..(i + 1) * len], &sent[at..at + len]);
        }
    }

    #[test]
    fn one_of_n_messages_arrives(count in 1usize..200, len in 0usize..100, seed in any::<u128>()) {
        let (mut sender, mut receiver) = set_up(EXTENSION, seed);
        let sent = bytes(seed, count * len);
        let chosen: Vec<usize> =
            bytes(seed, 5).into_iter().map(|byte| usize::from(byte) % count).collect();
        let bits = one_of_n::transfers(count);
        let choices = one_of_n::choices(&chosen, count).unwrap();
        let (pairs, keys) = random(&mut sender, &mut receiver, &choices, 5 * bits);
        for (i, chosen) in chosen.into_iter().enumerate() {
            let range = i * bits..(i + 1) * bits;
            let ciphertexts = one_of_n::encrypt(&pairs[range.clone()], &sent, count, len).unwrap();
            let received =
                one_of_n::decrypt(&keys[range], chosen, &ciphertexts, count, len).unwrap();
            prop_assert_eq!(&received[..], &sent[chosen * len..(chosen + 1) * len]);
        }
    }
}

#[test]
fn as_many_transfers_as_a_number_has_bits() {
    let expected = [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (10_000, 14), (16_384, 14)];
    for (count, transfers) in expected {
        assert_eq!(one_of_n::transfers(count), transfers, "{count}");
    }
}
