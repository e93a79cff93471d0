//! Two ends of a conversation, whose slots arrive or not.

use proptest::prelude::*;

use super::*;
use crate::protocol::content::{FragmentAcknowledgement, capacity};

const SLOT_LEN: usize = 64;
const CAPACITY: usize = capacity(SLOT_LEN);

/// An end of a conversation, its stored state, and its events.
struct End {
    conversation: Conversation,
    stored: Zeroizing<Vec<u8>>,
    exchange: u64,
    last_id: u64,
    stamp: u64,
    messages: Vec<String>,
    delivered: Vec<u64>,
    uncertain: Vec<u64>,
}

impl End {
    fn new(life: u64) -> Self {
        let mut end = Self {
            conversation: Conversation::new(life),
            stored: Zeroizing::default(),
            exchange: 0,
            last_id: 0,
            stamp: life,
            messages: Vec::new(),
            delivered: Vec::new(),
            uncertain: Vec::new(),
        };
        end.store();
        end
    }

    fn store(&mut self) {
        self.stored = Zeroizing::default();
        self.conversation.encode(&mut self.stored);
    }

    fn restart(&mut self) {
        self.restart_at(self.stamp + 1_000);
    }

    /// Begins another life at this time.
    fn restart_at(&mut self, life: u64) {
        let mut stored = FieldReader::new(&self.stored);
        self.conversation = Conversation::decode(&mut stored, VERSION, life, CAPACITY).unwrap();
        assert!(stored.is_empty());
        self.stamp = self.stamp.max(life);
    }

    fn send(&mut self, text: &str) {
        self.last_id += 1;
        self.stamp += 1;
        let numbers = (self.last_id, self.stamp);
        self.conversation.push(self.exchange, numbers, text, CAPACITY).unwrap();
        self.store();
    }

    fn write(&mut self, again: bool) -> Zeroizing<Vec<u8>> {
        self.write_awaited(again, false)
    }

    fn write_awaited(&mut self, again: bool, awaited: bool) -> Zeroizing<Vec<u8>> {
        self.exchange += 1;
        self.conversation.write(self.exchange, again, awaited, SLOT_LEN)
    }

