use super::*;
use crate::log::tests::{secret, set};
use crate::protocol::cometbft::block::validator_keys;

const NOW: Duration = Duration::ZERO;

/// A check that admits everything. After an entry that begins with `to`, the servers are `new`.
fn check(old: &ServerSet, new: &ServerSet) -> EntryCheck {
    let (old, new) = (old.clone(), new.clone());
    EntryCheck::anything().with_next_set(move |entries| {
        let changes = entries.iter().any(|entry| entry.starts_with(b"to"));
        if changes { new.clone() } else { old.clone() }
    })
}

/// A server whose service has applied a height of a chain that begins with servers 1 to 4.
fn application(number: u8, applied: u64) -> CometbftApplication {
    CometbftApplication::new(&secret(number).public(), set(1..=4), Height(applied), [number; 16])
}

/// The service applies everything that it can get. Returns the heights, and the entries.
fn apply(application: &mut CometbftApplication, old: &ServerSet, new: &ServerSet) -> Vec<String> {
    let mut applied = Vec::new();
    while let Some(committed) = application.poll_committed() {
        let entries: Vec<_> =
            committed.entries.iter().map(|it| String::from_utf8_lossy(it)).collect();
        applied.push(format!("{} {}", committed.height, entries.join(" ")).trim_end().to_owned());
        let has_changed = entries.iter().any(|entry| entry.starts_with("to"));
        let now = if has_changed || application.chain().set == *new { new } else { old };
        application.applied(committed.height, now, check(now, new), NOW).unwrap();
    }
    applied
}

/// Decides a block, and saves it.
fn decide(
    application: &mut CometbftApplication,
    height: u64,
    transactions: &[Bytes],
) -> Vec<ValidatorUpdate> {
    let updates = application.decide(Height(height), transactions, NOW).unwrap();
    application.saved().unwrap();
    updates
}

/// A server at the beginning of its chain.
fn began(number: u8) -> CometbftApplication {
    let mut began = application(number, 0);
    began.applied(Height(0), &set(1..=4), check(&set(1..=4), &set(2..=5)), NOW).unwrap();
    began
}

fn entry(text: &str) -> Bytes {
    Bytes::from(text.to_owned())
}

#[test]
fn blocks_are_those_that_a_correct_server_proposes() {
    let (old, new) = (set(1..=4), set(2..=5));
    let [mut first, mut second] = [1, 2].map(began);
    // The first block is empty.
    first.submit(entry("a"), NOW).unwrap();
    assert!(first.prepare(Height(1)).is_empty() && second.accepts(Height(1), &[]));
    assert!(!second.accepts(
        Height(1),
        &BlockContent { entries: vec![entry("a")], next: None }.to_transactions()
    ));
    for server in [&mut first, &mut second] {
        decide(server, 1, &[]);
        // Without the state of the height before, nothing is proposed or checked.
        assert!(!server.is_prepared(Height(2)));
        assert_eq!(apply(server, &old, &new), ["1"]);
    }
    // All others have entries, also of servers that the receiver does not know yet.
    let block = first.prepare(Height(2));
    assert_eq!(block.len(), 1);
    assert!(second.accepts(Height(2), &block) && !second.accepts(Height(2), &[]));
    assert!(second.prepare(Height(2)).is_empty());
    assert!(!second.accepts(Height(3), &block), "another height");
    let twice = [block.clone(), block.clone()].concat();
    assert!(!second.accepts(Height(2), &twice), "one slot twice");
    let changed = BlockContent { entries: vec![entry("b")], next: Some(new) }.to_transactions();
    assert!(!second.accepts(Height(2), &changed), "servers that do not change");
    let unnamed = BlockContent { entries: vec![entry("to 5")], next: None }.to_transactions();
    assert!(!second.accepts(Height(2), &unnamed), "servers that change");
}

