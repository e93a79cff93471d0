//! One channel of a stream is cut or changed, in the handshake and after it.

use tokio::task::JoinSet;

use super::exchange::{LEN, Outcome, run, run_with_settings};
use super::fault_relay::{Direction, Fault, Plan};
use crate::pattern::pattern;

/// The length of a cookie message.
const COOKIE: usize = 24;

/// The length of an `Opened` record.
const OPENED: usize = 36;

/// The length of an `Open` record for an IPv4 address.
const OPEN: usize = OPENED + 7;

/// The bytes to change in each direction: all except lengths, because the receiver would wait for
/// more bytes than are sent.
fn places(direction: Direction, n: usize) -> Vec<usize> {
    let list = 16 + 16 * n;
    let (handshake, opening, data) = match direction {
        Direction::Up => (vec![0, 5, 8, 12, 30, list - 1], list, list + OPEN),
        Direction::Down => {
            let confirmed = COOKIE + list;
            (vec![0, 5, 20, COOKIE, COOKIE + 20, confirmed - 1], confirmed, confirmed + OPENED)
        }
    };
    // A point, a tag, a kind and a length that is too large.
    let opening = [0, 20, 32, 33].map(|place| opening + place);
    let data = [0, 16, 32, 40, 1000, LEN / 2, LEN - 1].map(|place| data + place);
    [&handshake[..], &opening, &data].concat()
}

/// An end that is cut off or gets changed bytes must report an error, and never wrong bytes.
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
                check(&run(n, integrity, channel, plan).await, plan, &what);
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
async fn without_the_code_a_cut_channel_is_still_detected() {
    everywhere(3, "none", Fault::End).await;
    everywhere(3, "none", Fault::Reset).await;
}

/// With two of three channels needed, the fault has no effect on the stream.
async fn without_effect(fault: Fault, places: impl Fn(Direction) -> Vec<usize>) {
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
    let outcome = run_with_settings("threshold = 2\n", 3, "tamper-code", channel, plan).await;
    let expected = pattern(LEN);
    assert!(outcome.application.expect(&what) == expected, "{what}");
    // An attempt that was given up is a broken connection.
    let service: Vec<_> = outcome.service.iter().flatten().collect();
    assert!(service == [&expected], "{what}");
}

#[tokio::test]
async fn a_channel_that_ends_early_and_is_not_needed() {
    without_effect(Fault::End, |direction| places(direction, 3)).await;
}

#[tokio::test]
async fn a_channel_that_is_reset_and_is_not_needed() {
    without_effect(Fault::Reset, |direction| places(direction, 3)).await;
}

#[tokio::test]
async fn a_channel_that_changes_bytes_and_is_not_needed() {
    without_effect(Fault::Flip, |direction| places(direction, 3)).await;
}

/// The channel becomes silent without an end: in the handshake, and in the stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_that_is_silent_and_is_not_needed() {
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

/// What `integrity = "none"` gives up. This documents the behaviour; it is not a requirement.
#[tokio::test]
async fn without_the_code_a_changed_bit_is_not_detected() {
    let at = 16 + 16 * 2 + OPEN + 1000;
    let plan = Plan { direction: Direction::Up, at, fault: Fault::Flip };
    let outcome = run(2, "none", 0, plan).await;
    let mut expected = pattern(LEN);
    expected[1000] ^= 1;
    assert!(matches!(&outcome.service[..], [Ok(got)] if *got == expected));
    assert!(outcome.application.is_ok());
}
