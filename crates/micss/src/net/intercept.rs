//! Connections that applications made to somebody else, and that the kernel hands to the client (paper
//! 001, III-B): those of this host and, where the configuration says so, those that come in by an interface.
//!
//! The rules (`rules.rs`) are one nftables table of the client's own, and nothing else: no route, no routing rule. It
//! is installed in one transaction, which replaces what a client that was killed has left, and removed when the
//! client stops. A connection that matches is intercepted or refused, and never goes out in the clear: not while
//! nobody listens, not while another program does, not where a listener is missing. After a start that
//! failed a table stays that refuses what matches.

mod changes;
mod nft;
mod program;
mod rules;

use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tracing::{error, warn};

pub use crate::config::intercept::{Intercept, Interface, InterfaceError, Matching, MatchingError};
pub(crate) use changes::Changes;
use nft::{RIGHTS, nft};
pub use rules::OWN_MARK;
use rules::removal;
use service::listening::Listening;

/// How many connections may wait to be accepted.
const BACKLOG: u32 = 1024;

impl Intercept {
    /// Whether any user of this host may listen on the port, and so keep the client from starting.
    pub fn is_anybodys_port(&self) -> bool {
        let first = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
        let first = first.ok().and_then(|first| first.trim().parse().ok()).unwrap_or(1024);
        self.port >= first
    }

    /// The rules, as `nft` reads them.
    pub fn rules(&self) -> String {
        rules::in_force(self, &[])
    }

