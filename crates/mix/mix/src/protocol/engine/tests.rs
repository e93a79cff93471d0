use blocks::Block;
use blocks::prg::Prg;
use proptest::prelude::*;

use super::*;

/// Both ends of an engine, set up.
struct Ends {
    member: Box<dyn MemberEngine>,
    proxy: Box<dyn ProxyEngine>,
}

impl Ends {
    fn new(name: MixEngineName, shape: &MailboxShape, seed: u8) -> Self {
        let mut member = member(name, shape, [seed; 32]).unwrap();
        let mut proxy = proxy(name, shape, [!seed; 32]).unwrap();
        assert!(!member.is_ready() && !proxy.is_ready());
        loop {
            if let Some(message) = member.poll_set_up() {
                proxy.handle_set_up(&message).unwrap();
            } else if let Some(message) = proxy.poll_set_up() {
                member.handle_set_up(&message).unwrap();
            } else {
                break;
            }
        }
        assert!(member.is_ready() && proxy.is_ready());
        Self { member, proxy }
    }

    /// Makes an exchange, and asserts that the proxy gets the update. Returns the slots and the
    /// lengths of the messages.
    fn exchange(
        &mut self,
        read: &Mailbox,
        update: &Mailbox,
        reads: &[usize],
    ) -> (Vec<Vec<u8>>, [usize; 3]) {
        let opening = self.proxy.opening(read).unwrap();
        let request = self.member.request(&opening, update, reads).unwrap();
        let (arrived, answer) = self.proxy.answer(&request, read).unwrap();
        assert_eq!(arrived, *update);
        let slots = self.member.slots(&answer).unwrap();
        (slots, [opening.len(), request.len(), answer.len()])
    }
}

/// The slots that each engine must return.
fn plain(read: &Mailbox, reads: &[usize]) -> Vec<Vec<u8>> {
    reads.iter().map(|&slot| read.slot(slot).to_vec()).collect()
}

fn mailbox(shape: &MailboxShape, seed: u64) -> Mailbox {
    let mut bytes = vec![0; shape.mailbox_len()];
    Prg::new(Block::from(u128::from(seed))).fill_bytes(&mut bytes);
    Mailbox::from_bytes(shape, bytes).unwrap()
}

fn reads(shape: &MailboxShape, seed: u64) -> Vec<usize> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..shape.reads()).map(|_| random.usize(..shape.slots())).collect()
}