#[test]
fn a_block_that_changes_the_servers_is_applied_with_the_next_one() {
    let (old, new) = (set(1..=4), set(2..=5));
    let mut server = began(1);
    decide(&mut server, 1, &[]);
    apply(&mut server, &old, &new);
    server.submit(entry("to 5"), NOW).unwrap();
    let block = server.prepare(Height(2));
    assert_eq!(block.len(), 2, "the entry, and the next servers");
    assert!(server.accepts(Height(2), &block));
    let before = server.chain().hash;
    let updates = decide(&mut server, 2, &block);
    let powers: Vec<i64> = updates.iter().map(|update| update.power).collect();
    assert_eq!(powers, [0, 1], "1 leaves, 5 joins");
    assert_ne!(server.chain().hash, before, "so CometBFT makes the next block");
    // The voting keys of the old servers are needed for one more block, which is empty.
    assert!(apply(&mut server, &old, &new).is_empty() && server.is_settled());
    server.submit(entry("more"), NOW).unwrap();
    assert!(server.prepare(Height(3)).is_empty() && server.accepts(Height(3), &[]));
    assert_eq!(server.wake(NOW), None);
    decide(&mut server, 3, &[]);
    assert!(!server.is_settled(), "the signer waits for the keys of the next servers");
    assert_eq!(apply(&mut server, &old, &new), ["2 to 5", "3"]);
    assert!(server.is_settled() && server.wake(NOW).is_some());
}

/// CometBFT decides blocks again after a start. No entry is applied twice, and none is lost.
#[test]
fn blocks_that_are_decided_again_are_applied_once() {
    let (old, new) = (set(1..=4), set(2..=5));
    let mut server = began(1);
    let blocks = [vec![], vec![entry("\u{1}a")], vec![entry("\u{1}b")]];
    for (height, block) in (1..).zip(&blocks) {
        decide(&mut server, height, block);
    }
    assert_eq!(apply(&mut server, &old, &new), ["1", "2 a", "3 b"]);
    // CometBFT is killed, with one block decided that was not saved.
    server.decide(Height(4), &[entry("\u{1}c")], NOW).unwrap();
    let height = server.resume_height(Height(3));
    assert_eq!(height, Height(3));
    let point = ChainPoint { height, ..server.first().clone() };
    server.resume(point.clone());
    decide(&mut server, 4, &[entry("\u{1}c")]);
    assert_eq!(apply(&mut server, &old, &new), ["4 c"]);
    // Blocks that CometBFT has lost come again, and are not applied again.
    server.resume(server.first().clone());
    for (height, block) in (1..).zip(&blocks) {
        decide(&mut server, height, block);
    }
    assert!(apply(&mut server, &old, &new).is_empty());
    // The server is killed after it had applied height 2.
    let mut server = application(1, 2);
    assert_eq!(server.resume_height(Height(3)), Height(2));
    server.resume(ChainPoint { height: Height(2), ..point });
    server.applied(Height(2), &old, check(&old, &new), NOW).unwrap();
    decide(&mut server, 3, &blocks[2]);
    assert_eq!(apply(&mut server, &old, &new), ["3 b"]);
}

/// A server that joins has a height from its group, and follows the chain up to it.
#[test]
fn a_chain_of_other_servers_is_detected_when_it_is_followed() {
    let (old, new) = (set(1..=4), set(2..=5));
    let follow = |applied: &ServerSet, second: Vec<Bytes>| {
        let mut server = application(5, 3);
        server.applied(Height(3), applied, check(applied, &new), NOW).unwrap();
        server.resume(server.first().clone());
        decide(&mut server, 1, &[]);
        decide(&mut server, 2, &second);
        server.decide(Height(3), &[], NOW).unwrap();
        let followed = server.saved();
        (followed, server)
    };
    let change = || BlockContent { entries: vec![entry("to 5")], next: Some(new.clone()) };
    let (followed, mut server) = follow(&new, change().to_transactions());
    assert_eq!(followed, Ok(()));
    assert!(apply(&mut server, &new, &new).is_empty());
    decide(&mut server, 4, &[entry("\u{1}a")]);
    assert_eq!(apply(&mut server, &new, &new), ["4 a"]);
    assert_eq!(validator_keys(&server.chain().set), validator_keys(&new));
    let (followed, _) = follow(&old, change().to_transactions());
    assert_eq!(followed, Err(ChainError::OtherServers(Height(3))));
    let (followed, _) = follow(&new, vec![entry("\u{1}a")]);
    assert_eq!(followed, Err(ChainError::OtherServers(Height(3))));
    // The service and the chain differ later.
    let mut server = began(1);
    decide(&mut server, 1, &[]);
    server.poll_committed().unwrap();
    let differs = server.applied(Height(1), &new, check(&new, &new), NOW);
    assert_eq!(differs, Err(ChainError::OtherServers(Height(1))));
}

