//! Failing paths and peers: the right error, in bounded time.

use std::time::Duration;

use super::super::{BurstWaitReason, Error};
use super::pair::{Pair, Path};

fn path() -> Path {
    Path { rate_bps: Some(50_000_000), ..Path::perfect(Duration::from_millis(20)) }
}

/// The error of an end, and when it came.
fn failure(pair: &mut Pair, end: usize) -> (Error, Duration) {
    loop {
        pair.transmit();
        if let Some(error) = pair.error(end) {
            return (error, pair.now());
        }
        pair.step(0);
    }
}

#[test]
fn a_listener_that_is_not_there_is_named() {
    let mut pair = Pair::connect(1, path(), true);
    pair.cut();
    let (error, at) = failure(&mut pair, 0);
    assert_eq!((error, at), (Error::NoAnswer, Duration::from_secs(60)));
}

#[test]
fn a_path_that_dies_is_noticed_by_both_ends() {
    for end in 0..2 {
        let mut pair = Pair::connect(1, path(), true);
        pair.write_much();
        pair.run_until(Duration::from_secs(1));
        pair.cut();
        let (error, at) = failure(&mut pair, end);
        let Error::Silent { waiting, .. } = error else { panic!("{error}") };
        match (end, waiting) {
            (0, BurstWaitReason::Acknowledgements(bytes)) => assert!(bytes > 1_000_000),
            (1, BurstWaitReason::Data) => {}
            _ => panic!("{waiting:?}"),
        }
        assert!(at > Duration::from_secs(60) && at < Duration::from_secs(62), "{at:?}");
    }
}

#[test]
fn a_peer_that_does_not_read_is_distinguished_from_one_that_is_gone() {
    let mut pair = Pair::connect(1, path(), true);
    while pair.now() < Duration::from_secs(20) {
        pair.write_much();
        pair.transmit();
        pair.step(0);
    }
    let (error, at) = failure(&mut pair, 0);
    assert!(matches!(error, Error::NotReading { unsent: 1.., .. }), "{error}");
    // First the data that fits into the receive buffer arrives.
    assert!(at > Duration::from_secs(300) && at < Duration::from_secs(330), "{at:?}");
    // The peer is notified.
    let (error, later) = failure(&mut pair, 1);
    assert_eq!((error, later < at + Duration::from_secs(1)), (Error::Closed, true));
}

/// One packet in twenty is late by a tenth of the round trip; few are retransmitted.
#[test]
fn reordering_is_not_taken_for_loss() {
    let mut pair = Pair::connect(1, path(), true);
    pair.reorder(50_000, Duration::from_millis(4));
    let took = pair.exchange(1, [5_000_000, 0]);
    let statistics = pair.statistics()[0];
    assert!(took < Duration::from_millis(1300), "{took:?}");
    assert!(statistics.packets_repeated < statistics.packets_sent / 20, "{statistics:?}");
}
