//! Exchanges by broadcast: delivery, loss, a deviating proxy, and what the proxy and members see.

use sim::statistics::ChiSquared;

use super::group::{epoch, group_key, identity, member, name};
use super::unlinkability::distinguisher::accuracy;
use crate::protocol::pair::{PairKeys, SlotWriteContext};
use crate::protocol::wire::ArchivedRound;
use crate::{
    BroadcastExchange, Conversations, GroupMember, MailboxShape, MemberEpoch, MixClientEvent,
    MixMember, MixMemberError, Participant, ReadRound, RoundStart,
};

const SLOT_LEN: usize = 128;
const FRAGMENT: usize = SLOT_LEN - 50;

fn shape(members: usize, slots: usize) -> MailboxShape {
    MailboxShape::new(members, slots, slots, 3, SLOT_LEN).unwrap()
}

/// The proxy's mailbox, in memory.
struct Proxy {
    round: u64,
    /// Whether it says that it keeps the closed round.
    is_kept: bool,
    closed: Option<(ReadRound, Vec<u8>)>,
}

/// The members of a group, and the proxy.
fn group(shape: MailboxShape) -> (Proxy, Vec<MixMember>) {
    let people: Vec<usize> = (0..shape.members()).collect();
    let new = |&own: &usize| {
        let conversations = Conversations::new(1000 + own as u64);
        member(epoch(1, shape, &people, own), own, conversations, own as u64)
    };
    (Proxy { round: 1, is_kept: false, closed: None }, people.iter().map(new).collect())
}

impl Proxy {
    fn start(&self) -> RoundStart {
        let read = self.closed.as_ref().map(|(read, _)| read.clone());
        RoundStart { epoch: 1, round: self.round, read }
    }

    /// A round in which all take part. `lost` are those whose slots do not arrive.
    fn run(&mut self, members: &mut [MixMember], lost: &[usize]) -> Vec<BroadcastExchange> {
        let start = self.start();
        let mut exchanges = Vec::new();
        for member in members.iter_mut() {
            exchanges.push(member.handle_broadcast_round(&start, true).unwrap());
            if let Some((read, mailbox)) = &self.closed {
                member.read_mailbox(read, mailbox, self.is_kept);
            }
        }
        let (mut participants, mut mailbox) = (Vec::new(), Vec::new());
        for (number, exchange) in exchanges.iter().enumerate() {
            if !lost.contains(&number) {
                members[number].handle_answered();
                let member = u16::try_from(number).unwrap();
                participants.push(Participant { member, nonce: exchange.nonce });
                mailbox.extend_from_slice(&exchange.slots);
            }
        }
        self.closed = Some((ReadRound { round: self.round, participants }, mailbox));
        self.round += 1;
        exchanges
    }
}

fn events(member: &mut MixMember) -> Vec<MixClientEvent> {
    std::iter::from_fn(|| member.poll_event()).collect()
}

fn texts(member: &mut MixMember) -> Vec<String> {
    let text = |event| match event {
        MixClientEvent::Message { text, .. } => Some(text),
        _ => None,
    };
    events(member).into_iter().filter_map(text).collect()
}

#[test]
fn a_broadcast_message_arrives_in_the_next_round_and_is_acknowledged_two_rounds_later() {
    let (mut proxy, mut members) = group(shape(50, 1));
    proxy.run(&mut members, &[]);
    let id = members[0].send(&name(2), "hello").unwrap();
    proxy.run(&mut members, &[]);
    assert_eq!(events(&mut members[2]), []);
    proxy.run(&mut members, &[]);
    let (key, text) = (Some(identity(0).public()), "hello".to_owned());
    let message = MixClientEvent::Message { key, from: name(0), text };
    assert_eq!(events(&mut members[2]), [message]);
    proxy.run(&mut members, &[]);
    assert_eq!(events(&mut members[0]), []);
    proxy.run(&mut members, &[]);
    assert_eq!(events(&mut members[0]), [MixClientEvent::Delivered { id, to: name(2) }]);
    assert!((3..50).all(|other| events(&mut members[other]).is_empty()));
}

