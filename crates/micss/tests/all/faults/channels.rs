//! One channel of a stream is cut or changed, in the handshake and after it.

use tokio::task::JoinSet;

use super::meddler::{Direction, Fault, Plan};
use super::scene::{LEN, Outcome, play, play_with};
use crate::pattern::pattern;

/// The length of a cookie message.
const COOKIE: usize = 24;

/// The length of an `Opened` record.
const OPENED: usize = 36;

/// The length of an `Open` record for an IPv4 address.
const OPEN: usize = OPENED + 7;

/// Bytes of each direction that are worth meddling with: all that are not lengths, since more
/// bytes than come would be waited for.
fn places(direction: Direction, n: usize) -> Vec<usize> {
    let list = 16 + 16 * n;
    let (handshake, opening, data) = match direction {
        Direction::Up => (vec![0, 5, 8, 12, 30, list - 1], list, list + OPEN),
        Direction::Down => {
            let confirmed = COOKIE + list;
            (vec![0, 5, 20, COOKIE, COOKIE + 20, confirmed - 1], confirmed, confirmed + OPENED)
        }
    };
    // A point, a tag, a kind and, too long at once, a length.
    let opening = [0, 20, 32, 33].map(|place| opening + place);
    let data = [0, 16, 32, 40, 1000, LEN / 2, LEN - 1].map(|place| data + place);
    [&handshake[..], &opening, &data].concat()
}

/// Whoever is cut off or lied to must not take it for an end, and nobody gets wrong bytes.
fn check(outcome: &Outcome, plan: Plan, what: &str) {
    let expected = pattern(LEN);
    let victim_ended_well = match plan.direction {
        Direction::Up => outcome.service.iter().any(Result::is_ok),
        Direction::Down => outcome.application.is_ok(),
    };
    assert!(!victim_ended_well, "{what}: taken for an end");
    if let Ok(got) = &outcome.application {
        assert!(*got == expected, "{what}: the application got something else");
    }
    for got in outcome.service.iter().flatten() {
        assert!(*got == expected, "{what}: the service got something else");
    }
}

async fn everywhere(n: usize, integrity: &str, fault: Fault) {
    for channel in 0..n {
        for direction in [Direction::Up, Direction::Down] {
            for at in places(direction, n) {
                let plan = Plan { direction, at, fault };
                let what = format!("{n} channels, {integrity}, channel {channel}, {plan:?}");
                check(&play(n, integrity, channel, plan).await, plan, &what);
            }
        }
    }
}

#[tokio::test]
async fn a_channel_that_ends_early() {
    everywhere(2, "tamper-code", Fault::End).await;
    everywhere(3, "tamper-code", Fault::End).await;
}

#[tokio::test]
async fn a_channel_that_is_reset() {
    everywhere(3, "tamper-code", Fault::Reset).await;
}

#[tokio::test]
async fn a_channel_that_changes_a_bit() {
    everywhere(2, "tamper-code", Fault::Flip).await;
    everywhere(3, "tamper-code", Fault::Flip).await;
}

#[tokio::test]
async fn without_the_code_a_cut_channel_is_still_noticed() {
    everywhere(3, "none", Fault::End).await;
    everywhere(3, "none", Fault::Reset).await;
}

/// Where two of three channels are enough, nobody notices.
async fn unnoticed(fault: Fault, places: impl Fn(Direction) -> Vec<usize>) {
    for channel in 0..3 {
        for direction in [Direction::Up, Direction::Down] {
            for at in places(direction) {
                unnoticed_on(channel, Plan { direction, at, fault }).await;
            }
        }
    }
}

async fn unnoticed_on(channel: usize, plan: Plan) {
    let what = format!("channel {channel}, {plan:?}");
    let outcome = play_with("threshold = 2\n", 3, "tamper-code", channel, plan).await;
    let expected = pattern(LEN);
    assert!(outcome.application.expect(&what) == expected, "{what}");
    // An attempt that was given up is a connection that broke.
    let service: Vec<_> = outcome.service.iter().flatten().collect();
    assert!(service == [&expected], "{what}");
}

#[tokio::test]
async fn a_channel_that_ends_early_and_is_not_needed() {
    unnoticed(Fault::End, |direction| places(direction, 3)).await;
}

#[tokio::test]
async fn a_channel_that_is_reset_and_is_not_needed() {
    unnoticed(Fault::Reset, |direction| places(direction, 3)).await;
}

#[tokio::test]
async fn a_channel_that_lies_and_is_not_needed() {
    unnoticed(Fault::Flip, |direction| places(direction, 3)).await;
}

/// Nothing comes on it any more, nor does an end: in the handshake, and in the stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_that_is_stuck_and_is_not_needed() {
    let cases = [60, 100_000]
        .into_iter()
        .flat_map(|at| [Direction::Up, Direction::Down].map(|direction| (direction, at)));
    let mut plays = JoinSet::new();
    for (direction, at) in cases {
        plays.spawn(async move {
            unnoticed_on(1, Plan { direction, at, fault: Fault::Silence }).await;
        });
    }
    plays.join_all().await;
}

/// What `integrity = "none"` gives up. Not a wish, but whoever reads the documentation should be
/// able to see that it is so.
#[tokio::test]
async fn without_the_code_a_changed_bit_goes_unnoticed() {
    let at = 16 + 16 * 2 + OPEN + 1000;
    let plan = Plan { direction: Direction::Up, at, fault: Fault::Flip };
    let outcome = play(2, "none", 0, plan).await;
    let mut expected = pattern(LEN);
    expected[1000] ^= 1;
    assert!(matches!(&outcome.service[..], [Ok(got)] if *got == expected));
    assert!(outcome.application.is_ok());
}
