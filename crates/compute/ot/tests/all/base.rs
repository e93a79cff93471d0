//! The base transfers against plain selection.

use std::sync::LazyLock;

use blocks::Block;
use blocks::prg::Prg;
use proptest::prelude::*;
use sunder_ot::base::{ModulusLen, naor_pinkas, naor_pinkas_modp, ristretto, two_lock};

/// Generated once, because that takes some tenths of a second.
pub(crate) static KEY: LazyLock<two_lock::TwoLockSecretKey> =
    LazyLock::new(|| two_lock::TwoLockSecretKey::generate(ModulusLen::Bits2048, Block::from(1)));

/// `count` packed choices.
pub(crate) fn choices(seed: u128, count: usize) -> Vec<u8> {
    let mut choices = vec![0; count.div_ceil(8)];
    Prg::new(Block::from(seed)).fill_bytes(&mut choices);
    choices
}

pub(crate) fn choice(choices: &[u8], i: usize) -> usize {
    usize::from(choices[i / 8] >> (i % 8) & 1)
}

/// Checks that the receiver has the chosen key of each pair, and that no key occurs twice.
fn check(keys: &[[Block; 2]], chosen: &[Block], choices: &[u8]) {
    assert_eq!(keys.len(), chosen.len());
    for (i, (pair, chosen)) in keys.iter().zip(chosen).enumerate() {
        assert_eq!(chosen.to_bytes(), pair[choice(choices, i)].to_bytes(), "transfer {i}");
    }
    let mut all: Vec<_> = keys.as_flattened().iter().map(|key| key.to_bytes()).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 2 * keys.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]
    #[test]
    fn ristretto_transfers_the_chosen_keys(seed in any::<u128>(), count in 0usize..140) {
        let choices = choices(seed, count);
        let (sender, from_sender) = ristretto::RistrettoOtSender::new(Block::from(seed ^ 1));
        let (receiver, from_receiver) =
            ristretto::RistrettoOtReceiver::new(Block::from(seed ^ 2), &choices, count).unwrap();
        prop_assert_eq!(from_receiver.len(), ristretto::receiver_len(count));
        let chosen = receiver.receive(&from_sender).unwrap();
        check(&sender.receive(&from_receiver, count).unwrap(), &chosen, &choices);
    }

    #[test]
    fn naor_pinkas_transfers_the_chosen_keys(seed in any::<u128>(), count in 0usize..40) {
        let choices = choices(seed, count);
        let (sender, from_sender) = naor_pinkas::NaorPinkasSender::new(Block::from(seed ^ 1));
        let (chosen, from_receiver) =
            naor_pinkas::receive(Block::from(seed ^ 2), &choices, count, &from_sender).unwrap();
        prop_assert_eq!(from_receiver.len(), naor_pinkas::receiver_len(count));
        check(&sender.receive(&from_receiver, count).unwrap(), &chosen, &choices);
    }
}

#[test]
fn naor_pinkas_modulo_a_prime_transfers_the_chosen_keys() {
    let seeds = [2, 3].map(Block::from);
    for group in naor_pinkas_modp::ModpGroup::ALL {
        for (seed, count) in (0..).zip([0, 1, 9]) {
            let choices = choices(seed, count);
            let (sender, from_sender) =
                naor_pinkas_modp::NaorPinkasModpSender::new(group, seeds[0]);
            assert_eq!(from_sender.len(), naor_pinkas_modp::sender_len(group));
            let (chosen, from_receiver) =
                naor_pinkas_modp::receive(group, seeds[1], &choices, count, &from_sender).unwrap();
            assert_eq!(from_receiver.len(), naor_pinkas_modp::receiver_len(group, count));
            check(&sender.receive(&from_receiver, count).unwrap(), &chosen, &choices);
        }
    }
}

#[test]
fn two_lock_transfers_the_chosen_keys() {
    let len = ModulusLen::Bits1024;
    let short_key = two_lock::TwoLockSecretKey::generate(len, Block::from(4));
    for (key, count) in [(&*KEY, 0), (&KEY, 1), (&KEY, 9), (&short_key, 9)] {
        let (choices, len) = (choices(7, count), key.modulus_len());
        let (sender, locked) = two_lock::TwoLockSender::new(key, Block::from(2), count);
        assert_eq!(locked.len(), two_lock::locked_len(len, count));
        let (receiver, message) =
            two_lock::TwoLockReceiver::new(len, Block::from(3), &choices, count, &locked).unwrap();
        assert_eq!(message.len(), two_lock::answer_len(len, count));
        let (keys, answer) = sender.receive(&message).unwrap();
        assert_eq!(answer.len(), two_lock::answer_len(len, count));
        check(&keys, &receiver.receive(&answer).unwrap(), &choices);
    }
}
