//! `sunder quorum node` on emulated hosts while servers are killed, stopped and cut off, disks are
//! full, stores are lost or old, and clocks jump, with signatures all the time. Without user
//! namespaces and `/dev/net/tun`, prints that the tests were skipped.
//!
//! `make test` runs a few faults of each kind. All of them, with a table:
//! `cargo test --package sunder-cli --test quorum_faults -- --include-ignored --nocapture`;
//! `SUNDER_QUORUM_ROUNDS=N` runs the kills N times. `SUNDER_QUORUM_KEY=rsa-2048-polynomial`, or
//! `ed25519`, runs all with a key that is shared by a polynomial.

mod clocks;
mod cluster;
mod disks;
#[path = "../emulation/mod.rs"]
mod emulation;
mod hostile;
mod kills;
mod links;
mod moves;
mod partitions;
mod pauses;
mod refreshes;
mod signers;
mod stores;

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
        kills::servers_killed_in_a_refresh_lose_nothing,
        kills::servers_with_a_polynomial_key_killed_in_a_refresh_lose_nothing,
        kills::servers_with_an_ed25519_key_killed_in_a_refresh_lose_nothing,
        stores::lost_restored_and_old_stores_leave_the_key_whole,
        stores::lost_restored_and_old_stores_leave_a_polynomial_key_whole,
        stores::lost_restored_and_old_stores_leave_an_ed25519_key_whole,
        partitions::halves_of_a_group_sign_and_the_refresh_ends_when_they_meet,
        pauses::a_server_that_was_stopped_goes_on,
        disks::a_full_disk_loses_nothing,
        clocks::clocks_that_jump_change_nothing,
        clocks::a_group_refreshes_itself_while_servers_are_killed,
        hostile::a_hostile_server_takes_bounded_memory,
        moves::servers_that_move_one_after_another_and_at_once_sign,
    ];
    let all = tests![
        kills::every_server_killed_at_every_step,
        partitions::every_partition,
        pauses::every_server_stopped_for_20_seconds,
        disks::every_level_of_a_full_disk,
        hostile::every_hostile_server,
        clocks::thirty_refreshes_without_an_operator,
    ];
    tests.extend(all.into_iter().map(|test| test.with_ignored_flag(true)));
    let mut arguments = Arguments::from_args();
    // Each has its own network and up to eight servers.
    arguments.test_threads.get_or_insert(2);
    libtest_mimic::run(&arguments, tests).exit_code()
}
