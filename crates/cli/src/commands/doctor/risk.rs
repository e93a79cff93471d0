//! What a configuration allows, but hardly anybody wants, with what to do about it.

use super::finding::{Finding, Level};

/// What to do about a risk, by what is said of it.
const FIXES: [(&str, &str, &str); 12] = [
    ("one channel only", "channels", "add a [[channel]] over another network"),
    (
        "the second protects nothing",
        "channels",
        "send it by another network: give it another `device`, `source` or route, or leave it out",
    ),
    ("min_threshold is 1", "min_threshold", "set min_threshold = 2, with kappa = 2 or more"),
    (
        "threshold is 1",
        "threshold",
        "set threshold = 2 or more, or leave it out: then all are needed",
    ),
    ("SOCKS5 on", "socks", "set socks = \"127.0.0.1:1080\", or let a firewall admit only some"),
    (
        "is any user's to listen on",
        "intercept_port",
        "leave intercept_port out, or choose one below 1024 that no service of this host has",
    ),
    (
        "lo has no IPv6",
        "intercept",
        "sysctl net.ipv6.conf.lo.disable_ipv6=0, or take IPv6 off all interfaces",
    ),
    ("the forward to", "forward", "listen on 127.0.0.1, or let a firewall admit only some"),
    ("the server of streams on", "listen", "let a firewall admit only those who are meant to come"),
    (
        "the directory on",
        "directory, listen",
        "let a firewall admit only those who are meant to come",
    ),
    (
        "addresses and routes are empty",
        "allowed",
        "name the peer's networks, as in allowed = [\"10.9.0.0/24\"]",
    ),
    ("tamper_code is off", "tamper_code", "leave tamper_code out, at both ends"),
];

/// The finding for a risk that a command warns of.
pub(crate) fn risk(said: &str) -> Finding {
    let known = FIXES.iter().find(|(words, ..)| said.contains(words));
    let (subject, fix) =
        known.map_or(("risk", "see the command's guide"), |(_, subject, fix)| (*subject, *fix));
    Finding::new(Level::Warning, subject, said, fix)
}
