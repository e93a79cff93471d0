//! What a member learns from slots of another that are not for it.

use sim::statistics::{ChiSquared, byte_counts};

use super::group::{group, name, run_round};
use crate::{Mailbox, MailboxShape, MixClientEvent, Participant, SlotPermutation};

const ROUNDS: usize = 2000;

/// The bytes and the places of what alice has written, as each member can compute them.
struct Snooped {
    bytes: Vec<u8>,
    offsets: Vec<usize>,
}

fn snoop(talks: bool) -> Snooped {
    let shape = MailboxShape::new(3, 5, 2, 4, 64).unwrap();
    let (mut proxy, mut members) = group(shape);
    let mut snooped = Snooped { bytes: Vec::new(), offsets: Vec::new() };
    let mut arrived = 0;
    for round in 0..ROUNDS {
        if talks && round % 2 == 0 {
            members[0].send(&name(1), "of alice").unwrap();
        }
        let exchange = run_round(&mut proxy, &mut members).swap_remove(0);
        let mut mask = Mailbox::new(&shape);
        let alice = Participant { member: 0, nonce: exchange.nonce };
        members[2].epoch().key().mask(proxy.round - 1, &alice).fill(&mut mask);
        mask.add(&exchange.update);
        let order = SlotPermutation::new(members[2].epoch().key(), proxy.round - 1, &shape);
        for offset in 0..5 {
            let slot = mask.slot(order.slot(0, offset));
            if slot.iter().any(|&byte| byte != 0) {
                snooped.bytes.extend_from_slice(slot);
                snooped.offsets.push(offset);
            }
        }
        assert_eq!(snooped.offsets.len(), 2 * (round + 1), "s slots are written in each round");
        while let Some(event) = members[1].poll_event() {
            arrived += usize::from(matches!(event, MixClientEvent::Message { .. }));
        }
        assert_eq!(members[2].poll_event(), None);
    }
    assert_eq!(arrived > ROUNDS / 3, talks, "{arrived} messages have arrived");
    snooped
}

/// How often uniform bytes and uniform pairs would fail by chance. The keys are fixed.
const FALSE_ALARM_BYTES: f64 = 3e-4;
const FALSE_ALARM_PAIRS: f64 = 5e-3;

fn check_uniform(snooped: &Snooped) {
    let bytes = ChiSquared::of_uniform(&byte_counts(snooped.bytes.iter().copied()));
    assert!(bytes.passes(FALSE_ALARM_BYTES), "{bytes:?}");
    // Two of five slots in each round: each pair as often.
    let mut pairs = [0; 10];
    for pair in snooped.offsets.chunks(2) {
        let index = (0..5).flat_map(|a| (a + 1..5).map(move |b| [a, b]));
        pairs[index.into_iter().position(|it| it == *pair).unwrap()] += 1;
    }
    assert!(ChiSquared::of_uniform(&pairs).passes(FALSE_ALARM_PAIRS), "{pairs:?}");
    // No slot shows its successor: of the differences, too, each is as likely.
    let differences = snooped.bytes.as_chunks::<128>().0.iter().flat_map(|slots| {
        let (one, other) = slots.split_at(64);
        one.iter().zip(other).map(|(one, other)| one ^ other)
    });
    let differences = ChiSquared::of_uniform(&byte_counts(differences));
    assert!(differences.passes(FALSE_ALARM_BYTES), "{differences:?}");
}

#[test]
fn slots_for_others_are_indistinguishable_from_dummies() {
    check_uniform(&snoop(true));
    check_uniform(&snoop(false));
}
