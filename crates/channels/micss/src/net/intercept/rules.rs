//! The rules, as input of `nft`. A connection that matches is redirected to the client's port
//! (`local`, `forwarded`), passed to the client's listener and to no other program's (`arriving`,
//! `hand_over`), and refused if it would nevertheless leave the host unchanged (`leaving`,
//! `passing`). So is a datagram, and all that one socket sends to one destination is a connection
//! to the kernel.

use std::fmt::Write;
use std::fs;
use std::slice;

use ipnet::IpNet;

use crate::config::intercept::{
    BypassProtocol, InterceptConfig, InterceptUdpConfig, InterfaceName,
};
use crate::protocol::bypass::BypassRule;

/// The mark of the client's own connections, which are not intercepted: "SN".
pub const OWN_MARK: u32 = 0x534E_0000;

/// The mark of the SYNs that challenge older connections (`challenge.rs`).
pub(super) const CHALLENGE_MARK: u32 = OWN_MARK + 1;

/// The first of the chains that refuse what is not intercepted. These chains are last in the table.
pub(super) const FIRST_REFUSING: &str = "chain leaving {";

/// The label of connections whose first packet, a SYN, has arrived from another host. A connection
/// that is older than the rules never gets it, whichever end the kernel treats as its originator:
/// the kernel allocates no label, and sets none, for a connection that it knew before.
const OPENED_BY_PEER: &str = "ct label 83";

/// Accepts the answers of services to their clients. A connection never begins with such a packet.
fn answers() -> String {
    format!("ct direction reply {OPENED_BY_PEER} tcp flags & (syn | ack) != syn accept")
}

/// Accepts resets, which carry no data. After a connection was refused, one end sends a reset so
/// that the other end closes too.
const RESETS: &str = "ct state established,invalid tcp flags & rst == rst accept";

impl InterceptConfig {
    /// The name of the table that intercepts.
    pub(super) fn table(&self) -> String {
        format!("sunder_{}", self.port)
    }

    /// The name of the table that remains after a failed start.
    pub(super) fn refusing_table(&self) -> String {
        format!("{}_refused", self.table())
    }
}

/// Accepts packets to addresses of this host.
const LOCAL: &str = "fib daddr type local accept";

/// The rules that intercept. They also keep serving open connections that the `earlier` rules have
/// intercepted.
pub(super) fn in_force(intercept: &InterceptConfig, earlier: &[InterceptConfig]) -> String {
    let port = intercept.port;
    let mut redirected = vec![format!("{} redirect to :{port}", compared(intercept))];
    if let Some(udp) = &intercept.udp {
        redirected.extend(bypassed(udp));
        redirected.push(format!("{} redirect to :{port}", compared_udp(udp)));
    }
    let with = |first: String| [vec![first, LOCAL.to_owned()], redirected.clone()].concat();
    let mut chains = NftTableText::new(&intercept.table());
    chains.add("local", "nat hook output priority -110", &with(own()));
    if intercept.intercepts_forwarded() {
        let from = format!("iifname != {} accept", names(&intercept.from));
        chains.add("forwarded", "nat hook prerouting priority -110", &with(from));
    }
    chains.hand_over(port, intercepts_udp(intercept, earlier));
    chains.refuse(Some(intercept), earlier);
    chains.end()
}

/// Rules that only serve connections that were intercepted already: without these rules, their
/// packets would leave the host unchanged. The kernel translates their addresses as long as there
/// is a chain of type `nat`.
pub(super) fn retired(last: &InterceptConfig, earlier: &[InterceptConfig]) -> String {
    let mut chains = NftTableText::new(&last.table());
    chains.add("local", "nat hook output priority -110", &[]);
    chains.hand_over(last.port, intercepts_udp(last, earlier));
    chains.refuse(None, &[earlier, slice::from_ref(last)].concat());
    chains.end()
}

/// The rules that refuse the connections that match.
pub(super) fn refusing(intercept: &InterceptConfig) -> String {
    let mut chains = NftTableText::new(&intercept.refusing_table());
    chains.refuse(Some(intercept), &[]);
    chains.end()
}

/// The text of a table, without its closing brace.
struct NftTableText(String);

impl NftTableText {
    fn new(table: &str) -> Self {
        Self(format!("table inet {table} {{\n"))
    }

