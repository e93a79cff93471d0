//! How soon a fault on a channel is detected: the table in `docs/protocols/micss.md`, which
//! `cargo test -p sunder-micss --test all notice -- --nocapture` prints.

use std::time::Duration;

use tokio::task::JoinSet;

use super::exchange::run_with_settings;
use super::fault_relay::{Direction, Fault, Plan};

/// In the handshake, in the middle of a list; and in the stream.
const PLACES: [(&str, usize); 2] = [("handshake", 60), ("transfer", 50_000)];

/// Causes a fault on the middle one of three channels. Returns the time from the fault until the
/// stream was over at both ends. The stream must be complete if two channels are needed, and
/// incomplete at its receiver if all are needed.
async fn detection_time(threshold: u8, direction: Direction, at: usize, fault: Fault) -> Duration {
    let plan = Plan { direction, at, fault };
    let settings = format!("threshold = {threshold}\n");
    let outcome = run_with_settings(&settings, 3, "tamper-code", 1, plan).await;
    let is_whole = match direction {
        Direction::Up => outcome.service.iter().any(Result::is_ok),
        Direction::Down => outcome.application.is_ok(),
    };
    assert_eq!(is_whole, threshold < 3, "{threshold} of 3, {plan:?}");
    outcome.took.expect("the fault was reached")
}

/// The shortest of up to three times until a stream with this fault was over, until one is shorter
/// than a limit, because a busy machine may delay some.
async fn shortest_time(
    limit: Duration,
    threshold: u8,
    direction: Direction,
    at: usize,
    fault: Fault,
) -> Duration {
    let mut shortest = Duration::MAX;
    for _ in 0..3 {
        shortest = shortest.min(detection_time(threshold, direction, at, fault).await);
        if shortest < limit {
            break;
        }
    }
    shortest
}

/// Faults other than silence are detected as soon as they arrive.
#[tokio::test]
async fn ends_resets_and_changes_are_detected_at_once() {
    // Less than the time that an abort may take on a channel that does not accept it.
    let limit = Duration::from_millis(900);
    for (name, fault) in [("cut", Fault::End), ("reset", Fault::Reset), ("changed", Fault::Flip)] {
        for (place, at) in PLACES {
            for threshold in [3, 2] {
                let up = shortest_time(limit, threshold, Direction::Up, at, fault).await;
                let down = shortest_time(limit, threshold, Direction::Down, at, fault).await;
                let took = up.max(down);
                println!("{name}, in the {place}, {threshold} of 3: {took:.1?}");
                assert!(took < limit, "{name}, {place}, {threshold}, three times: {took:?}");
            }
        }
    }
}

/// If all channels are needed, `timers` tests the long timeouts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_is_detected_by_a_timer() {
    let limit = Duration::from_secs(25);
    let mut plays = JoinSet::new();
    for (place, at) in PLACES {
        for direction in [Direction::Up, Direction::Down] {
            plays.spawn(async move {
                let took = shortest_time(limit, 2, direction, at, Fault::Silence).await;
                (place, direction, took)
            });
        }
    }
    for (place, direction, took) in plays.join_all().await {
        println!("silent, in the {place} {direction:?}, 2 of 3: {took:.1?}");
        assert!(took < limit, "{place}, {direction:?}, three times: {took:?}");
    }
}