#[test]
fn what_no_correct_server_accepts_ends_the_log() {
    let mut server = began(1);
    let order = server.decide(Height(2), &[], NOW);
    assert_eq!(order, Err(ChainError::Order(Height(2), Height(1))));
    let malformed = server.decide(Height(1), &[entry("\u{7}")], NOW);
    assert!(matches!(malformed, Err(ChainError::Block(Height(1), _))));
}

/// CometBFT's pool has at most one transaction, of this server itself.
#[test]
fn only_the_own_transaction_wakes_cometbft() {
    let (old, new) = (set(1..=4), set(2..=5));
    let [mut server, mut other] = [1, 2].map(began);
    for server in [&mut server, &mut other] {
        decide(server, 1, &[]);
        apply(server, &old, &new);
        assert_eq!(server.wake(NOW), None, "nothing waits");
        server.submit(entry("a"), NOW).unwrap();
    }
    let wake = server.wake(NOW).unwrap();
    assert_eq!(server.wake(NOW), None);
    assert!(!server.keeps(&other.wake(NOW).unwrap(), true) && !server.keeps(b"", true));
    assert!(server.keeps(&wake, true));
    assert!(!server.keeps(&wake, false), "after a block it is dropped");
    assert_eq!(server.wake(WAKE_AGAIN), None, "it was taken");
    // Without an answer it is sent again, with another number: CometBFT remembers the first.
    let first = other.wake(WAKE_AGAIN).unwrap();
    assert!(!other.keeps(&wake, true) && other.keeps(&first, true));
    // The entry is committed, and there is nothing to do.
    decide(&mut server, 2, &[entry("\u{1}a")]);
    apply(&mut server, &old, &new);
    assert!(!server.keeps(&wake, true));
    assert_eq!((server.wake(WAKE_AGAIN), server.waiting()), (None, 0));
}

#[test]
fn a_service_that_is_behind_stops_the_chain() {
    let mut server = began(1);
    let mut height = 0;
    while !server.is_full() {
        height += 1;
        let block = if height == 1 { vec![] } else { vec![entry(&format!("\u{1}{height}"))] };
        decide(&mut server, height, &block);
    }
    assert_eq!(height, MAX_READY as u64);
    apply(&mut server, &set(1..=4), &set(2..=5));
    assert!(!server.is_full());
}

#[test]
fn own_entries_are_sent_again_until_they_are_committed() {
    let (mut server, second) = (began(1), Duration::from_secs);
    decide(&mut server, 1, &[]);
    apply(&mut server, &set(1..=4), &set(2..=5));
    assert_eq!(server.submit(entry("a"), NOW), Ok(true));
    assert_eq!(server.submit(entry("a"), NOW), Ok(false));
    assert!(server.resend(Duration::from_millis(999)).is_empty());
    assert_eq!(server.resend(second(1)), [entry("a")]);
    assert!(server.resend(second(2)).is_empty());
    assert_eq!(server.resend(second(3)), [entry("a")]);
    decide(&mut server, 2, &[entry("\u{1}a")]);
    assert!(server.resend(second(99)).is_empty() && server.own_entries().is_empty());
}