#[test]
fn a_message_of_a_missed_epoch_has_the_key_of_its_sender_whatever_its_name_was() {
    let shape = shape(3, 1);
    let (mut proxy, mut members) = group(shape);
    proxy.run(&mut members, &[]);
    members[0].send(&name(2), "hello").unwrap();
    proxy.run(&mut members, &[]);
    let (read, mailbox) = proxy.closed.unwrap();
    let (slot_len, slots_per_member) = (u16::try_from(SLOT_LEN).unwrap(), 1);
    let round = ArchivedRound { epoch: 1, closed_s: 0, slots_per_member, slot_len, read, mailbox };
    // In that epoch, the first two had each other's names.
    let of = |(person, named)| GroupMember { name: name(named), key: identity(person).public() };
    let all = [(0, 1), (1, 0), (2, 2)].map(of).to_vec();
    let past = MemberEpoch::new(1, shape, &identity(2).public(), group_key(1), all).unwrap();
    let now = epoch(2, shape, &[0, 1, 2], 2);
    let mut reader = member(now, 2, Conversations::new(1002), 9);
    reader.read_past(past, &round).unwrap();
    let (key, text) = (Some(identity(0).public()), "hello".to_owned());
    assert_eq!(events(&mut reader), [MixClientEvent::Message { key, from: name(1), text }]);
}

/// Free slots of a round are used for one partner. More than a reorder buffer is under way.
#[test]
fn a_long_broadcast_message_takes_all_slots() {
    let (mut proxy, mut members) = group(shape(3, 4));
    proxy.run(&mut members, &[]);
    let text = "x".repeat(40 * FRAGMENT);
    members[0].send(&name(1), &text).unwrap();
    members[0].send(&name(2), "short").unwrap();
    let rounds = (1..100).find(|_| {
        proxy.run(&mut members, &[]);
        texts(&mut members[1]) == [&text[..]]
    });
    // With 16 bytes before it, the text takes 41 fragments.
    assert!((11..=15).contains(&rounds.unwrap()), "{rounds:?}");
    assert_eq!(texts(&mut members[2]), ["short"]);
}

/// What is lost is sent again in the next round, before anything new, so nothing arrives ahead.
#[test]
fn what_is_lost_in_a_broadcast_is_sent_again_in_order() {
    let (mut proxy, mut members) = group(shape(3, 2));
    proxy.run(&mut members, &[]);
    let text = "y".repeat(60 * FRAGMENT);
    members[0].send(&name(1), &text).unwrap();
    let mut rounds = 0;
    while texts(&mut members[1]).is_empty() {
        let lost: &[usize] = if rounds % 3 == 1 { &[0] } else { &[] };
        proxy.run(&mut members, lost);
        rounds += 1;
        assert!(rounds < 65, "31 rounds without losses");
    }
}

#[test]
fn a_lost_acknowledgement_is_sent_again() {
    let (mut proxy, mut members) = group(shape(3, 1));
    proxy.run(&mut members, &[]);
    let id = members[0].send(&name(1), "hello").unwrap();
    proxy.run(&mut members, &[]);
    proxy.run(&mut members, &[]);
    // The acknowledgement is lost, and then the next one.
    proxy.run(&mut members, &[1]);
    proxy.run(&mut members, &[1]);
    proxy.run(&mut members, &[]);
    proxy.run(&mut members, &[]);
    assert!(events(&mut members[0]).contains(&MixClientEvent::Delivered { id, to: name(1) }));
}

