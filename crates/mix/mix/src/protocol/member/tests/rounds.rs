//! Tests of single rounds: delivery, rejection and detection.

use super::group::{Proxy, epoch, group, identity, member, name, run_round};
use crate::{
    ChatMessageId, Conversations, MailboxShape, MemberSendError, MixClientEvent, MixMember,
    MixMemberError,
};

fn shape() -> MailboxShape {
    MailboxShape::new(4, 3, 1, 4, 128).unwrap()
}

#[test]
fn a_message_arrives_in_the_next_round_and_is_acknowledged_two_rounds_later() {
    let (mut proxy, mut members) = group(shape());
    run_round(&mut proxy, &mut members);
    let id = members[0].send(&name(2), "hello").unwrap();
    let mut events = Vec::new();
    for round in 2.. {
        run_round(&mut proxy, &mut members);
        for (number, member) in members.iter_mut().enumerate() {
            while let Some(event) = member.poll_event() {
                events.push((round, number, event));
            }
        }
        if events.len() == 2 {
            break;
        }
    }
    // Two of three others are read in each round.
    let (key, from, text) = (Some(identity(0).public()), name(0), "hello".to_owned());
    assert!(events[0].0 <= 4, "{events:?}");
    assert_eq!((events[0].1, &events[0].2), (2, &MixClientEvent::Message { key, from, text }));
    assert_eq!(events[1].0, events[0].0 + 2);
    assert_eq!((events[1].1, &events[1].2), (0, &MixClientEvent::Delivered { id, to: name(2) }));
}

/// In which rounds after it was sent a message to the second of these members arrives.
fn rounds_to_arrive(proxy: &mut Proxy, members: &mut [MixMember]) -> usize {
    members[0].send(&name(1), "text").unwrap();
    let arrives = |members: &mut [MixMember]| {
        let mut events = std::iter::from_fn(|| members[1].poll_event());
        events.any(|event| matches!(event, MixClientEvent::Message { .. }))
    };
    let rounds = (1..100).find(|_| {
        run_round(proxy, members);
        arrives(members)
    });
    rounds.expect("the message arrives")
}

#[test]
fn a_new_conversation_is_noticed_soon_and_then_read_in_each_round() {
    let (mut proxy, mut members) = group(MailboxShape::new(50, 2, 1, 9, 256).unwrap());
    run_round(&mut proxy, &mut members);
    // Seven of 49 others are read in each round. The first round writes.
    let first = rounds_to_arrive(&mut proxy, &mut members);
    assert!((2..=8).contains(&first), "{first} rounds");
    for _ in 0..50 {
        // Every eighth exchange sends retransmissions first.
        let rounds = rounds_to_arrive(&mut proxy, &mut members);
        assert!((2..=3).contains(&rounds), "{rounds} rounds");
    }
}

#[test]
fn unsendable_messages_are_rejected() {
    let (mut proxy, mut members) = group(shape());
    let unknown = |name: &str| Err(MemberSendError::Unknown(name.to_owned()));
    assert_eq!(members[0].send("nobody", "text"), unknown("nobody"));
    assert_eq!(members[0].send(&name(0), "text"), unknown(&name(0)));
    assert_eq!(members[0].send(&name(1), ""), Err(MemberSendError::Empty));
    let long = "x".repeat(crate::MAX_TEXT_LEN + 1);
    assert_eq!(members[0].send(&name(1), &long), Err(MemberSendError::TooLong(long.len())));
    assert!(
        (1..100)
            .any(|_| members[0].send(&name(1), &long[1..]) == Err(MemberSendError::Full(name(1))))
    );
    assert!(members[0].send(&name(2), &long[1..]).is_ok());
    members[1].least_participants = 4;
    let refused = |participants| Err(MemberSendError::AnonymitySet { participants, least: 4 });
    assert_eq!(members[1].send(&name(2), "text"), refused(0));
    for _ in 0..2 {
        run_round(&mut proxy, &mut members);
    }
    assert_eq!(members[1].send(&name(2), "text"), Ok(ChatMessageId(1)));
}

#[test]
fn nothing_is_written_below_the_minimum_anonymity_set() {
    let (mut proxy, mut members) = group(shape());
    // The last member does not take part.
    for _ in 0..2 {
        run_round(&mut proxy, &mut members[..3]);
    }
    assert_eq!(members[0].anonymity_set(), 3);
    assert!(members[0].send(&name(1), "text").is_ok());
    members[0].least_participants = 4;
    let is_written = |alice: &MixMember| alice.conversations().iter().any(|(_, it)| it.has_sent());
    for _ in 0..20 {
        run_round(&mut proxy, &mut members[..3]);
    }
    assert!(!is_written(&members[0]));
    for _ in 0..3 {
        run_round(&mut proxy, &mut members);
    }
    assert!(is_written(&members[0]));
}