    /// Adds a chain at a hook. It accepts packets on which its rules have no verdict.
    fn add(&mut self, name: &str, hook: &str, rules: &[String]) {
        let first = format!("type {hook}; policy accept;");
        self.chain(name, &[&[first], rules].concat());
    }

    fn chain(&mut self, name: &str, rules: &[String]) {
        let rules: String =
            rules.iter().fold(String::new(), |text, rule| text + "\t\t" + rule + "\n");
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "\tchain {name} {{\n{rules}\t}}\n");
    }

    /// Packets that were redirected to the port go to a transparent listener, which is the
    /// client's, since opening one needs a privilege. All other packets to the port are refused.
    /// Loopback addresses do not leave by other interfaces, even if `lo` has no IPv6 address.
    fn hand_over(&mut self, port: u16, has_udp: bool) {
        let tcp = ("tcp", "reject with tcp reset");
        let protocols = [Some(tcp), has_udp.then_some(("udp", "reject"))].into_iter().flatten();
        let (mut arriving, mut handed, mut outside) = (Vec::new(), Vec::new(), Vec::new());
        for (protocol, refusal) in protocols {
            let to_port = format!("{protocol} dport {port}");
            arriving.push(format!("{to_port} fib daddr type local goto hand_over"));
            let of_protocol = format!("meta l4proto {protocol}");
            handed.push(format!("{of_protocol} ct status dnat tproxy to :{port} accept"));
            handed.push(format!("{of_protocol} {refusal}"));
            outside.push(format!("oifname != \"lo\" ip daddr 127.0.0.0/8 {to_port} drop"));
            outside.push(format!("oifname != \"lo\" ip6 daddr ::1 {to_port} drop"));
        }
        if has_udp {
            // The kernel has forgotten the flow, so it would not translate this answer.
            outside.push(format!("udp sport {port} ct direction original drop"));
        }
        self.add("arriving", "filter hook prerouting priority -90", &arriving);
        self.chain("hand_over", &handed);
        self.add("outside", "filter hook postrouting priority 0", &outside);
    }

    /// Refuses packets that match and were not redirected, for whatever reason: the kernel does not
    /// redirect packets that belong to no connection that it tracks, packets of connections that
    /// are older than the rules, or packets that are excluded from connection tracking. Of
    /// connections that were intercepted earlier, only packets of no tracked connection are
    /// refused.
    fn refuse(&mut self, intercept: Option<&InterceptConfig>, earlier: &[InterceptConfig]) {
        // A challenge must not count as a packet of the tracked connection.
        let untracked = format!("meta mark {CHALLENGE_MARK:#010x} notrack");
        let untracked = [untracked];
        self.add("challenging", "filter hook output priority raw", &untracked);
        self.add("challenged", "filter hook prerouting priority raw", &untracked);
        let opening = "ct state new tcp flags & (fin | syn | rst | ack) == syn";
        let set = OPENED_BY_PEER.replace("label", "label set");
        self.add("opening", "filter hook prerouting priority -90", &[format!("{opening} {set}")]);
        let dropped = |one: &InterceptConfig| format!("{} ct state invalid drop", compared(one));
        let refused = |one: &InterceptConfig| format!("{} reject with tcp reset", compared(one));
        // A late packet of an intercepted connection may be invalid and must not reset it. But if
        // the kernel does not track connections that are already open, all packets of older ones
        // are invalid.
        let current = intercept.into_iter().filter(|_| takes_up_connections());
        let drops = || current.clone().chain(earlier).map(|one| (one, dropped(one)));
        let refusals = || intercept.into_iter().map(|one| (one, refused(one)));
        let marked = format!("meta mark {CHALLENGE_MARK:#010x}");
        let mut leaving = vec![own(), format!("{marked} accept"), LOCAL.to_owned()];
        leaving.extend(intercept.into_iter().flat_map(clear_protocols).map(str::to_owned));
        leaving.push(answers());
        leaving.extend(drops().map(|(_, verdict)| verdict));
        leaving.push(RESETS.to_owned());
        leaving.extend(refusals().map(|(_, verdict)| verdict));
        leaving.extend(intercept.into_iter().filter(|one| one.intercepts_udp()).map(udp_answers));
        let datagrams =
            || intercept.into_iter().flat_map(|one| one.udp.iter().map(move |udp| (one, udp)));
        leaving.extend(datagrams().flat_map(|(_, udp)| refused_datagrams(udp)));
        self.add("leaving", "filter hook output priority -90", &leaving);
        let forwarded = |(one, verdict): (&InterceptConfig, String)| {
            one.intercepts_forwarded().then(|| format!("iifname {} {verdict}", names(&one.from)))
        };
        let protocols = intercept.into_iter().flat_map(|one| {
            clear_protocols(one).into_iter().map(move |verdict| (one, verdict.to_owned()))
        });
        let protocols: Vec<String> = protocols.filter_map(forwarded).collect();
        let drops: Vec<String> = drops().filter_map(forwarded).collect();
        let refusals: Vec<String> = refusals().filter_map(forwarded).collect();
        let datagrams = datagrams().flat_map(|(one, udp)| {
            refused_datagrams(udp).into_iter().map(move |verdict| (one, verdict))
        });
        let datagrams: Vec<String> = datagrams.filter_map(forwarded).collect();
        if !drops.is_empty() || !refusals.is_empty() {
            let resets = vec![RESETS.to_owned()];
            let passing = [protocols, vec![answers()], drops, resets, refusals, datagrams].concat();
            self.add("passing", "filter hook forward priority -90", &passing);
        }
    }

    fn end(mut self) -> String {
        self.0.truncate(self.0.trim_end().len());
        self.0 + "\n}\n"
    }
}

