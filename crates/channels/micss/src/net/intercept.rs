//! Connections of applications to other hosts that the kernel hands to the client (MICSS,
//! III-B): those of this host and, if configured, those that arrive on given interfaces. If
//! configured, also datagrams.
//!
//! The rules (`rules.rs`) are one nftables table of the client, without routes or routing rules.
//! The table is installed in one transaction, which replaces the table of a client that was killed,
//! and is removed when the client stops. A connection that matches is intercepted or refused, and
//! never leaves in the clear, even if no program listens on the port, another program does, or a
//! listener is missing. After a failed start, a table remains that refuses the connections that
//! match.

mod challenge;
pub(crate) mod conntrack;
mod rules;
pub(crate) mod udp_socket;

use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tracing::{error, warn};

pub use crate::config::intercept::{
    BypassProtocol, BypassProtocolError, InterceptConfig, InterfaceName, InterfaceNameError,
    NftMatchExpression, NftMatchExpressionError,
};
use challenge::PreexistingConnections;
use conntrack::ConntrackSocket;
pub(crate) use nftables::InstalledNftTables;
use nftables::removal;
pub use rules::OWN_MARK;
use service::listening::ConfiguredListener;

/// Advice for when the kernel denies permission.
const RIGHTS: &str = "; interception needs root, or CAP_NET_ADMIN";

/// The maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 4096;

impl InterceptConfig {
    /// Whether any user of this host can listen on the port, and so prevent the client from
    /// starting.
    pub fn is_unprivileged_port(&self) -> bool {
        let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
        let first = first.ok().and_then(|first| first.trim().parse().ok()).unwrap_or(1024);
        self.port >= first
    }

    /// The rules, as input of `nft`.
    pub fn rules(&self) -> String {
        rules::in_force(self, &[])
    }

    /// Listens on all addresses of this host, IPv6 included unless the kernel has none.
    pub(crate) fn listen(&self) -> io::Result<Vec<ConfiguredListener>> {
        let named = |error: io::Error| {
            let port = self.port;
            let advice = match error.kind() {
                ErrorKind::PermissionDenied if self.is_unprivileged_port() => RIGHTS,
                ErrorKind::PermissionDenied => {
                    "; interception needs root, or CAP_NET_ADMIN and, for this port, CAP_NET_BIND_SERVICE"
                }
                _ => "",
            };
            io::Error::new(
                error.kind(),
                format!("cannot intercept at port {port}: {error}{advice}"),
            )
        };
        let v4 = self.listen_v4().map_err(named)?;
        let v6 = match TcpSocket::new_v6() {
            Ok(socket) => Some(self.listen_v6(socket).map_err(named)?),
            // The kernel was built or started without IPv6, so no such connections exist.
            Err(_) => None,
        };
        [v4].into_iter()
            .chain(v6)
            .map(|own| Ok(ConfiguredListener::new(own.local_addr()?, own)))
            .collect()
    }

    // The rules pass connections to transparent listeners only, so that no other program can
    // receive them. A transparent socket needs a privilege, as a mark does. Unlike a mark, the
    // option also applies to sockets in the handshake and in TIME_WAIT.