#[test]
fn invalid_round_starts_are_rejected() {
    let (mut proxy, mut members) = group(shape());
    for _ in 0..4 {
        run_round(&mut proxy, &mut members);
    }
    let start = proxy.start();
    let mut refused = |change: &dyn Fn(&mut crate::RoundStart)| {
        let mut start = start.clone();
        change(&mut start);
        members[0].handle_round(&start, true).err()
    };
    assert_eq!(refused(&|it| it.epoch = 2), Some(MixMemberError::Epoch { epoch: 2, own: 1 }));
    assert_eq!(refused(&|it| it.round = 3), Some(MixMemberError::Round { round: 3, last: 4 }));
    for round in [2, 5, 6] {
        let wrong = Some(MixMemberError::Read { round: 5, read: round });
        assert_eq!(refused(&|it| it.read.as_mut().unwrap().round = round), wrong);
    }
    let wrong = Some(MixMemberError::Participants(4));
    let swap = |it: &mut crate::RoundStart| it.read.as_mut().unwrap().participants.swap(1, 2);
    assert_eq!(refused(&swap), wrong);
    let twice = |it: &mut crate::RoundStart| {
        it.read.as_mut().unwrap().participants[1].member = 0;
    };
    assert_eq!(refused(&twice), wrong);
    let unknown = |it: &mut crate::RoundStart| {
        it.read.as_mut().unwrap().participants[3].member = 4;
    };
    assert_eq!(refused(&unknown), wrong);
    assert_eq!(refused(&|_| ()), None);
}

/// Each of these mailboxes is noticed by each member, and nothing of it is used.
#[test]
fn a_mailbox_of_another_round_is_noticed() {
    for attack in 0..5 {
        let (mut proxy, mut members) = group(shape());
        run_round(&mut proxy, &mut members);
        let old = proxy.closed.clone().unwrap();
        members[0].send(&name(1), "text").unwrap();
        let exchanges = run_round(&mut proxy, &mut members);
        let (read, mailbox) = proxy.closed.as_mut().unwrap();
        match attack {
            // The mailbox of the round before, with the right participants and with its own.
            0 => *mailbox = old.1,
            1 => (read.participants, *mailbox) = (old.0.participants, old.1),
            // Without what a participant has written, with what another has, or with other bytes.
            2 => mailbox.add(&exchanges[3].update),
            3 => drop(read.participants.pop()),
            _ => mailbox.as_bytes_mut().iter_mut().for_each(|byte| *byte ^= 1),
        }
        let start = proxy.start();
        for (number, member) in members.iter_mut().enumerate() {
            let exchange = member.handle_round(&start, true).unwrap();
            member.handle_slots(&proxy.slots(&exchange));
            if (attack, number) == (3, 3) {
                assert_eq!(member.poll_event(), Some(MixClientEvent::LeftOut { round: 2 }));
            }
            let noticed = Some(MixClientEvent::NotOfThisRound { round: 2, since: 2 });
            assert_eq!(member.poll_event(), noticed, "attack {attack}");
            assert_eq!(member.poll_event(), None);
        }
        // The member that has written continues.
        proxy.closed = None;
        for _ in 0..10 {
            run_round(&mut proxy, &mut members);
        }
        let (key, text) = (Some(identity(0).public()), "text".to_owned());
        let message = MixClientEvent::Message { key, from: name(0), text };
        assert_eq!(members[1].poll_event(), Some(message));
        assert_eq!(members[1].poll_event(), None);
    }
}

#[test]
fn an_old_mailbox_is_rejected_even_after_a_restart() {
    let (mut proxy, mut members) = group(shape());
    run_round(&mut proxy, &mut members);
    let old = proxy.closed.clone();
    for _ in 0..3 {
        run_round(&mut proxy, &mut members);
    }
    let stored = members[1].conversations().to_bytes();
    let conversations = Conversations::from_bytes(&stored, 2_000_000).unwrap();
    let mut bob = member(epoch(1, shape(), &[0, 1, 2, 3], 1), 1, conversations, 77);
    proxy.closed = old;
    assert_eq!(
        bob.handle_round(&proxy.start(), true).err(),
        Some(MixMemberError::Read { round: 5, read: 1 })
    );
}

#[test]
fn slots_of_other_lengths_are_noticed() {
    let (mut proxy, mut members) = group(shape());
    run_round(&mut proxy, &mut members);
    for slots in [vec![], vec![vec![0; 128]; 3], vec![vec![0; 127]; 4]] {
        members[0].handle_round(&proxy.start(), true).unwrap();
        members[0].handle_slots(&slots);
        let noticed = Some(MixClientEvent::NotOfThisRound { round: 1, since: 1 });
        assert_eq!(members[0].poll_event(), noticed);
    }
    // Of no exchange.
    members[0].handle_slots(&[]);
    assert_eq!(members[0].poll_event(), None);
}
