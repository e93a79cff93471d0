//! `sunder proxy` and `sunder serve` between hosts of the laboratory while a channel that they need
//! is lost: how soon either end names it, and what streams do; and channels that are only slow,
//! lossy or not read, which are never taken for lost. Needs user namespaces, and says so where
//! there are none.
//!
//! The table of `docs/protocols/micss.md` is printed by
//! `cargo test --package sunder-cli --test lost_channel matrix -- --nocapture`.

mod alive;
mod faults;
mod matrix;
mod policy;
mod testbed;

use std::process::ExitCode;

use lab::sandbox;
use libtest_mimic::{Arguments, Trial as Test};

/// Tests by their functions.
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
    let tests = tests![
        matrix::both_ends_name_the_channel_within_three_seconds,
        policy::new_streams_wait_where_they_are_told_to,
        policy::an_outage_is_survived,
        policy::an_outage_is_survived_over_connections_of_its_own,
        policy::where_two_are_enough_streams_go_on,
        policy::a_client_that_is_killed_is_no_lost_channel,
        policy::a_channel_is_named_while_no_stream_moves,
        alive::a_lossy_channel_is_not_lost,
        alive::a_lossy_channel_is_not_lost_without_connections_in_advance,
        alive::a_full_queue_of_five_seconds_is_not_a_loss,
        alive::an_application_that_does_not_read_is_no_loss,
        alive::a_service_that_does_not_read_is_no_loss,
    ];
    let mut arguments = Arguments::from_args();
    // They wait, most of the time.
    arguments.test_threads.get_or_insert(8);
    libtest_mimic::run(&arguments, tests).exit_code()
}
