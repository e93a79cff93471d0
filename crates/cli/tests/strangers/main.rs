//! Strangers attack `sunder serve` from one address and from many, while honest clients make
//! requests. Needs user namespaces, and says so where there are none.
//!
//! A small form of each attack is a test. The whole of it, with a table of what it costs, is
//!
//! ```text
//! cargo test --release --package sunder-cli --test strangers -- --ignored --nocapture
//! ```
//!
//! With `SUNDER_SERVE=PATH` the server is another `sunder`, as one of before.

mod attack;
#[path = "../all/micss/processes.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod processes;
mod trial;

use std::process::ExitCode;
use std::time::Duration;

use lab::sandbox;
use libtest_mimic::{Arguments, Trial as Test};

use crate::attack::{Attack, Sources};
use crate::trial::{Outcome, Trial};

/// Tests by their names.
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
        connections_that_wait_take_nobodys_place,
        a_network_of_48_bits_is_one_source,
        associations_without_a_request_take_no_place_of_a_stream,
        withheld_shares_take_no_more_memory_than_there_may_be,
        open_streams_of_one_source_leave_places_for_others,
        more_channels_than_are_allowed_cost_nothing,
        a_first_record_that_no_channels_make_costs_little,
    ];
    // It measures a quiet machine.
    let measures = tests![table_of_all_attacks];
    tests.extend(measures.into_iter().map(|test| test.with_ignored_flag(true)));
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

/// A server with few places for streams, and more attackers than that.
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

/// That the status says that something has happened.
fn assert_counted(outcome: &Outcome, what: &str) {
    assert!(outcome.limits[what].as_u64() > Some(0), "{what}: {:?}", outcome.limits);
}

fn connections_that_wait_take_nobodys_place() {
    for sources in [5, 1] {
        let settings = "max_waiting = 128";
        let outcome = Trial { settings, ..small(Attack::Wait, 200, sources) }.run();
        assert_all_served(&outcome);
        assert_counted(&outcome, "waiting_evicted");
    }
}

/// Each attacker is in a /64 of its own, where it has fewer connections than a client.
fn a_network_of_48_bits_is_one_source() {
    let (sources, settings) = (Sources::Ipv6(200), "max_waiting = 128");
    for attack in [Attack::Wait, Attack::Associate { channels: 3 }] {
        let outcome = Trial { sources, settings, ..small(attack, 200, 0) }.run();
        assert_all_served(&outcome);
        assert_counted(&outcome, "waiting_evicted");
    }
}

fn associations_without_a_request_take_no_place_of_a_stream() {
    for sources in [1, 5] {
        let outcome = small(Attack::Associate { channels: 3 }, 100, sources).run();
        assert_all_served(&outcome);
    }
    let settings = "max_waiting = 128";
    let outcome = Trial { settings, ..small(Attack::Associate { channels: 3 }, 100, 1) }.run();
    assert_all_served(&outcome);
    assert_counted(&outcome, "unopened_evicted");
}

fn withheld_shares_take_no_more_memory_than_there_may_be() {
    for sources in [1, 5] {
        let outcome = small(Attack::Withhold { channels: 16 }, 60, sources).run();
        assert_all_served(&outcome);
        assert!(outcome.growth_mib < 32.0, "{outcome:?}");
        assert_counted(&outcome, "out_of_memory");
    }
}

fn open_streams_of_one_source_leave_places_for_others() {
    for sources in [1, 5] {
        let outcome = small(Attack::Withhold { channels: 3 }, 100, sources).run();
        assert_all_served(&outcome);
        assert_counted(&outcome, "streams_evicted");
    }
}

fn more_channels_than_are_allowed_cost_nothing() {
    let trial = Trial { settings: "", ..small(Attack::Withhold { channels: 16 }, 60, 1) };
    let outcome = trial.run();
    assert_all_served(&outcome);
    assert!(outcome.growth_mib < 16.0, "{outcome:?}");
    assert_counted(&outcome, "turned_away");
}

/// The search through 4,000 sets took 25 ms for each.
fn a_first_record_that_no_channels_make_costs_little() {
    let outcome = small(Attack::Search, 20, 1).run();
    assert_all_served(&outcome);
    assert!(outcome.processor_ms_each < 12.0, "{outcome:?}");
}

/// The table.
fn table_of_all_attacks() {
    let time = Duration::from_secs(10);
    // Half of what is the default, as this process has to hold the other ends of all of it.
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