/// Alice connects again. Only from then on, the proxy keeps rounds for bob, who is away.
#[test]
fn what_was_sent_over_an_earlier_connection_is_not_kept_by_a_later_one() {
    let shape = shape(2, 1);
    let (mut proxy, mut members) = group(shape);
    let mut bob = members.pop().unwrap();
    let text = "x".repeat(20 * FRAGMENT);
    members[0].send(&name(1), &text).unwrap();
    for _ in 0..30 {
        proxy.run(&mut members, &[]);
    }
    let alice = members.pop().unwrap().into_conversations();
    members.push(member(epoch(1, shape, &[0, 1], 0), 0, alice, 2));
    proxy.is_kept = true;
    let is_stored = |it: &MixClientEvent| matches!(it, MixClientEvent::Stored { .. });
    let is_kept = (0..500).any(|_| {
        proxy.run(&mut members, &[]);
        let (read, mailbox) = proxy.closed.as_ref().unwrap();
        bob.read_mailbox(read, mailbox, true);
        events(&mut members[0]).iter().any(is_stored)
    });
    assert!(is_kept);
    assert_eq!(texts(&mut bob), [&text[..]], "what is kept is all of it");
}

#[test]
fn own_slots_that_the_proxy_changed_are_reported_and_sent_again() {
    let (mut proxy, mut members) = group(shape(3, 2));
    proxy.run(&mut members, &[]);
    members[0].send(&name(1), "hello").unwrap();
    proxy.run(&mut members, &[]);
    let (_, mailbox) = proxy.closed.as_mut().unwrap();
    mailbox[..2 * SLOT_LEN].fill(7);
    proxy.run(&mut members, &[]);
    assert_eq!(events(&mut members[0]), [MixClientEvent::ChangedByProxy { round: 2 }]);
    assert_eq!(events(&mut members[1]), [], "the slots do not open");
    proxy.run(&mut members, &[]);
    proxy.run(&mut members, &[]);
    assert_eq!(texts(&mut members[1]), ["hello"]);
}

/// The proxy repeats slots in another round, at another place, or as those of another member, and
/// repeats a whole mailbox.
/// Own slots of a round so long ago that this member does not remember them.
#[test]
fn own_slots_of_a_forgotten_round_are_reported() {
    let (mut proxy, mut members) = group(shape(2, 1));
    proxy.run(&mut members, &[]);
    let (old, _) = proxy.closed.clone().unwrap();
    for _ in 0..6 {
        proxy.run(&mut members, &[]);
    }
    assert_eq!(events(&mut members[0]), []);
    proxy.closed.as_mut().unwrap().0.participants = old.participants;
    proxy.run(&mut members, &[]);
    let changed = |it: &MixClientEvent| matches!(it, MixClientEvent::ChangedByProxy { .. });
    assert!(members.iter_mut().all(|it| events(it).iter().any(changed)));
}

#[test]
fn a_broadcast_slot_opens_only_in_its_round_and_at_its_place() {
    let (mut proxy, mut members) = group(shape(3, 2));
    proxy.run(&mut members, &[]);
    members[0].send(&name(1), "hello").unwrap();
    proxy.run(&mut members, &[]);
    let (read, mailbox) = proxy.closed.clone().unwrap();
    let mut swapped = mailbox.clone();
    swapped[..2 * SLOT_LEN].rotate_left(SLOT_LEN);
    let mut exchanged = mailbox.clone();
    exchanged[..4 * SLOT_LEN].rotate_left(2 * SLOT_LEN);
    let mut participants = read.clone();
    participants.participants[0].nonce[0] ^= 1;
    for (read, mailbox) in [
        (ReadRound { round: 1, ..read.clone() }, &mailbox),
        (ReadRound { round: 3, ..read.clone() }, &mailbox),
        (participants, &mailbox),
        (read.clone(), &swapped),
        (read.clone(), &exchanged),
    ] {
        let bob = &mut members[1];
        bob.conversations.set_last_read(1, 0);
        bob.read_mailbox(&read, mailbox, false);
        assert!(texts(bob).is_empty(), "round {}", read.round);
    }
    let bob = &mut members[1];
    bob.conversations.set_last_read(1, 1);
    bob.read_mailbox(&read, &mailbox, false);
    assert_eq!(texts(bob), ["hello"]);
    bob.read_mailbox(&read, &mailbox, false);
    assert_eq!(events(bob), [], "a mailbox is read once");
}

