//! Connections that applications made to somebody else, and that the kernel hands to the client (paper
//! 001, III-B): those of this host by REDIRECT, and those that it forwards by TPROXY.
//!
//! The rules are one nftables table of the client's own. It is installed in one transaction, which
//! replaces what a client that was killed has left, and removed when the client stops. So are the
//! routing rules that TPROXY needs. Connections of the client itself have a mark, and those to addresses
//! of this host are left alone.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tracing::warn;

use crate::listening::Listening;
use crate::program;

/// The mark of the client's own connections: "SN". With the port added, it is the mark of packets on their
/// way to the client by TPROXY, and the number of the routing table for them.
pub const OWN_MARK: u32 = 0x534E_0000;

/// What to do where the kernel says that something is not permitted.
const RIGHTS: &str = "; interception needs root, or CAP_NET_ADMIN";

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Which connections are intercepted, and the port that they come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intercept {
    matching: Matching,
    port: u16,
}

/// What nftables is to compare TCP connections with, as in `tcp dport { 80, 443 }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matching(String);

/// A text could be more than what connections are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write what nft compares connections with, as in: tcp dport {{ 80, 443 }}")]
pub struct MatchingError;

impl FromStr for Matching {
    type Err = MatchingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || " {},.:/-_!=<>&|\"*".contains(c);
        let words = text.split(|c: char| !c.is_ascii_alphanumeric());
        let verdicts = ["accept", "drop", "return", "jump", "goto", "redirect", "dnat", "tproxy"];
        let only_compares = !words.into_iter().any(|word| verdicts.contains(&word));
        let valid = !text.trim().is_empty() && text.chars().all(is_plain) && braces_match(text);
        if valid && only_compares { Ok(Self(text.trim().to_owned())) } else { Err(MatchingError) }
    }
}

/// Whether every brace that is opened is closed, and none else is.
fn braces_match(text: &str) -> bool {
    let open = text.chars().try_fold(0_u32, |open, c| match c {
        '{' => open.checked_add(1),
        '}' => open.checked_sub(1),
        _ => Some(open),
    });
    open == Some(0)
}

