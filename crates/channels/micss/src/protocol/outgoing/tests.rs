use super::*;

/// A sender that keeps its shares, over three channels of which two are needed.
fn sender() -> OutgoingRecords {
    let sharing = SharingParameters::shamir(2, 3).unwrap();
    let mut outgoing = OutgoingRecords::new(sharing, RandomGenerator::seeded().unwrap());
    outgoing.keep();
    outgoing
}

/// Takes all that a channel has to send.
fn take(outgoing: &mut OutgoingRecords, channel: usize) -> Vec<u8> {
    let mut taken = Vec::new();
    while !outgoing.unsent(channel).is_empty() {
        let piece = outgoing.unsent(channel).to_vec();
        outgoing.advance(channel, piece.len());
        taken.extend(piece);
    }
    taken
}

fn send(outgoing: &mut OutgoingRecords, len: usize) {
    outgoing.make_room(len);
    let len = outgoing.payload_mut().len().min(len);
    outgoing.payload_mut()[..len].fill(7);
    outgoing.seal_data(len).unwrap();
}

#[test]
fn retransmitted_shares_are_identical() {
    let mut outgoing = sender();
    outgoing.precede(b"in the clear".to_vec());
    let mut sent = vec![Vec::new(); 3];
    for len in [10, 3_000, 100_000, 5, 40_000, 20] {
        send(&mut outgoing, len);
        (0..3).for_each(|channel| sent[channel].extend(take(&mut outgoing, channel)));
    }
    assert!(sent[1].starts_with(b"in the clear"));
    let shares: Vec<&[u8]> = sent.iter().map(|sent| &sent[b"in the clear".len()..]).collect();
    for channel in 0..3 {
        for position in [0, 1, 46, shares[0].len() - 1, shares[0].len()] {
            assert!(outgoing.can_rejoin(position as u64));
            outgoing.rejoin(channel, position as u64);
            assert!(take(&mut outgoing, channel) == shares[channel][position..], "{position}");
        }
    }
    assert!(!outgoing.can_rejoin(shares[0].len() as u64 + 1), "it is not sent yet");
    assert!(!outgoing.can_rejoin(u64::MAX));
}

#[test]
fn shares_are_kept_until_they_are_acknowledged() {
    let mut outgoing = sender();
    for _ in 0..10 {
        send(&mut outgoing, 40_000);
        (0..3).for_each(|channel| _ = take(&mut outgoing, channel));
    }
    assert_eq!(outgoing.kept_from(), 0);
    let end = outgoing.end;
    assert!(!outgoing.handle_acknowledged(end + 1), "it was not sent");
    assert!(outgoing.handle_acknowledged(end / 2));
    assert!((1..=end / 2).contains(&outgoing.kept_from()));
    assert!(outgoing.handle_acknowledged(3), "an old one changes nothing");
    assert!(outgoing.handle_acknowledged(end));
    assert_eq!(outgoing.kept_from(), end);
    outgoing.shrink();
    assert!(outgoing.chunks.is_empty() && outgoing.spare.is_empty());
}

/// Bulk is kept as records: the shares of one channel's length, not of all. Those of the operating
/// system's source cannot be made again, and are kept themselves.
#[test]
fn records_are_kept_in_place_of_their_shares() {
    let generators = [RandomGenerator::seeded().unwrap(), RandomGenerator::system()];
    for (generator, most) in generators.into_iter().zip([1, 3]) {
        let mut outgoing =
            OutgoingRecords::new(SharingParameters::shamir(2, 3).unwrap(), generator);
        outgoing.keep();
        let mut sent = Vec::new();
        // Also several records in a chunk, before a channel has taken it.
        while outgoing.end < 40 * MAX_RECORD as u64 {
            for len in [40_000, 5_000, 1_000] {
                send(&mut outgoing, len);
                (0..2).for_each(|channel| _ = take(&mut outgoing, channel));
            }
            sent.extend(take(&mut outgoing, 2));
        }
        let kept = outgoing.held / MAX_RECORD;
        assert!(kept >= 40 * most && kept <= 40 * most + 9, "{kept}");
        for position in [MAX_RECORD + 7, 3] {
            outgoing.rejoin(2, position as u64);
            assert!(take(&mut outgoing, 2) == sent[position..]);
        }
        assert!(outgoing.held / MAX_RECORD <= kept + 6, "one after another");
    }
}

/// A peer that acknowledges nothing, and a channel that takes nothing.
#[test]
fn a_bounded_number_of_shares_is_kept() {
    let mut outgoing = sender();
    while outgoing.end < 3 * MAX_KEPT {
        send(&mut outgoing, 40_000);
        (0..2).for_each(|channel| _ = take(&mut outgoing, channel));
        assert!(outgoing.is_sent_on_enough() && !outgoing.is_sent_on_all());
        if outgoing.end > MAX_LAG {
            assert_eq!(outgoing.lagging_channel(), Some(2));
        }
    }
    let longest = MAX_KEPT + MAX_RECORD as u64;
    assert!(outgoing.end - outgoing.kept_from() <= longest);
    assert!(outgoing.unsent(2).is_empty(), "it is not kept");
    assert!(outgoing.lose(2) && outgoing.lagging_channel().is_none());
}

/// Without memory nothing is kept, and the stream goes on.
#[test]
fn without_memory_no_shares_are_kept() {
    let mut outgoing = sender();
    outgoing.limit_memory(MemoryLease::default(), MemoryLease::limited(|bytes| bytes <= 200_000));
    for _ in 0..20 {
        send(&mut outgoing, 40_000);
        (0..3).for_each(|channel| _ = take(&mut outgoing, channel));
    }
    assert!(outgoing.end - outgoing.kept_from() <= 3 * MAX_RECORD as u64);
}
