//! Attackers consume resources of `sunder serve` from one and from many addresses, while honest
//! clients make requests. Without user namespaces, prints that the tests were skipped.
//!
//! Each attack has a small test. This command runs the full attacks and prints a table of their
//! costs:
//!
//! ```text
//! cargo test --release --package sunder-cli --test strangers -- --ignored --nocapture
//! ```
//!
//! `SUNDER_SERVE=PATH` selects another server program, such as an earlier version.

mod attack;
#[path = "../all/micss/processes.rs"]
mod processes;
mod trial;

use std::process::ExitCode;
use std::time::Duration;

use lab::sandbox;
use libtest_mimic::{Arguments, Trial as Test};

use crate::attack::{Attack, Sources};
use crate::trial::{Outcome, Trial};

/// Lists the tests with their names.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        vec![$(Test::test(stringify!($name), || { $name(); Ok(()) })),*]
    };
}

fn main() -> ExitCode {
    if let Err(end) = sandbox::enter_for_tests() {
        return end;
    }
    Sources::Ipv6(200).add_addresses(1);
    let mut tests = tests![
        waiting_connections_do_not_exclude_clients,
        a_48_bit_network_is_one_source,
        associations_without_a_request_do_not_exclude_streams,
        memory_for_withheld_shares_is_bounded,
        streams_of_one_source_leave_room_for_others,
        too_many_channels_are_rejected_at_no_cost,
        the_search_for_a_first_record_is_bounded,
    ];
    // It measures an idle machine.
    let measures = tests![table_of_all_attacks];
    tests.extend(measures.into_iter().map(|test| test.with_ignored_flag(true)));
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

/// A server with few streams, and more attackers than that.
fn small(attack: Attack, attackers: usize, sources: usize) -> Trial {
    let sources = Sources::Ipv4(sources);
    let settings = "max_streams = 64\nmax_waiting = 4096\nmax_channels = 16\nmax_memory_mib = 16";
    let time = Duration::from_millis(1500);
    Trial { attack, attackers, sources, settings, clients: 1, time }
}

fn assert_all_served(outcome: &Outcome) {
    let failures = outcome.failures();
    let all = outcome.requests.len();
    assert!(failures.is_empty(), "{} of {all} failed: {failures:?}", failures.len());
}

/// Checks that the status counts an event.
fn assert_counted(outcome: &Outcome, what: &str) {
    assert!(outcome.limits[what].as_u64() > Some(0), "{what}: {:?}", outcome.limits);
}

fn waiting_connections_do_not_exclude_clients() {
    for sources in [5, 1] {
        let settings = "max_waiting = 128";
        let outcome = Trial { settings, ..small(Attack::Wait, 200, sources) }.run();
        assert_all_served(&outcome);
        assert_counted(&outcome, "waiting_evicted");
    }
}

/// Each attacker is in its own /64, where it has fewer connections than a client.
fn a_48_bit_network_is_one_source() {
    let (sources, settings) = (Sources::Ipv6(200), "max_waiting = 128");
    for attack in [Attack::Wait, Attack::Associate { channels: 3 }] {
        let outcome = Trial { sources, settings, ..small(attack, 200, 0) }.run();
        assert_all_served(&outcome);
        assert_counted(&outcome, "waiting_evicted");
    }
}

fn associations_without_a_request_do_not_exclude_streams() {
    for sources in [1, 5] {
        let outcome = small(Attack::Associate { channels: 3 }, 100, sources).run();
        assert_all_served(&outcome);
    }
    let settings = "max_waiting = 128";
    let outcome = Trial { settings, ..small(Attack::Associate { channels: 3 }, 100, 1) }.run();
    assert_all_served(&outcome);
    assert_counted(&outcome, "unopened_evicted");
}

fn memory_for_withheld_shares_is_bounded() {
    for sources in [1, 5] {
        let outcome = small(Attack::Withhold { channels: 16 }, 60, sources).run();
        assert_all_served(&outcome);
        assert!(outcome.growth_mib < 32.0, "{outcome:?}");
        assert_counted(&outcome, "out_of_memory");
    }
}

fn streams_of_one_source_leave_room_for_others() {
    for sources in [1, 5] {
        let outcome = small(Attack::Withhold { channels: 3 }, 100, sources).run();
        assert_all_served(&outcome);
        assert_counted(&outcome, "streams_evicted");
    }
}

fn too_many_channels_are_rejected_at_no_cost() {
    let trial = Trial { settings: "", ..small(Attack::Withhold { channels: 16 }, 60, 1) };
    let outcome = trial.run();
    assert_all_served(&outcome);
    assert!(outcome.growth_mib < 16.0, "{outcome:?}");
    assert_counted(&outcome, "turned_away");
}

/// A search through 4,000 sets took 25 ms for each record.
fn the_search_for_a_first_record_is_bounded() {
    let mut costs = Vec::new();
    // A busy machine has slower processors at times.
    let is_bounded = (0..3).any(|_| {
        let outcome = small(Attack::Search, 20, 1).run();
        assert_all_served(&outcome);
        costs.push(outcome.processor_ms_each);
        outcome.processor_ms_each < 12.0
    });
    assert!(is_bounded, "three times: {costs:?} ms");
}

/// Prints the table.
fn table_of_all_attacks() {
    let time = Duration::from_secs(10);
    // Half of the default, because this process holds the other ends of all connections.
    let places = "max_streams = 2048\nmax_waiting = 4096";
    let sixteen = "max_streams = 2048\nmax_waiting = 4096\nmax_channels = 16\nmax_memory_mib = 128";
    let attacks = [
        ("nothing", Attack::None, 0, places),
        ("connect, say nothing", Attack::Wait, 5000, places),
        ("3 channels, no request", Attack::Associate { channels: 3 }, 2500, places),
        ("3 channels, a share withheld", Attack::Withhold { channels: 3 }, 2500, places),
        ("16 channels, a share withheld", Attack::Withhold { channels: 16 }, 250, places),
        ("the same, 16 allowed, 128 MiB", Attack::Withhold { channels: 16 }, 250, sixteen),
        ("16 channels, k = 8, costly", Attack::Search, 250, sixteen),
    ];
    println!(
        "attack                         sources  honest  p95 ms  attempts  cores  RSS MiB  peak"
    );
    for (name, attack, attackers, settings) in attacks {
        for sources in if attackers == 0 { &[0][..] } else { &[1, 5, 50][..] } {
            let sources = Sources::Ipv4(*sources);
            let trial = Trial { attack, attackers, sources, settings, clients: 4, time };
            let outcome = trial.run();
            let (all, failed) = (outcome.requests.len(), outcome.failures().len());
            println!(
                "{name:30} {:7} {:4}/{all} {:7.1} {:9} {:6.2} {:8.0} {:5.0}",
                sources.count(),
                all - failed,
                outcome.p95_ms(),
                outcome.tried,
                outcome.processor,
                outcome.rss_mib,
                outcome.peak_mib
            );
        }
    }
}
