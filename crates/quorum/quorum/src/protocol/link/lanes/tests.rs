//! Two ends, with chunks that arrive immediately.

use proptest::prelude::*;

use super::*;

/// Two ends, with chunks that arrive immediately.
#[derive(Default)]
struct Pair {
    outgoing: OutgoingLanes,
    incoming: IncomingLanes,
}

impl Pair {
    /// Sends one chunk, if there is one.
    fn chunk(&mut self) -> Option<ReceivedChunk> {
        let mut chunk = Vec::new();
        self.outgoing.poll_chunk(&mut chunk)?;
        assert!(chunk.len() <= MAX_CHUNK_LEN);
        Some(self.incoming.handle_chunk(&chunk).unwrap())
    }

    fn consume(&mut self, received: &LaneMessage) {
        if let Some(credit) = self.incoming.consumed(received.lane, received.bytes.len()) {
            self.outgoing.take_credit(received.lane, credit).unwrap();
        }
    }
}

fn message(len: usize, fill: u8) -> Bytes {
    vec![fill; len].into()
}

proptest! {
    /// Messages sent in any order arrive once, complete, and in the order of their lane.
    #[test]
    fn messages_arrive_whole_and_in_order(
        steps in prop::collection::vec((0..5u8, prop_oneof![0..100usize, 0..100_000usize]), 1..60),
    ) {
        let mut pair = Pair::default();
        let (mut sent, mut got) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        let mut number = 0;
        let mut take = |pair: &mut Pair| match pair.chunk() {
            None => false,
            Some(ReceivedChunk::Message(received)) => {
                pair.consume(&received);
                got[received.lane as usize].push((received.topic, received.bytes));
                true
            }
            Some(_) => true,
        };
        for (step, len) in steps {
            match step {
                0 | 1 => {
                    let lane = LinkLane::ALL[usize::from(step)];
                    let topic = match lane {
                        LinkLane::Urgent => LinkTopic::ALL[len % 3],
                        LinkLane::Bulk => LinkTopic::Refresh,
                    };
                    number += 1;
                    let bytes = message(len, number);
                    pair.outgoing.push(topic, lane, bytes.clone()).unwrap();
                    sent[usize::from(step)].push((topic, bytes));
                }
                2 => pair.outgoing.ping(7),
                3 => pair.outgoing.give_credit(LinkLane::Bulk, 0),
                _ => _ = take(&mut pair),
            }
        }
        while take(&mut pair) {}
        prop_assert_eq!(&sent, &got);
        prop_assert!(LinkLane::ALL.iter().all(|&lane| pair.outgoing.queued(lane) == 0));
    }

    /// Any bytes are either a chunk or an error.
    #[test]
    fn no_chunk_panics(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..20),
    ) {
        let mut incoming = IncomingLanes::default();
        for chunk in chunks {
            let _ = incoming.handle_chunk(&chunk);
        }
    }
}

#[test]
fn only_refreshes_have_bulk_messages() {
    for topic in LinkTopic::ALL {
        let mut pair = Pair::default();
        pair.outgoing.push(topic, LinkLane::Bulk, message(5, 1)).unwrap();
        let mut chunk = Vec::new();
        pair.outgoing.poll_chunk(&mut chunk).unwrap();
        let is_taken = pair.incoming.handle_chunk(&chunk).is_ok();
        assert_eq!(is_taken, topic == LinkTopic::Refresh, "{topic:?}");
    }
}

#[test]
fn an_urgent_message_goes_before_the_rest_of_a_bulk_one() {
    let mut pair = Pair::default();
    pair.outgoing.push(LinkTopic::Refresh, LinkLane::Bulk, message(1 << 20, 1)).unwrap();
    assert_eq!(pair.chunk(), Some(ReceivedChunk::Part));
    pair.outgoing.push(LinkTopic::Log, LinkLane::Urgent, message(100, 2)).unwrap();
    let Some(ReceivedChunk::Message(first)) = pair.chunk() else { panic!("not the urgent one") };
    assert_eq!((first.topic, first.bytes.len()), (LinkTopic::Log, 100));
}