    fn listen_v4(&self) -> io::Result<TcpListener> {
        let socket = TcpSocket::new_v4()?;
        SockRef::from(&socket).set_ip_transparent_v4(true)?;
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv4Addr::UNSPECIFIED, self.port).into())?;
        socket.listen(BACKLOG)
    }

    fn listen_v6(&self, socket: TcpSocket) -> io::Result<TcpListener> {
        SockRef::from(&socket).set_ip_transparent_v6(true)?;
        SockRef::from(&socket).set_only_v6(true)?;
        socket.set_reuseaddr(true)?;
        socket.bind((Ipv6Addr::UNSPECIFIED, self.port).into())?;
        socket.listen(BACKLOG)
    }

    /// The original destination of a connection to the port. `None` if that is the port itself:
    /// carrying it would be a loop.
    pub(crate) fn destination(connection: &TcpStream) -> Option<SocketAddr> {
        let socket = SockRef::from(connection);
        let local = connection.local_addr().ok()?;
        // The kernel has translated the address and remembers the original one.
        let original = match local {
            SocketAddr::V4(_) => socket.original_dst_v4(),
            SocketAddr::V6(_) => socket.original_dst_v6(),
        };
        original.ok()?.as_socket().filter(|destination| *destination != local)
    }

    /// Checks whether the rules could be installed. It changes nothing.
    ///
    /// # Errors
    /// If `nft` is missing ([`ErrorKind::NotFound`]), if this process has no right to use it
    /// ([`ErrorKind::PermissionDenied`]), if the kernel would reject the rules, or if UDP is to be
    /// intercepted and the kernel does not tell where datagrams were sent. The error is one line.
    pub fn check(&self) -> io::Result<()> {
        nftables::check(&self.rules())?;
        if self.intercepts_udp() {
            ConntrackSocket::open()?;
        }
        Ok(())
    }

    /// Installs the rules, and removes those of an earlier client with the same port.
    ///
    /// # Errors
    /// If `nft` is missing or the kernel rejects the rules. Then nothing has changed.
    pub(crate) fn install(
        self,
        tables: &Arc<InstalledNftTables>,
    ) -> io::Result<InstalledInterceptRules> {
        let older = PreexistingConnections::list(self.intercepts_forwarded());
        let text = self.rules();
        let removal = format!("{}{}", removal(&self.refusing_table()), removal(&self.table()));
        tables.install(&self.table(), &format!("{removal}{text}"))?;
        older.challenge();
        let rules =
            ActiveInterceptRules { text, intercept: self, earlier: Vec::new(), is_missing: false };
        Ok(InstalledInterceptRules { tables: Arc::clone(tables), rules: Mutex::new(rules) })
    }

    /// After a failed start: makes the kernel refuse connections that match, so that they do not
    /// leave in the clear. Returns the error with the outcome.
    pub(crate) fn refuse_after(&self, error: &io::Error) -> io::Error {
        let (table, refusing) = (self.table(), self.refusing_table());
        let outcome = match self.refuse() {
            Ok(true) => format!(
                "connections that match `intercept` are refused until it starts; `nft delete table inet \
                 {refusing}` lets them go out in the clear"
            ),
            Ok(false) => format!(
                "the rules that are there (nft list table inet {table}) stay: connections that match \
                 `intercept` are carried by the proxy that runs at this port, or refused if none does"
            ),
            Err(refusal) => format!(
                "connections that match `intercept` are not intercepted, and GO OUT IN THE CLEAR unless \
                 rules from before refuse them: {refusal}"
            ),
        };
        io::Error::new(error.kind(), format!("{error}; {outcome}"))
    }

    /// Installs a table that only refuses the connections that match. Returns whether it was
    /// needed: existing rules may refuse them already.
    fn refuse(&self) -> io::Result<bool> {
        let (table, refusing) = (self.table(), self.refusing_table());
        nftables::apply(&format!("{}{}", removal(&refusing), rules::refusing(self)))?;
        let refused = |table: &str| {
            let rules = nftables::list_table(table).ok()?;
            Some(rules[rules.find(rules::FIRST_REFUSING)?..].to_owned())
        };
        let needed =
            refused(&table).is_none_or(|refused_by| Some(refused_by) != refused(&refusing));
        if !needed {
            nftables::apply(&removal(&refusing))?;
        }
        Ok(needed)
    }
}

/// Rules that are in force until this is dropped. Connections that they intercept need them until
/// their end.
pub(crate) struct InstalledInterceptRules {
    tables: Arc<InstalledNftTables>,
    rules: Mutex<ActiveInterceptRules>,
}

struct ActiveInterceptRules {
    /// The input of `nft`.
    text: String,
    intercept: InterceptConfig,
    /// Earlier rules whose connections may still be open.
    earlier: Vec<InterceptConfig>,
    /// Whether another program has removed or changed them and they could not be restored.
    is_missing: bool,
}

impl ActiveInterceptRules {
    /// These rules and all earlier ones, without duplicates, for the rules that replace them.
    fn with_those_before(&self) -> Vec<InterceptConfig> {
        let earlier = self.earlier.iter().filter(|one| **one != self.intercept);
        earlier.chain([&self.intercept]).cloned().collect()
    }

    /// Installs `text` in place of the current table, if there is one.
    fn install(&mut self, tables: &InstalledNftTables, text: String) -> io::Result<()> {
        let table = self.intercept.table();
        tables.install(&table, &format!("{}{text}", removal(&table)))?;
        self.text = text;
        self.is_missing = false;
        Ok(())
    }
}