/// Whether the kernel tracks connections that are already open: `nf_conntrack_tcp_loose`.
fn takes_up_connections() -> bool {
    let loose = fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_tcp_loose");
    loose.map_or(true, |loose| loose.trim() != "0")
}

/// Refuses protocols that would leave in the clear, so that applications notice at once.
fn clear_protocols(intercept: &InterceptConfig) -> Vec<&'static str> {
    let verdicts = |protocol: &BypassProtocol| match protocol {
        BypassProtocol::Quic => &["udp dport 443 reject"][..],
        BypassProtocol::Dns => &["udp dport 53 reject", "tcp dport 53 reject with tcp reset"],
    };
    let refused = intercept.refused.iter().flatten();
    refused.flat_map(verdicts).copied().collect()
}

/// Accepts the client's own connections.
fn own() -> String {
    format!("meta mark {OWN_MARK:#010x} accept")
}

fn compared(intercept: &InterceptConfig) -> String {
    format!("meta l4proto tcp {}", intercept.matching.0)
}

fn compared_udp(udp: &InterceptUdpConfig) -> String {
    format!("meta l4proto udp {}", udp.matching.0)
}

/// Whether there are datagrams that these or earlier rules have redirected.
fn intercepts_udp(intercept: &InterceptConfig, earlier: &[InterceptConfig]) -> bool {
    earlier.iter().chain([intercept]).any(InterceptConfig::intercepts_udp)
}

/// Accepts the client's answers to datagrams of other hosts.
fn udp_answers(intercept: &InterceptConfig) -> String {
    format!("udp sport {} ct direction reply ct status dnat accept", intercept.port)
}

/// Accepts datagrams that leave directly, and refuses all others that match.
fn refused_datagrams(udp: &InterceptUdpConfig) -> Vec<String> {
    let mut rules = bypassed(udp);
    rules.push(format!("{} reject", compared_udp(udp)));
    rules
}

/// Accepts datagrams that leave directly.
fn bypassed(udp: &InterceptUdpConfig) -> Vec<String> {
    let networks = udp.bypass.iter().filter_map(BypassRule::network);
    let rule = |(network, port): (IpNet, Option<u16>)| {
        let family = if network.addr().is_ipv4() { "ip" } else { "ip6" };
        let port = port.map(|port| format!(" udp dport {port}")).unwrap_or_default();
        format!("meta l4proto udp {family} daddr {network}{port} accept")
    };
    networks.map(rule).collect()
}

fn names(interfaces: &[InterfaceName]) -> String {
    let quoted: Vec<String> =
        interfaces.iter().map(|InterfaceName(name)| format!("\"{name}\"")).collect();
    format!("{{ {} }}", quoted.join(", "))
}