#[test]
fn unconsumed_messages_block_only_their_lane() {
    let mut pair = Pair::default();
    for _ in 0..2 {
        pair.outgoing
            .push(LinkTopic::Refresh, LinkLane::Bulk, message(MAX_MESSAGE_LEN, 1))
            .unwrap();
    }
    let mut got = Vec::new();
    while let Some(arrival) = pair.chunk() {
        got.extend(if let ReceivedChunk::Message(it) = arrival { Some(it) } else { None });
    }
    assert_eq!(got.len(), 1, "the second does not fit in the window");
    pair.outgoing.push(LinkTopic::Log, LinkLane::Urgent, message(10, 2)).unwrap();
    assert!(matches!(pair.chunk(), Some(ReceivedChunk::Message(_))));
    pair.consume(&got[0]);
    assert_eq!(pair.chunk(), Some(ReceivedChunk::Part));
}

/// A message of the largest length can always be sent, regardless of the credit held back.
#[test]
fn consumed_messages_never_block_the_largest() {
    for lane in LinkLane::ALL {
        let mut pair = Pair::default();
        let most_kept = lane.window() / 8 - 1;
        pair.outgoing.push(LinkTopic::Refresh, lane, message(most_kept - MESSAGE_COST, 1)).unwrap();
        pair.outgoing.push(LinkTopic::Refresh, lane, message(lane.max_len(), 1)).unwrap();
        let mut got = 0;
        while let Some(arrival) = pair.chunk() {
            if let ReceivedChunk::Message(received) = arrival {
                pair.consume(&received);
                got += 1;
            }
        }
        assert_eq!(got, 2);
    }
}

#[test]
fn peer_that_exceeds_the_window_or_credit_is_rejected() {
    let begin = |len: u32, data: usize| [&[5, 3][..], &len.to_be_bytes(), &vec![0; data]].concat();
    let mut incoming = IncomingLanes::default();
    let largest = u32::try_from(MAX_MESSAGE_LEN).unwrap();
    let longer = begin(largest + 1, MAX_CHUNK_DATA);
    let error = LinkLaneError::TooLong(MAX_MESSAGE_LEN + 1);
    assert_eq!(incoming.handle_chunk(&longer), Err(error));
    // Small messages that are never consumed.
    let small = begin(0, 0);
    let fits = LinkLane::Bulk.window() / MESSAGE_COST;
    for _ in 0..fits {
        assert!(matches!(incoming.handle_chunk(&small), Ok(ReceivedChunk::Message(_))));
    }
    assert_eq!(incoming.handle_chunk(&small), Err(LinkLaneError::Window));
    // Chunks that are needlessly short, or longer than their message.
    for data in [0, MAX_CHUNK_DATA - 1, MAX_CHUNK_DATA + 1] {
        let chunk = begin(100_000, data);
        assert_eq!(IncomingLanes::default().handle_chunk(&chunk), Err(LinkLaneError::Malformed(5)));
    }
    // A continuation without a beginning, and credit for bytes that were not sent.
    assert_eq!(IncomingLanes::default().handle_chunk(&[7, 0]), Err(LinkLaneError::Malformed(7)));
    assert_eq!(OutgoingLanes::default().take_credit(LinkLane::Bulk, 1), Err(LinkLaneError::Credit));
}

#[test]
fn outgoing_queue_is_bounded() {
    let mut outgoing = OutgoingLanes::default();
    let longer = message(MAX_URGENT_LEN + 1, 0);
    let refused = outgoing.push(LinkTopic::Log, LinkLane::Urgent, longer);
    assert_eq!(refused, Err(LinkSendError::TooLong(MAX_URGENT_LEN + 1)));
    let largest = message(MAX_URGENT_LEN, 0);
    for _ in 0..3 {
        outgoing.push(LinkTopic::Log, LinkLane::Urgent, largest.clone()).unwrap();
    }
    assert_eq!(outgoing.push(LinkTopic::Log, LinkLane::Urgent, largest), Err(LinkSendError::Full));
}
