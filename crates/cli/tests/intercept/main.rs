//! `sunder proxy` intercepts connections of programs that know nothing of it, between hosts of the
//! laboratory. Needs user namespaces, and says so where there are none.

mod captures;
mod matrix;
mod programs;
mod rules;
mod sent_ahead;
mod states;
mod topology;

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
    let tests = tests![
        programs::curl_and_nginx_by_ipv4,
        programs::curl_and_nginx_by_ipv6,
        programs::a_session_of_ssh,
        programs::git_clones,
        programs::rsync_copies,
        programs::redis_stores,
        programs::connections_that_this_host_forwards,
        programs::streams_under_way_outlast_their_rules,
        programs::addresses_of_this_host_are_left_alone,
        programs::a_connection_to_the_proxy_itself_is_refused,
        programs::what_the_server_does_not_allow_is_reset,
        states::without_a_proxy,
        states::alive,
        states::killed,
        states::restarted,
        states::killed_and_its_port_taken_by_wildcard,
        states::killed_and_its_port_taken_by_one_listener,
        states::killed_and_its_port_taken_on_loopback,
        states::killed_and_its_port_taken_on_the_lan,
        states::killed_and_the_services_port_taken,
        states::kept_from_starting,
        states::kept_from_listening_elsewhere,
        states::reloaded,
        states::kept_from_starting_for_a_while,
        states::started_twice,
        states::without_a_listener_by_ipv6,
        states::without_a_listener_by_ipv4,
        states::without_ipv6_on_loopback,
        states::ipv6_lost_on_loopback,
        states::bound_to_an_interface,
        states::without_routing_rules,
        states::without_routes,
        states::untracked,
        states::restored,
        states::killed_with_connections_under_way,
        states::begun_before_the_proxy,
        states::answers_are_left_alone,
        states::others_are_not_served_unasked,
        sent_ahead::a_packet_sent_ahead_opens_nothing_in_the_clear,
        rules::they_are_what_is_printed,
        rules::a_stop_removes_them,
        rules::a_hangup_changes_them,
        rules::a_killed_proxy_leaves_none_after_the_next_start,
        rules::two_proxies_do_not_remove_each_others,
        rules::channels_that_leave_by_one_interface_are_named,
        rules::without_the_right_to_it_nothing_is_left,
        rules::comparisons_that_nft_does_not_know_are_refused,
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}