impl Intercept {
    /// Connections that match come to this port.
    pub fn new(matching: Matching, port: u16) -> Self {
        Self { matching, port }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The rules, as `nft` reads them.
    pub fn rules(&self) -> String {
        let Self { matching: Matching(matching), port } = self;
        let mark = self.mark();
        let redirect = format!("\t\tmeta l4proto tcp {matching} redirect to :{port}\n");
        let tproxy = format!(
            "\t\tmeta l4proto tcp {matching} meta mark set {mark:#010x}\n\
             \t\tmeta l4proto tcp meta mark {mark:#010x} tproxy to :{port} accept\n"
        );
        self.table_with(&redirect, &tproxy)
    }

    /// The rules for connections that were intercepted already: without them, packets of theirs would go out
    /// as they are. The kernel changes addresses as long as there is a chain for that, and a rule for which it
    /// has to know connections; those that it hands over unchanged are known by their socket.
    fn rules_for_established(&self) -> String {
        self.table_with("\t\tct state established accept\n", "")
    }

    fn table_with(&self, redirect: &str, tproxy: &str) -> String {
        let (table, mark) = (self.table(), self.mark());
        format!(
            "table inet {table} {{\n\
             \tchain local {{\n\
             \t\ttype nat hook output priority -100; policy accept;\n\
             \t\tmeta mark {OWN_MARK:#010x} accept\n\
             \t\tfib daddr type local accept\n\
             {redirect}\
             \t}}\n\
             \n\
             \tchain forwarded {{\n\
             \t\ttype filter hook prerouting priority mangle; policy accept;\n\
             \t\tfib daddr type local accept\n\
             \t\tmeta l4proto tcp socket transparent 1 socket wildcard 0 meta mark set {mark:#010x} accept\n\
             {tproxy}\
             \t}}\n\
             }}\n"
        )
    }

    /// What else the kernel has to be told, as arguments of `ip`: it takes what TPROXY has marked for its
    /// own, wherever that goes.
    pub fn routes(&self) -> impl Iterator<Item = String> {
        self.routing("add").flat_map(|(family, commands)| {
            let line = |line: &str| format!("{family} {line}");
            commands.lines().map(line).collect::<Vec<_>>()
        })
    }

    fn mark(&self) -> u32 {
        OWN_MARK + u32::from(self.port)
    }

    /// Has packets that TPROXY has marked come to this host, wherever they go.
    fn route_to_client(&self) -> io::Result<()> {
        self.route_no_more();
        for (family, commands) in self.routing("add") {
            run("ip", &[family, "-batch", "-"], &commands)?;
        }
        Ok(())
    }

    fn route_no_more(&self) {
        for (family, commands) in self.routing("del") {
            // If there are none, nothing is left to do.
            let _ = run("ip", &[family, "-force", "-batch", "-"], &commands);
        }
    }

    /// The routing rules for each family of addresses that this host has.
    fn routing(&self, verb: &str) -> impl Iterator<Item = (&'static str, String)> {
        let mark = self.mark();
        let families = ["-4"].into_iter().chain(has_ipv6().then_some("-6"));
        families.map(move |family| {
            let rule = format!("rule {verb} fwmark {mark:#x} lookup {mark}");
            (family, format!("{rule}\nroute {verb} local default dev lo table {mark}\n"))
        })
    }

    fn table(&self) -> String {
        format!("sunder_{}", self.port)
    }

    /// Listens for them, with all of this host's addresses: those that TPROXY hands over are none of its.
    pub(crate) fn listen(&self) -> io::Result<Vec<Listening>> {
        let named = |error: io::Error| {
            let port = self.port;
            let advice = if error.kind() == io::ErrorKind::PermissionDenied { RIGHTS } else { "" };
            io::Error::new(
                error.kind(),
                format!("cannot intercept at port {port}: {error}{advice}"),
            )
        };
        let v4 = self.listen_v4().map_err(named)?;
        let v6 = has_ipv6().then(|| self.listen_v6()).transpose().map_err(named)?;
        [v4].into_iter().chain(v6).map(|own| Ok(Listening::new(own.local_addr()?, own))).collect()
    }

    fn listen_v4(&self) -> io::Result<TcpListener> {
        let socket = TcpSocket::new_v4()?;
        SockRef::from(&socket).set_ip_transparent_v4(true)?;
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv4Addr::UNSPECIFIED, self.port).into())?;
        socket.listen(BACKLOG)
    }

    fn listen_v6(&self) -> io::Result<TcpListener> {
        let socket = TcpSocket::new_v6()?;
        SockRef::from(&socket).set_ip_transparent_v6(true)?;
        SockRef::from(&socket).set_only_v6(true)?;
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv6Addr::UNSPECIFIED, self.port).into())?;
        socket.listen(BACKLOG)
    }

    /// Where a connection that came to the port was going. Nothing if it was going there: to carry that
    /// would be to go round in circles.
    pub(crate) fn destination(&self, connection: &TcpStream) -> Option<SocketAddr> {
        let socket = SockRef::from(connection);
        let local = connection.local_addr().ok()?;
        // REDIRECT has changed the address and the kernel remembers it. TPROXY has not.
        let original = match local {
            SocketAddr::V4(_) => socket.original_dst_v4(),
            SocketAddr::V6(_) => socket.original_dst_v6(),
        };
        let destination = original.ok().and_then(|address| address.as_socket()).unwrap_or(local);
        (destination != local || local.port() != self.port).then_some(destination)
    }

    /// Whether the rules could be installed, which changes nothing.
    ///
    /// # Errors
    /// When a program for it is missing, or the kernel would refuse: what is said, in one line.
    pub fn check(&self) -> io::Result<()> {
        run("ip", &["-Version"], "")?;
        run("nft", &["--check", "-f", "-"], &self.rules()).map(drop)
    }

    /// Installs the rules, in place of those that a client with the same port has left.
    ///
    /// # Errors
    /// When a program for it is missing or the kernel refuses. Nothing is left then.
    pub(crate) fn install(self) -> io::Result<Installed> {
        let rules = format!("{}{}", removal(&self.table()), self.rules());
        nft(&rules)?;
        // From here on they are removed again, whatever happens.
        let installed = Installed { intercept: Mutex::new(self) };
        installed.intercept().route_to_client()?;
        Ok(installed)
    }
}

/// Rules that are in force until this is dropped. Connections that were intercepted by them hold on to it.
pub(crate) struct Installed {
    intercept: Mutex<Intercept>,
}

impl Installed {
    /// Has others in force, for the same port, in one transaction.
    ///
    /// # Errors
    /// When the kernel refuses. What was in force still is then.
    pub(crate) fn replace(&self, others: Intercept) -> io::Result<()> {
        nft(&format!("{}{}", removal(&others.table()), others.rules()))?;
        *self.intercept() = others;
        Ok(())
    }

    /// Intercepts no more connections, and leaves those alone that were.
    pub(crate) fn retire(&self) {
        let intercept = self.intercept();
        let rules = intercept.rules_for_established();
        if let Err(error) = nft(&format!("{}{rules}", removal(&intercept.table()))) {
            warn!(%error, "connections are still intercepted, and refused, until the last of them ends");
        }
    }

