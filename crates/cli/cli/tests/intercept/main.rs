//! `sunder proxy` intercepts connections of unchanged programs, between emulated hosts. Without
//! user namespaces, prints that the tests were skipped.

mod bypass;
mod captures;
mod clear_protocols;
mod emptied;
#[path = "../emulation/mod.rs"]
mod emulation;
#[path = "../emulation/interruption.rs"]
mod interruption;
mod matrix;
mod older;
mod programs;
mod rules;
mod sent_ahead;
mod states;
mod topology;
mod udp;

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
    let tests = tests![
        bypass::only_listed_networks_leave_directly,
        programs::curl_and_nginx_by_ipv4,
        programs::curl_and_nginx_by_ipv6,
        programs::a_session_of_ssh,
        programs::git_clones,
        programs::rsync_copies,
        programs::redis_stores,
        programs::connections_that_this_host_forwards,
        programs::open_streams_outlast_their_rules,
        programs::connections_to_this_host_are_not_intercepted,
        programs::a_connection_to_the_proxy_itself_is_refused,
        programs::connections_to_other_services_are_reset,
        states::without_a_proxy,
        states::alive,
        states::killed,
        states::restarted,
        states::killed_and_its_port_taken_by_wildcard,
        states::killed_and_its_port_taken_by_one_listener,
        states::killed_and_its_port_taken_on_loopback,
        states::killed_and_its_port_taken_on_the_lan,
        states::killed_and_the_services_port_taken,
        states::prevented_from_starting,
        states::prevented_from_listening_elsewhere,
        states::reloaded,
        states::prevented_from_starting_for_a_while,
        states::started_twice,
        states::without_a_listener_by_ipv6,
        states::without_a_listener_by_ipv4,
        states::without_ipv6_on_loopback,
        states::ipv6_lost_on_loopback,
        states::bound_to_an_interface,
        states::without_routing_rules,
        states::without_routes,
        states::without_connection_tracking,
        states::restored,
        states::killed_with_connections_under_way,
        states::older_than_the_proxy,
        older::older_pushes_are_reset,
        older::older_downloads_are_reset,
        older::older_uploads_are_reset,
        older::older_silent_applications_are_reset,
        older::older_silent_servers_are_reset,
        states::answers_are_not_intercepted,
        states::other_hosts_are_served_only_if_configured,
        emptied::a_table_emptied_twice_is_restored,
        emptied::chains_emptied_twice_are_restored,
        emptied::a_table_removed_twice_is_restored,
        clear_protocols::quic_and_dns_leave_with_a_warning,
        clear_protocols::quic_is_refused,
        clear_protocols::quic_and_dns_are_refused,
        clear_protocols::chromium_uses_tcp_instead_of_quic,
        sent_ahead::packets_sent_ahead_prevent_no_interception,
        udp::datagrams_of_both_hosts_are_carried_and_answered_from_where_they_went,
        udp::a_name_is_looked_up_over_the_channels,
        udp::only_allowed_services_are_reached_and_bypassed_ones_directly,
        udp::datagrams_are_refused_without_a_proxy,
        udp::flows_that_are_older_than_the_proxy_are_refused,
        udp::a_reload_changes_what_is_intercepted,
        udp::a_file_crosses_by_quic,
        udp::chromium_tries_quic_over_the_channels,
        udp::a_host_with_many_flows_displaces_only_its_own,
        rules::installed_rules_match_printed_rules,
        rules::a_stop_removes_the_rules,
        rules::sighup_changes_the_rules,
        rules::the_next_start_removes_the_rules_of_a_killed_proxy,
        rules::two_proxies_keep_separate_rules,
        rules::channels_on_one_interface_are_reported,
        rules::without_capabilities_nothing_remains,
        rules::invalid_nft_expressions_are_refused,
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}