    fn read(&mut self, slot: &[u8], store: bool) {
        let content = SlotContent::decode(slot).unwrap();
        let stamp = &mut self.stamp;
        let received = self.conversation.read(self.exchange, &content, CAPACITY, stamp);
        assert!(received.changed || received.messages.is_empty() && received.delivered.is_empty());
        // An end that stops before it has stored has shown nothing either.
        if store {
            self.store();
            self.messages.extend(received.messages);
            self.delivered.extend(received.delivered);
            self.uncertain.extend(received.uncertain);
        } else {
            self.restart();
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send { by: usize, len: usize },
    Slot { by: usize, again: bool, arrives: bool, stored: bool },
    Restart { of: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..2_usize, prop_oneof![1..100_usize, 1..2000_usize])
            .prop_map(|(by, len)| Step::Send { by, len }),
        (0..2_usize, any::<bool>(), prop::bool::weighted(0.7), prop::bool::weighted(0.9))
            .prop_map(|(by, again, arrives, stored)| Step::Slot { by, again, arrives, stored }),
        (0..2_usize, any::<bool>(), prop::bool::weighted(0.7), prop::bool::weighted(0.9))
            .prop_map(|(by, again, arrives, stored)| Step::Slot { by, again, arrives, stored }),
        (0..2_usize).prop_map(|of| Step::Restart { of }),
    ]
}

proptest! {
    #[test]
    fn messages_arrive_once_and_in_order(steps in prop::collection::vec(step(), 0..300)) {
        let mut ends = [End::new(7), End::new(8)];
        let mut sent = [Vec::new(), Vec::new()];
        for step in steps {
            match step {
                Step::Send { by, len } => {
                    let text = format!("{}{}", sent[by].len(), "x".repeat(len));
                    ends[by].send(&text);
                    sent[by].push(text);
                }
                Step::Slot { by, again, arrives, stored } => {
                    let slot = ends[by].write(again);
                    if arrives {
                        ends[1 - by].read(&slot, stored);
                    }
                }
                Step::Restart { of } => ends[of].restart(),
            }
        }
        let mut left = 20_000;
        while ends.iter().any(|end| end.conversation.has_new() || end.conversation.has_sent()) {
            for by in 0..2 {
                let slot = ends[by].write(false);
                ends[1 - by].read(&slot, true);
            }
            left -= 1;
            prop_assert!(left > 0, "the conversation does not come to rest");
        }
        for by in 0..2 {
            prop_assert_eq!(&ends[1 - by].messages, &sent[by]);
            prop_assert_eq!(&ends[by].delivered, &(1..=ends[by].last_id).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_no_state_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Conversation::decode(&mut FieldReader::new(&bytes), VERSION, 1, CAPACITY);
    }

    #[test]
    fn any_content_of_a_partner_is_taken(
        slots in prop::collection::vec((0..4_u64, any::<u32>(), 0..4_u64, 0..40_u32), 0..50),
    ) {
        let mut end = End::new(2);
        end.send(&"text".repeat(20));
        for (stream, number, acknowledged_stream, acknowledged) in slots {
            let number = number % 40;
            let answer = if acknowledged % 5 == 0 {
                FragmentAcknowledgement::Refused(u64::from(number))
            } else {
                FragmentAcknowledgement::Received(acknowledged, [0; 8])
            };
            let content = SlotContent {
                stream, number, acknowledged_stream, acknowledged: answer, last: true, text: b"text",
            };
            end.read(&content.encode(SLOT_LEN), true);
            end.write(acknowledged % 2 == 0);
        }
    }
}

/// Runs both ends until nothing is left to send.
fn settle(one: &mut End, other: &mut End) {
    for _ in 0..200 {
        let slot = one.write(false);
        other.read(&slot, true);
        let slot = other.write(false);
        one.read(&slot, true);
    }
    assert!(!one.conversation.has_sent() && !other.conversation.has_sent());
}

#[test]
fn conversations_recover_after_an_end_loses_its_state() {
    let (mut alice, mut bob) = (End::new(10), End::new(11));
    alice.send("one");
    bob.send("two");
    settle(&mut alice, &mut bob);
    let mut bob = End::new(20);
    alice.send(&"three".repeat(10));
    bob.send("four");
    settle(&mut alice, &mut bob);
    assert_eq!(alice.messages, ["two", "four"]);
    assert_eq!(bob.messages, ["three".repeat(10)]);
    // Even if its clock is wrong.
    let mut bob = End::new(5);
    bob.send("five");
    alice.send("six");
    settle(&mut alice, &mut bob);
    assert_eq!(alice.messages, ["two", "four", "five"]);
    assert_eq!(bob.messages, ["six"]);
}

#[test]
fn conversations_recover_after_an_old_state_is_restored() {
    let (mut alice, mut bob) = (End::new(10), End::new(11));
    alice.send("waits in the old state");
    let old = alice.stored.clone();
    (0..5).for_each(|i| alice.send(&format!("old {i}")));
    settle(&mut alice, &mut bob);
    alice.stored = old;
    (alice.last_id, alice.delivered) = (1, Vec::new());
    alice.restart();
    (0..3).for_each(|i| alice.send(&format!("new {i}")));
    settle(&mut alice, &mut bob);
    assert_eq!(alice.delivered, [1, 2, 3, 4]);
    let old = (0..5).map(|i| format!("old {i}"));
    let all = ["waits in the old state".to_owned()].into_iter().chain(old);
    assert!(bob.messages.iter().cloned().eq(all.chain((0..3).map(|i| format!("new {i}")))));
}

#[test]
fn messages_of_uncertain_delivery_are_given_up() {
    let (mut alice, mut bob) = (End::new(10), End::new(11));
    alice.send("waits in the old state");
    let (old, stamp) = (alice.stored.clone(), alice.stamp);
    for i in 0..100 {
        alice.send(&format!("old {i}"));
        settle(&mut alice, &mut bob);
    }
    // Also with a clock that is behind: nothing new is lost or marked before it was shown.
    (alice.stored, alice.stamp, alice.last_id) = (old, stamp, 1);
    alice.delivered.clear();
    alice.restart_at(stamp + 1);
    alice.send("new");
    settle(&mut alice, &mut bob);
    assert_eq!((&alice.uncertain[..], &alice.delivered[..]), (&[1][..], &[2][..]));
    assert_eq!(bob.messages.len(), 102);
    assert_eq!(bob.messages.last().unwrap(), "new");
}

#[test]
fn two_incarnations_of_one_state_do_not_mix() {
    let (mut alice, mut bob) = (End::new(10), End::new(11));
    alice.send(&"one ".repeat(20));
    let old = alice.stored.clone();
    // A part of it arrives.
    for _ in 0..3 {
        let slot = alice.write(false);
        bob.read(&slot, true);
    }
    let mut other = End::new(12);
    other.stored = old;
    other.restart_at(10_000);
    other.send(&"two ".repeat(20));
    for _ in 0..40 {
        for one in [&mut alice, &mut other] {
            let slot = one.write(false);
            bob.read(&slot, true);
            let slot = bob.write(false);
            one.read(&slot, true);
        }
    }
    settle(&mut other, &mut bob);
    settle(&mut alice, &mut bob);
    assert_eq!(bob.messages, ["one ".repeat(20), "two ".repeat(20)]);
}

#[test]
fn a_copy_of_a_running_end_causes_no_false_delivery() {
    // As a virtual machine that is restored while it runs: with the same life.
    let (mut alice, mut bob) = (End::new(10), End::new(11));
    alice.send("before");
    settle(&mut alice, &mut bob);
    let mut copy = End::new(10);
    copy.send("before");
    settle(&mut copy, &mut bob);
    alice.send(&"the first life ".repeat(5));
    let slot = alice.write(false);
    bob.read(&slot, true);
    copy.send(&"the second life ".repeat(5));
    settle(&mut copy, &mut bob);
    assert_eq!(copy.delivered, [1, 2]);
    assert_eq!(bob.messages, ["before".to_owned(), "the second life ".repeat(5)]);
    // Both have given out the same stamps, and one after the other is heard.
    settle(&mut alice, &mut bob);
    assert_eq!(bob.messages[2..], ["the first life ".repeat(5)]);
    assert_eq!(alice.delivered, [1, 2]);
}

#[test]
fn a_new_slot_length_duplicates_no_message() {
    let (mut alice, mut bob) = (End::new(10), End::new(11));
    alice.send(&"text".repeat(10));
    // All of it arrives, and no acknowledgement does.
    for _ in 0..20 {
        let slot = alice.write(false);
        bob.read(&slot, true);
    }
    assert_eq!(bob.messages.len(), 1);
    alice.conversation.refragment(CAPACITY - 1);
    settle(&mut alice, &mut bob);
    assert_eq!((bob.messages.len(), &alice.delivered[..]), (1, &[1][..]));
}

#[test]
fn the_send_window_waits_for_a_lost_fragment() {
    let (mut alice, mut bob) = (End::new(1), End::new(2));
    alice.send(&"x".repeat(CAPACITY * 100));
    let lost = alice.write(false);
    for _ in 1..MIN_WINDOW {
        let slot = alice.write(false);
        bob.read(&slot, true);
    }
    assert!(!alice.conversation.has_new());
    assert_eq!(alice.write(false), lost);
    let received = |bob: &mut End| match bob.conversation.incoming.acknowledge().1 {
        FragmentAcknowledgement::Received(number, _) => number,
        FragmentAcknowledgement::Refused(_) => panic!("refused"),
    };
    assert_eq!(received(&mut bob), 0);
    bob.read(&lost, true);
    assert_eq!(received(&mut bob), MIN_WINDOW);
}

#[test]
fn too_long_messages_are_rejected_even_from_a_partner() {
    let mut alice = End::new(1);
    let long = "x".repeat(crate::MAX_TEXT_LEN);
    alice.send(&long);
    assert_eq!(alice.conversation.push(0, (2, 2), &long, CAPACITY), Err(ConversationFull));
    let mut bob = End::new(2);
    let text = [b'y'; CAPACITY];
    let end = u32::try_from(crate::MAX_TEXT_LEN / CAPACITY).unwrap() + 3;
    for number in 1..=end {
        let acknowledged = FragmentAcknowledgement::Received(0, [0; 8]);
        let (stream, last) = (1, number == end);
        let content =
            SlotContent { stream, number, acknowledged_stream: 0, acknowledged, last, text: &text };
        bob.read(&content.encode(SLOT_LEN), true);
    }
    assert_eq!(bob.conversation.incoming.acknowledge(), (1, FragmentAcknowledgement::Refused(0)));
    assert!(bob.messages.is_empty());
    let mut alice = End::new(10);
    alice.send("afterwards");
    settle(&mut alice, &mut bob);
    assert_eq!(bob.messages, ["afterwards"]);
}

#[test]
fn fragments_arrive_if_each_fourth_slot_is_read() {
    for every in [2, 3, 4, 8, 16] {
        let mut rng = fastrand::Rng::with_seed(every);
        let mut ends = [End::new(1), End::new(2)];
        let text = "x".repeat(40 * CAPACITY);
        ends[0].send(&text);
        for exchange in 0..40 * 8 * every {
            let slots = [0, 1].map(|end| ends[end].write_awaited(exchange % 8 == 0, rng.bool()));
            if exchange % every == 1 {
                ends[1].read(&slots[0], true);
            }
            ends[0].read(&slots[1], true);
        }
        assert!(ends[1].messages.iter().eq([&text]), "each {every}th");
        assert_eq!(ends[0].delivered, [1]);
    }
}

/// The partner acknowledges what an earlier life has sent, when that life is over.
#[test]
fn an_acknowledgement_of_an_earlier_life_is_accepted() {
    let (mut alice, mut bob) = (End::new(1), End::new(2));
    for text in ["one", "two"] {
        alice.send(text);
        // Each has two fragments.
        for _ in 0..2 {
            let slot = alice.write(false);
            bob.read(&slot, true);
        }
    }
    let acknowledgement = bob.write(false);
    let mut forged = acknowledgement.clone();
    // The first byte of the digest.
    forged[24] ^= 1;
    for life in [10_000, 20_000, 30_000] {
        alice.restart_at(life);
        alice.store();
    }
    alice.send("three");
    alice.write(false);
    alice.read(&forged, true);
    assert!(alice.delivered.is_empty());
    alice.read(&acknowledgement, true);
    assert_eq!(alice.delivered, [1, 2]);
    alice.read(&acknowledgement, true);
    settle(&mut alice, &mut bob);
    assert_eq!((&alice.delivered[..], bob.messages.len()), (&[1, 2, 3][..], 3));
    assert_eq!(bob.messages, ["one", "two", "three"]);
}

#[test]
fn a_message_is_kept_when_all_its_fragments_are() {
    let mut alice = End::new(1);
    alice.send(&"x".repeat(2 * CAPACITY));
    alice.send("short");
    let mut kept = Vec::new();
    for exchange in 1..=4 {
        alice.write(false);
        // The second one is lost at first.
        if exchange == 2 {
            alice.conversation.handle_lost(exchange);
        } else {
            kept.push(alice.conversation.handle_kept(exchange));
        }
    }
    // With its header the first message has four fragments: 1, 2, 2 again, 3.
    assert!(kept.iter().all(Vec::is_empty));
    for exchange in 5..=6 {
        alice.write(false);
        kept.push(alice.conversation.handle_kept(exchange));
    }
    assert_eq!(kept[3..], [vec![1], vec![]]);
}

/// A partner that is away reads the kept rounds in order. It keeps only a few fragments that come
/// ahead of others.
#[test]
fn a_message_that_is_kept_can_be_read_from_what_is_kept() {
    let (mut alice, mut bob) = (End::new(1), End::new(2));
    alice.conversation.set_window(MAX_WINDOW);
    alice.send(&"x".repeat(40 * CAPACITY));
    // This round is not kept.
    alice.write(false);
    let is_kept = (0..1_000).any(|at| {
        let slot = alice.write_awaited(false, at % 2 == 0);
        bob.read(&slot, true);
        !alice.conversation.handle_kept(alice.exchange).is_empty()
    });
    assert!(is_kept);
    assert_eq!(bob.messages.len(), 1);
}

#[test]
fn messages_that_have_not_left_are_cancelled_and_later_ones_arrive() {
    let (mut alice, mut bob) = (End::new(1), End::new(2));
    for text in ["one", "two", "three"] {
        alice.send(text);
    }
    // The first one has left, and is lost on the way.
    alice.write(false);
    assert_eq!(alice.conversation.cancel(), (vec![2, 3], vec![1]));
    assert_eq!(alice.conversation.cancel(), (vec![], vec![1]));
    alice.send("four");
    settle(&mut alice, &mut bob);
    assert_eq!(bob.messages, ["one", "four"]);
    assert_eq!(alice.delivered, [1, 4]);
    assert_eq!(alice.conversation.cancel(), (vec![], vec![]));
    // After a restart it is not known what has left.
    alice.send("five");
    alice.restart();
    assert_eq!(alice.conversation.cancel(), (vec![], vec![5]));
    // Nothing has left of the only message, nor of one after a new stream.
    let mut carol = End::new(3);
    carol.send("six");
    carol.conversation.refragment(CAPACITY - 1);
    assert_eq!(carol.conversation.cancel(), (vec![1], vec![]));
    carol.conversation.refragment(CAPACITY);
    carol.send("seven");
    settle(&mut carol, &mut bob);
    assert_eq!(bob.messages.last().unwrap(), "seven");
}