    /// Listens for them, with all of this host's addresses, by IPv6 too unless the kernel has none.
    pub(crate) fn listen(&self) -> io::Result<Vec<Listening>> {
        let named = |error: io::Error| {
            let port = self.port;
            let advice = match error.kind() {
                ErrorKind::PermissionDenied if self.is_anybodys_port() => RIGHTS,
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
            // The kernel was built or started without it, so there are no such connections.
            Err(_) => None,
        };
        [v4].into_iter().chain(v6).map(|own| Ok(Listening::new(own.local_addr()?, own))).collect()
    }

    // The rules hand connections to transparent listeners only, so that nobody else can take them: that takes
    // a right, as a mark does, and unlike a mark it is still there in a handshake and in TIME_WAIT.

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

    /// Where a connection that came to the port was going. Nothing if it was going there: to carry that
    /// would be to go round in circles.
    pub(crate) fn destination(connection: &TcpStream) -> Option<SocketAddr> {
        let socket = SockRef::from(connection);
        let local = connection.local_addr().ok()?;
        // The kernel has changed the address and remembers it.
        let original = match local {
            SocketAddr::V4(_) => socket.original_dst_v4(),
            SocketAddr::V6(_) => socket.original_dst_v6(),
        };
        original.ok()?.as_socket().filter(|destination| *destination != local)
    }

    /// Whether the rules could be installed, which changes nothing.
    ///
    /// # Errors
    /// When the program for it is missing, or the kernel would refuse: what is said, in one line.
    pub fn check(&self) -> io::Result<()> {
        nft::check(&self.rules())
    }

    /// Installs the rules, in place of those that a client with the same port has left.
    ///
    /// # Errors
    /// When the program for it is missing or the kernel refuses. Nothing has changed then.
    pub(crate) fn install(self) -> io::Result<InstalledRules> {
        let removal = format!("{}{}", removal(&self.table()), removal(&self.refusing_table()));
        nft(&format!("{removal}{}", self.rules()))?;
        let rules = ActiveRules::new(self.rules(), self, Vec::new());
        Ok(InstalledRules { rules: Mutex::new(rules) })
    }

    /// After a start that failed: has connections that match refused, so that they do not go out in the
    /// clear. Returns the error with what has become of them.
    pub(crate) fn refuse_after(&self, error: &io::Error) -> io::Error {
        let (table, refusing) = (self.table(), self.refusing_table());
        let told = match self.refuse() {
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
        io::Error::new(error.kind(), format!("{error}; {told}"))
    }

    /// Has connections that match refused, by a table that does nothing else. Returns whether that was
    /// needed: rules that are there already may do so.
    fn refuse(&self) -> io::Result<bool> {
        let (table, refusing) = (self.table(), self.refusing_table());
        nft(&format!("{}{}", removal(&refusing), rules::refusing(self)))?;
        let refused = |table: &str| {
            let rules = nft::table(table).ok()?;
            Some(rules[rules.find(rules::FIRST_REFUSING)?..].to_owned())
        };
        let needed =
            refused(&table).is_none_or(|refused_by| Some(refused_by) != refused(&refusing));
        if !needed {
            nft(&removal(&refusing))?;
        }
        Ok(needed)
    }
}

/// Rules that are in force until this is dropped. Connections that were intercepted by them hold on to it.
pub(crate) struct InstalledRules {
    rules: Mutex<ActiveRules>,
}

struct ActiveRules {
    /// What `nft` has read, and what it shows of that: nothing if it does not.
    text: String,
    shown: Option<String>,
    intercept: Intercept,
    /// What was intercepted before, by connections that may still be under way.
    earlier: Vec<Intercept>,
}

impl ActiveRules {
    /// For a table that has just been installed.
    fn new(text: String, intercept: Intercept, earlier: Vec<Intercept>) -> Self {
        Self { shown: nft::table(&intercept.table()).ok(), text, intercept, earlier }
    }

    /// What other rules have to go on with: each once.
    fn with_those_before(&self) -> Vec<Intercept> {
        let earlier = self.earlier.iter().filter(|one| **one != self.intercept);
        earlier.chain([&self.intercept]).cloned().collect()
    }
}

impl InstalledRules {
    /// Has others in force, for the same port, in one transaction.
    ///
    /// # Errors
    /// When the kernel refuses. What was in force still is then.
    pub(crate) fn replace(&self, others: Intercept) -> io::Result<()> {
        let mut rules = self.rules();
        let earlier = rules.with_those_before();
        let text = rules::in_force(&others, &earlier);
        nft(&format!("{}{text}", removal(&others.table())))?;
        *rules = ActiveRules::new(text, others, earlier);
        Ok(())
    }

    /// Has them in force again if somebody has removed or changed them. Returns whether that was so.
    ///
    /// # Errors
    /// When they cannot be restored, which is logged.
    pub(crate) fn restore(&self) -> io::Result<bool> {
        let mut rules = self.rules();
        let table = rules.intercept.table();
        let found = nft::table(&table).ok();
        if found.is_some() && found == rules.shown {
            return Ok(false);
        }
        let restored = nft(&format!("{}{}", removal(&table), rules.text));
        rules.shown = nft::table(&table).ok();
        match &restored {
            Ok(()) => warn!(
                table,
                "another program has removed or changed the rules of interception, which are restored: \
                 connections may have gone out IN THE CLEAR meanwhile"
            ),
            Err(error) => error!(
                table, %error,
                "another program has removed or changed the rules of interception, and they cannot be \
                 restored: connections go out IN THE CLEAR"
            ),
        }
        restored.map(|()| true)
    }

    /// Intercepts no more connections, and leaves those alone that were.
    pub(crate) fn retire(&self) {
        let mut rules = self.rules();
        let table = rules.intercept.table();
        let text = rules::retired(&rules.intercept, &rules.earlier);
        match nft(&format!("{}{text}", removal(&table))) {
            Ok(()) => {
                rules.text = text;
                rules.shown = nft::table(&table).ok();
            }
            Err(error) => {
                warn!(%error, "connections are still intercepted, and refused, until the last of them ends");
            }
        }
    }

    /// The port that connections come to.
    pub(crate) fn port(&self) -> u16 {
        self.rules().intercept.port
    }

    fn rules(&self) -> MutexGuard<'_, ActiveRules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InstalledRules {
    fn drop(&mut self) {
        let table = self.rules().intercept.table();
        // Nobody has asked for a stop, so nothing goes out in the clear.
        if thread::panicking() {
            error!("the rules stay, and what they match is refused: nft delete table inet {table}");
            return;
        }
        if let Err(error) = nft(&removal(&table)) {
            warn!(%error, "rules are left behind");
        }
    }
}

/// The tables of clients that were killed, or could not start: connections that these match are refused, as
/// nobody listens there. None where nft cannot be asked.
pub fn left_behind() -> Vec<String> {
    let listening = listening_ports();
    let refuses = |table: &String| {
        let Some(name) = table.strip_prefix("sunder_") else { return false };
        if let Some(port) = name.strip_suffix("_refused") {
            return port.parse::<u16>().is_ok();
        }
        let Ok(port) = name.parse() else { return false };
        // One that only serves connections under way refuses nobody.
        let intercepts = |rules: String| rules.contains(&format!("redirect to :{port}"));
        !listening.contains(&port) && nft::table(table).is_ok_and(intercepts)
    };
    nft::tables().into_iter().filter(refuses).collect()
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

/// Whether this host's own connections by IPv6 cannot be intercepted: the redirect leads over `lo`.
/// If another interface has IPv6 and `lo` does not, their packets are dropped.
pub fn lacks_ipv6() -> bool {
    let has_ipv6 = |name: &str| {
        let disabled = fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"));
        disabled.is_ok_and(|disabled| disabled.trim() == "0")
    };
    let interfaces = fs::read_dir("/proc/sys/net/ipv6/conf").into_iter().flatten().flatten();
    let mut names = interfaces.map(|entry| entry.file_name().to_string_lossy().into_owned());
    // These two are settings for interfaces to come.
    let is_one = |name: &str| name != "all" && name != "default";
    !has_ipv6("lo") && names.any(|name| is_one(&name) && has_ipv6(&name))
}
