//! `sunder tunnel` between emulated hosts while channels fail or change datagrams, ends are killed,
//! addresses change, and an attacker floods it. Without user namespaces and `/dev/net/tun`, prints
//! that the tests were skipped.
//!
//! `SUNDER_FLAPS=N` makes links fail N times. `SUNDER_SEEDS=N` runs N seeds of random faults.
//!
//! The effect of a flood is measured by
//! `cargo test --release --package sunder-cli --test tunnel_faults -- --ignored --nocapture`.

#![allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]

mod black_holes;
mod changed_channels;
mod channel_faults;
mod clients;
#[path = "../emulation/mod.rs"]
mod emulation;
mod fail_closed;
mod flaps;
mod flood;
mod ipv6;
mod killed_ends;
mod load;
mod loaded_tunnel;
mod lost_channels;
mod many_clients;
mod missing_channels;
mod pair;
mod quotas;
mod random_faults;
mod recovery;
mod relay;
mod relayed_channels;
mod reloads;
mod server_names;
mod small_packets;
mod sniffer;
mod strangers;
mod stream;
mod takeover;
mod terms;
mod transfer;
mod unequal_delays;

use std::process::ExitCode;

use lab::sandbox;
use libtest_mimic::{Arguments, Trial as Test};

/// Lists the tests with the names of their functions.
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
        server_names::a_server_that_moves_is_found_by_its_name,
        server_names::a_probe_measures_a_server_with_a_name,
        lost_channels::a_lost_channel_costs_packets_only_briefly,
        lost_channels::a_lost_channel_costs_no_packets_if_two_are_enough,
        lost_channels::a_lost_channel_is_logged,
        lost_channels::a_device_that_comes_back_is_used_again,
        lost_channels::a_server_without_a_client_uses_a_device_that_comes_back,
        missing_channels::a_server_that_restarts_while_a_link_is_down_is_found_again,
        missing_channels::a_tunnel_starts_with_two_of_three_channels,
        flaps::links_that_flap_cost_no_packet,
        flaps::two_links_at_a_time_that_flap_cost_no_packet,
        killed_ends::a_killed_server_is_found_again,
        killed_ends::a_killed_client_reconnects_at_once,
        relayed_channels::a_tampering_channel_is_identified,
        relayed_channels::a_client_may_change_its_address,
        takeover::tokens_and_sequence_numbers_do_not_redirect_a_channel,
        takeover::faster_copies_do_not_redirect_a_channel,
        takeover::only_a_roaming_client_may_change_its_address,
        ipv6::a_tunnel_over_ipv6_carries_both,
        small_packets::small_packets_share_a_symbol,
        small_packets::fragments_share_a_symbol_no_longer_than_the_mtu,
        black_holes::udp_recovers_when_an_mtu_shrinks,
        black_holes::tcp_recovers_when_an_mtu_shrinks,
        black_holes::an_mtu_that_grows_again_is_used,
        black_holes::a_tunnel_over_short_paths_loses_nothing,
        black_holes::ipv6_passes_a_path_of_1280_bytes,
        fail_closed::nothing_leaves_another_way_whatever_happens_to_the_tunnel,
        fail_closed::rules_that_another_program_removes_are_restored,
        fail_closed::the_kernel_accepts_the_rules_of_every_kind_of_end,
        fail_closed::a_closed_server_answers_its_client_only,
        fail_closed::a_closed_client_over_ipv6_reaches_its_server,
        fail_closed::direct_networks_stay_reachable_and_nothing_else_opens,
        quotas::a_channel_without_quota_is_left_out_over_a_restart,
        reloads::a_hundred_reloads_under_load_lose_no_packet,
        reloads::a_raised_floor_holds_when_a_channel_goes_down,
        terms::a_client_may_raise_the_floor,
        clients::three_clients_of_one_server_are_apart,
        clients::clients_move_come_and_go_and_others_notice_nothing,
        strangers::a_flood_does_not_change_the_tunnel,
        strangers::a_client_connects_during_a_flood,
        changed_channels::a_channel_that_lost_most_datagrams_is_used_again_at_mu_3,
        changed_channels::a_channel_that_lost_datagrams_carries_udp_again,
        changed_channels::a_channel_that_lost_long_datagrams_is_used_again_at_kappa_2,
        unequal_delays::one_bbr_connection_fills_channels_of_unequal_delay,
        unequal_delays::one_bbr_connection_fills_a_distant_channel,
        random_faults::channels_recover_from_random_faults,
    ];
    // They measure an idle machine, or take long.
    let measures = tests![
        changed_channels::a_channel_that_lost_most_datagrams_is_used_again_at_mu_2_5,
        changed_channels::a_channel_that_lost_some_datagrams_is_used_again,
        changed_channels::a_channel_that_lost_long_datagrams_is_used_again_at_kappa_1,
        changed_channels::a_rate_limit_that_appears_is_found_at_kappa_2_mu_2,
        changed_channels::a_rate_limit_that_appears_is_found_at_kappa_1_mu_2,
        changed_channels::a_channel_whose_rate_alternates_is_used_at_mu_2,
        changed_channels::a_channel_whose_rate_alternates_is_used_at_mu_2_5,
        changed_channels::a_channel_whose_rate_alternates_is_used_at_mu_3,
        strangers::a_flood_costs_less_than_a_tenth,
        unequal_delays::congestion_controls_over_unequal_delays,
        black_holes::every_black_hole_is_left,
        many_clients::fifty_clients_share_a_server,
    ];
    tests.extend(measures.into_iter().map(|test| test.with_ignored_flag(true)));
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}
