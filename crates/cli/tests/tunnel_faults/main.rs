//! `sunder tunnel` between hosts of the laboratory while channels fail or lie, ends are killed,
//! addresses change, and strangers flood it. Needs user namespaces and `/dev/net/tun`, and says so
//! where there are none.
//!
//! `SUNDER_FLAPS=N` has links fail N times, in place of a few.
//!
//! How much a flood costs is measured by
//! `cargo test --release --package sunder-cli --test tunnel_faults -- --ignored --nocapture`.

#![allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]

mod flaps;
mod flood;
mod ipv6;
mod killed_ends;
mod lost_channels;
mod missing_channels;
mod pair;
mod relay;
mod relayed_channels;
mod small_packets;
mod strangers;
mod stream;
mod takeover;
mod terms;

use std::process::ExitCode;

use lab::sandbox;
use libtest_mimic::{Arguments, Trial as Test};

/// Tests by their functions.
macro_rules! tests {
    ($($module:ident::$name:ident),* $(,)?) => {
        vec![$(Test::test(stringify!($name), || { $module::$name(); Ok(()) })),*]
    };
}

fn main() -> ExitCode {
    if let Err(end) = sandbox::enter_for_tests() {
        return end;
    }
    let mut tests = tests![
        lost_channels::a_lost_channel_is_not_missed_for_long,
        lost_channels::a_lost_channel_is_not_missed_where_two_are_enough,
        lost_channels::a_lost_channel_is_logged,
        lost_channels::a_device_that_comes_back_is_used_again,
        missing_channels::a_server_that_restarts_while_a_link_is_down_is_found_again,
        missing_channels::a_tunnel_begins_with_any_two_of_three,
        flaps::links_that_flap_cost_no_packet,
        flaps::two_links_at_a_time_that_flap_cost_no_packet,
        killed_ends::a_killed_server_is_found_again,
        killed_ends::a_killed_client_comes_back_at_once,
        relayed_channels::a_channel_that_tampers_is_found_out,
        relayed_channels::a_client_with_another_address_is_followed,
        takeover::tokens_and_numbers_take_no_channel_over,
        takeover::copies_that_are_faster_take_no_channel_over,
        takeover::a_roaming_client_is_followed_and_another_is_not,
        ipv6::a_tunnel_over_ipv6_carries_both,
        small_packets::small_packets_share_the_headers,
        terms::a_client_may_want_a_higher_floor,
        strangers::a_flood_leaves_the_tunnel_as_it_was,
        strangers::a_client_connects_during_a_flood,
    ];
    // It measures a quiet machine.
    let measures = tests![strangers::a_flood_costs_less_than_a_tenth];
    tests.extend(measures.into_iter().map(|test| test.with_ignored_flag(true)));
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}
