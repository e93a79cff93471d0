//! The messages of oblivious transfers: an end that gets any bytes returns an error or keys, and
//! bytes that it takes for the peer's lead to what was chosen if they are the peer's.
#![no_main]

mod changes;

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use blocks::Block;
use changes::Changes;
use libfuzzer_sys::fuzz_target;
use ot::base::{ModulusLen, naor_pinkas, naor_pinkas_modp, ristretto, two_lock};
use ot::extension::{
    OtExtension, OtExtensionKind, OtExtensionSecurity, OtReceiverSetUp, OtSenderSetUp,
};
use ot::{messages, one_of_n};

#[derive(Arbitrary, Debug)]
struct Input {
    choices: [u8; 2],
    kind: u8,
    is_checked: bool,
    from_sender: Changes,
    from_receiver: Changes,
    answer: Changes,
    extended: Changes,
    counts: [u8; 3],
    len: u8,
}

const SEEDS: [Block; 2] = [Block::from_bytes([1; 16]), Block::from_bytes([2; 16])];
const COUNT: usize = 3;

/// The shorter modulus and shorter exponents: more inputs in the same time.
const LEN: ModulusLen = ModulusLen::Bits1024;
const GROUP: naor_pinkas_modp::ModpGroup = naor_pinkas_modp::ModpGroup::Modp1024Short;

static KEY: LazyLock<two_lock::TwoLockSecretKey> =
    LazyLock::new(|| two_lock::TwoLockSecretKey::generate(LEN, SEEDS[0]));

fuzz_target!(|input: Input| {
    of_points(&input);
    of_numbers(&input);
    modulo_a_prime(&input);
    extension(&input);
});

/// The chosen keys are those of the sender where nothing was changed.
fn check(keys: &[[Block; 2]], chosen: &[Block], choices: u8, is_unchanged: bool) {
    for (i, (pair, chosen)) in keys.iter().zip(chosen).enumerate() {
        let expected = pair[usize::from(choices >> i & 1)];
        assert!(!is_unchanged || expected.to_bytes() == chosen.to_bytes());
    }
}

fn of_points(input: &Input) {
    let choices = input.choices[0];
    let (sender, first) = ristretto::RistrettoOtSender::new(SEEDS[0]);
    let (receiver, second) =
        ristretto::RistrettoOtReceiver::new(SEEDS[1], &[choices], COUNT).expect("as many choices");
    let sent = [input.from_sender.of(&first), input.from_receiver.of(&second)];
    let chosen = receiver.receive(&sent[0]);
    let keys = sender.receive(&sent[1], COUNT);
    if let (Ok(chosen), Ok(keys)) = (chosen, keys) {
        check(&keys, &chosen, choices, sent[0] == first && sent[1] == second);
    }
    let (sender, first) = naor_pinkas::NaorPinkasSender::new(SEEDS[0]);
    let sent = input.from_sender.of(&first);
    if let Ok((chosen, second)) = naor_pinkas::receive(SEEDS[1], &[choices], COUNT, &sent) {
        let answer = input.from_receiver.of(&second);
        if let Ok(keys) = sender.receive(&answer, COUNT) {
            check(&keys, &chosen, choices, sent == first && answer == second);
        }
    }
}

fn of_numbers(input: &Input) {
    let choices = input.choices[0];
    let (sender, first) = two_lock::TwoLockSender::new(&KEY, SEEDS[0], COUNT);
    let sent = input.from_sender.of(&first);
    let receiver = two_lock::TwoLockReceiver::new(LEN, SEEDS[1], &[choices], COUNT, &sent);
    let Ok((receiver, second)) = receiver else { return };
    let locked = input.from_receiver.of(&second);
    let Ok((keys, third)) = sender.receive(&locked) else { return };
    if let Ok(chosen) = receiver.receive(&input.answer.of(&third)) {
        check(&keys, &chosen, choices, sent == first && locked == second);
    }
}

fn modulo_a_prime(input: &Input) {
    let choices = input.choices[0];
    let (sender, first) = naor_pinkas_modp::NaorPinkasModpSender::new(GROUP, SEEDS[0]);
    let sent = input.from_sender.of(&first);
    let received = naor_pinkas_modp::receive(GROUP, SEEDS[1], &[choices], COUNT, &sent);
    let Ok((chosen, second)) = received else { return };
    let answer = input.from_receiver.of(&second);
    if let Ok(keys) = sender.receive(&answer, COUNT) {
        check(&keys, &chosen, choices, sent == first && answer == second);
    }
}

fn extension(input: &Input) {
    let security = if input.is_checked {
        OtExtensionSecurity::MaliciousReceiver
    } else {
        OtExtensionSecurity::SemiHonest
    };
    let extension =
        OtExtension { kind: OtExtensionKind::ALL[usize::from(input.kind) % 4], security };
    let (sender, first) = OtSenderSetUp::new(extension, SEEDS[0], SEEDS[1]);
    let sent = input.from_sender.of(&first);
    let Ok((mut receiver, reply)) = OtReceiverSetUp::new(extension, SEEDS[0]).receive(&sent) else {
        return;
    };
    let answer = input.from_receiver.of(&reply);
    let Ok(mut sender) = sender.receive(&answer) else { return };
    let mut is_unchanged = sent == first && answer == reply;
    for count in input.counts {
        let count = usize::from(count);
        let choices = vec![input.choices[0]; count.div_ceil(8)];
        let (mut chosen, mut pairs) = (vec![Block::ZERO; count], vec![[Block::ZERO; 2]; count]);
        let mut message = Vec::new();
        receiver.random(&choices, &mut chosen, &mut message).expect("as many choices");
        assert_eq!(message.len(), extension.message_len(count));
        let changed = input.extended.of(&message);
        if sender.random(&changed, &mut pairs).is_err() {
            assert!(!is_unchanged || changed != message, "the peer's message is refused");
            return;
        }
        is_unchanged &= changed == message;
        if is_unchanged {
            for (i, (pair, chosen)) in pairs.iter().zip(&chosen).enumerate() {
                let choice = input.choices[0] >> (i % 8) & 1;
                assert_eq!(pair[usize::from(choice)].to_bytes(), chosen.to_bytes());
            }
        }
        chosen_messages(input, &pairs, &chosen, &choices);
    }
}

fn chosen_messages(input: &Input, pairs: &[[Block; 2]], chosen: &[Block], choices: &[u8]) {
    let len = usize::from(input.len);
    let sent = vec![0; 2 * pairs.len() * len];
    let ciphertexts = messages::encrypt(pairs, &sent, len).expect("two for each pair");
    let changed = input.answer.of(&ciphertexts);
    if let Ok(received) = messages::decrypt(chosen, choices, &changed, len) {
        assert_eq!(received.len(), pairs.len() * len);
    }
    let count = usize::from(input.choices[1]);
    let bits = one_of_n::transfers(count);
    if let (Some(pairs), Some(chosen)) = (pairs.get(..bits), chosen.get(..bits)) {
        let sent = vec![0; count * len];
        let ciphertexts = one_of_n::encrypt(pairs, &sent, count, len).expect("as many");
        let changed = input.answer.of(&ciphertexts);
        let which = usize::from(input.choices[0]);
        let received = one_of_n::decrypt(chosen, which, &changed, count, len);
        assert!(received.is_err() || which < count && changed.len() == sent.len());
    }
}
