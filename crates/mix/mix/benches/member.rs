//! Measures a member's computation in a round, without its engine, on one core.
//!
//! `cargo bench -p sunder-mix --bench member` prints milliseconds: medians, with the least and the
//! most, of elapsed time. An argument is the number of rounds, by default 100.

use std::sync::Arc;
use std::time::Instant;

use blocks::aes::AesKernel;
use keys::IdentitySecretKey;
use sunder_mix::{
    Conversations, GroupMember, Mailbox, MailboxShape, MemberEpoch, MixClientEvent, MixGroupKey,
    MixMember, Participant, ReadRound, RoundStart,
};

fn main() {
    let rounds = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(100);
    println!("AES: {:?}", AesKernel::best());
    println!(
        "members, slots of a member, bytes: a new epoch; the update and the choice; what is read"
    );
    for (members, slots_per_member, slot_len) in
        [(100, 2, 256), (100, 2, 1024), (1000, 2, 256), (1000, 10, 256)]
    {
        let shape = MailboxShape::new(members, slots_per_member, 1, 12, slot_len).expect("a shape");
        measure(&shape, rounds);
    }
}

fn identity(number: usize) -> IdentitySecretKey {
    let mut random = [1; 32];
    random[..8].copy_from_slice(&(number as u64).to_le_bytes());
    IdentitySecretKey::new(&random)
}

fn measure(shape: &MailboxShape, rounds: u64) {
    let info = |number: usize| GroupMember {
        name: format!("member {number}"),
        key: identity(number).public(),
    };
    let members: Vec<GroupMember> = (0..shape.members()).map(info).collect();
    let key = || MixGroupKey::new([2; 32]);
    let own = Arc::new(identity(0));
    let epoch = MemberEpoch::new(1, *shape, &own.public(), key(), members).expect("an epoch");
    let begun = Instant::now();
    let mut member = MixMember::new(own, epoch, Conversations::new(1), 0, [3; 32]);
    let begun = begun.elapsed().as_secs_f64() * 1e3;

    let mut times = [vec![], vec![]];
    let mut sum = Mailbox::new(shape);
    let mut mask = Mailbox::new(shape);
    let mut read = None;
    for round in 1..=rounds {
        let start = Instant::now();
        let exchange =
            member.handle_round(&RoundStart { epoch: 1, round, read }, true).expect("a round");
        times[0].push(start.elapsed().as_secs_f64() * 1e3);
        let slots: Vec<Vec<u8>> =
            exchange.reads.iter().map(|&slot| sum.slot(slot).to_vec()).collect();
        let start = Instant::now();
        member.handle_slots(&slots);
        times[1].push(start.elapsed().as_secs_f64() * 1e3);

        // All members take part, and all others have nothing to send.
        sum = exchange.update;
        let others = (1..u16::MAX).take(shape.members() - 1);
        let others = others.map(|member| Participant { member, nonce: [7; 16] });
        let own = Participant { member: 0, nonce: exchange.nonce };
        let participants: Vec<Participant> = std::iter::once(own).chain(others).collect();
        for participant in &participants[1..] {
            key().mask(round, participant).fill(&mut mask);
            sum.add(&mask);
        }
        read = Some(ReadRound { round, participants });
    }
    while let Some(event) = member.poll_event() {
        assert!(
            !matches!(event, MixClientEvent::NotOfThisRound { .. }),
            "the mailbox is that of the round"
        );
    }
    let [write, read] = times.map(|mut times| {
        times.sort_unstable_by(f64::total_cmp);
        let (least, most) = (times[0], times[times.len() - 1]);
        format!("{:.3} ({least:.3} to {most:.3})", times[times.len() / 2])
    });
    let (members, slots, len) = (shape.members(), shape.slots_per_member(), shape.slot_len());
    println!("{members:5} {slots:3} {len:5}: {begun:.1}; {write}; {read}");
}