    /// The port that connections come to.
    pub(crate) fn port(&self) -> u16 {
        self.intercept().port
    }

    fn intercept(&self) -> MutexGuard<'_, Intercept> {
        self.intercept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let intercept = self.intercept();
        if let Err(error) = nft(&removal(&intercept.table())) {
            warn!(%error, "rules are left behind");
        }
        intercept.route_no_more();
    }
}

/// Removes a table, whether it is there or not.
fn removal(table: &str) -> String {
    format!("add table inet {table}\ndelete table inet {table}\n")
}

fn nft(commands: &str) -> io::Result<()> {
    run("nft", &["-f", "-"], commands).map(drop)
}

/// The ports of clients that were killed and have left their rules: connections that these match are refused,
/// as nobody listens there. None where nft cannot be asked.
pub fn left_behind() -> Vec<u16> {
    let tables = run("nft", &["list", "tables"], "").unwrap_or_default();
    let port = |line: &str| line.strip_prefix("table inet sunder_")?.parse().ok();
    let listening = listening_ports();
    let intercepts = |port: &u16| {
        // One that only serves connections under way refuses nobody.
        let rules = run("nft", &["list", "table", "inet", &format!("sunder_{port}")], "");
        rules.is_ok_and(|rules| rules.contains(&format!("redirect to :{port}")))
    };
    let ports = tables.lines().filter_map(port).filter(|port| !listening.contains(port));
    ports.filter(intercepts).collect()
}

/// The TCP ports of this host on which somebody listens.
fn listening_ports() -> HashSet<u16> {
    let sockets = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let port = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next()?, words.nth(1)?);
        let (_, port) = local.rsplit_once(':')?;
        (state == "0A").then(|| u16::from_str_radix(port, 16).ok())?
    };
    sockets.iter().flatten().flat_map(|text| text.lines().filter_map(port)).collect()
}

fn has_ipv6() -> bool {
    let disabled = fs::read_to_string("/proc/sys/net/ipv6/conf/lo/disable_ipv6");
    disabled.is_ok_and(|disabled| disabled.trim() == "0")
}

/// Runs a program, with what it is to read. Returns what it prints.
///
/// # Errors
/// When there is none, or it fails: what it says, in one line.
fn run(name: &str, arguments: &[&str], input: &str) -> io::Result<String> {
    let named = |error: io::Error| {
        let advice = match error.kind() {
            io::ErrorKind::NotFound => "; interception needs the packages nftables and iproute2",
            _ => "",
        };
        io::Error::new(error.kind(), format!("cannot run {name}: {error}{advice}"))
    };
    let found = program::find(name).ok_or(io::ErrorKind::NotFound).map_err(io::Error::from);
    let mut child = Command::new(found.map_err(named)?)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(named)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read says why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(named)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let advice = if said.contains("not permitted") { RIGHTS } else { "" };
    Err(io::Error::other(format!("{name} refuses: {}{advice}", reason(&said))))
}

/// The first of what a program says, and the rule that it is about, which nft shows below.
fn reason(said: &str) -> String {
    let mut lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("no reason given");
    match (first.split_once(": Error: "), lines.next()) {
        (Some((_place, error)), Some(rule)) => format!("{error}, in: {rule}"),
        _ => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_rule_and_not_where_it_was_read() {
        let said = "/dev/stdin:6:30-37: Error: Could not resolve service\n\
                    \t\ttcp dport nonsense redirect to :6522\n\t\t          ^^^^^^^^\n";
        let expected = "Could not resolve service, in: tcp dport nonsense redirect to :6522";
        assert_eq!(reason(said), expected);
        assert_eq!(reason("RTNETLINK answers: File exists\n"), "RTNETLINK answers: File exists");
        assert_eq!(reason(""), "no reason given");
    }

    #[test]
    fn only_comparisons_are_taken() {
        for text in [
            "tcp dport {80, 443}",
            "tcp dport 1-1023 ip daddr != 192.0.2.0/24",
            "meta skuid \"alice\" tcp dport 22",
            "ip6 daddr fd00::/8",
        ] {
            assert!(text.parse::<Matching>().is_ok(), "{text}");
        }
        for text in [
            "",
            "  ",
            "tcp dport 80 accept",
            "tcp dport 80; flush ruleset",
            "tcp dport 80\nflush ruleset",
            "tcp dport 80 } chain x {",
            "tcp dport { 80",
            "tcp dport $port",
            "tcp dport 80 # all",
        ] {
            assert_eq!(text.parse::<Matching>(), Err(MatchingError), "{text:?}");
        }
    }
}
