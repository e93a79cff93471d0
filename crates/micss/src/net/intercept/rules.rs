//! The rules, as input of `nft`. A connection that matches is redirected to the client's port
//! (`local`, `forwarded`), handed to the client's listener and to no other program's (`arriving`,
//! `hand_over`), and refused if it would leave the host unchanged nevertheless (`leaving`,
//! `passing`).

use std::fmt::Write;
use std::slice;

use crate::config::intercept::{Intercept, Interface};

/// The mark of the client's own connections, which are not intercepted: "SN".
pub const OWN_MARK: u32 = 0x534E_0000;

/// The first of the chains that refuse what is not intercepted. They are the last of the table.
pub(super) const FIRST_REFUSING: &str = "chain leaving {";

/// Accepts the answers of services to their clients. A connection never begins with such a packet.
const ANSWERS: &str = "ct direction reply tcp flags & (syn | ack) != syn accept";

impl Intercept {
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

/// Removes a table, whether it exists or not.
pub(super) fn removal(table: &str) -> String {
    format!("add table inet {table}\ndelete table inet {table}\n")
}

/// The rules that intercept. They also keep serving open connections that the `earlier` rules have
/// intercepted.
pub(super) fn in_force(intercept: &Intercept, earlier: &[Intercept]) -> String {
    let port = intercept.port;
    let redirect = format!("{} redirect to :{port}", compared(intercept));
    let mut chains = Chains::new(&intercept.table());
    chains.add("local", "nat hook output priority -110", &[&own(), LOCAL, &redirect]);
    if intercept.serves_others() {
        let from = format!("iifname != {} accept", names(&intercept.from));
        chains.add("forwarded", "nat hook prerouting priority -110", &[&from, LOCAL, &redirect]);
    }
    chains.hand_over(port);
    chains.refuse(Some(intercept), earlier);
    chains.end()
}

/// The rules for connections that were intercepted already, and for no others: without these rules,
/// their packets would leave the host unchanged. The kernel translates their addresses as long as
/// there is a chain of type `nat`.
pub(super) fn retired(last: &Intercept, earlier: &[Intercept]) -> String {
    let mut chains = Chains::new(&last.table());
    chains.add("local", "nat hook output priority -110", &[]);
    chains.hand_over(last.port);
    chains.refuse(None, &[earlier, slice::from_ref(last)].concat());
    chains.end()
}

/// The rules that refuse the connections that match.
pub(super) fn refusing(intercept: &Intercept) -> String {
    let mut chains = Chains::new(&intercept.refusing_table());
    chains.refuse(Some(intercept), &[]);
    chains.end()
}

/// The text of a table, without its end.
struct Chains(String);

impl Chains {
    fn new(table: &str) -> Self {
        Self(format!("table inet {table} {{\n"))
    }

    /// Adds a chain at a hook. It accepts the packets for which its rules have no verdict.
    fn add(&mut self, name: &str, hook: &str, rules: &[&str]) {
        let first = format!("type {hook}; policy accept;");
        self.chain(name, &[&[first.as_str()], rules].concat());
    }

    fn chain(&mut self, name: &str, rules: &[&str]) {
        let rules: String =
            rules.iter().fold(String::new(), |text, rule| text + "\t\t" + rule + "\n");
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "\tchain {name} {{\n{rules}\t}}\n");
    }

    /// Packets to the port were redirected, and go to a transparent listener, which is the
    /// client's, since opening one needs a privilege. All others to the port are refused. Loopback
    /// addresses do not leave by other interfaces, also if `lo` has no IPv6 address.
    fn hand_over(&mut self, port: u16) {
        let to_port = format!("tcp dport {port}");
        self.add(
            "arriving",
            "filter hook prerouting priority -90",
            &[&format!("{to_port} fib daddr type local goto hand_over")],
        );
        let tproxy = format!("meta l4proto tcp ct status dnat tproxy to :{port} accept");
        self.chain("hand_over", &[&tproxy, "meta l4proto tcp reject with tcp reset"]);
        self.add(
            "outside",
            "filter hook postrouting priority 0",
            &[
                &format!("oifname != \"lo\" ip daddr 127.0.0.0/8 {to_port} drop"),
                &format!("oifname != \"lo\" ip6 daddr ::1 {to_port} drop"),
            ],
        );
    }

    /// Refuses what matches and was not redirected, for any reason: the kernel does not redirect
    /// packets that belong to no connection that it knows, nor packets that are excluded from
    /// connection tracking. Of connections that were intercepted earlier, only such packets are
    /// refused.
    fn refuse(&mut self, intercept: Option<&Intercept>, earlier: &[Intercept]) {
        let dropped = |one: &Intercept| format!("{} ct state invalid drop", compared(one));
        let refused = |one: &Intercept| format!("{} reject with tcp reset", compared(one));
        let verdicts = || {
            let now =
                intercept.into_iter().flat_map(|one| [(one, dropped(one)), (one, refused(one))]);
            now.chain(earlier.iter().map(|one| (one, dropped(one))))
        };
        let mut leaving = vec![own(), LOCAL.to_owned(), ANSWERS.to_owned()];
        leaving.extend(verdicts().map(|(_, verdict)| verdict));
        let leaving: Vec<&str> = leaving.iter().map(String::as_str).collect();
        self.add("leaving", "filter hook output priority -90", &leaving);
        let passing = verdicts().filter(|(one, _)| one.serves_others());
        let mut passing: Vec<String> = passing
            .map(|(one, verdict)| format!("iifname {} {verdict}", names(&one.from)))
            .collect();
        if !passing.is_empty() {
            passing.insert(0, ANSWERS.to_owned());
            let passing: Vec<&str> = passing.iter().map(String::as_str).collect();
            self.add("passing", "filter hook forward priority -90", &passing);
        }
    }

    fn end(mut self) -> String {
        self.0.truncate(self.0.trim_end().len());
        self.0 + "\n}\n"
    }
}

/// Accepts the client's own connections.
fn own() -> String {
    format!("meta mark {OWN_MARK:#010x} accept")
}

fn compared(intercept: &Intercept) -> String {
    format!("meta l4proto tcp {}", intercept.matching.0)
}

fn names(interfaces: &[Interface]) -> String {
    let quoted: Vec<String> =
        interfaces.iter().map(|Interface(name)| format!("\"{name}\"")).collect();
    format!("{{ {} }}", quoted.join(", "))
}