fn shapes() -> impl Strategy<Value = MailboxShape> {
    (2_usize..7, 1_usize..4, 3_usize..9, 64_usize..90).prop_map(|(members, own, reads, len)| {
        MailboxShape::new(members, own, 1, reads, len).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn all_engines_compute_the_same(shape in shapes(), seed in any::<u64>()) {
        for name in MixEngineName::ALL {
            let mut ends = Ends::new(name, &shape, 1);
            let mut lengths = Vec::new();
            for round in 0..4 {
                let seed = seed.wrapping_add(round);
                let (read, update) = (mailbox(&shape, seed), mailbox(&shape, !seed));
                let mut reads = reads(&shape, seed);
                if round == 0 {
                    reads.fill(shape.slots() - 1);
                }
                let (slots, lens) = ends.exchange(&read, &update, &reads);
                prop_assert_eq!(slots, plain(&read, &reads));
                lengths.push(lens);
            }
            prop_assert!(lengths.iter().all(|lens| *lens == lengths[0]));
        }
    }

    #[test]
    fn garbage_is_refused_or_has_no_meaning(
        seed in any::<u64>(),
        len in 0_usize..70_000,
        step in 0_usize..5,
    ) {
        let shape = MailboxShape::new(3, 2, 1, 4, 64).unwrap();
        let mut bytes = vec![0; len];
        Prg::new(Block::from(u128::from(seed))).fill_bytes(&mut bytes);
        let (read, reads) = (mailbox(&shape, 1), reads(&shape, 2));
        for name in MixEngineName::ALL {
            let mut ends = Ends::new(name, &shape, 2);
            let opening = ends.proxy.opening(&read).unwrap();
            let request = ends.member.request(&opening, &read, &reads).unwrap();
            let (_, answer) = ends.proxy.answer(&request, &read).unwrap();
            match step {
                0 => assert!(ends.proxy.handle_set_up(&bytes).is_err()),
                1 => assert!(ends.member.handle_set_up(&bytes).is_err()),
                2 if bytes.len() != opening.len() => {
                    assert!(ends.member.request(&bytes, &read, &reads).is_err());
                }
                3 if bytes.len() != request.len() => {
                    assert!(ends.proxy.answer(&bytes, &read).is_err());
                }
                4 if bytes.len() != answer.len() => {
                    assert!(ends.member.slots(&bytes).is_err());
                }
                _ => {}
            }
        }
    }
}

/// Messages of the right lengths with other bytes give results or errors; nothing panics.
#[test]
fn changed_messages_do_not_panic() {
    let shape = MailboxShape::new(3, 2, 1, 4, 70).unwrap();
    let (read, reads) = (mailbox(&shape, 1), reads(&shape, 2));
    for name in MixEngineName::ALL {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut change = |mut message: Vec<u8>, step: u64| {
                if seed % 3 == step {
                    for byte in &mut message {
                        *byte = random.u8(..);
                    }
                }
                message
            };
            let mut ends = Ends::new(name, &shape, 3);
            let opening = change(ends.proxy.opening(&read).unwrap(), 0);
            let Ok(request) = ends.member.request(&opening, &read, &reads) else { continue };
            let request = change(request, 1);
            let Ok((_, answer)) = ends.proxy.answer(&request, &read) else { continue };
            let answer = change(answer, 2);
            let slots = ends.member.slots(&answer).unwrap();
            assert_eq!(slots.len(), shape.reads());
            assert!(slots.iter().all(|slot| slot.len() == shape.slot_len()));
        }
    }
}

#[test]
fn random_set_up_messages_are_refused() {
    let shape = MailboxShape::new(3, 2, 1, 4, 64).unwrap();
    for name in MixEngineName::ALL {
        for len in [0, 1, 31, 48, 100, 3_168, 4_111, 4_112, 4_113] {
            let mut bytes = vec![0; len];
            Prg::new(Block::from(len as u128)).fill_bytes(&mut bytes);
            let mut member = member(name, &shape, [1; 32]).unwrap();
            assert!(member.handle_set_up(&bytes).is_err(), "{name:?}: {len} bytes");
            assert!(!member.is_ready());
            let mut proxy = proxy(name, &shape, [1; 32]).unwrap();
            assert!(proxy.handle_set_up(&bytes).is_err(), "{name:?}: {len} bytes");
            assert!(!proxy.is_ready());
        }
    }
}

#[test]
fn engine_steps_out_of_order_are_rejected() {
    let shape = MailboxShape::new(3, 2, 1, 4, 64).unwrap();
    let read = mailbox(&shape, 1);
    for name in MixEngineName::ALL {
        let mut member = member(name, &shape, [1; 32]).unwrap();
        let mut proxy = proxy(name, &shape, [2; 32]).unwrap();
        assert_eq!(member.request(&[], &read, &[0; 4]), Err(MixEngineError::OutOfTurn));
        assert_eq!(member.slots(&[]), Err(MixEngineError::OutOfTurn));
        assert_eq!(proxy.opening(&read), Err(MixEngineError::OutOfTurn));
        assert_eq!(proxy.answer(&[], &read), Err(MixEngineError::OutOfTurn));
        let mut ends = Ends::new(name, &shape, 1);
        let opening = ends.proxy.opening(&read).unwrap();
        for reads in [&[0; 3][..], &[0, 1, 2, 7], &[0; 5]] {
            assert!(ends.member.request(&opening, &read, reads).is_err());
        }
        let other = Mailbox::new(&MailboxShape::new(4, 2, 1, 4, 64).unwrap());
        assert!(ends.member.request(&opening, &other, &[0; 4]).is_err());
        assert!(ends.proxy.opening(&other).is_err());
        // None of these errors has changed the state of an end.
        let request = ends.member.request(&opening, &read, &[3, 6, 0, 1]).unwrap();
        assert!(ends.proxy.answer(&request, &other).is_err());
        let (_, answer) = ends.proxy.answer(&request, &read).unwrap();
        assert_eq!(ends.member.slots(&answer).unwrap(), plain(&read, &[3, 6, 0, 1]));
        assert_eq!(ends.member.slots(&answer), Err(MixEngineError::OutOfTurn));
    }
}

/// The proxy takes a late request without sending an answer, and the next exchange succeeds.
#[test]
fn exchanges_succeed_after_late_requests() {
    let shape = MailboxShape::new(3, 2, 1, 4, 64).unwrap();
    for name in MixEngineName::ALL {
        let mut ends = Ends::new(name, &shape, 1);
        let (first, second) = (mailbox(&shape, 1), mailbox(&shape, 2));
        for _ in 0..2 {
            let opening = ends.proxy.opening(&first).unwrap();
            let late = ends.member.request(&opening, &first, &[1; 4]).unwrap();
            ends.proxy.answer(&late, &Mailbox::new(&shape)).unwrap();
        }
        let (slots, _) = ends.exchange(&second, &first, &[2, 0, 6, 2]);
        assert_eq!(slots, plain(&second, &[2, 0, 6, 2]));
    }
}

#[test]
fn mailboxes_of_ten_thousand_slots_are_read() {
    let shape = MailboxShape::new(1_000, 10, 1, 12, 256).unwrap();
    for name in [MixEngineName::Ot, MixEngineName::Bdd] {
        let mut ends = Ends::new(name, &shape, 1);
        let (read, reads) = (mailbox(&shape, 1), reads(&shape, 1));
        let (slots, lens) = ends.exchange(&read, &read, &reads);
        assert_eq!(slots, plain(&read, &reads), "{name}");
        assert_eq!(lens, [0, 10_001 * 256 + 1_024, 10_001 * (256 + 12 * 16)], "{name}");
    }
}

/// A change to the ciphertext of a slot or of its key changes what is read of this slot only.
#[test]
fn each_slot_has_ciphertexts_of_its_own() {
    let shape = MailboxShape::new(4, 2, 1, 3, 64).unwrap();
    let (read, chosen) = (mailbox(&shape, 1), [4, 4, 4]);
    for name in [MixEngineName::Ot, MixEngineName::Bdd] {
        for slot in 0..shape.slots() {
            for at in [slot * 64, shape.mailbox_len() + 16 * slot] {
                let mut ends = Ends::new(name, &shape, 1);
                let request = ends.member.request(&[], &read, &chosen).unwrap();
                let (_, mut answer) = ends.proxy.answer(&request, &read).unwrap();
                answer[at] ^= 1;
                let slots = ends.member.slots(&answer).unwrap();
                assert_eq!(slots == plain(&read, &chosen), slot != 4, "{name}: slot {slot}");
            }
        }
    }
}

/// Table 1 has n users with m = n - 1 slots each, and 1 to 7 data bits.
#[test]
fn engine_sizes_match_the_computation() {
    let of = |name, slots, reads, bits| size(name, slots, reads, bits).unwrap();
    assert_eq!(of(MixEngineName::Circuit, 6, 2, 7), 6 * 2 * 7);
    assert_eq!(of(MixEngineName::Ot, 6, 2, 7), 6 + 2 * 6);
    assert_eq!(of(MixEngineName::Ot, 6, 2, 129), 2 * 6 + 2 * 6);
    // Levels of 1, 2 and 3 nodes, and one for each slot.
    assert_eq!(of(MixEngineName::Bdd, 6, 1, 1), 12);
    assert_eq!(of(MixEngineName::Bdd, 6, 2, 7), 12 * 2 * 7);
    assert!(size(MixEngineName::Bdd, 65_518, 1, 1).is_err());
}

/// Messages have the lengths that [`message_lens`] returns.
#[test]
fn messages_have_the_lengths_of_the_shape() {
    for (members, own, count, len) in [(2, 1, 3, 64), (3, 2, 9, 70), (5, 3, 64, 65)] {
        let shape = MailboxShape::new(members, own, 1, count, len).unwrap();
        for name in MixEngineName::ALL {
            let (read, reads) = (mailbox(&shape, 1), reads(&shape, 1));
            let (_, lens) = Ends::new(name, &shape, 1).exchange(&read, &read, &reads);
            let expected = message_lens(name, &shape);
            assert_eq!(lens, [expected.opening, expected.request, expected.answer], "{name}");
        }
    }
}

#[test]
fn engine_names_round_trip() {
    for name in MixEngineName::ALL {
        assert_eq!(name.to_string().parse(), Ok(name));
    }
    assert_eq!("Ot".parse::<MixEngineName>(), Err(MixEngineNameError));
}
