//! Two ends of a conversation, whose slots arrive or not.

use proptest::prelude::*;

use super::*;
use crate::content::capacity;

const SLOT_LEN: usize = 64;
const CAPACITY: usize = capacity(SLOT_LEN);

/// An end, what it has stored, and what it has learned.
struct End {
    conversation: Conversation,
    stored: Zeroizing<Vec<u8>>,
    exchange: u64,
    last_id: u64,
    messages: Vec<String>,
    delivered: Vec<u64>,
}

impl End {
    fn new(stream: u64) -> Self {
        let mut end = Self {
            conversation: Conversation::new(stream),
            stored: Zeroizing::default(),
            exchange: 0,
            last_id: 0,
            messages: Vec::new(),
            delivered: Vec::new(),
        };
        end.store();
        end
    }

    fn store(&mut self) {
        self.stored = Zeroizing::default();
        self.conversation.encode(&mut self.stored);
    }

    fn restart(&mut self) {
        let mut stored = Reader(&self.stored);
        self.conversation = Conversation::decode(&mut stored, CAPACITY).unwrap();
        assert!(stored.0.is_empty());
    }

    fn send(&mut self, text: &str) {
        self.last_id += 1;
        self.conversation.push(self.exchange, self.last_id, text, CAPACITY).unwrap();
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
        let content = Content::decode(slot).unwrap();
        let received = self.conversation.read(self.exchange, &content, CAPACITY);
        assert!(received.changed || received.messages.is_empty() && received.delivered.is_empty());
        // An end that stops before it has stored has shown nothing either.
        if store {
            self.store();
            self.messages.extend(received.messages);
            self.delivered.extend(received.delivered);
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
        let _ = Conversation::decode(&mut Reader(&bytes), CAPACITY);
    }

    #[test]
    fn any_content_of_a_partner_is_taken(
        slots in prop::collection::vec((0..4_u64, any::<u32>(), 0..4_u64, 0..40_u32), 0..50),
    ) {
        let mut end = End::new(2);
        end.send(&"text".repeat(20));
        for (stream, number, acknowledged_stream, acknowledged) in slots {
            let number = number % 40;
            let content = Content {
                stream, number, acknowledged_stream, acknowledged, last: true, text: b"text",
            };
            end.read(&content.encode(SLOT_LEN), true);
            end.write(acknowledged % 2 == 0);
        }
    }
}

/// Runs both ends until nothing is left to say.
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
fn an_end_that_has_lost_its_state_hears_and_is_heard() {
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
    // Also if its clock is wrong.
    let mut bob = End::new(5);
    bob.send("five");
    alice.send("six");
    settle(&mut alice, &mut bob);
    assert_eq!(alice.messages, ["two", "four", "five"]);
    assert_eq!(bob.messages, ["six"]);
}

#[test]
fn an_end_with_an_old_state_is_heard() {
    let (mut alice, mut bob) = (End::new(10), End::new(11));
    let old = alice.stored.clone();
    (0..5).for_each(|i| alice.send(&format!("old {i}")));
    settle(&mut alice, &mut bob);
    alice.stored = old;
    alice.restart();
    alice.send("new");
    settle(&mut alice, &mut bob);
    assert_eq!(bob.messages.last().unwrap(), "new");
}

#[test]
fn other_fragments_wait_for_a_lost_one_within_the_window() {
    let (mut alice, mut bob) = (End::new(1), End::new(2));
    alice.send(&"x".repeat(CAPACITY * 100));
    let lost = alice.write(false);
    for _ in 1..WINDOW {
        let slot = alice.write(false);
        bob.read(&slot, true);
    }
    assert!(!alice.conversation.has_new());
    assert_eq!(alice.write(false), lost);
    assert_eq!(bob.conversation.incoming.acknowledge().1, 0);
    bob.read(&lost, true);
    assert_eq!(bob.conversation.incoming.acknowledge().1, WINDOW);
}

#[test]
fn too_much_text_is_refused_and_from_a_partner_dropped() {
    let mut alice = End::new(1);
    let long = "x".repeat(crate::MAX_TEXT_LEN);
    alice.send(&long);
    assert_eq!(alice.conversation.push(0, 2, &long, CAPACITY), Err(Full));
    let mut bob = End::new(2);
    let text = [b'y'; CAPACITY];
    let end = u32::try_from(crate::MAX_TEXT_LEN / CAPACITY).unwrap() + 2;
    for number in 1..=end + 1 {
        let (stream, last) = (1, number >= end);
        let content =
            Content { stream, number, acknowledged_stream: 0, acknowledged: 0, last, text: &text };
        bob.read(&content.encode(SLOT_LEN), true);
    }
    assert_eq!(bob.messages, ["y".repeat(CAPACITY)]);
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
