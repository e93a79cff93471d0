//! How soon a fault on a channel is noticed: the table in `docs/protocols/micss.md`, which
//! `cargo test -p sunder-micss --test all notice -- --nocapture` prints.

use std::time::Duration;

use tokio::task::JoinSet;

use super::meddler::{Direction, Fault, Plan};
use super::scene::play_with;

/// In the handshake, in the middle of a list; and in the stream.
const PLACES: [(&str, usize); 2] = [("handshake", 60), ("transfer", 50_000)];

/// On the middle one of three channels. Returns how long after the fault the stream was over at both ends,
/// whole if two channels are enough, and not for the one who was to receive it if all are needed.
async fn noticed(threshold: u8, direction: Direction, at: usize, fault: Fault) -> Duration {
    let plan = Plan { direction, at, fault };
    let settings = format!("threshold = {threshold}\n");
    let outcome = play_with(&settings, 3, "tamper-code", 1, plan).await;
    let is_whole = match direction {
        Direction::Up => outcome.service.iter().any(Result::is_ok),
        Direction::Down => outcome.application.is_ok(),
    };
    assert_eq!(is_whole, threshold < 3, "{threshold} of 3, {plan:?}");
    outcome.took.expect("the fault was reached")
}

/// Those that leave a trace are noticed as soon as it arrives.
#[tokio::test]
async fn ends_resets_and_changes_are_noticed_at_once() {
    for (name, fault) in [("cut", Fault::End), ("reset", Fault::Reset), ("changed", Fault::Flip)] {
        for (place, at) in PLACES {
            for threshold in [3, 2] {
                let up = noticed(threshold, Direction::Up, at, fault).await;
                let took = up.max(noticed(threshold, Direction::Down, at, fault).await);
                println!("{name}, in the {place}, {threshold} of 3: {took:.1?}");
                assert!(took < Duration::from_secs(5), "{name}, {place}, {threshold}: {took:?}");
            }
        }
    }
}

/// Where all channels are needed, `timers` has the times, which are long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_is_noticed_by_a_timer() {
    let mut plays = JoinSet::new();
    for (place, at) in PLACES {
        for direction in [Direction::Up, Direction::Down] {
            plays.spawn(async move {
                (place, direction, noticed(2, direction, at, Fault::Silence).await)
            });
        }
    }
    for (place, direction, took) in plays.join_all().await {
        println!("silent, in the {place} {direction:?}, 2 of 3: {took:.1?}");
        assert!(took < Duration::from_secs(25), "{place}, {direction:?}: {took:?}");
    }
}