impl InstalledInterceptRules {
    /// Replaces the rules by others for the same port, in one transaction.
    ///
    /// # Errors
    /// If the kernel rejects them. Then the old rules are still in force.
    pub(crate) fn replace(&self, others: InterceptConfig) -> io::Result<()> {
        let mut rules = self.rules();
        let earlier = rules.with_those_before();
        let text = rules::in_force(&others, &earlier);
        let older = PreexistingConnections::list(others.intercepts_forwarded());
        rules.install(&self.tables, text)?;
        older.challenge();
        (rules.intercept, rules.earlier) = (others, earlier);
        Ok(())
    }

    /// Restores the rules if another program has removed or changed them. Returns whether it had.
    ///
    /// # Errors
    /// If they cannot be restored, which is logged.
    pub(crate) fn restore(&self) -> io::Result<bool> {
        let mut rules = self.rules();
        let table = rules.intercept.table();
        if !rules.is_missing && !self.tables.is_changed(&table) {
            return Ok(false);
        }
        let text = rules.text.clone();
        let older = PreexistingConnections::list(rules.intercept.intercepts_forwarded());
        let restored = rules.install(&self.tables, text);
        older.challenge();
        match &restored {
            Ok(()) => warn!(
                table,
                "another program has removed or changed the rules of interception, which are restored: \
                 connections may have gone out IN THE CLEAR meanwhile"
            ),
            Err(error) => {
                rules.is_missing = true;
                error!(
                    table, %error,
                    "another program has removed or changed the rules of interception, and they cannot be \
                     restored: connections go out IN THE CLEAR"
                );
            }
        }
        restored.map(|()| true)
    }

    /// Intercepts no new connections, and keeps serving those already intercepted.
    pub(crate) fn retire(&self) {
        let mut rules = self.rules();
        let text = rules::retired(&rules.intercept, &rules.earlier);
        if let Err(error) = rules.install(&self.tables, text) {
            warn!(%error, "connections are still intercepted, and refused, until the last of them ends");
        }
    }

    /// The port to which connections are redirected.
    pub(crate) fn port(&self) -> u16 {
        self.rules().intercept.port
    }

    fn rules(&self) -> MutexGuard<'_, ActiveInterceptRules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InstalledInterceptRules {
    fn drop(&mut self) {
        let table = self.rules().intercept.table();
        // No stop was requested, so nothing may leave in the clear.
        if thread::panicking() {
            error!(
                "the rules stay, and connections that match them are refused: nft delete table \
                    inet {table}"
            );
            return;
        }
        if let Err(error) = self.tables.remove(&table) {
            warn!(%error, "rules are left behind");
        }
    }
}

/// The tables that clients left when they were killed or could not start. Connections that match
/// them are refused, since no program listens on their ports. Empty if tables cannot be listed.
pub fn leftover_tables() -> Vec<String> {
    let listening = listening_ports();
    let refuses = |table: &String| {
        let Some(name) = table.strip_prefix("sunder_") else { return false };
        if let Some(port) = name.strip_suffix("_refused") {
            return port.parse::<u16>().is_ok();
        }
        let Ok(port) = name.parse() else { return false };
        // A table that only serves open connections refuses none.
        let intercepts = |rules: String| rules.contains(&format!("redirect to :{port}"));
        !listening.contains(&port) && nftables::list_table(table).is_ok_and(intercepts)
    };
    nftables::list_tables().into_iter().filter(refuses).collect()
}

/// The TCP ports of this host on which a program listens.
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

/// Whether IPv6 connections of this host cannot be intercepted: the redirect leads over `lo`. If
/// another interface has IPv6 and `lo` does not, their packets are dropped.
pub fn lacks_ipv6() -> bool {
    let has_ipv6 = |name: &str| {
        let disabled = fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"));
        disabled.is_ok_and(|disabled| disabled.trim() == "0")
    };
    let interfaces = fs::read_dir("/proc/sys/net/ipv6/conf").into_iter().flatten().flatten();
    let mut names = interfaces.map(|entry| entry.file_name().to_string_lossy().into_owned());
    // These two are the settings for interfaces created later.
    let is_one = |name: &str| name != "all" && name != "default";
    !has_ipv6("lo") && names.any(|name| is_one(&name) && has_ipv6(&name))
}
