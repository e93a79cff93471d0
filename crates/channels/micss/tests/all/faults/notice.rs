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

/// Faults other than silence are detected as soon as they arrive.
#[tokio::test]
async fn ends_resets_and_changes_are_detected_at_once() {
    for (name, fault) in [("cut", Fault::End), ("reset", Fault::Reset), ("changed", Fault::Flip)] {
        for (place, at) in PLACES {
            for threshold in [3, 2] {
                let up = detection_time(threshold, Direction::Up, at, fault).await;
                let took = up.max(detection_time(threshold, Direction::Down, at, fault).await);
                println!("{name}, in the {place}, {threshold} of 3: {took:.1?}");
                // Less than the time that an abort may take on a channel that does not accept it.
                assert!(
                    took < Duration::from_millis(900),
                    "{name}, {place}, {threshold}: {took:?}"
                );
            }
        }
    }
}

/// If all channels are needed, `timers` tests the long timeouts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_is_detected_by_a_timer() {
    let mut plays = JoinSet::new();
    for (place, at) in PLACES {
        for direction in [Direction::Up, Direction::Down] {
            plays.spawn(async move {
                (place, direction, detection_time(2, direction, at, Fault::Silence).await)
            });
        }
    }
    for (place, direction, took) in plays.join_all().await {
        println!("silent, in the {place} {direction:?}, 2 of 3: {took:.1?}");
        assert!(took < Duration::from_secs(25), "{place}, {direction:?}: {took:?}");
    }
}
