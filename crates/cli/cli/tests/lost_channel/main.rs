//! `sunder proxy` and `sunder serve` between emulated hosts while a channel that they need is lost:
//! how soon either end reports it, and what streams do. Channels that are only slow, lossy or not
//! read must not be taken for lost. Without user namespaces, prints that the tests were skipped.
//!
//! The table in `docs/protocols/micss.md` is printed by
//! `cargo test --package sunder-cli --test lost_channel matrix -- --nocapture`.

mod alive;
mod backup;
#[path = "../emulation/mod.rs"]
mod emulation;
mod faults;
#[path = "../emulation/interruption.rs"]
mod interruption;
mod matrix;
mod new_streams;
mod policy;
mod random;
mod rejoin;
mod slow;
mod testbed;

use std::process::ExitCode;

use lab::sandbox;
use libtest_mimic::{Arguments, Trial as Test};

/// Lists the tests with the names of their functions.
macro_rules! tests {
    ($($module:ident::$name:ident),* $(,)?) => {
        vec![$(Test::test(concat!(stringify!($module), "::", stringify!($name)), || {
            $module::$name();
            Ok(())
        })),*]
    };
}

fn main() -> ExitCode {
    if let Err(end) = sandbox::enter_for_tests() {
        return end;
    }
    let mut tests = tests![
        matrix::both_ends_name_the_channel_within_three_seconds,
        backup::new_streams_leave_a_silent_server_within_five_seconds,
        policy::new_streams_wait_if_configured,
        policy::streams_survive_an_outage,
        policy::streams_survive_an_outage_without_a_pool,
        policy::streams_continue_with_two_of_three_channels,
        policy::a_killed_client_is_not_a_lost_channel,
        policy::a_lost_channel_is_reported_while_streams_are_idle,
        new_streams::new_streams_open_at_once_while_a_channel_is_lost,
        new_streams::new_streams_use_a_channel_that_has_returned,
        slow::a_failing_channel_does_not_stall_slow_streams,
        rejoin::a_stream_uses_a_returned_channel_when_another_is_lost,
        rejoin::channels_fail_in_turn,
        rejoin::a_stream_that_needs_all_goes_on_when_the_channel_returns,
        rejoin::a_full_stream_that_needs_all_goes_on_when_the_channel_returns,
        rejoin::a_slow_channel_does_not_rule,
        alive::a_lossy_channel_is_not_lost,
        alive::a_lossy_channel_is_not_lost_without_connections_in_advance,
        alive::a_full_queue_of_five_seconds_loses_no_channel,
        alive::an_application_that_does_not_read_loses_no_channel,
        alive::a_service_that_does_not_read_loses_no_channel,
    ];
    let table = Test::test("slow::table_of_slow_streams", || {
        slow::table_of_slow_streams();
        Ok(())
    });
    tests.push(table.with_ignored_flag(true));
    let random = Test::test("random::streams_outlast_random_sequences", || {
        random::streams_outlast_random_sequences();
        Ok(())
    });
    tests.push(random.with_ignored_flag(true));
    let mut arguments = Arguments::from_args();
    // They wait most of the time.
    arguments.test_threads.get_or_insert(8);
    libtest_mimic::run(&arguments, tests).exit_code()
}