#[test]
fn a_broadcast_member_reports_that_it_is_left_out() {
    let (mut proxy, mut members) = group(shape(3, 1));
    proxy.run(&mut members, &[]);
    let (read, mailbox) = proxy.closed.as_mut().unwrap();
    drop((read.participants.remove(0), mailbox.drain(..SLOT_LEN)));
    proxy.run(&mut members, &[]);
    assert_eq!(events(&mut members[0]), [MixClientEvent::LeftOut { round: 1 }]);
    let mut start = proxy.start();
    start.epoch = 2;
    let error = members[1].handle_broadcast_round(&start, true).unwrap_err();
    assert_eq!(error, MixMemberError::Epoch { epoch: 2, own: 1 });
}

/// Without the key of the epoch, the identities' keys do not open a slot; nor do the keys of a
/// member that is not the receiver.
#[test]
fn old_epochs_stay_closed_to_thieves_of_identities() {
    let (mut proxy, mut members) = group(shape(4, 1));
    proxy.run(&mut members, &[]);
    members[0].send(&name(1), "hello").unwrap();
    let exchanges = proxy.run(&mut members, &[]);
    let at = SlotWriteContext { epoch: 1, round: 2, nonce: exchanges[0].nonce, slot: Some(0) };
    let opens = |keys: &PairKeys| keys.to.open(at, &mut exchanges[0].slots.clone());
    let pair = |own, other: usize| PairKeys::new(&identity(own), &identity(other).public());
    let key = group_key(1);
    assert!(opens(&pair(0, 1).in_epoch(&key)));
    assert!(!opens(&pair(0, 1)));
    assert!(!opens(&pair(0, 1).in_epoch(&group_key(2))));
    // The proxy and a third member together have all keys of the third one.
    for other in [0, 1, 3] {
        assert!(!opens(&pair(2, other).in_epoch(&key)), "{other}");
    }
}

/// What the proxy has of alice in some rounds, in which she writes to bob, to carol or to nobody.
/// `is_broken`: dummies are not sealed.
fn distinguish(is_broken: bool) -> (f64, f64) {
    const TRANSCRIPTS: usize = 300;
    const ROUNDS: usize = 4;
    let (mut proxy, mut members) = group(shape(4, 2));
    proxy.run(&mut members, &[]);
    let (mut samples, mut table) = (Vec::new(), vec![vec![0_u32; 256]; 3]);
    for number in 0..TRANSCRIPTS {
        let label = number % 3;
        if label > 0 {
            members[0].send(&name(label), &"x".repeat(2 * ROUNDS * FRAGMENT)).unwrap();
        }
        let mut features = vec![0.0; 256 + 2];
        for _ in 0..ROUNDS {
            let mut slots = proxy.run(&mut members, &[]).swap_remove(0).slots;
            if is_broken && label == 0 {
                slots[..SLOT_LEN / 2].fill(0);
            }
            for &byte in &slots {
                features[usize::from(byte)] += 1.0;
                table[label][usize::from(byte)] += 1;
            }
            for (at, slot) in slots.chunks(SLOT_LEN).enumerate() {
                features[256 + at] += slot.iter().map(|it| f64::from(it.count_ones())).sum::<f64>();
            }
        }
        samples.push((features, label));
        (0..12).for_each(|_| drop(proxy.run(&mut members, &[])));
    }
    let arrived = [1, 2].map(|receiver| texts(&mut members[receiver]).len());
    assert_eq!(arrived, [TRANSCRIPTS / 3; 2]);
    let (train, test) = samples.split_at(TRANSCRIPTS / 3 * 2);
    (ChiSquared::of_rows(&table).deviations(), 100.0 * accuracy(train, test, 3))
}

/// By chance it succeeds about once in a thousand cases; the seed is fixed.
#[test]
fn broadcast_slots_of_messages_and_dummies_look_alike() {
    let (deviations, percent) = distinguish(false);
    println!("chi-squared: {deviations:.1} deviations, {percent:.1}% right");
    // Four standard deviations over a third of 100.
    assert!(deviations < 4.0 && percent < 33.3 + 4.0 * 4.7, "{deviations} {percent}");
    let (deviations, percent) = distinguish(true);
    assert!(deviations > 8.0 && percent > 60.0, "the test detects nothing: {deviations} {percent}");
}
